//! Announced execs: a process that announced one, and then did not register again, runs a program
//! that the capture library could not get into. It is named, with the reason.

use std::path::Path;
use std::time::{Duration, Instant};

use heaptape_proc::elf::{self, Executable};
use heaptape_tape::Uncovered;
use heaptape_wire::session::{Arena, INTENTS};

/// How long a new program may take to register before it counts as uncovered.
const GRACE: Duration = Duration::from_secs(2);

/// An announcement that has been seen.
struct Open {
    pid: u32,
    file: String,
    /// New programs that had registered with this pid when the announcement was first seen.
    before: u64,
    spawned: bool,
    since: Instant,
    is_gone: bool,
    reported: bool,
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

    /// The command was started as `pid`; it has to register, too.
    pub(crate) fn expect(&mut self, pid: u32, file: &str) {
        self.expected.push(Open::new(pid, file.to_owned(), 0, true));
    }

    /// Process `pid` did not become its command after all.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.expected.retain(|open| open.pid != pid);
    }

    /// Whether a program may still be on its way to register, also one that announced itself since the
    /// last look.
    pub(crate) fn is_any_open(&self, arena: Arena) -> bool {
        let is_unseen = |(index, place): (usize, &Option<Open>)| {
            place.is_none() && arena.intent(index).pid().is_some()
        };
        self.open.iter().flatten().chain(&self.expected).any(|open| !open.reported)
            || self.open.iter().enumerate().any(is_unseen)
    }

    /// Whether a process is, or is about to be, named here.
    pub(crate) fn has_named(&self, pid: u32) -> bool {
        self.named().any(|named| named == pid)
    }

    /// Processes that are, or are about to be, named here.
    pub(crate) fn named(&self) -> impl Iterator<Item = u32> + '_ {
        self.open.iter().flatten().chain(&self.expected).map(|open| open.pid)
    }

    /// First in a round, before the arrivals are looked up: which of the announced processes are gone.
    /// What they registered is then among the arrivals.
    pub(crate) fn notice_gone(&mut self) {
        for open in self.open.iter_mut().flatten().chain(&mut self.expected) {
            open.is_gone = heaptape_proc::read::stat(open.pid).map_or(true, |s| s.state == 'Z');
        }
    }

    /// Second, after the arrivals were looked up and before they are admitted: new announcements.
    /// Whoever is among the arrivals announced before, and does not count as registered yet.
    pub(crate) fn observe(&mut self, arena: Arena, programs: impl Fn(u32) -> u64) {
        for (index, place) in self.open.iter_mut().enumerate() {
            let intent = arena.intent(index);
            match (intent.pid(), &place) {
                // Taken back by the program: the exec failed.
                (None, _) => *place = None,
                (Some(pid), Some(open)) if open.pid == pid => {}
                (Some(pid), _) => {
                    let file = text(intent.file());
                    *place = Some(Open::new(pid, file, programs(pid), intent.is_spawned()));
                }
            }
        }
    }

    /// Third, after the arrivals were admitted: which announcements are settled, and which processes
    /// are not covered.
    pub(crate) fn judge(
        &mut self,
        arena: Arena,
        programs: impl Fn(u32) -> u64,
        mut uncovered: impl FnMut(Uncovered),
    ) {
        self.expected.retain_mut(|open| !open.is_settled(programs(open.pid), &mut uncovered));
        for (index, place) in self.open.iter_mut().enumerate() {
            if let Some(open) = place
                && open.is_settled(programs(open.pid), &mut uncovered)
            {
                *place = None;
                arena.intent(index).clear();
            }
        }
    }
}

impl Open {
    fn new(pid: u32, file: String, before: u64, spawned: bool) -> Open {
        Open { pid, file, before, spawned, since: Instant::now(), is_gone: false, reported: false }
    }

    /// Whether nothing more is to be expected; reports a process that can't be covered, once.
    fn is_settled(&mut self, programs: u64, uncovered: &mut impl FnMut(Uncovered)) -> bool {
        // A spawned process may have registered before its parent could announce it.
        if programs > self.before || (self.spawned && programs > 0) {
            return true;
        }
        let is_late = self.is_gone || self.since.elapsed() > GRACE;
        if is_late && !std::mem::replace(&mut self.reported, true) {
            uncovered(self.describe());
        }
        self.is_gone
    }

    fn describe(&self) -> Uncovered {
        let command = heaptape_proc::read::cmdline(self.pid)
            .ok()
            .map(|words| words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
            .filter(|words: &Vec<String>| !words.is_empty())
            .unwrap_or_else(|| vec![self.file.clone()]);
        Uncovered { pid: self.pid, command, why: why(&self.file) }
    }
}

/// Why the capture library can't get into a file, as one phrase.
pub(crate) fn why(file: &str) -> String {
    let path = find(file);
    match path.as_deref().map(elf::kind) {
        None => "there is no such file".into(),
        Some(Err(_)) => "it can't be read".into(),
        Some(Ok(kind)) => reason(&kind, path.as_deref()),
    }
}

fn reason(kind: &Executable, path: Option<&Path>) -> String {
    use std::os::unix::fs::PermissionsExt;
    let is_setuid = path
        .and_then(|path| path.metadata().ok())
        .is_some_and(|meta| meta.permissions().mode() & 0o6000 != 0);
    if is_setuid {
        return "it is a setuid program, which ignores LD_PRELOAD".into();
    }
    crate::launch::obstacle(kind)
        .unwrap_or_else(|| "it ended, or went on, without loading the capture library".into())
}

/// A file by its name, in PATH where it has no slash.
pub(crate) fn find(file: &str) -> Option<std::path::PathBuf> {
    if file.contains('/') {
        return Some(file.into()).filter(|path: &std::path::PathBuf| path.exists());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(file)).find(|path| path.is_file())
}

fn text(bytes: impl Iterator<Item = u8>) -> String {
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}
