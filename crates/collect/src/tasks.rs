//! Threads that live at one time, by the kernel's count: asked whenever the sheets of the ledger show more of them.
//!
//! A sheet is its thread's until somebody sees that the thread is gone, so of threads that come and go there are more
//! sheets than there ever were threads at one time. The kernel's count is of a moment; what came and went between two
//! is not seen.

use std::time::{Duration, Instant};

use heaptape_proc::read;

use crate::budget::Budget;

/// How often the kernel is asked at the most, and the share of the time that this may take: one part in this many.
const EVERY: Duration = Duration::from_millis(10);
const SHARE: u32 = 50;

/// The count so far.
pub(crate) struct Tasks {
    due: Budget,
    most: u64,
}

impl Tasks {
    pub(crate) fn new() -> Tasks {
        Tasks { due: Budget::new(EVERY, SHARE, Instant::now()), most: 0 }
    }

    /// The processes that run, each by its pid, where that is known, and its sheets.
    pub(crate) fn look(&mut self, processes: impl Iterator<Item = (Option<u32>, u64)> + Clone) {
        let shown: u64 = processes.clone().map(|(_, sheets)| sheets).fold(0, u64::saturating_add);
        let started = Instant::now();
        if shown <= self.most || !self.due.is_due(started) {
            return;
        }
        let threads = |(pid, sheets): (Option<u32>, u64)| {
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
        tasks.look([(Some(std::process::id()), 10_000), (None, 3)].into_iter());
        // The tests run in threads, too, which come and go.
        assert!(tasks.most() >= 4 && tasks.most() < own + 1000, "{}", tasks.most());
        tasks.note(20_000);
        tasks.look([(Some(std::process::id()), 10_000)].into_iter());
        assert_eq!(tasks.most(), 20_000);
    }
}
