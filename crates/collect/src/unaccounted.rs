//! What is resident in a process and stands in no row: memory that it has by ways which nobody saw.
//!
//! The kernel does not say which page is whose, so the sums are compared. Blocks may be where the allocator keeps them,
//! and large ones in mappings of their own; all else that is charged may be resident, or not yet. What is
//! resident beyond all of that is unaccounted: so much at least.
//!
//! A program goes on while this looks. Blocks are added up so that every one counts that lived at any moment of it.
//! What else comes and goes just then, and what another program has that a process has become a moment ago, is not
//! seen twice: so of two samples on end the lower figure counts.

use heaptape_wire::atomic::Ordering;
use heaptape_wire::bin::{bin_of, upper_edge};
use heaptape_wire::ledger::{Account, Kind, Ledger};

use crate::resident::Resident;

/// Blocks from here on may have a mapping of their own.
const LARGE: u64 = 128 << 10;
/// What such a mapping has beside the block, at most.
const ROUNDING: u64 = 8 << 10;

/// Where to find what is charged to a process.
#[derive(Clone, Copy)]
pub(crate) struct Books<'a> {
    pub(crate) ledger: Ledger,
    pub(crate) account: &'a Account,
    pub(crate) sheets: &'a [usize],
    pub(crate) is_detailed: bool,
}

/// Bytes of blocks: of all, and of large ones.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    all: u64,
    large: u64,
}

impl Books<'_> {
    /// Looks by `look`; what was seen, and what of it is unaccounted, where that can be told.
    pub(crate) fn look(
        self,
        look: impl FnOnce() -> Option<Resident>,
    ) -> Option<(Resident, Option<u64>)> {
        let (freed, before) = (self.blocks(false), self.beside());
        let seen = look()?;
        let (made, after) = (self.blocks(true), self.beside());
        let lived = Blocks {
            all: made.all.wrapping_sub(freed.all),
            large: made.large.wrapping_sub(freed.large),
        };
        let is_known = self.account.has_known_heap();
        Some((seen, is_known.then(|| beyond(&seen, lived, before.max(after)))))
    }

    /// What was allocated, or released, so far.
    fn blocks(self, made: bool) -> Blocks {
        let mut blocks = Blocks::default();
        for sheet in self.sheets.iter().map(|&sheet| self.ledger.sheet(sheet)) {
            let word = if made { &sheet.allocated } else { &sheet.freed };
            blocks.all = blocks.all.wrapping_add(word.load(Ordering::Acquire));
            for (number, bin) in (0..).zip(&sheet.bins).skip(bin_of(LARGE)) {
                let word = if made { &bin.total } else { &bin.freed };
                let bytes = word.load(Ordering::Acquire);
                // As many blocks as there are at least, of the largest size in this class.
                let rounding = bytes / upper_edge(number) * ROUNDING;
                blocks.large = blocks.large.wrapping_add(bytes.wrapping_add(rounding));
            }
        }
        if !self.is_detailed {
            blocks.large = blocks.all;
        }
        blocks
    }

    /// What is charged beside blocks and stacks (but for those charged whole), or came with a fork, what an allocator
    /// has mapped nobody knows where, and blocks that are being moved.
    fn beside(self) -> u64 {
        let row = |kind: Kind| self.account.charged[kind as usize].load(Ordering::Acquire);
        let starting = row(Kind::MpiRuntime).saturating_sub(self.account.apart());
        let stacks = self.account.stacks.bytes();
        let elsewhere = self.account.heaps.elsewhere();
        let others = [self.account.inherited(), elsewhere, stacks, self.account.moving()];
        let rows = [row(Kind::Mappings), row(Kind::Data), starting].into_iter().chain(others);
        rows.fold(0, u64::saturating_add)
    }
}

/// What is resident beyond what the rows stand for.
fn beyond(seen: &Resident, lived: Blocks, beside: u64) -> u64 {
    // Where the allocator's heap is too small for them, small blocks are elsewhere, too.
    let blocks = lived.large.max(lived.all.saturating_sub(seen.heap));
    seen.other.saturating_sub(blocks.saturating_add(beside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::in_memory;

    const MIB: u64 = 1 << 20;

    /// A process with one thread, whose blocks come from glibc.
    fn books(ledger: Ledger) -> Books<'static> {
        let account = ledger.account(0);
        account.open(1);
        account.set_plain_heap(0);
        ledger.sheet(0).open(0, 1, 0, 100);
        Books { ledger, account, sheets: &[0], is_detailed: true }
    }

    fn allocate(books: Books<'_>, bytes: u64) {
        let sheet = books.ledger.sheet(0);
        sheet.allocated.fetch_add(bytes, Ordering::Relaxed);
        sheet.bins[bin_of(bytes)].total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn found(books: Books<'_>, heap: u64, other: u64) -> Option<u64> {
        books.look(|| Some(Resident { heap, other, ..Resident::default() })).unwrap().1
    }

    #[test]
    fn what_no_row_stands_for_is_unaccounted() {
        let books = books(in_memory());
        allocate(books, 10 * MIB);
        allocate(books, 1000);
        books.account.charged[Kind::Mappings as usize].store(3 * MIB, Ordering::Relaxed);
        books.account.inherit(MIB);
        assert_eq!(found(books, MIB, 14 * MIB), Some(0));
        let most = found(books, MIB, 80 * MIB).unwrap();
        assert!((65 * MIB..=66 * MIB).contains(&most), "{most}");
        // What is in the allocator's heap is not elsewhere, unless that is too small for it.
        (0..5000).for_each(|_| allocate(books, 1000));
        assert_eq!(found(books, 16 * MIB, 80 * MIB), Some(most));
        assert!(found(books, 0, 80 * MIB) < Some(most - 4 * MIB));
    }

    #[test]
    fn a_block_that_goes_meanwhile_is_none() {
        let books = books(in_memory());
        allocate(books, 80 * MIB);
        let look = || {
            let freed = &books.ledger.sheet(0).freed;
            freed.store(80 * MIB, Ordering::Relaxed);
            Some(Resident { other: 80 * MIB, ..Resident::default() })
        };
        assert_eq!(books.look(look).unwrap().1, Some(0));
    }

    #[test]
    fn of_another_allocator_nothing_is_said() {
        let ledger = in_memory();
        let books = books(ledger);
        ledger.account(0).open(2);
        assert_eq!(found(books, 0, 80 * MIB), None);
        // Unless it has told what it maps.
        ledger.account(0).heaps.add(MIB, 2 * MIB);
        assert_eq!(found(books, 0, 80 * MIB), Some(80 * MIB));
    }
}
