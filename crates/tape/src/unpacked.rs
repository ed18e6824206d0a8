//! A block read back: the columns that were asked for, each with the place reached in it.

use crate::Columns;
use crate::age_reader::AgeReader;
use crate::column::{Column, PayloadSource, Unpack, Unpacker, undelta};
use crate::item::CallerNumber;
use hashbrown::HashMap;
use std::vec::IntoIter;

/// Equal values that follow each other, read back.
#[derive(Default)]
pub(crate) struct RunReader {
    numbers: IntoIter<u64>,
    value: u64,
    left: u64,
}

impl RunReader {
    fn new(numbers: Vec<u64>) -> RunReader {
        RunReader { numbers: numbers.into_iter(), value: 0, left: 0 }
    }

    /// The next value; the last one again when the column has ended.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        while self.left == 0 {
            let (Some(difference), Some(count)) = (self.numbers.next(), self.numbers.next()) else {
                return self.value;
            };
            self.value = undelta(self.value, difference);
            self.left = count;
        }
        self.left -= 1;
        self.value
    }
}

/// The caller of each event, read back.
#[derive(Default)]
pub(crate) struct CallerReader {
    codes: IntoIter<u64>,
    /// The return addresses that the codes mean, with the numbers that the stream knows them by.
    names: Vec<(u64, CallerNumber)>,
}

impl CallerReader {
    /// Gives each of the block's callers the number that it has in the stream.
    pub(crate) fn number(&mut self, known: &mut KnownCallers) {
        self.names.iter_mut().for_each(|(address, number)| *number = known.number(*address));
    }

    /// The next caller; `None` when the column is not read.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(u64, CallerNumber)> {
        self.names.get(self.codes.next()? as usize).copied()
    }
}

/// The callers that a stream has met, each with its number.
#[derive(Default)]
pub(crate) struct KnownCallers {
    numbers: HashMap<u64, CallerNumber>,
}

impl KnownCallers {
    fn number(&mut self, address: u64) -> CallerNumber {
        let next = CallerNumber(self.numbers.len() as u32);
        *self.numbers.entry(address).or_insert(next)
    }
}

/// The columns of a block, being read.
#[derive(Default)]
pub(crate) struct UnpackedBlock {
    pub(crate) operations: Vec<u8>,
    /// The item that comes next.
    pub(crate) item: usize,
    pub(crate) sizes: IntoIter<u64>,
    pub(crate) aligns: IntoIter<u64>,
    pub(crate) ages: AgeReader,
    pub(crate) slacks: IntoIter<u64>,
    pub(crate) addresses: IntoIter<u64>,
    pub(crate) callers: CallerReader,
    pub(crate) threads: RunReader,
    pub(crate) times: RunReader,
    pub(crate) unknown: IntoIter<u64>,
    pub(crate) inherited: IntoIter<u64>,
    faults: IntoIter<u64>,
    /// The item in which the next order fault lies, and the age of the displaced block.
    pub(crate) fault: Option<(u64, u64)>,
}

impl UnpackedBlock {
    /// Unpacks the columns that are wanted of a block whose first allocation has the number
    /// `first_ordinal`.
    pub(crate) fn unpack<P: PayloadSource>(
        from: &Unpacker<'_, P>,
        wanted: Columns,
        first_ordinal: u64,
    ) -> Result<UnpackedBlock, Unpack> {
        let numbers = |column| from.numbers(column).map(Vec::into_iter);
        let optional = |wanted: bool, column| match wanted {
            true => numbers(column),
            false => Ok(IntoIter::default()),
        };
        let mut block = UnpackedBlock {
            operations: from.bytes(Column::Operation)?,
            item: 0,
            sizes: numbers(Column::Size)?,
            aligns: numbers(Column::Align)?,
            ages: AgeReader::new(from.numbers(Column::Age)?, first_ordinal),
            slacks: optional(wanted.slack || wanted.address, Column::Slack)?,
            addresses: optional(wanted.address, Column::Address)?,
            callers: if wanted.caller { callers(from)? } else { CallerReader::default() },
            threads: RunReader::new(from.numbers(Column::Thread)?),
            times: RunReader::new(optional(wanted.time, Column::Time)?.collect()),
            unknown: numbers(Column::Unknown)?,
            inherited: numbers(Column::Inherited)?,
            faults: numbers(Column::Fault)?,
            fault: None,
        };
        block.next_fault();
        Ok(block)
    }

    /// Unpacks only what tells who made a block, and when.
    pub(crate) fn unpack_origins<P: PayloadSource>(
        from: &Unpacker<'_, P>,
    ) -> Result<UnpackedBlock, Unpack> {
        Ok(UnpackedBlock {
            operations: from.bytes(Column::Operation)?,
            aligns: from.numbers(Column::Align)?.into_iter(),
            callers: callers(from)?,
            threads: RunReader::new(from.numbers(Column::Thread)?),
            times: RunReader::new(from.numbers(Column::Time)?),
            ..UnpackedBlock::default()
        })
    }

    /// Goes on to the next order fault.
    pub(crate) fn next_fault(&mut self) {
        self.fault = self.faults.next().zip(self.faults.next());
    }
}

/// Reads the column of callers, and the list of those that the block has.
fn callers<P: PayloadSource>(from: &Unpacker<'_, P>) -> Result<CallerReader, Unpack> {
    let mut before = 0;
    let names = from.numbers(Column::CallerName)?.into_iter().map(|difference| {
        before = undelta(before, difference);
        (before, CallerNumber(0))
    });
    let names: Vec<_> = names.collect();
    let codes = from.numbers(Column::Caller)?;
    match codes.iter().max() {
        Some(&last) if last >= names.len() as u64 => {
            Err(Unpack::Damaged("a caller is not in its block's list"))
        }
        _ => Ok(CallerReader { codes: codes.into_iter(), names }),
    }
}
