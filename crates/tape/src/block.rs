//! A block: up to 256 Ki events of one process, as columns.
//!
//! The writer fills a [`RawBlock`]; [`RawBlock::pack`] makes streams of it, which the reader's
//! `UnpackedBlock` reads back.

use crate::callers::CallerNames;
use crate::column::{Column, Packer, delta};
use crate::field::FieldWriter;
use crate::numbers::Numbers;
use crate::tally::Tally;
use std::io;

/// Events and early releases in a full block.
pub(crate) const BLOCK_ITEMS: usize = 256 << 10;

/// Equal values that follow each other: what they are and where they begin.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    last: u64,
    starts: Vec<(u64, usize)>,
}

impl Runs {
    /// The item with the number `item` has this value.
    #[inline]
    pub(crate) fn item(&mut self, item: usize, value: u64) {
        if value != self.last || item == 0 {
            self.last = value;
            self.starts.push((value, item));
        }
    }

    fn clear(&mut self) {
        self.starts.clear();
    }

    /// The first and the last value.
    fn ends(&self) -> [u64; 2] {
        [self.starts.first().map_or(0, |start| start.0), self.last]
    }

    /// Each value as its difference from the one before, then how many of the `items` have it.
    fn numbers(&self, items: usize) -> impl Iterator<Item = u64> + '_ {
        let mut before = 0;
        let ends = self.starts.iter().skip(1).map(|&(_, start)| start).chain([items]);
        self.starts.iter().zip(ends).flat_map(move |(&(value, start), end)| {
            let difference = delta(std::mem::replace(&mut before, value), value);
            [difference, (end - start) as u64]
        })
    }
}

/// The columns of a block as the writer fills them: one entry for each event (or early release)
/// that has the property.
#[derive(Debug, Default)]
pub(crate) struct RawBlock {
    pub(crate) start: Tally,
    pub(crate) end: Tally,
    pub(crate) operations: Vec<u8>,
    pub(crate) sizes: Numbers,
    pub(crate) aligns: Numbers,
    /// Codes of [`Ages`](crate::age::Ages).
    pub(crate) ages: Numbers,
    /// Codes of the [`PlaceModel`](crate::place::PlaceModel).
    pub(crate) slacks: Numbers,
    /// Codes of the [`PlaceModel`](crate::place::PlaceModel) for new blocks that are not at their
    /// old address.
    pub(crate) addresses: Numbers,
    /// Codes of [`Callers`](crate::callers::Callers), and the callers that they stand for.
    pub(crate) callers: Numbers,
    pub(crate) caller_names: CallerNames,
    /// Whether some of them are sites.
    pub(crate) has_sites: bool,
    pub(crate) threads: Runs,
    pub(crate) times: Runs,
    pub(crate) unknown: Numbers,
    /// Size, slack, address of inherited blocks that ended.
    pub(crate) inherited: Numbers,
    /// Item in the block and age of the displaced block, for each order fault.
    pub(crate) faults: Numbers,
}

impl RawBlock {
    /// An empty block that begins after `start`.
    pub(crate) fn new(start: Tally) -> RawBlock {
        RawBlock { start, end: start, ..RawBlock::default() }
    }

    /// An empty block with room for one like this.
    pub(crate) fn follower(&self, start: Tally) -> RawBlock {
        RawBlock {
            operations: Vec::with_capacity(self.operations.len() + self.operations.len() / 16),
            sizes: self.sizes.follower(),
            ages: self.ages.follower(),
            slacks: self.slacks.follower(),
            addresses: self.addresses.follower(),
            callers: self.callers.follower(),
            ..RawBlock::new(start)
        }
    }

    /// Empties the block, which keeps its memory, to begin after `start`.
    pub(crate) fn begin(&mut self, start: Tally) {
        self.operations.clear();
        let used = [&mut self.sizes, &mut self.aligns, &mut self.ages, &mut self.unknown];
        used.into_iter().for_each(Numbers::clear);
        let places = [&mut self.inherited, &mut self.faults, &mut self.slacks, &mut self.addresses];
        places.into_iter().for_each(Numbers::clear);
        self.callers.clear();
        self.caller_names.clear();
        self.threads.clear();
        self.times.clear();
        (self.start, self.end) = (start, start);
    }

    pub(crate) fn items(&self) -> usize {
        self.operations.len()
    }

    /// Writes the header and packs the columns.
    pub(crate) fn pack(&self, packer: &mut Packer, header: &mut FieldWriter) -> io::Result<()> {
        header.numbers(&[self.start.events, self.start.items, self.start.ordinal]);
        header.numbers(&self.times.ends());
        self.end.write(header);
        packer.bytes(Column::Operation, &self.operations)?;
        packer.numbers(Column::Size, &self.sizes)?;
        packer.numbers(Column::Align, &self.aligns)?;
        packer.numbers(Column::Age, &self.ages)?;
        packer.list(Column::Thread, self.threads.numbers(self.items()))?;
        packer.numbers(Column::Unknown, &self.unknown)?;
        packer.numbers(Column::Inherited, &self.inherited)?;
        packer.numbers(Column::Fault, &self.faults)?;
        packer.numbers(Column::Slack, &self.slacks)?;
        packer.numbers(Column::Address, &self.addresses)?;
        match self.has_sites {
            true => packer.fields(Column::Caller, &self.callers)?,
            false => packer.numbers(Column::Caller, &self.callers)?,
        }
        packer.numbers(Column::CallerName, &self.caller_names.names)?;
        packer.numbers(Column::CallerAddress, &self.caller_names.addresses)?;
        packer.list(Column::Time, self.times.numbers(self.items()))
    }
}
