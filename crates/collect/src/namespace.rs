//! Who a process is: what it knows of itself is its number in its own pid namespace; what the kernel
//! wants from us is its number in ours.
//!
//! The numbers come from shared memory, the rest from `/proc`, which shows processes of inner
//! namespaces with their number in each.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use heaptape_proc::read;

/// A process as it knows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Who {
    /// The inode of its pid namespace.
    pub(crate) namespace: u64,
    /// Its process id there.
    pub(crate) pid: u32,
}

/// Finds processes of other namespaces.
pub(crate) struct Namespaces {
    own: u64,
    /// The arena's path, which every covered process has mapped.
    session: PathBuf,
}

impl Namespaces {
    pub(crate) fn new(session: &Path) -> Namespaces {
        let own = read::pid_namespace(std::process::id()).unwrap_or(0);
        Namespaces { own, session: session.to_owned() }
    }

    /// A process of our namespace.
    pub(crate) fn here(&self, pid: u32) -> Who {
        Who { namespace: self.own, pid }
    }

    /// A process that we know by this number, as it knows itself.
    pub(crate) fn of(&self, pid: u32) -> Who {
        let inner = read::status(pid).ok().and_then(|status| status.nspid.last().copied());
        match (read::pid_namespace(pid), inner) {
            (Some(namespace), Some(pid)) => Who { namespace, pid },
            _ => self.here(pid),
        }
    }

    /// A process by what it has said; one that could not tell its namespace is in ours, as far as that
    /// is not plainly wrong.
    pub(crate) fn who(&self, namespace: u64, pid: u32) -> Who {
        let namespace = if namespace == 0 && !self.is_another(pid) { self.own } else { namespace };
        Who { namespace, pid }
    }

    /// Whether the process that we know by this number is another than one that is covered.
    fn is_another(&self, pid: u32) -> bool {
        read::maps(pid).is_ok_and(|maps| {
            !maps.is_empty() && !maps.iter().any(|mapping| mapping.path() == Some(&*self.session))
        })
    }

    /// Whether its number in our namespace is the one that it knows.
    pub(crate) fn is_here(&self, who: Who) -> bool {
        self.own == 0 || who.namespace == self.own
    }

    /// Its number in our namespace; `None` when it is gone. Looked for among `near` first, and never
    /// among those that are `known` as others.
    pub(crate) fn pid(&self, who: Who, near: &[u32], known: &HashSet<u32>) -> Option<u32> {
        if self.is_here(who) {
            return Some(who.pid);
        }
        let find = |pids: &[u32]| {
            pids.iter().copied().find(|pid| !known.contains(pid) && self.is_its(*pid, who))
        };
        find(near).or_else(|| find(&read::pids()))
    }

    /// Whether the process that we know by this number is the one.
    fn is_its(&self, pid: u32, who: Who) -> bool {
        let is_numbered_so = read::status(pid)
            .is_ok_and(|status| status.nspid.len() > 1 && status.nspid.last() == Some(&who.pid));
        // One that has ended has no namespace any more, and waits to be asked how.
        is_numbered_so
            && read::pid_namespace(pid)
                .is_none_or(|namespace| who.namespace == 0 || namespace == who.namespace)
    }
}
