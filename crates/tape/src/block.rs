//! A block: up to 256 Ki events of one process, as columns.
//!
//! The writer fills a [`RawBlock`]; [`RawBlock::pack`] makes streams of it, which the reader's
//! `UnpackedBlock` reads back.

use crate::column::{Column, Packer, delta};
use crate::field::FieldWriter;
use crate::numbers::Numbers;
use crate::operation::Operation;
use crate::place::PlaceModel;
use crate::tally::Tally;
use hashbrown::HashMap;
use std::io;

/// Events and early releases in a full block.
pub(crate) const BLOCK_ITEMS: usize = 256 << 10;

/// The room for a column that had `len` entries in the block before.
fn room(len: usize) -> usize {
    len + len / 16
}

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
    pub(crate) sizes: Numbers,
    pub(crate) aligns: Numbers,
    /// Codes of [`Ages`](crate::age::Ages).
    pub(crate) ages: Numbers,
    pub(crate) slacks: Numbers,
    /// New blocks that are not at their old address.
    pub(crate) addresses: Vec<u64>,
    /// Addresses and usable sizes of the blocks that were freed or moved.
    pub(crate) freed: Vec<u64>,
    pub(crate) freed_usable: Numbers,
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

    /// An empty block with room for one like this.
    pub(crate) fn follower(&self, start: Tally) -> RawBlock {
        RawBlock {
            operations: Vec::with_capacity(room(self.operations.len())),
            sizes: Numbers::with_capacity(room(self.sizes.len())),
            ages: Numbers::with_capacity(room(self.ages.len())),
            slacks: Numbers::with_capacity(room(self.slacks.len())),
            addresses: Vec::with_capacity(room(self.addresses.len())),
            freed: Vec::with_capacity(room(self.freed.len())),
            freed_usable: Numbers::with_capacity(room(self.freed_usable.len())),
            callers: Vec::with_capacity(room(self.callers.len())),
            ..RawBlock::new(start)
        }
    }

    /// Empties the block, which keeps its memory, to begin after `start`.
    pub(crate) fn begin(&mut self, start: Tally) {
        let numbers = [&mut self.sizes, &mut self.aligns, &mut self.ages, &mut self.slacks];
        numbers.into_iter().for_each(Numbers::clear);
        self.freed_usable.clear();
        self.operations.clear();
        let words = [&mut self.addresses, &mut self.freed, &mut self.callers, &mut self.unknown];
        words.into_iter().for_each(Vec::clear);
        self.inherited.clear();
        self.faults.clear();
        self.threads.runs.clear();
        self.times.runs.clear();
        (self.start, self.end) = (start, start);
    }

    pub(crate) fn items(&self) -> usize {
        self.operations.len()
    }

    /// About how many bytes it holds in memory.
    pub(crate) fn memory(&self) -> usize {
        let numbers = [&self.sizes, &self.aligns, &self.ages, &self.slacks, &self.freed_usable];
        let words = self.addresses.capacity() + self.freed.capacity() + self.callers.capacity();
        self.operations.capacity()
            + words * 8
            + numbers.iter().map(|numbers| numbers.memory()).sum::<usize>()
    }

    /// Writes the header and packs the columns.
    pub(crate) fn pack(
        &self,
        model: &mut PlaceModel,
        packer: &mut Packer,
        header: &mut FieldWriter,
    ) -> io::Result<()> {
        header.numbers(&[self.start.events, self.start.items, self.start.ordinal]);
        header.numbers(&[self.first_time, self.last_time]);
        self.end.write(header);
        packer.bytes(Column::Operation, &self.operations)?;
        packer.numbers(Column::Size, self.sizes.iter())?;
        packer.numbers(Column::Align, self.aligns.iter())?;
        packer.numbers(Column::Age, self.ages.iter())?;
        packer.numbers(Column::Thread, self.threads.numbers())?;
        packer.numbers(Column::Unknown, self.unknown.iter().copied())?;
        packer.numbers(Column::Inherited, self.inherited.iter().copied())?;
        packer.numbers(Column::Fault, self.faults.iter().flat_map(|&(item, age)| [item, age]))?;
        let (slacks, addresses) = self.place_codes(model);
        packer.numbers(Column::Slack, slacks)?;
        packer.numbers(Column::Address, addresses)?;
        let (names, codes) = self.caller_codes();
        packer.numbers(Column::Caller, codes)?;
        packer.numbers(Column::CallerName, names)?;
        packer.numbers(Column::Time, self.times.numbers())
    }

    /// Runs the model over the births and deaths in order: the codes of slacks and addresses.
    fn place_codes(&self, model: &mut PlaceModel) -> (Vec<u64>, Vec<u64>) {
        model.reset();
        let mut slack_codes = Vec::with_capacity(self.slacks.len());
        let mut codes = Vec::with_capacity(self.addresses.len());
        let mut freed = self.freed.iter().zip(self.freed_usable.iter());
        let (mut sizes, mut slacks) = (self.sizes.iter(), self.slacks.iter());
        let mut addresses = self.addresses.iter();
        for &operation in &self.operations {
            let Some(deed) = Operation(operation).deed() else { continue };
            if deed.ends_block()
                && let Some((&address, usable)) = freed.next()
            {
                model.freed(address, usable);
            }
            let size = if deed.has_size() { sizes.next() } else { None };
            if !deed.makes_block() {
                continue;
            }
            let (Some(size), Some(slack)) = (size, slacks.next()) else { continue };
            slack_codes.push(model.slack_code(size, slack));
            if deed.has_address()
                && let Some(&address) = addresses.next()
            {
                model.code(address, size.wrapping_add(slack), |code| codes.push(code));
            }
        }
        (slack_codes, codes)
    }

    /// The callers in order of first appearance, as differences, and each event's place there.
    fn caller_codes(&self) -> (Vec<u64>, Vec<u64>) {
        let mut known: HashMap<u64, u64> = HashMap::new();
        let mut names = Vec::new();
        let mut before = 0;
        // Most events come from few callers; a small table answers for them.
        let mut recent = [(0, None); 256];
        let codes = self.callers.iter().map(|&caller| {
            let slot = &mut recent[(caller ^ caller >> 8) as usize % 256];
            if let (name, Some(code)) = *slot
                && name == caller
            {
                return code;
            }
            let next = known.len() as u64;
            let code = *known.entry(caller).or_insert_with(|| {
                names.push(delta(std::mem::replace(&mut before, caller), caller));
                next
            });
            *slot = (caller, Some(code));
            code
        });
        let codes = codes.collect();
        (names, codes)
    }
}
