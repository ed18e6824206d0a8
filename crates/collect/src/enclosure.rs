//! The limit that the kernel holds a whole job to, or that is held by looks at its resident memory.
//!
//! Where it can be, the job has a [control group](crate::cgroup) of its own. Its hard limit lies above the limit of the
//! job, by what is no program's: page tables, the kernel's own, text, this tool's notes, and, where the limit is on
//! what was asked for, what allocators take beyond that. Between the two there are looks every few
//! milliseconds. Without a group the looks are all there is, at the processes that are known and their children.
//!
//! They are taken by a thread of their own, which stops a job that has to end; the collector, who may have much else to do in
//! a round, is told and ends it. The kernel's limit believes nothing that programs can write.

mod looker;
mod members;
mod parts;

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use heaptape_ledger::{Basis, Kernel, Over};
use heaptape_proc::Cgroup;
use heaptape_wire::ledger::Ledger;

use crate::cgroup::{Group, NotTaken};
use crate::count::Counting;
use crate::exit::Exit;
use crate::halt::Halting;
use crate::segments::Identity;
use looker::Looker;

/// What a job has beside its memory, at least.
const LEAST: u64 = 32 << 20;

/// A round of waiting for who looks.
const MOMENT: Duration = Duration::from_millis(1);

/// A job's enclosure.
pub(crate) struct Enclosure {
    group: Option<Arc<Group>>,
    /// Whether a command that has come by itself is in it, or was.
    has_members: bool,
    basis: Basis,
    looker: Arc<Mutex<Looker>>,
    /// The thread that looks, and whether it shall end.
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

/// What is known of a job at a look, beside the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The processes that are known.
    pub(crate) pids: Vec<u32>,
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
            group.limit(ceiling).map(|()| Arc::new(group)).map_err(failed)
        });
        let (group, missing) = match made {
            Ok(group) => (Some(group), None),
            Err(sentence) => (None, Some(sentence)),
        };
        let kernel = Kernel { missing, ..Kernel::default() };
        let looker = Looker::new((limit, ceiling), counting.basis, group.clone(), kernel);
        Some(Enclosure {
            group,
            has_members: false,
            basis: counting.basis,
            looker: Arc::new(Mutex::new(looker)),
            thread: None,
            is_over: Arc::default(),
        })
    }

    /// By what the command enters its group.
    pub(crate) fn entrance(&self) -> Option<RawFd> {
        self.group.as_ref().map(|group| group.entrance())
    }

    /// The command could not enter its group: there is none.
    pub(crate) fn give_up(&mut self) {
        let sentence = "the command could not enter its cgroup: the kernel did not let it.";
        self.do_without(sentence.to_owned());
    }

    fn do_without(&mut self, why: String) {
        self.group = None;
        self.looker().give_up(why);
        if self.basis != Basis::Resident {
            // There is nothing to look at.
            self.end();
        }
    }

    /// Takes in a command that has come by itself. Where the first can't be, there is no group; where a later one
    /// can't be, it is one of the others only.
    pub(crate) fn admit(&mut self, pid: u32) {
        let Some(group) = &self.group else { return };
        match group.take_in(pid) {
            Ok(()) => self.has_members = true,
            Err(NotTaken { why, stays_in }) if self.has_members => {
                self.looker().is_of_some_only(why, stays_in);
            }
            Err(NotTaken { why, .. }) => self.do_without(why),
        }
    }

    /// Begins to look. `session`: our own file, which processes have mapped. Where there can be no thread more, looks are
    /// left to [`look`](Enclosure::look).
    pub(crate) fn watch(
        &mut self,
        session: Option<Identity>,
        ledger: Option<Ledger>,
        halting: &Halting,
    ) {
        self.looker().begin(session, ledger, halting.clone());
        if self.group.is_none() && self.basis != Basis::Resident {
            return;
        }
        let (looker, is_over) = (Arc::clone(&self.looker), Arc::clone(&self.is_over));
        let work = move || {
            while !is_over.load(Ordering::Relaxed) {
                let pause = {
                    let mut looker = lock(&looker);
                    looker.look_and_stop();
                    looker.pause()
                };
                std::thread::sleep(pause);
            }
        };
        self.thread = crate::thread::start(work).ok();
    }

    /// The job's group.
    pub(crate) fn group(&self) -> Option<&Group> {
        self.group.as_deref()
    }

    /// Whether processes are to be found by their parents.
    pub(crate) fn needs_kin(&self) -> bool {
        self.group.is_none() && self.basis == Basis::Resident
    }

    /// Whether more is resident than the limit and what may be unaccounted: somebody should look at whose it is.
    pub(crate) fn is_suspect(&self) -> bool {
        self.looker.try_lock().is_ok_and(|looker| looker.is_suspect())
    }

    /// Whether all that is in the group, or was known, has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.pids().is_empty())
    }

    /// Takes in what is known; why the job has to end, if it has to, once. Looks itself where that `is_last`, or nobody
    /// else does. While somebody looks, there is nothing new: the next round comes soon.
    pub(crate) fn look(&mut self, seen: Seen, is_last: bool, beat: &dyn Fn()) -> Option<Over> {
        let looker = if is_last { Some(self.awaited(beat)) } else { self.looker.try_lock().ok() };
        let mut looker = looker?;
        looker.tell(seen);
        if is_last || self.thread.is_none() {
            looker.look(is_last, beat);
        }
        looker.news()
    }

    /// Whether the job has gone too far, or the group does not hold all of it, by a look that is taken now.
    pub(crate) fn is_broken(&self, beat: &dyn Fn()) -> bool {
        let mut looker = self.awaited(beat);
        looker.look(true, beat);
        looker.is_broken()
    }

    /// The job is over: what the kernel says of it. The group is gone then, unless somebody is still in it.
    pub(crate) fn finish(mut self) -> Kernel {
        self.end();
        let kernel = self.looker().finish();
        self.group = None;
        kernel
    }

    fn looker(&self) -> MutexGuard<'_, Looker> {
        lock(&self.looker)
    }

    /// The same; who looks at many processes, or stops them, takes a while.
    fn awaited(&self, beat: &dyn Fn()) -> MutexGuard<'_, Looker> {
        loop {
            beat();
            match self.looker.try_lock() {
                Ok(looker) => return looker,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(MOMENT),
            }
        }
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It has nothing to tell.
        self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(looker: &Mutex<Looker>) -> MutexGuard<'_, Looker> {
    looker.lock().unwrap_or_else(PoisonError::into_inner)
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
