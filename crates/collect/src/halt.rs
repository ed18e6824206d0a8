//! The end, or the halt, of a whole job: every process of it, covered or not.
//!
//! The covered ones are known; from them and from the command the others are found as descendants. All are
//! stopped first, so that none makes new ones while it is looked for them.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use heaptape_proc::read;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::exit;

/// How long processes may take to end that were killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long processes may take to stop.
const NOTICE: Duration = Duration::from_secs(1);
/// A round of waiting.
const MOMENT: Duration = Duration::from_millis(1);

/// What is needed to reach all of a job.
#[derive(Clone, Debug)]
pub(crate) struct Halting {
    /// Children of ours from before the job, which are no part of it.
    strangers: HashSet<u32>,
    /// Whether processes of the job that lose their parent become our children.
    adopts: bool,
}

impl Halting {
    /// Before the command is started. `adopts`: whether orphans of the job become our children, so that
    /// none is out of reach; who asks for its parent then finds us, and not the first process of the system.
    pub(crate) fn begin(adopts: bool) -> Halting {
        if adopts {
            // SAFETY: sets a flag of this process.
            unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        }
        let children = read::children(std::process::id()).unwrap_or_default();
        Halting { strangers: children.into_iter().collect(), adopts }
    }

    /// Stops the job: its processes, whatever group or session they are in. `seeds` are those that are known.
    pub(crate) fn stop(&self, seeds: &[u32], beat: &dyn Fn()) -> Standing {
        let mut family = Family::new(seeds, &self.strangers);
        family.stop(beat);
        // A process that runs on another processor takes a moment to notice.
        let until = Instant::now() + NOTICE;
        while family.is_any_running() && Instant::now() < until {
            beat();
            std::thread::sleep(MOMENT);
        }
        let mut names: Vec<Name> = family.known.into_keys().collect();
        names.sort_unstable();
        Standing(names)
    }

    /// Kills the job, and waits until none of it is left. `dying` is told of each process before.
    pub(crate) fn kill(&self, seeds: &[u32], beat: &dyn Fn(), mut dying: impl FnMut(u32)) {
        let mut family = Family::new(seeds, &self.strangers);
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
            if !family.grow() || Instant::now() >= until {
                return;
            }
        }
    }

    /// All of a job of which these are known.
    pub(crate) fn all(&self, seeds: Vec<u32>) -> Vec<u32> {
        kin(seeds, &self.strangers)
    }

    /// Takes the ends of orphans that came to us, but for the `spared` ones, whose end is still asked for
    /// elsewhere.
    pub(crate) fn reap(&self, spared: &[u32]) {
        if !self.adopts {
            return;
        }
        for pid in read::children(std::process::id()).unwrap_or_default() {
            if !spared.contains(&pid) && !self.strangers.contains(&pid) && exit::has_ended(pid) {
                // SAFETY: waits for a child that has ended, and whose status nobody wants.
                unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), libc::WNOHANG) };
            }
        }
    }
}

/// Processes that were stopped.
#[derive(Default)]
pub(crate) struct Standing(Vec<Name>);

impl Standing {
    /// Their pids.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(|&(pid, _)| pid).collect()
    }

    /// The pids of those that still are.
    pub(crate) fn still(&self) -> Vec<u32> {
        let is_stopped = |&&(pid, started): &&Name| {
            read::stat(pid).is_ok_and(|stat| stat.state == 'T' && stat.starttime == started)
        };
        self.0.iter().filter(is_stopped).map(|&(pid, _)| pid).collect()
    }
}

/// A process by its id and the time of its start, which no other has.
type Name = (u32, u64);

/// A job's processes that have been found.
struct Family<'a> {
    seeds: Vec<u32>,
    /// Children of ours that are no part of it.
    strangers: &'a HashSet<u32>,
    /// With a descriptor each.
    known: HashMap<Name, OwnedFd>,
}

impl<'a> Family<'a> {
    fn new(seeds: &[u32], strangers: &'a HashSet<u32>) -> Family<'a> {
        Family { seeds: seeds.to_vec(), strangers, known: HashMap::new() }
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
        let mut seeds = self.seeds.clone();
        seeds.extend(self.known.keys().map(|&(pid, _)| pid));
        let mut any = false;
        for pid in kin(seeds, self.strangers) {
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

    fn is_any_running(&self) -> bool {
        self.known.keys().any(|&(pid, started)| {
            read::stat(pid)
                .is_ok_and(|stat| stat.starttime == started && !"TtZX".contains(stat.state))
        })
    }

    fn is_gone(&self) -> bool {
        self.known.keys().all(|&(pid, since)| {
            name(pid).is_none_or(|(_, started)| started != since) || exit::has_ended(pid)
        })
    }
}

/// These processes, our children but for the strangers, and the children of all.
fn kin(mut seeds: Vec<u32>, strangers: &HashSet<u32>) -> Vec<u32> {
    let own = std::process::id();
    seeds.extend(read::children(own).unwrap_or_default());
    let (mut seen, mut all) = (strangers.clone(), Vec::new());
    seen.insert(own);
    while let Some(pid) = seeds.pop() {
        if seen.insert(pid) {
            seeds.extend(read::children(pid).unwrap_or_default());
            all.push(pid);
        }
    }
    all
}

fn name(pid: u32) -> Option<Name> {
    Some((pid, read::stat(pid).ok()?.starttime))
}
