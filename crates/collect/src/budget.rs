//! How much of the time repeated work may take.

use std::time::{Duration, Instant};

/// Says when work is due again, so that all of it together takes no more than its share of the time.
pub(crate) struct Budget {
    /// The time from the end of one piece of work to the next, at least.
    every: Duration,
    /// The share: one part in this many.
    share: u32,
    /// When the last piece ended, and what it took.
    ended: Instant,
    cost: Duration,
}

impl Budget {
    /// Work that is due at once.
    pub(crate) fn new(every: Duration, share: u32, now: Instant) -> Budget {
        Budget { every, share, ended: now.checked_sub(every).unwrap_or(now), cost: Duration::ZERO }
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_due_with(self.every, self.share, now)
    }

    /// Whether it would be due if the next piece came so soon after the last, with this share.
    pub(crate) fn is_due_with(&self, every: Duration, share: u32, now: Instant) -> bool {
        now >= self.ended + every.max(self.cost.saturating_mul(share - 1))
    }

    /// From here on it is due so often, if that is oftener, as far as its share allows.
    pub(crate) fn hurry(&mut self, every: Duration) {
        self.every = self.every.min(every);
    }

    /// Work that took `cost` has just ended.
    pub(crate) fn spent(&mut self, cost: Duration, now: Instant) {
        (self.ended, self.cost) = (now, cost);
    }
}

/// What this thread has had of the processor so far: the cost of work, but for what others had meanwhile.
pub(crate) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn cheap_work_is_due_at_its_period() {
        let now = Instant::now();
        let mut budget = Budget::new(250 * MS, 20, now);
        assert!(budget.is_due(now));
        budget.spent(MS, now + MS);
        assert!(!budget.is_due(now + 250 * MS));
        assert!(budget.is_due(now + 251 * MS));
    }

    #[test]
    fn costly_work_waits_for_its_share() {
        let now = Instant::now();
        let mut budget = Budget::new(Duration::ZERO, 100, now);
        budget.spent(2 * MS, now + 2 * MS);
        assert!(!budget.is_due(now + 199 * MS));
        assert!(budget.is_due(now + 200 * MS));
    }

    #[test]
    fn work_that_is_always_wanted_takes_no_more_than_its_share() {
        let start = Instant::now();
        let mut budget = Budget::new(Duration::ZERO, 100, start);
        let (mut now, mut taken, mut pieces) = (start, Duration::ZERO, 0u32);
        while now - start < 10_000 * MS {
            if budget.is_due(now) {
                let cost = MS / 10 * (1 + pieces % 7);
                (now, taken, pieces) = (now + cost, taken + cost, pieces + 1);
                budget.spent(cost, now);
            }
            now += 2 * MS;
        }
        assert!(taken <= (now - start) / 100 && taken >= (now - start) / 120, "{taken:?}");
    }
}
