//! Functions that somebody has patched in a process: an MPI runtime's memory hooks, UCX, or any other library that puts a
//! jump at the begin of libc's mapping functions or of this tool's wrappers, or changes the entries by which a module calls
//! them.
//!
//! A thread of its own [searches](search), one process at a time, so that nobody waits for it: each process some time
//! after its begin and then ever more seldom, since patches are made once and stay. Processes that may not be looked at,
//! and those that were too short, are not counted among those that were searched.

mod memory;
mod search;

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heaptape_ledger::Patch;

use crate::Error;
use crate::budget::Budget;
use search::Search;

/// How old a process is when it is searched first; the next time is after as many times that.
const FIRST: Duration = Duration::from_millis(100);
const TIMES: u32 = 4;
/// How often one may be searched, and the share of a processor that this may take: one part in this many.
const EVERY: (Duration, u32) = (Duration::from_millis(1), 5);

/// Who is to be searched, and when.
pub(crate) struct Patches {
    /// The name of this tool's file in the processes.
    library: OsString,
    due: Budget,
    /// By the process's place: when it is due, and how long it is to the next time after that.
    next: HashMap<usize, (Instant, Duration)>,
    searcher: Option<Searcher>,
}

/// The thread.
struct Searcher {
    /// Processes, by place and pid.
    questions: Sender<(usize, u32)>,
    /// What each search took.
    answers: Receiver<Duration>,
    is_busy: bool,
    /// Nobody waits any longer for what is being searched.
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Search>,
}

impl Patches {
    pub(crate) fn new(library: OsString) -> Patches {
        let due = Budget::new(EVERY.0, EVERY.1, Instant::now());
        Patches { library, due, next: HashMap::new(), searcher: None }
    }

    /// Has one of these processes searched, if one is due: each is known by its place and its pid.
    pub(crate) fn look(&mut self, live: impl Iterator<Item = (usize, u32)>) {
        let now = Instant::now();
        if let Some(searcher) = &mut self.searcher
            && let Ok(cost) = searcher.answers.try_recv()
        {
            self.due.spent(cost, now);
            searcher.is_busy = false;
        }
        let is_busy = self.searcher.as_ref().is_some_and(|searcher| searcher.is_busy);
        if is_busy || !self.due.is_due(now) {
            return;
        }
        for (place, pid) in live {
            let (due, wait) = self.next.entry(place).or_insert((now + FIRST, FIRST));
            if now >= *due {
                *wait *= TIMES;
                *due = now + *wait;
                return self.ask(place, pid);
            }
        }
    }

    fn ask(&mut self, place: usize, pid: u32) {
        if self.searcher.is_none() {
            // Where the user may have no more threads nothing is searched, and that is told.
            self.searcher = Searcher::start(self.library.clone()).ok();
        }
        if let Some(searcher) = &mut self.searcher {
            searcher.is_busy = searcher.questions.send((place, pid)).is_ok();
        }
    }

    /// All that was found, and in how many processes it was searched for.
    pub(crate) fn finish(self) -> (Vec<Patch>, u64) {
        let Some(Searcher { questions, is_over, thread, .. }) = self.searcher else {
            return (Vec::new(), 0);
        };
        is_over.store(true, Ordering::Relaxed);
        drop(questions);
        thread.join().map(Search::finish).unwrap_or_default()
    }
}

impl Searcher {
    fn start(library: OsString) -> Result<Searcher, Error> {
        let (questions, asked) = channel();
        let (told, answers) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = crate::thread::start(move || {
            let mut search = Search::new(library, over);
            for (place, pid) in asked {
                let started = Instant::now();
                search.look_at(place, pid);
                // Nobody asks again if nobody listens.
                let _ = told.send(started.elapsed());
            }
            search
        })?;
        Ok(Searcher { questions, answers, is_busy: false, is_over, thread })
    }
}
