//! The bytes of all blocks of a job, as they are charged, where nothing is drawn ahead: so that the most of them at one
//! instant is known, and not only the most of all that is charged.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// What lives in blocks of all processes that are held against the limit.
#[repr(C)]
pub struct Blocks {
    now: AtomicU64,
    most: AtomicU64,
    /// 1 where some of it may not be counted, or counted too long.
    is_vague: AtomicU32,
}

impl Blocks {
    /// Process: so many bytes more were charged, which the program is about to have.
    pub fn add(&self, bytes: u64) {
        let now = self.now.fetch_add(bytes, Ordering::SeqCst).wrapping_add(bytes);
        if self.most.load(Ordering::Relaxed) < now {
            self.most.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// Process: so many bytes less; before the budget has them. Or, collector: the process that had them is gone. There
    /// are never fewer than none: where more goes than came, the most is known no longer.
    pub fn sub(&self, bytes: u64) {
        let before = self.now.fetch_sub(bytes, Ordering::SeqCst);
        if before < bytes {
            self.blur();
            self.now.fetch_add(bytes - before, Ordering::SeqCst);
        }
    }

    /// Whether there would be more than ever with so many bytes.
    pub fn would_rise(&self, bytes: u64) -> bool {
        self.now.load(Ordering::SeqCst).saturating_add(bytes) > self.most.load(Ordering::Relaxed)
    }

    /// A process was interrupted for ever between two steps, or what it had lives on in others.
    pub fn blur(&self) {
        self.is_vague.store(1, Ordering::Relaxed);
    }

    /// The most at one instant; `None` where it is not known.
    pub fn most(&self) -> Option<u64> {
        (self.is_vague.load(Ordering::Relaxed) == 0).then(|| self.most.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_goes_and_never_came_leaves_none_and_a_most_that_nobody_knows() {
        let (now, most, is_vague) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(0));
        let blocks = Blocks { now, most, is_vague };
        blocks.add(100);
        blocks.sub(100);
        assert_eq!(blocks.most(), Some(100));
        blocks.add(30);
        blocks.sub(70);
        assert_eq!(blocks.most(), None);
        // From here on it is counted as from the begin.
        blocks.add(40);
        assert!(!blocks.would_rise(60) && blocks.would_rise(61));
    }
}
