//! Threads that live at one time, by the kernel's count: asked whenever threads were made, or the sheets of the ledger show
//! more of them.
//!
//! A sheet is its thread's until somebody sees that the thread is gone, so of threads that come and go there are more
//! sheets than there ever were threads at one time; and a thread that never calls the allocator has none. The kernel's count
//! is of a moment; what came and went between two is not seen. Of a single process more is known where libc tells.

use std::time::{Duration, Instant};

use heaptape_proc::read;

use crate::budget::Budget;

/// How often the kernel is asked at the most, and the share of the time that this may take: one part in this many.
const EVERY: Duration = Duration::from_millis(10);
const SHARE: u32 = 50;

/// A process that runs, as far as the ledger shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Its pid, where that is known.
    pub(crate) pid: Option<u32>,
    /// Its sheets.
    pub(crate) sheets: u64,
    /// Threads that it has made.
    pub(crate) made: u64,
}

/// The count so far.
pub(crate) struct Tasks {
    due: Budget,
    most: u64,
    /// What was made by the time of the last look.
    made: u64,
}

impl Tasks {
    pub(crate) fn new() -> Tasks {
        Tasks { due: Budget::new(EVERY, SHARE, Instant::now()), most: 0, made: 0 }
    }

    /// The processes that run.
    pub(crate) fn look(&mut self, processes: impl Iterator<Item = Shown> + Clone) {
        let sum = |of: fn(&Shown) -> u64| {
            processes.clone().map(|shown| of(&shown)).fold(0, u64::saturating_add)
        };
        let (sheets, made) = (sum(|shown| shown.sheets), sum(|shown| shown.made));
        let started = Instant::now();
        if sheets <= self.most && made == self.made || !self.due.is_due(started) {
            return;
        }
        self.made = made;
        let threads = |Shown { pid, sheets, .. }: Shown| {
            let Some(pid) = pid else { return sheets };
            // One that is gone had a thread a moment ago.
            read::stat(pid).map_or(sheets.min(1), |stat| stat.threads)
        };
        self.most = self.most.max(processes.map(threads).fold(0, u64::saturating_add));
        let now = Instant::now();
        self.due.spent(now - started, now);
    }

    /// So many were there at one time.
    pub(crate) fn note(&mut self, threads: u64) {
        self.most = self.most.max(threads);
    }

    /// The most at one time.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_what_sheets_only_bound() {
        let own = read::stat(std::process::id()).unwrap().threads;
        let mut tasks = Tasks::new();
        let shown = |pid, sheets, made| Shown { pid, sheets, made };
        let id = Some(std::process::id());
        tasks.look([shown(id, 10_000, 0), shown(None, 3, 0)].into_iter());
        // The tests run in threads, too, which come and go.
        assert!(tasks.most() >= 4 && tasks.most() < own + 1000, "{}", tasks.most());
        tasks.note(20_000);
        tasks.look([shown(id, 10_000, 0)].into_iter());
        assert_eq!(tasks.most(), 20_000);
    }
}
