//! Knells: a lock for each process that the kernel breaks when the process goes, before it gives anything back
//! that the process had, and before anybody else can learn of the end.
//!
//! It is a robust mutex of the C library, shared between processes, that the first thread of a process takes when
//! the process begins, and keeps. Nobody ever waits for it. All that is read here is its first word, where the
//! kernel leaves its mark when that thread ends or its process becomes another program. So whoever is about to be
//! refused sees, without asking anybody, whether there may be memory of a process that has ended.

use crate::atomic::{AtomicU32, Ordering};

/// Words of a mutex, and some to spare.
const WORDS: usize = 12;
/// The kernel's mark in the first word: the owner is gone (`FUTEX_OWNER_DIED` of <linux/futex.h>).
const OWNER_DIED: u32 = 0x4000_0000;
/// The part of the word that is the owner's thread id.
const OWNER: u32 = 0x3fff_ffff;

/// The knell of one process slot. Zeroed memory is one that nobody has.
#[repr(C, align(64))]
pub struct Knell {
    mutex: [AtomicU32; WORDS],
    /// The process goes on, though the thread has ended that had the mutex.
    is_vain: AtomicU32,
}

impl Knell {
    /// Where the C library finds its mutex.
    pub fn mutex(&self) -> *mut u8 {
        self.mutex.as_ptr().cast_mut().cast()
    }

    /// Whether the mutex is this thread's.
    pub fn is_held_by(&self, thread: u32) -> bool {
        self.mutex[0].load(Ordering::Acquire) & OWNER == thread
    }

    /// Whether the process has gone, and what it had is not given back yet.
    pub fn has_rung(&self) -> bool {
        self.mutex[0].load(Ordering::SeqCst) & OWNER_DIED != 0
            && self.is_vain.load(Ordering::Relaxed) == 0
    }

    /// Process: it has rung, and nothing came of it for long.
    pub fn give_up(&self) {
        if self.has_rung() {
            self.is_vain.store(1, Ordering::Relaxed);
        }
    }

    /// Process: it has none after all. Collector: what its process had is given back.
    pub fn clear(&self) {
        self.mutex.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.is_vain.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_rings_when_the_kernel_says_so_until_somebody_gives_up() {
        let knell =
            Knell { mutex: [const { AtomicU32::new(0) }; WORDS], is_vain: AtomicU32::new(0) };
        knell.give_up();
        knell.mutex[0].store(77, Ordering::Relaxed);
        assert!(knell.is_held_by(77) && !knell.has_rung());
        knell.mutex[0].store(OWNER_DIED, Ordering::Relaxed);
        assert!(!knell.is_held_by(77) && knell.has_rung());
        knell.give_up();
        assert!(!knell.has_rung());
        knell.clear();
        knell.mutex[0].store(OWNER_DIED, Ordering::Relaxed);
        assert!(knell.has_rung());
    }
}
