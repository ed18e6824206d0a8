//! Heap calls as nearly all of them are written: releases, and allocations whose sizes fit in their words.
//!
//! [`Plain::decode`] reads these in a few instructions, without a branch on what they are; all other records are
//! for [`Record::decode`](crate::event::Record::decode), which says the same of these.

use crate::event::{CALLER_MASK, Call, SIZE_LIMIT, STAMPED};

/// A release, or an allocation that is not [wide](crate::event::Allocation::is_wide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The function that was called.
    pub call: Call,
    /// The new block (0: the call failed), or the released one.
    pub address: u64,
    /// The return address of the call; 0 when unknown.
    pub caller: u64,
    /// The requested size in bytes; 0 of a release.
    pub size: u64,
    /// Usable less requested size in bytes; of a release anything.
    pub slack: u64,
    /// The alignment that was asked for in bytes; 0 for none, and of a release.
    pub align: u64,
    /// The order stamp, where it has one.
    pub stamp: Option<u64>,
}

/// What the first byte of a record tells.
#[derive(Clone, Copy)]
struct Shape {
    call: Call,
    /// Words of the record; 0 if it is not plain.
    words: u8,
    allocates: bool,
}

static SHAPES: [Shape; 256] = {
    let mut all = [Shape { call: Call::Malloc, words: 0, allocates: false }; 256];
    let mut code = 1;
    while let Some(call) = Call::from_code(code) {
        if !call.is_reallocation() {
            let allocates = !call.is_release();
            let words = 2 + allocates as u8;
            all[code as usize] = Shape { call, words, allocates };
            all[code as usize | STAMPED as usize] = Shape { call, words: words + 1, allocates };
        }
        code += 1;
    }
    all
};

/// Words that a plain record has at the most.
const MOST: usize = 4;

impl Plain {
    /// Reads the record at the start of `words`, if it is plain and `words` goes on behind it; also returns its
    /// length in words.
    #[inline(always)]
    pub fn decode(words: &[u64]) -> Option<(Plain, usize)> {
        let &[w0, w1, w2, w3] = words.first_chunk::<MOST>()?;
        let Shape { call, words, allocates } = SHAPES[(w0 & 0xff) as usize];
        let sizes = if allocates { w2 } else { 0 };
        let log = sizes / SIZE_LIMIT;
        if words == 0 || log > 64 {
            return None;
        }
        let stamp = if allocates { w3 } else { w2 };
        let plain = Plain {
            call,
            address: w0 >> 8,
            caller: w1 & CALLER_MASK,
            size: sizes % SIZE_LIMIT,
            slack: w1 >> 48,
            // The lowest bit falls out for 0.
            align: (1u64 << (log & 63)) >> 1 | (log >> 6) << 63,
            stamp: (w0 & STAMPED != 0).then_some(stamp),
        };
        Some((plain, usize::from(words)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use crate::event::{Allocation, Record, put_allocation, put_release};
    use std::vec::Vec;

    fn assert_alike(words: &[u64]) {
        let (plain, length) = Plain::decode(words).expect("a plain record");
        let (record, long) = Record::decode(words).unwrap();
        assert_eq!(length, long);
        let Plain { call, address, caller, size, slack, align, stamp } = plain;
        let same = if call.is_release() {
            assert_eq!((size, align), (0, 0));
            Record::Release { call, address, caller, stamp }
        } else {
            let allocation = Allocation { address, size, slack, align, caller };
            Record::Allocation { call, allocation, stamp }
        };
        assert_eq!(same, record);
    }

    #[test]
    fn plain_records_are_read_as_all_others() {
        for call in Call::ALL.into_iter().filter(|call| !call.is_reallocation()) {
            for stamp in [None, Some(0), Some(7), Some(u64::MAX)] {
                for align in [0, 1, 2, 16, 4096, 1 << 62, 1 << 63] {
                    for (size, slack) in [(0, 0), (20, 4), (SIZE_LIMIT - 1, 0xffff)] {
                        let a = Allocation { address: 0x5000, size, slack, align, caller: 0x1234 };
                        let mut words = Vec::new();
                        match call.is_release() {
                            true => put_release(&mut words, call, a.address, a.caller, stamp),
                            false => put_allocation(&mut words, call, &a, stamp),
                        }
                        words.extend([u64::MAX; MOST]);
                        assert_alike(&words);
                        assert_eq!(Plain::decode(&words[..MOST - 1]), None);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_plain_or_no_record_is_left_to_others() {
        for first in 0..=0xff {
            for sizes in [0, 64 * SIZE_LIMIT, 65 * SIZE_LIMIT, u64::MAX] {
                let words = [first | 0x5000 << 8, 0x1234, sizes, 9, 9, 9, 9, 9];
                if Plain::decode(&words).is_some() {
                    assert_alike(&words);
                }
            }
        }
    }
}
