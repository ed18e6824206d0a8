//! A block read back: the columns that were asked for, each with the place reached in it.

use crate::Columns;
use crate::column::{Column, PayloadSource, Unpack, Unpacker, undelta};
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

/// The columns of a block, being read.
#[derive(Default)]
pub(crate) struct UnpackedBlock {
    pub(crate) operations: Vec<u8>,
    /// The item that comes next.
    pub(crate) item: usize,
    pub(crate) sizes: IntoIter<u64>,
    pub(crate) aligns: IntoIter<u64>,
    pub(crate) ages: IntoIter<u64>,
    pub(crate) slacks: IntoIter<u64>,
    pub(crate) addresses: IntoIter<u64>,
    pub(crate) callers: IntoIter<u64>,
    pub(crate) threads: RunReader,
    pub(crate) times: RunReader,
    pub(crate) unknown: IntoIter<u64>,
    pub(crate) inherited: IntoIter<u64>,
    faults: IntoIter<u64>,
    /// The item in which the next order fault lies, and the age of the displaced block.
    pub(crate) fault: Option<(u64, u64)>,
}

impl UnpackedBlock {
    /// Unpacks the columns that are wanted.
    pub(crate) fn unpack<P: PayloadSource>(
        from: &Unpacker<'_, P>,
        wanted: Columns,
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
            ages: numbers(Column::Age)?,
            slacks: optional(wanted.slack || wanted.address, Column::Slack)?,
            addresses: optional(wanted.address, Column::Address)?,
            callers: if wanted.caller { callers(from)? } else { IntoIter::default() },
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

/// The caller of each event.
fn callers<P: PayloadSource>(from: &Unpacker<'_, P>) -> Result<IntoIter<u64>, Unpack> {
    let mut before = 0;
    let names = from.numbers(Column::CallerName)?.into_iter().map(|difference| {
        before = undelta(before, difference);
        before
    });
    let names: Vec<u64> = names.collect();
    let mut callers = from.numbers(Column::Caller)?;
    for caller in &mut callers {
        let name = usize::try_from(*caller).ok().and_then(|at| names.get(at));
        *caller = *name.ok_or(Unpack::Damaged("a caller is not in its block's list"))?;
    }
    Ok(callers.into_iter())
}
