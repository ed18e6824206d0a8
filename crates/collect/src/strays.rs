//! Processes of the job that never announced themselves: started behind the capture library's back,
//! as by a static program, or with an environment that was cleared where no wrapper sees it.
//!
//! Looked for now and then among the children of known processes; one that ends between two looks
//! is not seen. One that lives may still register, and is named when it has ended or the recording does.

use std::collections::{HashMap, HashSet};

use heaptape_proc::read;
use heaptape_tape::Uncovered;

use crate::launch::texts;
use crate::namespace::Namespaces;
use crate::obstacle::{is_sandboxed, why};

/// What the earlier looks have found.
#[derive(Default)]
pub(crate) struct Strays {
    /// Seen once; may still be on its way to register.
    seen: HashMap<u32, u64>,
    /// Seen twice, with what they are named as.
    found: HashMap<(u32, u64), Uncovered>,
}

impl Strays {
    /// Looks at the children of `known`, and theirs. `is_registered` tells whether a pid has ever
    /// been recorded. One that has the arena mapped is covered, as between a vfork and its exec.
    pub(crate) fn look(
        &mut self,
        known: &[u32],
        namespaces: &Namespaces,
        is_registered: impl Fn(u32) -> bool,
        uncovered: impl FnMut(Uncovered),
    ) {
        let mut seen = HashMap::new();
        let mut queue = known.to_vec();
        let mut visited: HashSet<u32> = known.iter().copied().collect();
        while let Some(pid) = queue.pop() {
            for child in read::children(pid).unwrap_or_default() {
                if !visited.insert(child) || is_registered(child) {
                    continue;
                }
                queue.push(child);
                let Some(started) = started(child) else { continue };
                let is_covered = || namespaces.maps_arena(child) == Some(true);
                if self.found.contains_key(&(child, started)) || is_covered() {
                    continue;
                }
                if self.seen.get(&child) == Some(&started) {
                    self.found.insert((child, started), describe(child));
                } else {
                    seen.insert(child, started);
                }
            }
        }
        self.seen = seen;
        self.found.retain(|&(pid, _), _| !is_registered(pid));
        let is_gone = |&(pid, since): &(u32, u64), _: &mut Uncovered| started(pid) != Some(since);
        self.found.extract_if(is_gone).map(|(_, found)| found).for_each(uncovered);
    }

    /// At the end of the recording: those that live and were never recorded.
    pub(crate) fn rest(&mut self, is_registered: impl Fn(u32) -> bool) -> Vec<Uncovered> {
        let found = self.found.drain().filter(|((pid, _), _)| !is_registered(*pid));
        found.map(|(_, found)| found).collect()
    }
}

/// When a process started, which tells two with the same pid apart; `None` when it is gone.
fn started(pid: u32) -> Option<u64> {
    read::stat(pid).ok().filter(|stat| stat.state != 'Z').map(|stat| stat.starttime)
}

fn describe(pid: u32) -> Uncovered {
    let command = read::cmdline(pid).map(|words| texts(&words)).unwrap_or_default();
    let why = match read::exe(pid) {
        Ok(exe) => why(Some(&exe), is_sandboxed(Some(pid))),
        Err(_) => "its program can't be read".into(),
    };
    Uncovered { pid, command, why }
}
