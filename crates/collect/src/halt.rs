//! The end, or the halt, of a whole job: every process of it, covered or not.
//!
//! The covered ones are known; from them and from the command the others are found as descendants. All are
//! stopped first, so that none makes new ones while it is looked for them. What the programs have told is not
//! believed: who is known by that alone has to [belong](crate::belonging) to the job by the kernel's word.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use heaptape_proc::read;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::belonging::{Belonging, Name, name};
use crate::cgroup::Group;
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
    /// This process, whose children they become.
    own: u32,
    /// Children of ours from before the job, which are no part of it.
    strangers: HashSet<u32>,
    /// Whether processes of the job that lose their parent become our children.
    adopts: bool,
    belonging: Belonging,
}

/// Processes of a job that are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seeds {
    /// By the kernel, or since they were started here.
    pub(crate) certain: Vec<u32>,
    /// By what the programs have told.
    pub(crate) told: Vec<u32>,
}

impl Halting {
    /// Before the command is started. `adopts`: whether orphans of the job become our children, so that
    /// none is out of reach; who asks for its parent then finds us, and not the first process of the system.
    pub(crate) fn begin(adopts: bool, belonging: Belonging) -> Halting {
        if adopts {
            // SAFETY: sets a flag of this process.
            unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        }
        let own = std::process::id();
        let children = read::children(own).unwrap_or_default();
        Halting { own, strangers: children.into_iter().collect(), adopts, belonging }
    }

    /// Stops the job: its processes, whatever group or session they are in. `seeds` are those that are known; those of
    /// its control `group` are held meanwhile, where the kernel can do that.
    pub(crate) fn stop(&self, seeds: &Seeds, group: Option<&Group>, beat: &dyn Fn()) -> Standing {
        let mut family = Family::new(seeds, self);
        match group {
            Some(group) => group.frozen(|| family.stop(beat)),
            None => family.stop(beat),
        }
        // A process that runs on another processor takes a moment to notice. (One that is frozen would not at all.)
        let until = Instant::now() + NOTICE;
        beat();
        while family.is_any_running() && Instant::now() < until {
            std::thread::sleep(MOMENT);
            beat();
        }
        let mut names: Vec<Name> = family.known.into_keys().collect();
        names.sort_unstable();
        Standing(names)
    }

    /// Kills the job, and waits until none of it is left. `dying` is told of each process before.
    pub(crate) fn kill(&self, seeds: &Seeds, beat: &dyn Fn(), mut dying: impl FnMut(u32)) {
        let mut family = Family::new(seeds, self);
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

    /// All of a job of which these are known by what the programs have told.
    pub(crate) fn all(&self, told: &[u32]) -> Vec<u32> {
        kin(told.iter().copied().filter(|&pid| self.belonging.has(pid).is_some()).collect(), self)
    }

    /// Takes the ends of orphans that came to us, but for the `spared` ones, whose end is still asked for
    /// elsewhere.
    pub(crate) fn reap(&self, spared: &[u32]) {
        if !self.adopts {
            return;
        }
        for pid in read::children(self.own).unwrap_or_default() {
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

/// A job's processes that have been found.
struct Family<'a> {
    seeds: Vec<Name>,
    halting: &'a Halting,
    /// With a descriptor each.
    known: HashMap<Name, OwnedFd>,
}

impl<'a> Family<'a> {
    fn new(seeds: &Seeds, halting: &'a Halting) -> Family<'a> {
        let certain = seeds.certain.iter().filter_map(|&pid| name(pid));
        let told = seeds.told.iter().filter_map(|&pid| halting.belonging.has(pid));
        Family { seeds: certain.chain(told).collect(), halting, known: HashMap::new() }
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
        // Numbers are used again.
        let lives = |&&seed: &&Name| name(seed.0) == Some(seed);
        let seeds = self.seeds.iter().chain(self.known.keys()).filter(lives);
        let seeds = seeds.map(|&(pid, _)| pid).collect();
        let mut any = false;
        for pid in kin(seeds, self.halting) {
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
fn kin(mut seeds: Vec<u32>, halting: &Halting) -> Vec<u32> {
    seeds.extend(read::children(halting.own).unwrap_or_default());
    let (mut seen, mut all) = (halting.strangers.clone(), Vec::new());
    seen.insert(halting.own);
    while let Some(pid) = seeds.pop() {
        if seen.insert(pid) {
            seeds.extend(read::children(pid).unwrap_or_default());
            all.push(pid);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    /// In place of this process, whose other children are those of other tests.
    fn standing_in() -> Halting {
        let belonging = Belonging::to(None, Path::new("/nowhere/session"));
        Halting { own: 1 << 23, strangers: HashSet::new(), adopts: false, belonging }
    }

    #[test]
    fn who_is_only_told_to_be_of_the_job_lives_on() {
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        let mut bystander = sleep.spawn().unwrap();
        sleep.env(heaptape_wire::session::SESSION_VARIABLE, "/nowhere/session");
        let mut member = sleep.spawn().unwrap();
        let told = vec![bystander.id(), member.id()];
        assert_eq!(standing_in().all(&told), [member.id()]);
        let mut dying = Vec::new();
        let reaper = std::thread::spawn(move || member.wait().unwrap());
        let seeds = Seeds { told, ..Seeds::default() };
        standing_in().kill(&seeds, &|| (), |pid| dying.push(pid));
        let status = reaper.join().unwrap();
        let ended = bystander.try_wait().unwrap();
        bystander.kill().unwrap();
        bystander.wait().unwrap();
        assert_eq!((dying, ended), (vec![seeds.told[1]], None));
        assert!(!status.success());
    }

    #[test]
    fn nobody_waits_for_a_frozen_process_to_notice_that_it_is_stopped() {
        let name = format!("heaptape-halt.{}", std::process::id());
        let stand = std::env::temp_dir().join(name);
        fs::create_dir_all(&stand).unwrap();
        fs::write(stand.join("cgroup.procs"), "").unwrap();
        let freeze = stand.join("cgroup.freeze");
        fs::write(&freeze, "0").unwrap();
        let group = Group::at(2, stand.clone(), "stand".into()).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let halting = standing_in();
        let seen = RefCell::new(Vec::new());
        let beat = || seen.borrow_mut().push(fs::read_to_string(&freeze).unwrap());
        let seeds = Seeds { certain: vec![child.id()], ..Seeds::default() };
        let standing = halting.stop(&seeds, Some(&group), &beat);
        child.kill().unwrap();
        child.wait().unwrap();
        drop(group);
        let _ = fs::remove_dir_all(&stand);
        assert_eq!(standing.pids(), [child.id()]);
        let seen = seen.into_inner();
        assert_eq!((seen.first().unwrap().as_str(), seen.last().unwrap().as_str()), ("1", "0"));
    }
}
