//! Ages as small numbers: blocks are freed soon after their birth, or in the order of their birth.
//!
//! A code is twice the age, or twice the distance from the block that was ended before plus one,
//! whichever is smaller.

use crate::column::{delta, undelta};

/// The block that was ended before, by its number. Writer and reader start each block of events
/// with the number that its first allocation has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ages {
    expected: u64,
}

impl Ages {
    pub(crate) fn new(first: u64) -> Ages {
        Ages { expected: first }
    }

    /// The code of the block `ordinal` when `next` is the number of the next allocation.
    #[inline]
    pub(crate) fn code(&mut self, ordinal: u64, next: u64) -> u64 {
        let age = next.wrapping_sub(1).wrapping_sub(ordinal);
        let distance = delta(self.expected, ordinal);
        self.expected = ordinal.wrapping_add(1);
        if age <= distance { age << 1 } else { distance << 1 | 1 }
    }

    /// The number of the block that a code stands for.
    #[inline]
    pub(crate) fn ordinal(&mut self, code: u64, next: u64) -> u64 {
        let ordinal = match code & 1 {
            0 => next.wrapping_sub(1).wrapping_sub(code >> 1),
            _ => undelta(self.expected, code >> 1),
        };
        self.expected = ordinal.wrapping_add(1);
        ordinal
    }
}
