//! How long blocks live: by the allocations that came between their birth and their death.
//!
//! It is told of births and deaths, and looks at nothing else.

use crate::numbered::Numbered;

/// A number of blocks and their requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load {
    /// Requested bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Load {
    /// A block of `size` bytes comes to it.
    #[inline]
    pub fn add(&mut self, size: u64) {
        self.bytes = self.bytes.wrapping_add(size);
        self.blocks = self.blocks.wrapping_add(1);
    }

    /// Such a block goes.
    #[inline]
    pub fn remove(&mut self, size: u64) {
        self.bytes = self.bytes.wrapping_sub(size);
        self.blocks = self.blocks.wrapping_sub(1);
    }

    /// Takes in another.
    pub fn join(&mut self, other: Load) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.blocks = self.blocks.wrapping_add(other.blocks);
    }
}

/// Classes of age: 0, then 1 to 9, 10 to 99, and so on; the last is open.
pub const CLASSES: usize = 9;

/// The least age of a class, in allocations.
pub const fn least_age(class: usize) -> u64 {
    if class == 0 { 0 } else { 10u64.pow(class as u32 - 1) }
}

fn class_of(age: u64) -> usize {
    match age.checked_ilog10() {
        None => 0,
        Some(power) => (power as usize + 1).min(CLASSES - 1),
    }
}

/// The lives of the blocks that a process made.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// Half of the process's events.
    half: u64,
    /// The last index at which a block can be born that outlives half of them.
    last: Option<u64>,
    /// The last allocation of each thread, by its number.
    newest: Numbered<Option<u64>>,
    /// Blocks that ended, by the allocations since their own.
    pub by_age: [Load; CLASSES],
    /// Blocks that were freed before their thread's next allocation.
    pub temporary: Load,
    /// Blocks that lived for at least half of the process's events.
    pub long: Load,
    /// Blocks that were made in all.
    pub all: Load,
}

impl Lives {
    /// Those of a process that makes so many events.
    pub fn new(events: u64) -> Lives {
        let half = events.div_ceil(2);
        Lives { half, last: events.checked_sub(half), ..Lives::default() }
    }

    /// The allocation `ordinal` of `size` bytes is made by a thread in event `index`.
    #[inline]
    pub fn born(&mut self, index: u64, ordinal: u64, thread: u32, size: u64) {
        self.all.add(size);
        if self.may_outlive(index) {
            self.long.add(size);
        }
        *self.newest.at(thread) = Some(ordinal);
    }

    fn may_outlive(&self, birth: u64) -> bool {
        self.last.is_some_and(|last| birth <= last)
    }

    /// A block that was born in event `birth` ends in event `index`, `age` allocations after its own.
    #[inline]
    pub fn died(&mut self, index: u64, birth: u64, age: u64, size: u64) {
        self.by_age[class_of(age)].add(size);
        if self.may_outlive(birth) && index - birth < self.half {
            self.long.remove(size);
        }
    }

    /// Whether the allocation is still the last of its thread.
    #[inline]
    pub fn is_newest(&self, ordinal: u64, thread: u32) -> bool {
        self.newest.get(thread) == Some(&Some(ordinal))
    }

    /// Blocks that ended within nine allocations of their own.
    pub fn short(&self) -> Load {
        let mut short = self.by_age[0];
        short.join(self.by_age[1]);
        short
    }

    /// Takes in those of another process.
    pub fn join(&mut self, other: &Lives) {
        self.by_age.iter_mut().zip(other.by_age).for_each(|(load, other)| load.join(other));
        self.temporary.join(other.temporary);
        self.long.join(other.long);
        self.all.join(other.all);
    }

    /// Blocks that were still alive at the end.
    pub fn left(&self) -> Load {
        let ended = self.by_age.iter().fold(Load::default(), |mut sum, &load| {
            sum.join(load);
            sum
        });
        Load {
            bytes: self.all.bytes.wrapping_sub(ended.bytes),
            blocks: self.all.blocks.wrapping_sub(ended.blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_begin_where_they_say() {
        for class in 0..CLASSES {
            assert_eq!(class_of(least_age(class)), class);
        }
        assert_eq!((class_of(9), class_of(99), class_of(u64::MAX)), (1, 2, CLASSES - 1));
    }

    /// Ten events; blocks born at 0 to 3 die at 4 to 7, the one of 4 stays.
    #[test]
    fn a_block_that_lives_for_half_of_the_events_is_long_lived() {
        let mut lives = Lives::new(10);
        for index in 0..5 {
            lives.born(index, index, 0, 10);
        }
        for (birth, index) in [(3, 5), (0, 6), (1, 6), (2, 6)] {
            lives.died(index, birth, 4 - birth, 10);
        }
        // The blocks of 0 and 1 lived for 6 and 5 events; that of 4 until the end, which is 6 events.
        assert_eq!(lives.long, Load { bytes: 30, blocks: 3 });
        assert_eq!(lives.left(), Load { bytes: 10, blocks: 1 });
    }

    #[test]
    fn a_block_is_the_newest_until_its_thread_makes_another() {
        let mut lives = Lives::new(100);
        lives.born(0, 0, 0, 1);
        lives.born(1, 1, 7, 1);
        assert!(lives.is_newest(0, 0) && lives.is_newest(1, 7) && !lives.is_newest(0, 7));
        lives.born(2, 2, 0, 1);
        assert!(!lives.is_newest(0, 0) && lives.is_newest(1, 7));
    }
}
