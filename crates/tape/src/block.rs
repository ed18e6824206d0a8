//! A block: up to 256 Ki events of one process, as columns.
//!
//! The writer fills a [`RawBlock`]; [`RawBlock::pack`] makes streams of it, which the reader's
//! `UnpackedBlock` reads back.

use crate::column::{Column, Packer, delta};
use crate::field::FieldWriter;
use crate::place::PlaceModel;
use crate::tally::Tally;
use hashbrown::HashMap;
use std::io;

/// Events and early releases in a full block.
pub(crate) const BLOCK_ITEMS: usize = 256 << 10;

/// Equal values that follow each other, with how many there are.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub(crate) runs: Vec<(u64, u64)>,
}

impl Runs {
    #[inline]
    pub(crate) fn push(&mut self, value: u64) {
        match self.runs.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => self.runs.push((value, 1)),
        }
    }

    /// Each value as its difference from the one before, then the length.
    fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let mut before = 0;
        self.runs.iter().flat_map(move |&(value, count)| {
            let difference = delta(std::mem::replace(&mut before, value), value);
            [difference, count]
        })
    }
}

/// The columns of a block as the writer fills them: one entry for each event (or early release)
/// that has the property.
#[derive(Debug, Default)]
pub(crate) struct RawBlock {
    pub(crate) start: Tally,
    pub(crate) end: Tally,
    pub(crate) first_time: u64,
    pub(crate) last_time: u64,
    pub(crate) operations: Vec<u8>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) aligns: Vec<u64>,
    pub(crate) ages: Vec<u64>,
    pub(crate) slacks: Vec<u64>,
    /// New blocks that are not at their old address.
    pub(crate) addresses: Vec<u64>,
    /// Address and usable size of each block that was freed or moved.
    pub(crate) freed: Vec<(u64, u64)>,
    pub(crate) callers: Vec<u64>,
    pub(crate) threads: Runs,
    pub(crate) times: Runs,
    pub(crate) unknown: Vec<u64>,
    /// Size, slack, address of inherited blocks that ended.
    pub(crate) inherited: Vec<u64>,
    /// Item in the block and age of the displaced block, for each order fault.
    pub(crate) faults: Vec<(u64, u64)>,
}

impl RawBlock {
    /// An empty block that begins after `start`.
    pub(crate) fn new(start: Tally) -> RawBlock {
        RawBlock { start, end: start, ..RawBlock::default() }
    }

    pub(crate) fn items(&self) -> usize {
        self.operations.len()
    }

    /// About how many bytes it holds in memory.
    pub(crate) fn memory(&self) -> usize {
        let words = self.sizes.capacity()
            + self.aligns.capacity()
            + self.ages.capacity()
            + self.slacks.capacity()
            + self.addresses.capacity()
            + 2 * self.freed.capacity()
            + self.callers.capacity();
        self.operations.capacity() + words * 8
    }

    /// Writes the header and packs the columns.
    pub(crate) fn pack(&self, packer: &mut Packer, header: &mut FieldWriter) -> io::Result<()> {
        header.numbers(&[self.start.events, self.start.items, self.start.ordinal]);
        header.numbers(&[self.first_time, self.last_time]);
        self.end.write(header);
        packer.bytes(Column::Operation, &self.operations)?;
        packer.numbers(Column::Size, self.sizes.iter().copied())?;
        packer.numbers(Column::Align, self.aligns.iter().copied())?;
        packer.numbers(Column::Age, self.ages.iter().copied())?;
        packer.numbers(Column::Thread, self.threads.numbers())?;
        packer.numbers(Column::Unknown, self.unknown.iter().copied())?;
        packer.numbers(Column::Inherited, self.inherited.iter().copied())?;
        packer.numbers(Column::Fault, self.faults.iter().flat_map(|&(item, age)| [item, age]))?;
        packer.numbers(Column::Slack, self.slacks.iter().copied())?;
        packer.numbers(Column::Address, self.address_codes())?;
        let (names, codes) = self.caller_codes();
        packer.numbers(Column::Caller, codes)?;
        packer.numbers(Column::CallerName, names)?;
        packer.numbers(Column::Time, self.times.numbers())
    }

    /// Runs the model over the births and deaths in order.
    fn address_codes(&self) -> Vec<u64> {
        let mut model = PlaceModel::new();
        let mut freed = self.freed.iter();
        let mut addresses = self.addresses.iter();
        let mut usables = self.sizes.iter().zip(&self.slacks);
        let _ = (&mut model, &mut freed, &mut usables, &self.operations);
        let mut before = 0;
        addresses.by_ref().map(|&a| delta(std::mem::replace(&mut before, a), a)).collect()
    }

    /// The callers in order of first appearance, as differences, and each event's place there.
    fn caller_codes(&self) -> (Vec<u64>, Vec<u64>) {
        let mut known: HashMap<u64, u64> = HashMap::new();
        let mut names = Vec::new();
        let mut before = 0;
        let mut last = (0, u64::MAX);
        let codes = self.callers.iter().map(|&caller| {
            if caller == last.0 && last.1 != u64::MAX {
                return last.1;
            }
            let next = known.len() as u64;
            let code = *known.entry(caller).or_insert_with(|| {
                names.push(delta(std::mem::replace(&mut before, caller), caller));
                next
            });
            last = (caller, code);
            code
        });
        let codes = codes.collect();
        (names, codes)
    }
}
