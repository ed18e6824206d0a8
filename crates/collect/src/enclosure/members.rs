//! Who is in a job, as it was last seen: so that it can be told who was killed, when he is gone.

use std::collections::HashMap;

use heaptape_proc::read;

use crate::exit::{self, Exit};
use crate::launch::texts;

/// No more are kept: the largest jobs on a host have fewer at one time.
const MOST: usize = 4096;
const PAGE: u64 = 4096;

/// A process: its id, its command, and what was resident in it when it was last seen.
pub(super) type Who = (u32, Vec<String>, Option<u64>);

#[derive(Debug)]
struct Member {
    started: u64,
    command: Vec<String>,
    resident: Option<u64>,
}

/// The members of a job.
#[derive(Debug, Default)]
pub(super) struct Members(HashMap<u32, Member>);

impl Members {
    /// Takes in those that are there; who is gone stays as he was.
    pub(super) fn note(&mut self, pids: &[u32]) {
        for &pid in pids {
            let Ok(stat) = read::stat(pid) else { continue };
            // One that has been killed has nothing left, and no command line.
            if stat.state == 'Z' {
                continue;
            }
            let resident = read::statm(pid, PAGE).ok().map(|statm| statm.resident);
            let command = read::cmdline(pid).map(|words| texts(&words)).unwrap_or_default();
            let is_new = self.0.get(&pid).is_none_or(|member| member.started != stat.starttime);
            if is_new && self.0.len() >= MOST {
                self.0.retain(|&pid, _| !exit::has_ended(pid));
            }
            if command.is_empty() && !is_new {
                continue;
            }
            self.0.insert(pid, Member { started: stat.starttime, command, resident });
        }
    }

    /// Whom the kernel has killed, as far as that can be told: one of whom it says so, else the largest that is gone.
    pub(super) fn killed(&self, root: Option<(u32, Exit)>) -> Option<Who> {
        const KILLED: Option<i32> = Some(libc::SIGKILL);
        let was_killed = |&&pid: &&u32| {
            let is_root = root.is_some_and(|(root, exit)| root == pid && exit.signal == KILLED);
            is_root || exit::status(Some(pid), None).is_some_and(|exit| exit.signal == KILLED)
        };
        let size = |pid: &&u32| self.0[*pid].resident;
        let certain = self.0.keys().filter(was_killed).max_by_key(size);
        let gone = || self.0.keys().filter(|&&pid| exit::has_ended(pid)).max_by_key(size);
        certain.or_else(gone).map(|&pid| self.who(pid))
    }

    /// Who holds most.
    pub(super) fn largest(&self) -> Option<Who> {
        let there = self.0.iter().filter(|&(&pid, _)| !exit::has_ended(pid));
        let (&pid, _) = there.max_by_key(|(_, member)| member.resident)?;
        Some(self.who(pid))
    }

    fn who(&self, pid: u32) -> Who {
        let member = &self.0[&pid];
        (pid, member.command.clone(), member.resident)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_was_killed_is_known_when_he_is_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (own, pid) = (std::process::id(), child.id());
        let mut members = Members::default();
        // Until the shell's place is taken by the command.
        while read::cmdline(pid).map_or(true, |words| words.first().is_none_or(|w| w != "sleep")) {
            std::thread::yield_now();
        }
        members.note(&[own, pid]);
        assert_eq!(members.killed(None), None);
        assert_eq!(members.largest().map(|(pid, ..)| pid), Some(own));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        members.note(&[own, pid]);
        let (found, command, resident) = members.killed(Some((pid, status.into()))).unwrap();
        assert_eq!((found, command[0].as_str()), (pid, "sleep"));
        assert!(resident > Some(0));
    }
}
