//! `heaptape.live/1`: the blocks alive at a moment.

use std::io::{self, Write};

use heaptape_analyze::bins::Bin;
use heaptape_analyze::live::{Caller, Part, Sum};
use heaptape_analyze::modules::Place;
use heaptape_analyze::{LiveBlock, ProcessSummary};
use serde::Serialize;

use super::document;
use super::parts::{CallerName, ProcessName};
use super::stacks::{FramePart, frames};

/// What a live set's document begins with.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Whether the tape is complete.
    pub complete: bool,
    /// The process.
    pub process: &'a ProcessSummary,
    /// The index of the event after which the blocks are alive; `None` before the first.
    pub at: Option<u64>,
    /// The sums over all blocks, shown or not.
    pub sum: &'a Sum,
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    complete: bool,
    process: ProcessName<'a>,
    at: Option<u64>,
    blocks: u64,
    requested: u64,
    usable: u64,
    released: u64,
    by: Option<&'static str>,
    list: Vec<T>,
}

#[derive(Serialize)]
struct BlockPart<'a> {
    address: u64,
    size: u64,
    slack: u64,
    align: u64,
    birth: u64,
    process: u32,
    thread: u32,
    time_ms: u64,
    released: bool,
    #[serde(flatten)]
    caller: CallerName<'a>,
}

#[derive(Serialize)]
struct CallerPart<'a> {
    #[serde(flatten)]
    caller: CallerName<'a>,
    #[serde(flatten)]
    sum: SumPart,
    frames: Option<Vec<FramePart<'a>>>,
}

#[derive(Serialize)]
struct BinPart {
    unit: u64,
    #[serde(flatten)]
    sum: SumPart,
}

#[derive(Serialize)]
struct SumPart {
    blocks: u64,
    requested: u64,
    usable: u64,
    largest: u64,
}

impl SumPart {
    fn of(s: &Sum) -> SumPart {
        SumPart { blocks: s.blocks, requested: s.requested, usable: s.usable, largest: s.largest }
    }
}

fn write<T: Serialize>(
    out: &mut impl Write,
    head: Head<'_>,
    by: Option<&'static str>,
    list: impl Iterator<Item = T>,
) -> io::Result<()> {
    document(
        out,
        &Document {
            schema: "heaptape.live/1",
            complete: head.complete,
            process: ProcessName::of(head.process),
            at: head.at,
            blocks: head.sum.blocks,
            requested: head.sum.requested,
            usable: head.sum.usable,
            released: head.sum.released,
            by,
            list: list.collect(),
        },
    )
}

/// Writes live blocks with their callers.
pub fn blocks(
    out: &mut impl Write,
    head: Head<'_>,
    list: &[(LiveBlock, Option<Place>)],
) -> io::Result<()> {
    let list = list.iter().map(|(b, place)| BlockPart {
        address: b.address,
        size: b.size,
        slack: b.slack,
        align: b.align,
        birth: b.birth,
        process: b.process.0,
        thread: b.thread,
        time_ms: b.time,
        released: b.released,
        caller: CallerName::of(place.as_ref(), b.caller),
    });
    write(out, head, None, list)
}

/// Writes the callers of live blocks.
pub fn callers(out: &mut impl Write, head: Head<'_>, parts: &[Part<Caller>]) -> io::Result<()> {
    write(out, head, Some("caller"), parts.iter().map(caller))
}

/// Writes the call stacks of live blocks.
pub fn sites(out: &mut impl Write, head: Head<'_>, parts: &[Part<Caller>]) -> io::Result<()> {
    write(out, head, Some("site"), parts.iter().map(caller))
}

fn caller(part: &Part<Caller>) -> CallerPart<'_> {
    let Caller { address, place, .. } = &part.key;
    CallerPart {
        caller: CallerName::of(place.as_ref(), *address),
        sum: SumPart::of(&part.sum),
        frames: frames(&part.key),
    }
}

/// Writes the bins of live blocks.
pub fn bins(out: &mut impl Write, head: Head<'_>, parts: &[Part<Bin>]) -> io::Result<()> {
    let list = parts.iter().map(|p| BinPart { unit: p.key.unit(), sum: SumPart::of(&p.sum) });
    write(out, head, Some("bin"), list)
}
