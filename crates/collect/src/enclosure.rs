//! The limit that the kernel holds a whole job to, or that is held by looks at its resident memory.
//!
//! Where it can be, the job has a [control group](crate::cgroup) of its own. Its hard limit lies above the limit of the
//! job, by what is no program's: page tables, the kernel's own, text, this tool's notes, and, where the limit is on
//! what was asked for, what allocators take beyond that. Between the two there are looks every few
//! milliseconds. Without a group the looks are all there is, at the processes that are known and their children.
//!
//! The kernel's limit believes nothing that programs can write.

mod members;
mod parts;

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use heaptape_ledger::{Basis, Judge, Kernel, Over, unaccounted_allowed};
use heaptape_proc::{Cgroup, read};

use crate::budget::Budget;
use crate::cgroup::Group;
use crate::count::Counting;
use crate::exit::Exit;
use crate::segments::Identity;
use members::{Members, Who};

/// How often a group is looked at, and the share of the time that may take: one part in this many.
const GROUP: (Duration, u32) = (Duration::from_millis(5), 50);
/// How often while it has not half of the limit: the kernel's limit holds meanwhile.
const FAR: Duration = Duration::from_millis(20);
/// The same of processes, of which the kernel has to walk all pages.
const PROCESSES: (Duration, u32) = (Duration::from_millis(10), 10);
/// How often it is noted who is there.
const MEMBERS_EVERY: Duration = Duration::from_millis(50);
/// How long one who is killed may take to give his memory back.
const DYING: Duration = Duration::from_millis(500);
/// What a job has beside its memory, at least.
const LEAST: u64 = 32 << 20;

/// A job's enclosure.
pub(crate) struct Enclosure {
    /// The job's limit, and what it is on.
    limit: u64,
    basis: Basis,
    group: Option<Group>,
    /// The group's hard limit.
    ceiling: u64,
    session: Option<Identity>,
    started: Instant,
    due: Budget,
    /// The begin of the last look, and what was held.
    last: Option<(Instant, u64)>,
    members: Members,
    noted: Instant,
    kernel: Kernel,
}

/// What is known of a job at a look, beside the group.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// The processes that are known.
    pub(crate) pids: &'a [u32],
    /// The command, once it has ended.
    pub(crate) root: Option<(u32, Exit)>,
    /// The most that was unaccounted in two samples on end.
    pub(crate) unaccounted: Option<u64>,
}

impl Enclosure {
    /// For a job that is about to start; `None` where none was asked for.
    pub(crate) fn begin(counting: &Counting) -> Option<Enclosure> {
        let limit =
            counting.limit.filter(|_| counting.strict || counting.basis == Basis::Resident)?;
        let ceiling = limit.saturating_add(allowance(limit, counting.basis));
        let made = Group::make(&Cgroup::read()).and_then(|group| {
            let failed = |error| format!("the cgroup's limit can't be set: {error}.");
            group.limit(ceiling).map(|()| group).map_err(failed)
        });
        let (group, missing) = match made {
            Ok(group) => (Some(group), None),
            Err(sentence) => (None, Some(sentence)),
        };
        let now = Instant::now();
        let (every, share) = if group.is_some() { GROUP } else { PROCESSES };
        Some(Enclosure {
            limit,
            basis: counting.basis,
            group,
            ceiling,
            session: None,
            started: now,
            due: Budget::new(every, share, now),
            last: None,
            members: Members::default(),
            noted: now,
            kernel: Kernel { missing, ..Kernel::default() },
        })
    }

    /// `session`: our own file, which processes have mapped.
    pub(crate) fn open(&mut self, session: Option<Identity>) {
        self.session = session;
    }

    /// By what the command enters its group.
    pub(crate) fn entrance(&self) -> Option<RawFd> {
        self.group.as_ref().map(Group::entrance)
    }

    /// The command could not enter its group: there is none.
    pub(crate) fn give_up(&mut self) {
        self.group = None;
        self.due = Budget::new(PROCESSES.0, PROCESSES.1, Instant::now());
        self.kernel.missing =
            Some("the command could not enter its cgroup: the kernel did not let it.".into());
    }

    /// The job's group.
    pub(crate) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Whether processes are to be found by their parents.
    pub(crate) fn needs_kin(&self) -> bool {
        self.group.is_none() && self.basis == Basis::Resident
    }

    /// Whether more is resident than the limit and what may be unaccounted: somebody should look at whose it is.
    pub(crate) fn is_suspect(&self) -> bool {
        let most = self.limit.saturating_add(unaccounted_allowed(self.limit));
        self.basis != Basis::Resident && self.last.is_some_and(|(_, held)| held > most)
    }

    /// Whether all that is in the group, or was known, has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.pids().is_empty())
    }

    /// Looks, if it is time to; why the job has to end, if it has to, once.
    pub(crate) fn look(&mut self, seen: Seen<'_>, is_last: bool) -> Option<Over> {
        let now = Instant::now();
        let is_held_here = self.group.is_some() || self.basis == Basis::Resident;
        // What comes after the end was decided is no news.
        let is_open = is_held_here && self.kernel.over.is_none();
        if !is_open || !(is_last || self.is_due(now)) {
            return None;
        }
        let found = self.looked(seen, now);
        let ended = Instant::now();
        self.due.spent(ended - now, ended);
        let (judge, bytes) = found?;
        let who = match judge {
            Judge::Kernel | Judge::Machine => self.killed(seen.root),
            Judge::Resident | Judge::Unaccounted => self.largest(seen.pids),
        };
        let time = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.kernel.over = Some(Over { time, judge, bytes, who });
        self.kernel.over.clone()
    }

    fn is_due(&self, now: Instant) -> bool {
        let is_far = self.last.is_none_or(|(_, held)| held < self.limit / 2);
        match self.group {
            Some(_) if is_far => self.due.is_due_with(FAR, GROUP.1, now),
            _ => self.due.is_due(now),
        }
    }

    fn looked(&mut self, seen: Seen<'_>, now: Instant) -> Option<(Judge, u64)> {
        let pids = self.pids(seen.pids);
        if self.last.is_none() || now >= self.noted {
            self.members.note(&pids);
            self.noted = now + MEMBERS_EVERY;
            self.kernel.is_left |= self.has_left(seen.pids);
        }
        let memory = self.group.as_ref().map(Group::memory).unwrap_or_default();
        let mut parts = match &self.group {
            Some(_) => parts::of_group(&memory),
            None => parts::of_processes(&pids)?,
        };
        if self.basis == Basis::Resident && parts.held() > self.limit {
            // What is this tool's is looked for only where it matters, since it takes longer.
            parts::without_ours(&mut parts, &pids, self.session, self.group.is_none());
        }
        let held = parts.held();
        self.count(held, now);
        if held >= self.kernel.most.held() {
            self.kernel.most = parts;
        }
        let unaccounted = seen.unaccounted.filter(|&bytes| bytes > unaccounted_allowed(self.limit));
        if memory.oom_kills > Some(0) {
            // It is gone now; so much there was at the last look, at least.
            let is_ours = memory.peak.is_none_or(|peak| peak >= self.ceiling - self.ceiling / 16);
            let judge = if is_ours { Judge::Kernel } else { Judge::Machine };
            Some((judge, self.kernel.most.held()))
        } else if self.basis == Basis::Resident && held > self.limit {
            Some((Judge::Resident, held))
        } else {
            let bytes = unaccounted.filter(|_| self.is_suspect())?;
            Some((Judge::Unaccounted, bytes))
        }
    }

    /// The processes of the group, or those that are known.
    fn pids(&self, known: &[u32]) -> Vec<u32> {
        self.group.as_ref().map_or_else(|| known.to_vec(), Group::pids)
    }

    /// Who holds most, now.
    fn largest(&mut self, known: &[u32]) -> Option<Who> {
        self.members.note(&self.pids(known));
        self.members.largest()
    }

    /// Whom the kernel has killed. It says so before he is gone, so there is a little waiting.
    fn killed(&self, root: Option<(u32, Exit)>) -> Option<Who> {
        let until = Instant::now() + DYING;
        loop {
            let who = self.members.killed(root);
            if who.is_some() || Instant::now() >= until {
                return who;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn count(&mut self, held: u64, now: Instant) {
        let looks = &mut self.kernel.looks;
        looks.count += 1;
        if let Some((before, last)) = self.last.replace((now, held)) {
            let age = Instant::now().duration_since(before).as_micros();
            looks.longest = looks.longest.max(u64::try_from(age).unwrap_or(u64::MAX));
            looks.grown = looks.grown.max(held.saturating_sub(last));
        }
    }

    /// Whether one of these processes is not in the group. One that is ending is in none any more; it has no memory
    /// left then, so that is looked at afterwards.
    fn has_left(&self, pids: &[u32]) -> bool {
        let Some(group) = &self.group else { return false };
        let has_memory = |pid| read::statm(pid, 1).is_ok_and(|statm| statm.resident > 0);
        pids.iter().any(|&pid| group.has(pid) == Some(false) && has_memory(pid))
    }

    /// The job is over: what the kernel says of it. The group is gone then, unless somebody is still in it.
    pub(crate) fn finish(mut self) -> Kernel {
        self.kernel.group = self.group.take().map(|group| {
            let memory = group.memory();
            heaptape_ledger::Group {
                version: group.version(),
                directory: group.directory().to_string_lossy().into_owned(),
                limit: self.ceiling,
                peak: memory.peak,
                current: memory.current,
                cache: memory.cache,
                kernel: memory.kernel,
                oom_kills: memory.oom_kills.unwrap_or(0),
            }
        });
        self.kernel
    }
}

/// How far a group's hard limit lies above the limit of the job. Of a limit on what was asked for, blocks may take
/// more room than that, by their rounding, the allocator's holes and the copies that a fork makes: twice as much.
fn allowance(limit: u64, basis: Basis) -> u64 {
    match basis {
        Basis::Resident => LEAST.saturating_add(limit / 4),
        Basis::Requested | Basis::Usable => (2 * LEAST).saturating_add(limit.saturating_mul(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_limit_lies_above_the_jobs() {
        const GIB: u64 = 1 << 30;
        assert_eq!(allowance(GIB, Basis::Resident), (256 + 32) << 20);
        assert_eq!(allowance(GIB, Basis::Requested), 2 * GIB + (64 << 20));
        assert_eq!(allowance(u64::MAX, Basis::Usable), u64::MAX);
    }
}
