//! The end, or the halt, of a whole job: every process of it, covered or not.
//!
//! The covered ones are known; from them and from the command the others are found as descendants. All are
//! stopped first, so that none makes new ones while it is looked for them. What loses its parent meanwhile
//! becomes a child of ours.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use heaptape_proc::read;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::exit;

/// How long processes may take to end that were killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// A round of waiting.
const MOMENT: Duration = Duration::from_millis(1);

/// Stops a job; the pids of its processes.
pub(crate) fn stop(seeds: &[u32], beat: &dyn Fn()) -> Vec<u32> {
    let mut family = Family::new(seeds);
    family.stop(beat);
    let mut pids: Vec<u32> = family.known.keys().map(|&(pid, _)| pid).collect();
    pids.sort_unstable();
    pids
}

/// Kills a job, and waits until none of it is left. `dying` is told of each process before.
pub(crate) fn kill(seeds: &[u32], beat: &dyn Fn(), mut dying: impl FnMut(u32)) {
    adopt();
    let mut family = Family::new(seeds);
    let until = Instant::now() + PATIENCE;
    let mut told = HashSet::new();
    loop {
        family.stop(beat);
        for &name in family.known.keys() {
            if told.insert(name) {
                dying(name.0);
            }
        }
        family.send(Signal::KILL);
        while !family.is_gone() && Instant::now() < until {
            beat();
            std::thread::sleep(MOMENT);
        }
        // Orphans have come to us meanwhile.
        if !family.grow() || Instant::now() >= until {
            return;
        }
    }
}

/// From here on orphaned descendants become our children.
fn adopt() {
    // SAFETY: sets a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// A process by its id and the time of its start, which no other has.
type Name = (u32, u64);

/// A job's processes that have been found.
struct Family {
    seeds: Vec<u32>,
    /// With a descriptor each.
    known: HashMap<Name, OwnedFd>,
}

impl Family {
    fn new(seeds: &[u32]) -> Family {
        Family { seeds: seeds.to_vec(), known: HashMap::new() }
    }

    /// Stops all, until there are no more.
    fn stop(&mut self, beat: &dyn Fn()) {
        /// Each finds at least one new process, so that only a job that makes them faster than we stop
        /// them needs so many.
        const ROUNDS: usize = 10_000;
        for _ in 0..ROUNDS {
            beat();
            if !self.grow() {
                return;
            }
            self.send(Signal::STOP);
        }
    }

    /// Looks for those that are not known; whether there were any.
    fn grow(&mut self) -> bool {
        let own = std::process::id();
        let mut queue = self.seeds.clone();
        queue.extend(self.known.keys().map(|&(pid, _)| pid));
        queue.extend(read::children(own).unwrap_or_default());
        let (mut seen, mut any) = (HashSet::from([own]), false);
        while let Some(pid) = queue.pop() {
            if !seen.insert(pid) {
                continue;
            }
            queue.extend(read::children(pid).unwrap_or_default());
            any |= self.learn(pid);
        }
        any
    }

    /// Takes a process in that lives; false when it is known.
    fn learn(&mut self, pid: u32) -> bool {
        let Some(name) = name(pid).filter(|_| !exit::has_ended(pid)) else { return false };
        if self.known.contains_key(&name) {
            return false;
        }
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
        let Ok(watch) = pidfd_open(raw, PidfdFlags::empty()) else { return false };
        // The descriptor is of the one that has the number now.
        if self::name(pid) != Some(name) {
            return false;
        }
        self.known.insert(name, watch);
        true
    }

    fn send(&self, signal: Signal) {
        for watch in self.known.values() {
            let _ = pidfd_send_signal(watch, signal);
        }
    }

    fn is_gone(&self) -> bool {
        self.known.keys().all(|&(pid, since)| {
            name(pid).is_none_or(|(_, started)| started != since) || exit::has_ended(pid)
        })
    }
}

fn name(pid: u32) -> Option<Name> {
    Some((pid, read::stat(pid).ok()?.starttime))
}
