//! Whether a process belongs to a job, by what the kernel says of it.
//!
//! The numbers in the shared pages can be written over by any program of the job. Who is stopped or killed with it has to
//! have its pages mapped, or to have been started with its session; neither can be done to another from outside.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use heaptape_proc::read;
use heaptape_wire::session::SESSION_VARIABLE;

use crate::segments::{self, Identity};

/// A process by its id and the time of its start, which no other has.
pub(crate) type Name = (u32, u64);

/// So many that were found to belong are remembered.
const MOST: usize = 4096;

/// What a process of a job has of it.
#[derive(Clone, Debug)]
pub(crate) struct Belonging {
    /// The session's file.
    pages: Option<Identity>,
    /// How the session stands in an environment.
    variable: OsString,
    /// Those that were found to belong: one may be asked for again between an exec and its first own step.
    known: Arc<Mutex<HashMap<u32, u64>>>,
}

impl Belonging {
    /// To the job with this session.
    pub(crate) fn to(pages: Option<Identity>, session: &Path) -> Belonging {
        let mut variable = OsString::from(SESSION_VARIABLE);
        variable.push("=");
        variable.push(session);
        Belonging { pages, variable, known: Arc::default() }
    }

    /// The process with this id, if it belongs to the job.
    pub(crate) fn has(&self, pid: u32) -> Option<Name> {
        let name = name(pid)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(&pid) == Some(&name.1) {
            return Some(name);
        }
        let is_of_job = self.has_pages(pid) || self.was_started_with_session(pid);
        // Both are of the one that has the number now.
        if !is_of_job || self::name(pid) != Some(name) {
            return None;
        }
        if known.len() >= MOST {
            known.retain(|&pid, &mut since| self::name(pid) == Some((pid, since)));
        }
        known.insert(pid, name.1);
        Some(name)
    }

    /// Whether one of its threads has the session's pages: the first may have ended before the others.
    fn has_pages(&self, pid: u32) -> bool {
        let has = |thread| {
            let maps = read::maps(thread).unwrap_or_default();
            maps.iter().any(|mapping| Some(segments::identity(mapping)) == self.pages)
        };
        has(pid) || read::tasks(pid).unwrap_or_default().into_iter().any(has)
    }

    fn was_started_with_session(&self, pid: u32) -> bool {
        read::environ(pid).is_ok_and(|all| all.contains(&self.variable))
    }
}

/// The process that has an id now.
pub(crate) fn name(pid: u32) -> Option<Name> {
    Some((pid, read::stat(pid).ok()?.starttime))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::SharedArena;
    use std::process::Command;

    #[test]
    fn who_has_not_come_with_the_job_does_not_belong_to_it() {
        let arena = SharedArena::create(0).unwrap();
        let belonging = Belonging::to(arena.identity().ok(), arena.session_path());
        let mut sleep = Command::new("sleep");
        let mut stranger = sleep.arg("60").spawn().unwrap();
        let mut ours = sleep.env(SESSION_VARIABLE, arena.session_path()).spawn().unwrap();
        let found = [1, stranger.id(), ours.id(), std::process::id(), 1 << 23]
            .map(|pid| belonging.has(pid).is_some());
        for child in [&mut stranger, &mut ours] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        // This process has the pages mapped.
        assert_eq!(found, [false, false, true, true, false]);
        assert_eq!(belonging.has(ours.id()), None, "another may have its number");
    }
}
