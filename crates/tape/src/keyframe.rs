//! Keyframes: what changed in a process's live set since the last one.
//!
//! The keyframes of a process up to a moment, folded in order, give its own live blocks at that
//! moment, so that a reader can start there. Inherited blocks are not in them, save the numbers
//! of those that ended; early releases that wait for their event stand in full in each.

use crate::births::{Held, MakerCode};
use crate::column::{Column, Packer, PayloadSource, Unpack, Unpacker, delta, undelta};
use crate::field::{FieldReader, FieldWriter, Truncated};
use crate::live::Block;
use crate::made::Made;
use crate::tally::Tally;
use std::io;

/// Events between two keyframes, at least.
pub(crate) const KEYFRAME_EVENTS: u64 = 4 << 20;

/// A keyframe as the writer collects it.
#[derive(Debug)]
pub(crate) struct RawKeyframe {
    pub(crate) at: Tally,
    /// Where the last one stood, and what the events since made.
    pub(crate) since: Tally,
    pub(crate) made: Made,
    /// Blocks born since the last keyframe and still alive or waiting for their event, with
    /// their addresses.
    pub(crate) born: Vec<(u64, Block)>,
    /// The numbers of older blocks that ended since.
    pub(crate) ended: Vec<u64>,
    /// Early releases that wait: thread, address, block.
    pub(crate) pending: Vec<(u32, u64, Option<Block>)>,
}

impl RawKeyframe {
    /// Writes the header and packs the columns.
    pub(crate) fn pack(&mut self, packer: &mut Packer, header: &mut FieldWriter) -> io::Result<()> {
        header.numbers(&[self.at.events, self.at.items, self.at.ordinal]);
        let born = &mut self.born;
        born.sort_unstable_by_key(|(_, block)| block.ordinal);
        self.ended.sort_unstable();
        packer.list(Column::Ordinal, deltas(born.iter().map(|(_, b)| b.ordinal)))?;
        let (since, nth) = (self.since, born.iter().map(|(_, b)| b.ordinal));
        let births = self.made.events_of(nth.map(|ordinal| ordinal - since.ordinal));
        packer.list(Column::Birth, deltas(births.map(|event| since.events + event)))?;
        packer.list(Column::Size, born.iter().map(|(_, b)| b.size))?;
        packer.list(Column::Slack, born.iter().map(|(_, b)| b.slack))?;
        packer.list(Column::Address, deltas(born.iter().map(|&(address, _)| address)))?;
        packer.list(Column::Ended, deltas(self.ended.iter().copied()))?;
        packer.bytes(Column::Pending, &self.pending_fields().bytes)
    }

    fn pending_fields(&self) -> FieldWriter {
        let mut fields = FieldWriter::new();
        for (thread, address, block) in &self.pending {
            fields.numbers(&[u64::from(*thread), *address, u64::from(block.is_some())]);
            if let Some(block) = block {
                fields.numbers(&[block.ordinal, block.size, block.slack]);
            }
        }
        fields
    }
}

fn deltas(values: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut before = 0;
    values.map(move |value| delta(std::mem::replace(&mut before, value), value))
}

fn undeltas(values: Vec<u64>) -> impl Iterator<Item = u64> {
    let mut before = 0;
    values.into_iter().map(move |value| {
        before = undelta(before, value);
        before
    })
}

/// The header of a keyframe: where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyframeHeader {
    pub(crate) events: u64,
    pub(crate) items: u64,
    pub(crate) ordinal: u64,
}

impl KeyframeHeader {
    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<KeyframeHeader, Truncated> {
        Ok(KeyframeHeader {
            events: fields.number()?,
            items: fields.number()?,
            ordinal: fields.ordinal()?,
        })
    }
}

/// An early release that waits, as a keyframe tells it: thread, address, block.
pub(crate) type WaitingRelease = (u32, u64, Option<Block>);

/// A keyframe read back. The blocks are put together as they are asked for: of a large live set they would
/// take as much room again.
pub(crate) struct Keyframe<Born, Ended> {
    /// Blocks with their numbers, which rise.
    pub(crate) born: Born,
    pub(crate) ended: Ended,
    pub(crate) pending: Vec<WaitingRelease>,
}

impl Keyframe<(), ()> {
    /// Unpacks the columns.
    pub(crate) fn unpack<P: PayloadSource>(
        from: &Unpacker<'_, P>,
    ) -> Result<
        Keyframe<impl Iterator<Item = (u64, Held)> + use<P>, impl Iterator<Item = u64> + use<P>>,
        Unpack,
    > {
        let ordinals = undeltas(from.numbers(Column::Ordinal)?);
        let births = undeltas(from.numbers(Column::Birth)?);
        let sizes = from.numbers(Column::Size)?.into_iter();
        let slacks = from.numbers(Column::Slack)?.into_iter();
        let addresses = undeltas(from.numbers(Column::Address)?);
        let held = births.zip(sizes).zip(slacks.zip(addresses));
        let held = held.map(|((birth, size), (slack, address))| Held {
            birth,
            size,
            slack,
            address,
            maker: MakerCode::default(),
        });
        let pending = read_pending(&from.bytes(Column::Pending)?);
        Ok(Keyframe {
            born: ordinals.zip(held),
            ended: undeltas(from.numbers(Column::Ended)?),
            pending: pending.map_err(|Truncated| Unpack::Damaged("a keyframe is too short"))?,
        })
    }
}

fn read_pending(bytes: &[u8]) -> Result<Vec<WaitingRelease>, Truncated> {
    let mut fields = FieldReader::new(bytes);
    let mut all = Vec::new();
    while !fields.is_empty() {
        let (thread, address) = (fields.narrow()?, fields.number()?);
        let block = match fields.number()? {
            0 => None,
            _ => {
                let ordinal = fields.number()?;
                Some(Block { ordinal, size: fields.number()?, slack: fields.number()? })
            }
        };
        all.push((thread, address, block));
    }
    Ok(all)
}
