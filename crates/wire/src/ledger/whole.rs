//! Stacks that are charged whole: those of threads that were made with more than a usual one.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// Such stacks of a process at the same time; those beyond are charged as they are touched.
const MOST: usize = 192;

/// The stacks of one process. Zeroed memory has none.
#[repr(C)]
pub struct WholeStacks {
    stacks: [Stack; MOST],
}

#[repr(C)]
struct Stack {
    /// The kernel's number of the thread, as its process sees it; 0 for a free place.
    thread: AtomicU32,
    bytes: AtomicU64,
}

impl WholeStacks {
    /// In the place of a thread that is about to be made.
    const COMING: u32 = u32::MAX;

    /// Process: takes a place for a thread that is about to be made.
    pub fn claim(&self) -> Option<usize> {
        let is_claimed = |stack: &Stack| {
            let thread = &stack.thread;
            thread.load(Ordering::Relaxed) == 0
                && thread
                    .compare_exchange(0, Self::COMING, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        };
        self.stacks.iter().position(is_claimed)
    }

    /// Process: the thread was made, with a stack of so many bytes.
    pub fn set(&self, place: usize, thread: u32, bytes: u64) {
        let stack = &self.stacks[place % MOST];
        stack.bytes.store(bytes, Ordering::Relaxed);
        stack.thread.store(thread, Ordering::Release);
    }

    /// Process: it was not made.
    pub fn release(&self, place: usize) {
        self.stacks[place % MOST].thread.store(0, Ordering::Release);
    }

    /// The threads that have one, each with its bytes.
    pub fn all(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.stacks.iter().filter_map(|stack| {
            let thread = stack.thread.load(Ordering::Acquire);
            let is_made = thread != 0 && thread != Self::COMING;
            is_made.then(|| (thread, stack.bytes.load(Ordering::Relaxed)))
        })
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.all().map(|(_, bytes)| bytes).fold(0, u64::saturating_add)
    }

    /// Takes out those whose threads are gone; their bytes, which the caller gives back.
    pub fn take_gone(&self, lives: impl Fn(u32) -> bool) -> u64 {
        let mut sum = 0;
        for stack in &self.stacks {
            let thread = stack.thread.load(Ordering::Acquire);
            if thread == 0 || thread == Self::COMING || lives(thread) {
                continue;
            }
            let bytes = stack.bytes.load(Ordering::Relaxed);
            // Of two that look at once one gives them back.
            if stack.thread.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                sum = u64::saturating_add(sum, bytes);
            }
        }
        sum
    }

    /// Collector: it is another process's.
    pub(super) fn clear(&self) {
        self.stacks.iter().for_each(|stack| stack.thread.store(0, Ordering::Relaxed));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn each_stack_is_given_back_once() {
        let none = || Stack { thread: AtomicU32::new(0), bytes: AtomicU64::new(0) };
        let stacks = WholeStacks { stacks: core::array::from_fn(|_| none()) };
        let places: Vec<usize> = core::iter::from_fn(|| stacks.claim()).collect();
        assert_eq!(places.len(), MOST);
        assert_eq!((stacks.all().count(), stacks.take_gone(|_| false)), (0, 0));
        (0..3).for_each(|place| stacks.set(place, 10 + place as u32, 100 << place));
        stacks.release(3);
        assert_eq!(stacks.bytes(), 700);
        assert_eq!(stacks.take_gone(|thread| thread == 11), 500);
        assert_eq!((stacks.take_gone(|thread| thread == 11), stacks.claim()), (0, Some(0)));
        stacks.clear();
        assert_eq!(stacks.all().count(), 0);
    }
}
