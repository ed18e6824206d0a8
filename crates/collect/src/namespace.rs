//! Who a process is: what it knows of itself is its number in its own pid namespace; what the kernel
//! wants from us is its number in ours.
//!
//! The numbers come from shared memory, the rest from `/proc`, which shows processes of inner
//! namespaces with their number in each. What is not certain is not said: a process that can't be told
//! from another is neither of them, and one that was not found has not ended for that.

use std::cell::OnceCell;

use heaptape_proc::{Error, read};
use heaptape_wire::process::Proof;

/// A process as it knows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Who {
    /// The inode of its pid namespace; 0 when that is not known.
    pub(crate) namespace: u64,
    /// Its process id there; 0 when that is not known.
    pub(crate) pid: u32,
}

impl Who {
    /// Whether no other process that lives at the same time is called so.
    pub(crate) fn is_certain(self) -> bool {
        self.namespace != 0 && self.pid != 0
    }
}

/// A process that is looked for.
#[derive(Clone, Copy)]
pub(crate) struct Sought {
    pub(crate) who: Who,
    /// Where its proof lies in its memory, and what that reads.
    pub(crate) proof: Option<(u64, [u8; Proof::BYTES])>,
}

/// What a search has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is the one with this number in our namespace.
    Here(u32),
    /// It has ended, or become another program: no process is the one.
    Absent,
    /// It may be there.
    Unsure,
}

impl Found {
    pub(crate) fn pid(self) -> Option<u32> {
        if let Found::Here(pid) = self { Some(pid) } else { None }
    }
}

/// The namespace of all processes where `/proc` does not tell ours.
const NOT_TOLD: u64 = 1;

/// Finds processes of other namespaces.
pub(crate) struct Namespaces {
    own: Option<u64>,
    /// Device and inode of the arena, which every covered process has mapped.
    arena: ((u32, u32), u64),
    /// When the first of the processes began that may be covered, in ticks since the system did.
    began: u64,
    /// All processes, as of this round.
    all: OnceCell<Census>,
}

impl Namespaces {
    pub(crate) fn new(arena: ((u32, u32), u64)) -> Namespaces {
        let own = read::pid_namespace(std::process::id());
        let began = read::stat(std::process::id()).map_or(0, |stat| stat.starttime);
        Namespaces { own, arena, began, all: OnceCell::new() }
    }

    /// A process will be covered that may have begun before we did, unless it is gone by now.
    pub(crate) fn expect(&mut self, pid: u32) {
        if let Ok(stat) = read::stat(pid) {
            self.began = self.began.min(stat.starttime);
        }
    }

    /// A new round begins: what was seen of all processes holds no more.
    pub(crate) fn begin_round(&mut self) {
        self.all.take();
    }

    /// A process of our namespace.
    pub(crate) fn here(&self, pid: u32) -> Who {
        Who { namespace: self.own.unwrap_or(NOT_TOLD), pid }
    }

    /// A process that we know by this number, as it knows itself.
    pub(crate) fn of(&self, pid: u32) -> Who {
        let inner = read::status(pid).ok().and_then(|status| status.nspid.last().copied());
        match (read::pid_namespace(pid), inner) {
            (Some(namespace), Some(pid)) => Who { namespace, pid },
            _ => self.here(pid),
        }
    }

    /// A process by what it has said.
    pub(crate) fn who(&self, namespace: u64, pid: u32) -> Who {
        if self.own.is_none() { self.here(pid) } else { Who { namespace, pid } }
    }

    /// The same once it was found: then it has a namespace.
    pub(crate) fn told(&self, said: Who, found: Found) -> Who {
        match found {
            Found::Here(pid) if !said.is_certain() => self.of_inner(pid).unwrap_or(said),
            _ => said,
        }
    }

    fn of_inner(&self, pid: u32) -> Option<Who> {
        let inner = *read::status(pid).ok()?.nspid.last()?;
        Some(Who { namespace: read::pid_namespace(pid)?, pid: inner })
    }

    /// Whether a process's number in our namespace is the one that it knows.
    pub(crate) fn is_here(&self, who: Who) -> bool {
        who.is_certain() && who == self.here(who.pid)
    }

    /// Whether the process that we know by this number has our arena mapped: a covered one does until it
    /// becomes another program. `None` when that can't be told.
    pub(crate) fn maps_arena(&self, pid: u32) -> Option<bool> {
        let maps = read::maps(pid).ok().filter(|maps| !maps.is_empty())?;
        Some(maps.iter().any(|mapping| (mapping.dev, mapping.inode) == self.arena))
    }

    /// Whether a process began before any that may be covered.
    fn is_older(&self, pid: u32) -> bool {
        read::stat(pid).is_ok_and(|stat| stat.starttime < self.began)
    }

    /// Looks for a process, among `near` ones first. It is none that is older than the job: whoever bears such a number
    /// has not told it, somebody has written it over another's.
    pub(crate) fn find(&self, sought: &Sought, near: &[u32]) -> Found {
        if self.is_here(sought.who) {
            let pid = sought.who.pid;
            return if self.is_older(pid) { Found::Absent } else { Found::Here(pid) };
        }
        let is_it = |&pid: &u32| is_it(pid, sought) == Some(true) && !self.is_older(pid);
        let likely = near.iter().copied().chain([sought.who.pid]);
        if let Some(pid) = likely.into_iter().find(is_it) {
            return Found::Here(pid);
        }
        let is_old = self.all.get().is_some();
        match self.find_in(self.all.get_or_init(Census::take), sought) {
            // It may have begun since, even if that was in this very round.
            Found::Absent if is_old => self.find_in(&Census::take(), sought),
            found => found,
        }
    }

    fn find_in(&self, all: &Census, sought: &Sought) -> Found {
        let mut found = if all.is_whole { Found::Absent } else { Found::Unsure };
        for &(pid, inner) in &all.processes {
            if sought.who.pid != 0 && sought.who.pid != inner {
                continue;
            }
            match is_it(pid, sought) {
                Some(false) => {}
                _ if self.is_older(pid) => {}
                Some(true) => return Found::Here(pid),
                None => found = Found::Unsure,
            }
        }
        found
    }
}

/// Whether the process that we know by this number is the one; `None` when that can't be told.
fn is_it(pid: u32, sought: &Sought) -> Option<bool> {
    let Sought { who, proof } = sought;
    let status = match read::status(pid) {
        Ok(status) => status,
        Err(error) => return is_gone(&error).then_some(false),
    };
    let inner = *status.nspid.last()?;
    if who.pid != 0 && inner != who.pid {
        return Some(false);
    }
    if who.namespace != 0 && who.pid != 0 {
        let namespace = read::pid_namespace(pid);
        // Whoever has one number is in our own, and the one that is looked for is not.
        return match namespace {
            None if status.nspid.len() == 1 => Some(false),
            namespace => namespace.map(|namespace| namespace == who.namespace),
        };
    }
    if status.state == Some('Z') {
        // With its first thread a process does not end, but its memory can't be read by that any more.
        return status.threads.is_none_or(|threads| threads <= 1).then_some(false);
    }
    let (address, bytes) = proof.as_ref()?;
    match read::holds(pid, *address, bytes) {
        Ok(holds) => Some(holds),
        Err(error) => is_gone(&error).then_some(false),
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(error, Error::NoProcess { .. } | Error::Missing { .. })
}

/// All processes, by their number in our namespace and the one that they know.
struct Census {
    processes: Vec<(u32, u32)>,
    /// Whether none is missing.
    is_whole: bool,
}

impl Census {
    fn take() -> Census {
        let Ok(pids) = read::pids() else {
            return Census { processes: Vec::new(), is_whole: false };
        };
        let (mut processes, mut is_whole) = (Vec::with_capacity(pids.len()), true);
        for pid in pids {
            match read::status(pid) {
                Ok(status) => match status.nspid.last() {
                    Some(&inner) => processes.push((pid, inner)),
                    None => is_whole = false,
                },
                Err(error) => is_whole &= is_gone(&error),
            }
        }
        Census { processes, is_whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sought(who: Who) -> Sought {
        Sought { who, proof: None }
    }

    #[test]
    fn a_number_of_a_process_that_is_older_than_the_job_is_nobodys() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        let mut namespaces = Namespaces::new(((0, 0), 0));
        for pid in [1, std::os::unix::process::parent_id()] {
            let who = namespaces.here(pid);
            if namespaces.is_older(pid) {
                assert_eq!(namespaces.find(&sought(who), &[pid]), Found::Absent, "{pid}");
            }
        }
        for pid in [own, child.id()] {
            let who = namespaces.here(pid);
            assert_eq!(namespaces.find(&sought(who), &[]), Found::Here(pid));
        }
        // The same of those of another namespace, which are looked for among all.
        namespaces.began = u64::MAX;
        let away = namespaces.of(child.id());
        namespaces.own = Some(away.namespace ^ 1);
        assert_eq!(namespaces.find(&sought(away), &[child.id()]), Found::Absent);
        assert_eq!(namespaces.find(&sought(away), &[]), Found::Absent);
        namespaces.began = 0;
        namespaces.begin_round();
        assert_eq!(namespaces.find(&sought(away), &[]), Found::Here(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn one_that_is_gone_before_it_is_expected_makes_no_other_believed() {
        let mut namespaces = Namespaces::new(((0, 0), 0));
        let began = namespaces.began;
        namespaces.expect(1 << 23);
        assert!(began > 0 && namespaces.began == began);
        let parent = std::os::unix::process::parent_id();
        namespaces.expect(parent);
        assert_eq!(namespaces.find(&sought(namespaces.here(parent)), &[]), Found::Here(parent));
    }
}
