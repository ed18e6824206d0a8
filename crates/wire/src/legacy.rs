//! What stays charged for processes that are gone, since forks of theirs share it: what those have released of it and the
//! collector has not given back yet.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// What heirs have released in the whole job, as far as it is still charged. It may be less that is: of blocks that several
/// heirs share, or that nobody is charged for, nothing is given back.
#[repr(C)]
pub struct Legacy {
    /// 1 while anything is charged for processes that are gone.
    is_kept: AtomicU32,
    released: AtomicU64,
    /// The most of it that was granted when more was than ever before.
    stale: AtomicU64,
}

impl Legacy {
    /// Process: it has released so many bytes that came with a fork, which its account knows by now.
    pub fn release(&self, bytes: u64) {
        // (Either this is seen here, or the collector has not looked at the account yet.)
        if self.is_kept.load(Ordering::SeqCst) != 0 {
            self.released.fetch_add(bytes, Ordering::SeqCst);
        }
    }

    /// What may be given back when the collector looks next.
    pub fn released(&self) -> u64 {
        self.released.load(Ordering::SeqCst)
    }

    /// Process: more is about to be granted than ever was, and this may be in it.
    pub fn note_stale(&self) {
        self.stale.fetch_max(self.released(), Ordering::Relaxed);
    }

    /// What of the most that was granted nobody may have held any more, at the most.
    pub fn stale(&self) -> u64 {
        self.stale.load(Ordering::Relaxed)
    }

    /// Collector: whether anything is kept, before it looks what heirs hold; what to [settle](Legacy::settle) after that.
    pub fn keep(&self, is_kept: bool) -> u64 {
        let is_kept = u32::from(is_kept);
        if self.is_kept.load(Ordering::Relaxed) != is_kept {
            self.is_kept.store(is_kept, Ordering::SeqCst);
        }
        self.released()
    }

    /// Collector: what was released before it looked is given back.
    pub fn settle(&self, released: u64) {
        if released > 0 {
            self.released.fetch_sub(released, Ordering::SeqCst);
        }
    }
}
