//! The loop: drain, merge, admit, end, sample, until the job has ended.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use heaptape_proc::{Job, read};
use heaptape_tape::{Ended, Error, Tape, Writer};
use heaptape_wire::atomic::Ordering;
use heaptape_wire::chunk::{ChunkView, FREE, Owner};
use rustix::event::{PollFd, PollFlags};

use crate::arena::{Chunk, FreeChunks, SharedArena};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::counter::Counter;
use crate::drain::Source;
use crate::exit::Exit;
use crate::inspect::Inspector;
use crate::intents::Intents;
use crate::namespace::{Namespaces, Who};
use crate::process::Process;
use crate::record::Outcome;
use crate::sample::Sampling;
use crate::signals::Signals;
use crate::sink::Sink;
use crate::strays::Strays;

/// Bytes in a round that are not worth another one at once. Programs that write less than that in the
/// time of a [rest](Recorder::rest) are then read in few large pieces, and not in many small ones.
const LITTLE: u64 = 256 << 10;
/// How often threads that have ended are looked for.
const THREADS_EVERY: Duration = Duration::from_millis(250);
/// The share of the time that this may take: one part in this many.
const THREADS_SHARE: u32 = 20;
/// How long it may be to the next such look while threads wait for chunks, and its share then: those who wait
/// in a sandbox can't sleep, and take the time of those who would end.
const THREADS_SOONER: Duration = Duration::from_millis(20);
const THREADS_SOONER_SHARE: u32 = 3;
/// Sheets of a counted job from which on threads that have ended are looked for sooner.
const MANY_SHEETS: usize = 512;
/// How often processes are looked for that have registered and were not found.
const SEARCH_EVERY: Duration = Duration::from_millis(100);
/// How often processes are looked for that did not make themselves known.
const STRAYS_EVERY: Duration = Duration::from_millis(1000);
/// How often what is known so far goes to the file, so that a killed collector leaves a tape.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// How long the point of a fork is kept for a child that has not registered: it may be one of hundreds
/// that share a processor, and without its point it would inherit what its parent has by then.
const FORK_GRACE: Duration = Duration::from_secs(60);
/// How long somebody is awaited of whom there is no trace.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long threads may wait for chunks while none is given back and none can be made.
const STUCK: Duration = Duration::from_secs(2);
/// How long those wait for an answer at the most who ask for memory of the dead.
const UNANSWERED: Duration = Duration::from_secs(3);
/// Why a tape ends before its job, when nothing is wrong: `--no-wait`, or a signal that asked for it.
const WENT_ON: &str = "processes-went-on";
/// Process slots to keep at hand: a burst of forks finds them before the next round.
const SPARE_SLOTS: usize = 128;

/// What was learnt of a command while it was still its wrapper, which may be gone before it is looked
/// at again.
#[derive(Default)]
pub(crate) struct Joined {
    pub(crate) job: Option<Job>,
    /// Its descriptor, by which the kernel tells how it ended.
    pub(crate) watch: Option<OwnedFd>,
}

/// Who is told, between two rounds, what happens.
pub(crate) trait Observer {
    /// The command has ended, and these processes of the job have not.
    fn waiting(&mut self, pids: &[u32]);

    /// A round is over.
    fn after_round(&mut self, _recorder: &mut Recorder) {}

    /// A command has come by itself, and has not begun.
    fn admits(&mut self, _pid: u32) {}

    /// Whether it is certain by now that the job does not stay within its limit.
    fn is_broken(&mut self, _recorder: &Recorder) -> bool {
        false
    }

    /// Whether there may be something to tell after any round.
    fn may_speak(&self) -> bool {
        false
    }

    /// Whether processes are left that are held and not counted.
    fn is_holding(&self) -> bool {
        false
    }
}

/// The state of a recording.
pub(crate) struct Recorder {
    pub(crate) arena: SharedArena,
    pub(crate) tape: Writer<Sink>,
    /// Where the job is counted, and nobody keeps the tape.
    pub(crate) counter: Option<Counter>,
    pub(crate) clock: Clock,
    pub(crate) intents: Intents,
    pub(crate) strays: Strays,
    pub(crate) inspector: Inspector,
    pub(crate) processes: Vec<Process>,
    /// Places in `processes` of those that run.
    pub(crate) live: Vec<usize>,
    /// Every process by its slot and generation.
    pub(crate) by_slot: HashMap<(u16, u32), usize>,
    /// When each process has last registered with a new program: its place among all registrations.
    pub(crate) programs: HashMap<Who, u32>,
    pub(crate) namespaces: Namespaces,
    /// Processes that have registered and could not be admitted in this round.
    pub(crate) coming: Vec<Who>,
    /// Commands that have joined and have not registered, by pid.
    pub(crate) joined: HashMap<u32, Joined>,
    /// Chunks that a lane reads.
    pub(crate) attached: HashSet<Chunk>,
    pub(crate) done: Vec<Chunk>,
    pub(crate) round: u64,
    pub(crate) free: FreeChunks,
    pub(crate) waited: u64,
    pub(crate) uncovered: usize,
    /// How processes ended, from those that waited for them.
    pub(crate) statuses: HashMap<Who, i32>,
    pub(crate) turned_away: u32,
    /// Since when there is no process that is known, after the command's end.
    alone: Option<Instant>,
    /// Since when there is a question of those who ask for memory of the dead.
    asked: Option<Instant>,
    /// Processes that went on unrecorded because we stood still.
    pub(crate) detached: usize,
    pub(crate) ended: Option<Ended>,
    /// The command itself, once it has ended.
    pub(crate) root: Option<(u32, Exit)>,
    pub(crate) sampling: Sampling,
    /// When a chunk was last given, or nobody waited for one.
    pub(crate) supplied: Instant,
    pub(crate) threads: Budget,
    pub(crate) next_search: Instant,
    pub(crate) next_strays: Instant,
    pub(crate) next_flush: Instant,
}

impl Recorder {
    pub(crate) fn new(
        arena: SharedArena,
        clock: Clock,
        tape: Writer<Sink>,
        inspector: Inspector,
        namespaces: Namespaces,
    ) -> Recorder {
        let now = Instant::now();
        Recorder {
            arena,
            clock,
            tape,
            counter: None,
            intents: Intents::new(),
            strays: Strays::default(),
            inspector,
            processes: Vec::new(),
            live: Vec::new(),
            by_slot: HashMap::new(),
            programs: HashMap::new(),
            namespaces,
            coming: Vec::new(),
            joined: HashMap::new(),
            attached: HashSet::new(),
            done: Vec::new(),
            round: 0,
            free: FreeChunks::default(),
            waited: 0,
            uncovered: 0,
            statuses: HashMap::new(),
            turned_away: 0,
            alone: None,
            asked: None,
            detached: 0,
            ended: None,
            root: None,
            sampling: Sampling::new(now),
            supplied: now,
            threads: Budget::new(THREADS_EVERY, THREADS_SHARE, now),
            next_search: now + SEARCH_EVERY,
            next_strays: now + STRAYS_EVERY,
            next_flush: now + FLUSH_EVERY,
        }
    }

    /// Goes on until the job has ended, or the tape has to.
    pub(crate) fn run(
        &mut self,
        child: &mut Child,
        signals: &Signals,
        no_wait: bool,
        observer: &mut dyn Observer,
    ) {
        let root = child.id();
        let mut exit = None;
        let mut told = false;
        let mut idle = 0u32;
        loop {
            if exit.is_none() {
                exit = child.try_wait().ok().flatten().map(Exit::from);
                match exit {
                    Some(_) => signals.forget(),
                    None => signals.forward(root),
                }
            } else if signals.ask_for_the_end() {
                return;
            }
            let Some(busy) = self.go_on(exit.map(|exit| (root, exit))) else { return };
            observer.after_round(self);
            if exit.is_some() {
                if self.is_over(no_wait) || self.waits_in_vain() {
                    return;
                }
                if !std::mem::replace(&mut told, true) && !self.live.is_empty() {
                    observer.waiting(&self.live_pids());
                }
            }
            idle = if busy { 0 } else { idle + 1 };
            if !busy {
                self.rest(idle);
            }
        }
    }

    /// One round; whether there was anything to do, or `None` when the tape has to end and was told to.
    pub(crate) fn go_on(&mut self, root: Option<(u32, Exit)>) -> Option<bool> {
        self.root = root;
        self.arena.arena().session().beat();
        let round = self.round(root);
        let why = match &round {
            Ok(_) => self.ended.clone().or_else(|| self.tape.sink().ended()),
            Err(error) => Some(Ended::Other(error.to_string())),
        };
        if let Some(why) = why {
            self.end(why);
            return None;
        }
        round.ok()
    }

    /// Whether there is something that the user should hear at once.
    pub(crate) fn has_news(&self) -> bool {
        self.counter.as_ref().is_some_and(|counter| counter.refusals.is_news())
    }

    /// The pids of the processes that are being recorded.
    pub(crate) fn live_pids(&self) -> Vec<u32> {
        self.live.iter().filter_map(|&i| self.processes[i].pid).collect()
    }

    pub(crate) fn is_over(&self, no_wait: bool) -> bool {
        let is_waited_for = |&place: &usize| !self.processes[place].is_lost_from_sight();
        no_wait || (!self.live.iter().any(is_waited_for) && !self.has_newcomers())
    }

    /// Whether somebody has been awaited for long, of whom there is no trace: what says so was written by a program that
    /// wrote over the shared pages.
    pub(crate) fn waits_in_vain(&mut self) -> bool {
        if self.live.iter().any(|&i| !self.processes[i].is_lost_from_sight()) {
            self.alone = None;
            return false;
        }
        if self.alone.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            return false;
        }
        let own = std::process::id();
        let has_pages = |&pid: &u32| pid != own && self.namespaces.maps_arena(pid) == Some(true);
        if read::pids().unwrap_or_default().iter().any(has_pages) {
            self.alone = None;
            return false;
        }
        self.ended.get_or_insert(Ended::Other("nobody-came".into()));
        true
    }

    /// Whether somebody may still be on the way to register.
    pub(crate) fn has_newcomers(&self) -> bool {
        let expects_child = || self.processes.iter().any(Process::awaits_child);
        self.intents.is_any_open(self.arena.arena())
            || !self.arrivals().is_empty()
            || expects_child()
    }

    /// Sleeps until something may have happened: two milliseconds, in which no program fills all the
    /// chunks that are kept at hand, or until a process ends. The processes of a counted job fill hardly any,
    /// and need nobody while they go on as they are: five milliseconds, and twenty once there was nothing to do for
    /// twenty rounds.
    pub(crate) fn rest(&self, idle: u32) {
        let milliseconds = match self.counter {
            Some(_) if idle < 20 => 5,
            Some(_) => 20,
            None if idle < 200 => 2,
            None => 4,
        };
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        let mut ends: Vec<PollFd<'_>> = self
            .live
            .iter()
            .filter_map(|&i| self.processes[i].watch.as_ref())
            .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN))
            .collect();
        let _ = rustix::event::poll(&mut ends, Some(&timeout));
    }

    /// One round: drain, merge, admit, end, sample. True when the next one should follow at once.
    pub(crate) fn round(&mut self, root: Option<(u32, Exit)>) -> Result<bool, Error> {
        self.round += 1;
        self.namespaces.begin_round();
        // Seen before draining: all that an arrival's parent wrote before is then merged first.
        self.intents.notice_gone();
        let arrivals = self.arrivals();
        self.observe_intents();
        let seen = self.drain()?;
        let crowded = self.count();
        self.part_with_replaced()?;
        let question = self.arena.ledger().and_then(|ledger| ledger.header().question());
        let changed = self.admit(&arrivals)? | self.reap(root)?;
        match question {
            Some(question) => self.answer(question),
            None => self.asked = None,
        }
        self.supply();
        self.judge_intents()?;
        self.take_in_gaps()?;
        let now = Instant::now();
        self.sample(now)?;
        let (every, share) = match self.waited {
            // Of many short threads sheets are soon all taken.
            0 if self.arena.sheets() < MANY_SHEETS => (THREADS_EVERY, THREADS_SHARE),
            _ => (THREADS_SOONER, THREADS_SOONER_SHARE),
        };
        if self.threads.is_due_with(every, share, now) {
            self.close_threads();
            let ended = Instant::now();
            self.threads.spent(ended - now, ended);
        }
        if now >= self.next_search {
            self.search();
            self.next_search = now + SEARCH_EVERY;
        }
        if now >= self.next_strays {
            self.look_for_strays()?;
            self.next_strays = now + STRAYS_EVERY;
        }
        if now >= self.next_flush {
            self.flush()?;
            self.next_flush = now + FLUSH_EVERY;
        }
        Ok(seen >= LITTLE || changed || crowded)
    }

    /// Tells those who ask for memory of the dead that they have been given what there is.
    fn answer(&mut self, question: u32) {
        // One that is gone keeps what it had until it is known how it ended, one that is another program now
        // until that is let in.
        let keeps = |&place: &usize| self.processes[place].gone.is_some();
        let is_known = !self.live.iter().any(keeps) && self.arrivals().is_empty();
        // Somebody who never comes in is one whom a program has written over the shared pages.
        let is_late = self.asked.get_or_insert_with(Instant::now).elapsed() > UNANSWERED;
        if is_known || is_late {
            self.asked = None;
            self.find_stacks();
            let sheets = self.arena.sheets();
            self.counter.iter_mut().for_each(|counter| counter.find_at_once(sheets));
            self.count();
            self.arena.ledger().into_iter().for_each(|ledger| ledger.header().settle(question));
        }
    }

    /// Two looks at what was published, then a merge of what the first has seen; the bytes that are
    /// new.
    pub(crate) fn drain(&mut self) -> Result<u64, Error> {
        let mut seen = self.look();
        let mut pending = false;
        for &i in &self.live {
            self.processes[i].settle();
            pending |= self.processes[i].has_pending();
        }
        if pending {
            seen += self.look();
            for &i in &self.live {
                let source = &mut Source::new(&self.arena, &mut self.done);
                self.processes[i].merge(&mut self.tape, source, false)?;
                self.statuses.extend(self.processes[i].take_statuses());
            }
            self.forget_done();
        }
        Ok(seen)
    }

    /// Finds new chunks, and how far all threads have come; the bytes that are new.
    pub(crate) fn look(&mut self) -> u64 {
        let mut found = Vec::new();
        self.free = FreeChunks::default();
        for (chunk, word) in self.arena.owners() {
            match (word, chunk) {
                (FREE, Chunk::Large(_)) => self.free.large += 1,
                (FREE, Chunk::Small(_)) => self.free.small += 1,
                _ if self.attached.contains(&chunk) => {}
                _ => found.extend(self.describe(chunk, word)),
            }
        }
        found.sort_by_key(|(_, _, _, view)| (view.depth, view.first));
        for (place, owner, chunk, view) in found {
            if self.processes[place].attach(owner, chunk, &view) {
                self.attached.insert(chunk);
            }
        }
        let mut seen = 0;
        for &i in &self.live {
            let source = &mut Source::new(&self.arena, &mut self.done);
            seen += self.processes[i].look(source);
        }
        self.forget_done();
        seen
    }

    /// Whose a claimed chunk is, once its thread has opened it and its process is known.
    pub(crate) fn describe(
        &self,
        chunk: Chunk,
        word: u64,
    ) -> Option<(usize, Owner, Chunk, ChunkView)> {
        let owner = Owner::from_word(word)?;
        let place = *self.by_slot.get(&(owner.slot, owner.generation))?;
        let view = self.arena.header(chunk).view(SharedArena::capacity(chunk))?;
        self.processes[place].ended.is_none().then_some((place, owner, chunk, view))
    }

    /// What was given back is free, and nobody's.
    pub(crate) fn forget_done(&mut self) {
        if !self.done.is_empty() {
            self.supplied = Instant::now();
        }
        for chunk in self.done.drain(..) {
            self.attached.remove(&chunk);
            match chunk {
                Chunk::Large(_) => self.free.large += 1,
                Chunk::Small(_) => self.free.small += 1,
            }
        }
    }

    /// Keeps chunks and slots at hand.
    pub(crate) fn supply(&mut self) {
        let session = self.arena.arena().session();
        self.waited = u64::from(session.waiting.load(Ordering::Relaxed));
        let starved = self.waited > 0 && self.free.total() == 0;
        let spinning = session.spinning.load(Ordering::Relaxed) > 0;
        let waiting = self.waited as usize;
        if self.arena.replenish(self.free, waiting, starved, spinning) || !starved {
            self.supplied = Instant::now();
        }
        // As many threads as there can be chunks, no memory for more, or somebody scribbled over the
        // streams: those who wait would do so for ever.
        if self.supplied.elapsed() > STUCK {
            let why = if self.arena.is_full() { "shared-memory-full" } else { "no-chunks-left" };
            self.ended.get_or_insert(Ended::Other(why.into()));
        }
        // Not by how many are taken: who writes over them makes others of them.
        if self.arena.free_slots() < SPARE_SLOTS {
            self.arena.offer_slots(2 * SPARE_SLOTS);
        }
        self.arena.restate();
    }

    /// Looks at new announcements of execs.
    fn observe_intents(&mut self) {
        let (by_slot, processes) = (&self.by_slot, &self.processes);
        self.intents.observe(self.arena.arena(), &self.namespaces, |slot, generation| {
            let process = &processes[*by_slot.get(&(u16::try_from(slot).ok()?, generation))?];
            Some((process.who, process.pid))
        });
    }

    /// Looks again for processes that have registered and were not found.
    pub(crate) fn search(&mut self) {
        for &place in &self.live {
            if self.processes[place].is_unplaced() {
                self.processes[place].place(&self.namespaces);
            }
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        for place in 0..self.processes.len() {
            let points = self.processes[place].stale_forks(FORK_GRACE);
            self.drop_points(points)?;
        }
        self.tape.flush()
    }

    /// Ends the recording before the job has ended; the job goes on.
    pub(crate) fn end(&mut self, why: Ended) {
        self.arena.arena().session().end();
        self.ended.get_or_insert(why);
    }

    /// Ends the rows of all processes, and whatever else is open.
    pub(crate) fn conclude(&mut self) {
        let root = self.root;
        if let Some(counter) = &mut self.counter {
            counter.is_closing = true;
        }
        self.namespaces.begin_round();
        self.search();
        match self.finish_all(root) {
            Ok(false) => {}
            Ok(true) => drop(self.ended.get_or_insert(Ended::Other(WENT_ON.into()))),
            Err(error) => drop(self.ended.get_or_insert(Ended::Other(error.to_string()))),
        }
        self.arena.arena().session().end();
        if let Err(error) = self.name_overdue().and_then(|()| self.finish_gaps()) {
            self.ended.get_or_insert(Ended::Other(error.to_string()));
        }
        if self.detached > 0 {
            self.ended.get_or_insert(Ended::Other("heaptape-stood-still".into()));
        }
    }

    /// Ends the tape.
    pub(crate) fn finish(mut self, path: PathBuf) -> Outcome {
        self.conclude();
        let (events, order_faults) = self.tape.counts();
        let lost = self.processes.iter().map(Process::lost).fold(0, u64::saturating_add);
        let ended = self.ended.clone();
        let (bytes, failed) = match self.tape.finish(ended.clone()) {
            Ok(sink) => sink.close(),
            Err(error) => (0, Some(Ended::Other(error.to_string()))),
        };
        let ended = ended.or(failed);
        // What did not fit any more was counted, but is not on the tape.
        let (events, lost, order_faults) = match ended.as_ref().map(|_| Tape::open(&path)) {
            Some(Ok(tape)) => {
                let summary = tape.summary();
                (summary.events, summary.lost, summary.order_faults)
            }
            _ => (events, lost, order_faults),
        };
        Outcome {
            path,
            exit: Exit::default(),
            ended,
            events,
            lost,
            order_faults,
            bytes,
            processes: self.processes.len(),
            uncovered: self.uncovered,
        }
    }
}
