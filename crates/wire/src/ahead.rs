//! Bytes that are charged ahead: for a block whose size is known only once it has been resized. What turns
//! out to be too much is given back at once, and until then others may be refused what would fit.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// What is charged ahead in the whole job at this moment.
#[repr(C)]
pub struct Ahead {
    /// How often anybody has begun to.
    begun: AtomicU32,
    now: AtomicU64,
    most: AtomicU64,
}

/// A look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    begun: u32,
    now: u64,
}

impl Seen {
    /// Nothing was charged ahead when this was seen.
    pub fn is_nothing(self) -> bool {
        self.now == 0
    }
}

impl Ahead {
    /// Process: begins to charge so many bytes ahead.
    pub fn begin(&self, bytes: u64) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let now = self.now.fetch_add(bytes, Ordering::SeqCst).wrapping_add(bytes);
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    /// What was too much of them is given back; or, collector: who has begun is gone.
    pub fn end(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Process: what is to be seen again after a request was refused, if the refusal is to count.
    pub fn look(&self) -> Seen {
        // In this order: who begins between the two is counted next time.
        let begun = self.begun.load(Ordering::SeqCst);
        Seen { begun, now: self.now.load(Ordering::SeqCst) }
    }

    /// The most that was charged ahead at one moment.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}
