//! A block read back: the columns that were asked for, each with the place reached in it.

use crate::age_reader::AgeReader;
use crate::column::{Column, PayloadSource, Unpack, Unpacker, undelta};
use crate::index::ProcessContents;
use crate::item::CallerNumber;
use crate::site::SiteNumber;
use crate::site_tree::Sites;
use crate::{Columns, Error, Tape};
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

/// A caller: a return address, that of its site if it has one.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) address: u64,
    pub(crate) site: Option<SiteNumber>,
    /// The number that the stream knows it by.
    pub(crate) number: CallerNumber,
}

impl Default for Caller {
    fn default() -> Caller {
        Caller { address: 0, site: None, number: CallerNumber(0) }
    }
}

/// The caller of each event, read back.
#[derive(Default)]
pub(crate) struct CallerReader {
    codes: IntoIter<u64>,
    /// What the codes mean.
    names: Vec<Caller>,
}

impl CallerReader {
    /// The next caller; `None` when the column is not read.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Caller> {
        self.names.get(self.codes.next()? as usize).copied()
    }
}

/// The callers that a stream has met, each with its number.
#[derive(Default)]
pub(crate) struct KnownCallers {
    numbers: HashMap<(u64, Option<SiteNumber>), CallerNumber>,
    sites: Sites,
}

impl KnownCallers {
    /// Those of a process, none of which has been met.
    pub(crate) fn of(tape: &Tape, contents: &ProcessContents) -> Result<KnownCallers, Error> {
        Ok(KnownCallers { numbers: HashMap::new(), sites: Sites::read(tape, contents)? })
    }

    /// Gives each of a block's callers the number that it has in the stream, and each site its address.
    pub(crate) fn number(&mut self, block: &mut CallerReader) -> Result<(), Unpack> {
        for caller in &mut block.names {
            if let Some(site) = caller.site {
                if site.0 as usize >= self.sites.len() {
                    return Err(Unpack::Damaged("a call has a site that is not on the tape"));
                }
                caller.address = self.sites.caller(site);
            }
            let next = CallerNumber(self.numbers.len() as u32);
            caller.number = *self.numbers.entry((caller.address, caller.site)).or_insert(next);
        }
        Ok(())
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
        has_sites: bool,
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
            callers: match wanted.caller {
                true => callers(from, has_sites)?,
                false => CallerReader::default(),
            },
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
        has_sites: bool,
    ) -> Result<UnpackedBlock, Unpack> {
        Ok(UnpackedBlock {
            operations: from.bytes(Column::Operation)?,
            aligns: from.numbers(Column::Align)?.into_iter(),
            callers: callers(from, has_sites)?,
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
fn callers<P: PayloadSource>(
    from: &Unpacker<'_, P>,
    has_sites: bool,
) -> Result<CallerReader, Unpack> {
    let names = match has_sites {
        true => names_with_sites(from)?,
        false => addresses(from.numbers(Column::CallerName)?).collect(),
    };
    let codes = match has_sites {
        true => from.fields(Column::Caller)?,
        false => from.numbers(Column::Caller)?,
    };
    match codes.iter().max() {
        Some(&last) if last >= names.len() as u64 => {
            Err(Unpack::Damaged("a caller is not in its block's list"))
        }
        _ => Ok(CallerReader { codes: codes.into_iter(), names }),
    }
}

/// How many sites there have to be for those that a block's calls name.
pub(crate) fn sites_named<P: PayloadSource>(from: &Unpacker<'_, P>) -> Result<u64, Unpack> {
    let callers = callers(from, true)?;
    let sites = callers.names.iter().filter_map(|caller| caller.site);
    Ok(sites.map(|site| u64::from(site.0) + 1).max().unwrap_or(0))
}

/// Addresses from their differences.
fn addresses(differences: Vec<u64>) -> impl Iterator<Item = Caller> {
    let mut address = 0;
    differences.into_iter().map(move |difference| {
        address = undelta(address, difference);
        Caller { address, ..Caller::default() }
    })
}

/// The list of callers on a tape with sites.
fn names_with_sites<P: PayloadSource>(from: &Unpacker<'_, P>) -> Result<Vec<Caller>, Unpack> {
    let mut addresses = addresses(from.numbers(Column::CallerAddress)?);
    let mut site = 0;
    let names =
        from.numbers(Column::CallerName)?.into_iter().map(|name| match name.checked_sub(1) {
            None => addresses.next(),
            Some(difference) => {
                site = undelta(site, difference);
                let number = u32::try_from(site).ok()?;
                Some(Caller { site: Some(SiteNumber(number)), ..Caller::default() })
            }
        });
    let names: Option<Vec<_>> = names.collect();
    names.ok_or(Unpack::Damaged("a list of callers is too short"))
}
