//! The blocks that the items of a block of events are given, found ahead of the items.
//!
//! An age tells which allocation it means as soon as the operations up to it are known. So the numbers of a
//! batch of blocks are found at once and the blocks fetched from memory together ([`Births::fetch`]); one after the
//! other, each would be waited for.

use crate::age::Ages;
use crate::births::{Births, FETCHED};
use crate::operation::{Deed, Operation};
use std::vec::IntoIter;

/// The column of ages, read back.
#[derive(Default)]
pub(crate) struct AgeReader {
    codes: IntoIter<u64>,
    ages: Ages,
    /// Items that were looked at.
    items: usize,
    /// The number of the next allocation after those.
    next: u64,
    /// The blocks' numbers that were found; those from `at` on have not been given.
    found: Vec<u64>,
    at: usize,
}

impl AgeReader {
    /// Codes of a block whose first allocation has the number `first`.
    pub(crate) fn new(codes: Vec<u64>, first: u64) -> AgeReader {
        let ages = Ages::new(first);
        AgeReader { codes: codes.into_iter(), ages, next: first, ..AgeReader::default() }
    }

    /// The number of the block that the next of the `operations` with an age is given; `None` if the
    /// column is too short.
    #[inline]
    pub(crate) fn next(&mut self, operations: &[u8], births: &Births) -> Option<u64> {
        if self.at == self.found.len() {
            self.look_ahead(operations);
            births.fetch(&self.found);
        }
        let ordinal = self.found.get(self.at).copied()?;
        self.at += 1;
        Some(ordinal)
    }

    fn look_ahead(&mut self, operations: &[u8]) {
        self.found.clear();
        self.at = 0;
        let ahead = operations.get(self.items..).unwrap_or_default();
        for &operation in ahead {
            if self.found.len() == FETCHED {
                break;
            }
            let deed = Operation(operation).deed();
            if deed.is_some_and(Deed::has_age) {
                let Some(code) = self.codes.next() else { break };
                self.found.push(self.ages.ordinal(code, self.next));
            }
            self.next = self.next.wrapping_add(u64::from(deed.is_some_and(Deed::makes_block)));
            self.items += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations of every kind, whose blocks are found as if they were looked for one by one.
    #[test]
    fn looking_ahead_finds_the_blocks_that_are_meant() {
        let sound: Vec<u8> = (0..=u8::MAX).filter(|&b| Operation(b).deed().is_some()).collect();
        let operations: Vec<u8> = (0..5000).map(|n| sound[n * n % 251 % sound.len()]).collect();
        let codes: Vec<u64> = (0..500).map(|n| n * n % 97).collect();
        let births = Births::new(7);
        let mut reader = AgeReader::new(codes.clone(), 7);
        let (mut ages, mut codes, mut next, mut given) = (Ages::new(7), codes.into_iter(), 7, 0);
        for deed in operations.iter().filter_map(|&o| Operation(o).deed()) {
            if deed.has_age() {
                let meant = codes.next().map(|code| ages.ordinal(code, next));
                assert_eq!(reader.next(&operations, &births), meant);
                given += usize::from(meant.is_some());
            }
            next += u64::from(deed.makes_block());
        }
        // The column was too short in the end.
        assert_eq!(given, 500);
        assert_eq!(reader.next(&operations, &births), None);
    }
}
