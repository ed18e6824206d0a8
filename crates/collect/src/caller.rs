//! Who calls at the meeting place of a job, and how each stands with the job: who joins, itself or for the
//! process that has started it, and who waits for what comes of the limit.

use heaptape_proc::{lineage, read};

use crate::belonging::{self, Name};
use crate::meeting::{Line, Reply, Who};

/// A caller that was accepted.
pub(crate) struct Caller {
    pub(crate) line: Line,
    pub(crate) pid: u32,
    pub(crate) standing: Standing,
    /// Whether it is one of the commands that are known by their number.
    pub(crate) is_counted: bool,
    /// The process that has called, as it was then.
    pub(crate) name: Name,
}

/// How a caller stands with the job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has said nothing yet.
    New,
    /// It, or the process that has started it, has joined.
    Joined,
    /// It waits for what comes of the limit; its command is still to join.
    WaitsFirst,
    /// It waits, and its command has joined.
    Waits,
}

impl Standing {
    /// Whether nobody more joins for its sake.
    pub(crate) fn is_settled(self) -> bool {
        matches!(self, Standing::Joined | Standing::Waits)
    }
}

/// Those who wait for what comes of the limit.
pub struct Waiting(pub(crate) Vec<Line>);

impl Waiting {
    /// Tells them whether the whole job stayed within it, and all of that could be told to the user.
    pub fn tell(self, is_within: bool) {
        let reply = Reply::Within(Some(is_within));
        self.0.iter().for_each(|line| line.tell(&reply));
    }
}

impl Caller {
    /// One that has just been accepted; `None` where it has ended.
    pub(crate) fn new(line: Line, pid: u32) -> Option<Caller> {
        let name = belonging::name(pid)?;
        Some(Caller { line, pid, standing: Standing::New, is_counted: false, name })
    }

    /// The process that joins when this one asks for it; nobody where it has ended since, as another may have its
    /// number.
    pub(crate) fn of(&self, who: Who) -> Option<u32> {
        let found = match who {
            Who::Itself => Some(self.name.0),
            Who::Parent => parent_of(self.name.0),
        };
        found.filter(|_| belonging::name(self.name.0) == Some(self.name))
    }
}

/// The process that has started this one. Once that has ended, the parent is another, that takes orphans in: such a one is
/// of another session, or the first process.
fn parent_of(pid: u32) -> Option<u32> {
    let parent =
        lineage(pid).nth(1).filter(|&parent| parent > 1 && parent != std::process::id())?;
    let session = |pid| read::stat(pid).ok().map(|stat| stat.session);
    (session(pid)? == session(parent)?).then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_takes_an_orphan_in_has_not_started_it() {
        let own = std::process::id();
        let child = |program: &str, words: &[&str]| {
            Command::new(program).args(words).spawn().expect("a command of the system")
        };
        // Of this process, which collects; of one in between; of one that is in another session.
        let mut mine = child("sleep", &["60"]);
        let mut shell = child("sh", &["-c", "sleep 60; true"]);
        let mut apart = child("sh", &["-c", "setsid sleep 60; true"]);
        let first = |pid: u32| loop {
            match read::children(pid).unwrap_or_default().first() {
                Some(&child) => return child,
                None => std::thread::yield_now(),
            }
        };
        let (grandchild, stranger) = (first(shell.id()), first(apart.id()));
        while read::stat(stranger).unwrap().session == read::stat(own).unwrap().session {
            std::thread::yield_now();
        }
        let found = [own, mine.id(), grandchild, stranger, 1].map(parent_of);
        let expected = [parent_of(own), None, Some(shell.id()), None, None];
        for pid in [grandchild, stranger] {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        mine.kill().unwrap();
        for child in [&mut mine, &mut shell, &mut apart] {
            child.wait().unwrap();
        }
        assert_eq!(found, expected);
        assert_ne!(found[0], Some(1));
    }
}
