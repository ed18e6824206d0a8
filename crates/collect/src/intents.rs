//! Announced execs: a process that announced one, and then did not register again, runs a program
//! that the capture library could not get into. It is named, with the reason; so is one that became
//! a covered program in its turn. While the process lives it may still register, however slow the
//! system is: it is named when it has ended, or when the recording does.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use heaptape_proc::read;
use heaptape_tape::Uncovered;
use heaptape_wire::session::{Arena, How, INTENTS};

use crate::namespace::{Found, Namespaces, Sought, Who};
use crate::{exit, obstacle, refusal};

/// How long a new program may take to register before nobody waits for it any more.
const GRACE: Duration = Duration::from_secs(2);

/// An announcement that has been seen.
struct Open {
    who: Who,
    /// Its number in our namespace; none when it was not found.
    pid: Option<u32>,
    /// Whether it was gone before it could be found.
    is_absent: bool,
    /// The command, as far as it is known.
    words: Vec<String>,
    /// The program's file, if there is one.
    path: Option<PathBuf>,
    how: How,
    since: Instant,
    is_gone: bool,
    /// What it is named as, once it is overdue and unless it registers after all.
    overdue: Option<Uncovered>,
}

/// A program that the capture library did not get into.
pub(crate) enum Missed {
    /// So it seems: the process lives, and what it was before it is no more.
    Overdue(Option<u32>),
    /// The process has ended.
    Gone(Option<u32>, Uncovered),
    /// The process has become a covered program since.
    Replaced(Uncovered),
}

/// All open announcements, by their place in the arena.
pub(crate) struct Intents {
    open: Vec<Option<Open>>,
    /// Commands that we started or that joined, until they have registered.
    expected: Vec<Open>,
}

impl Intents {
    pub(crate) fn new() -> Intents {
        Intents { open: (0..INTENTS).map(|_| None).collect(), expected: Vec::new() }
    }

    /// A command was started, or has joined; it has to register, too.
    pub(crate) fn expect(&mut self, who: Who, pid: u32, command: Vec<String>) {
        let how = How { spawned: true, ..How::default() };
        self.expected.push(Open::new((who, Found::Here(pid)), command, how));
    }

    /// Process `pid` did not become its command after all.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.expected.retain(|open| open.pid != Some(pid));
    }

    /// Whether a program may still be on its way to register, also one that announced itself since the
    /// last look.
    pub(crate) fn is_any_open(&self, arena: Arena) -> bool {
        let is_unseen = |(index, place): (usize, &Option<Open>)| {
            place.is_none() && arena.intent(index).pid().is_some()
        };
        self.open.iter().flatten().chain(&self.expected).any(|open| open.overdue.is_none())
            || self.open.iter().enumerate().any(is_unseen)
    }

    /// Whether a process is, or is about to be, named here.
    pub(crate) fn has_named(&self, pid: u32) -> bool {
        self.named().any(|named| named == pid)
    }

    /// Processes that are, or are about to be, named here.
    pub(crate) fn named(&self) -> impl Iterator<Item = u32> + '_ {
        self.open.iter().flatten().chain(&self.expected).filter_map(|open| open.pid)
    }

    /// First in a round, before the arrivals are looked up: which of the announced processes are gone.
    /// What they registered is then among the arrivals.
    pub(crate) fn notice_gone(&mut self) {
        for open in self.open.iter_mut().flatten().chain(&mut self.expected) {
            open.is_gone |= open.pid.map_or(open.is_absent, exit::has_ended);
        }
    }

    /// Second: new announcements. `process` tells who has a slot of a generation, and its number in our
    /// namespace, once it is known.
    pub(crate) fn observe(
        &mut self,
        arena: Arena,
        namespaces: &Namespaces,
        process: impl Fn(u32, u32) -> Option<(Who, Option<u32>)>,
    ) {
        for (index, place) in self.open.iter_mut().enumerate() {
            let intent = arena.intent(index);
            match (intent.pid(), &place) {
                // Taken back by the program: the exec failed.
                (None, _) => *place = None,
                (Some(pid), Some(open)) if open.who.pid == pid => {}
                (Some(pid), _) => {
                    let how = intent.how();
                    let said = namespaces.who(how.namespace, pid);
                    let Some((who, found)) =
                        announced(said, process(how.slot, how.generation), namespaces)
                    else {
                        // Who announced it registers first.
                        continue;
                    };
                    let words = vec![text(intent.file())];
                    *place = Some(Open::new((who, found), words, how));
                }
            }
        }
    }

    /// Third, after the arrivals were admitted: which announcements are settled, and which processes
    /// are not covered. Those in `coming` have registered and could not be admitted yet.
    pub(crate) fn judge(
        &mut self,
        arena: Arena,
        coming: &[Who],
        programs: impl Fn(Who) -> Option<u32>,
        has_left: impl Fn(u32) -> bool,
        mut missed: impl FnMut(Missed),
    ) {
        let mut is_settled = |open: &mut Open| {
            let is_coming = coming.contains(&open.who);
            !is_coming && open.is_settled(arena, programs(open.who), &has_left, &mut missed)
        };
        self.expected.retain_mut(|open| !is_settled(open));
        for (index, place) in self.open.iter_mut().enumerate() {
            if place.as_mut().is_some_and(&mut is_settled) {
                *place = None;
                arena.intent(index).clear();
            }
        }
    }

    /// At the end of the recording: processes that live and were never covered.
    pub(crate) fn overdue(&mut self) -> Vec<Uncovered> {
        let open = self.open.iter_mut().flatten().chain(&mut self.expected);
        open.filter_map(|open| open.overdue.take()).collect()
    }
}

impl Open {
    fn new((who, found): (Who, Found), words: Vec<String>, how: How) -> Open {
        let pid = found.pid();
        // An exec leaves the working directory as it is.
        let directory = pid.and_then(|pid| heaptape_proc::read::cwd(pid).ok()).unwrap_or_default();
        let path = words.first().and_then(|file| obstacle::find(file.as_ref(), &directory));
        let (since, is_gone, overdue) = (Instant::now(), false, None);
        let is_absent = found == Found::Absent;
        Open { who, pid, is_absent, words, path, how, since, is_gone, overdue }
    }

    /// Whether nothing more is to be expected, after what the process has `last` registered with; tells
    /// of one that is not covered.
    fn is_settled(
        &mut self,
        arena: Arena,
        last: Option<u32>,
        has_left: &impl Fn(u32) -> bool,
        missed: &mut impl FnMut(Missed),
    ) -> bool {
        // A spawned process may have registered before its parent could announce it.
        if last.is_some_and(|last| last >= self.how.order || self.how.spawned) {
            // What registered may be what the announced program became.
            if let Some(why) = self.path.as_deref().and_then(obstacle::shown) {
                let (pid, command) = (self.number(), self.words.clone());
                missed(Missed::Replaced(Uncovered { pid, command, why }));
            }
            return true;
        }
        if self.is_gone {
            let uncovered = self.overdue.take().unwrap_or_else(|| self.describe(arena));
            missed(Missed::Gone(self.pid, uncovered));
        } else if self.overdue.is_none() && self.since.elapsed() > GRACE {
            // As long as it is what it was, its other threads may go on and write.
            if self.pid.is_none_or(has_left) {
                self.overdue = Some(self.describe(arena));
                missed(Missed::Overdue(self.pid));
            } else {
                self.since = Instant::now();
            }
        }
        self.is_gone
    }

    /// Its number in our namespace, or 0 where it was gone too soon.
    fn number(&self) -> u32 {
        self.pid.unwrap_or(0)
    }

    fn describe(&self, arena: Arena) -> Uncovered {
        let command = self
            .pid
            .and_then(|pid| heaptape_proc::read::cmdline(pid).ok())
            .map(|words| words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
            .filter(|words: &Vec<String>| !words.is_empty())
            .unwrap_or_else(|| self.words.clone());
        let why = refusal::told(arena, self.who).unwrap_or_else(|| {
            if self.how.unreachable {
                return "the library's file can't be reached from its root directory".into();
            }
            let is_sandboxed = self.how.sandboxed || obstacle::is_sandboxed(self.pid);
            obstacle::why(self.path.as_deref(), is_sandboxed)
        });
        Uncovered { pid: self.number(), command, why }
    }
}

/// Who it is that announced itself, or was announced by its parent, and where. `None` while the one
/// whose slot was told is not known.
fn announced(
    said: Who,
    by: Option<(Who, Option<u32>)>,
    namespaces: &Namespaces,
) -> Option<(Who, Found)> {
    let who = match (said.namespace, by) {
        (0, None) => return None,
        (0, Some((by, _))) => Who { namespace: by.namespace, ..said },
        _ => said,
    };
    let near = match by {
        Some((by, Some(pid))) if by == who && who.is_certain() => {
            return Some((who, Found::Here(pid)));
        }
        Some((_, Some(pid))) => read::children(pid).unwrap_or_default(),
        _ => Vec::new(),
    };
    Some((who, namespaces.find(&Sought { who, proof: None }, &near)))
}

fn text(bytes: impl Iterator<Item = u8>) -> String {
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}
