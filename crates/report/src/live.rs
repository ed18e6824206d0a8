//! The live set for people: its largest blocks, or its callers or bins.

use std::io::{self, Write};

use heaptape_analyze::LiveBlock;
use heaptape_analyze::bins::Bin;
use heaptape_analyze::live::{Caller, Part, Sum};
use heaptape_analyze::modules::Place;

use crate::size::{Count, Millis, Size};
use crate::table::{Align, Style, Table};
use crate::{stacks, text};

/// What the columns before the caller take, in a table of blocks and in one of sums.
const BLOCK_WIDTH: usize = 80;
const SUM_WIDTH: usize = 46;

/// Where no width is, callers are cut to this.
const LONGEST_CALLER: usize = 20_000;

/// Writes the sentence that goes before the table. `at` is the index of the last event made, if any.
pub fn head(out: &mut impl Write, at: Option<u64>, process: &str, sum: &Sum) -> io::Result<()> {
    match at {
        Some(at) => write!(out, "After event {at} of {process}: ")?,
        None => write!(out, "Before the first event of {process}: ")?,
    }
    writeln!(
        out,
        "{} live, {} requested, {} usable.",
        text::counted(sum.blocks, "block", "blocks"),
        Size(sum.requested),
        Size(sum.usable)
    )?;
    match sum.released {
        0 => Ok(()),
        n => writeln!(
            out,
            "Of these {} in a realloc under way: the old address is given up, and another block may be there.",
            text::counted(n, "block is", "blocks are")
        ),
    }
}

/// Writes a table of blocks with their callers.
pub fn blocks(
    out: &mut impl Write,
    blocks: &[(LiveBlock, Option<Place>)],
    style: Style,
) -> io::Result<()> {
    let columns = [
        ("size", Align::Right),
        ("slack", Align::Right),
        ("align", Align::Right),
        ("address", Align::Right),
        ("made at", Align::Right),
        ("time", Align::Right),
        ("thr", Align::Right),
        ("caller", Align::Left),
    ];
    let any_released = blocks.iter().any(|(block, _)| block.released);
    let state = any_released.then_some(("state", Align::Left));
    let columns: Vec<_> = columns.into_iter().chain(state).collect();
    let mut table = Table::new(style, &columns);
    let room = room(style, BLOCK_WIDTH);
    for (block, place) in blocks {
        let state = any_released.then(|| if block.released { "in realloc" } else { "" }.to_owned());
        let cells = [
            Count(block.size).to_string(),
            block.slack.to_string(),
            if block.align == 0 { "-".to_owned() } else { block.align.to_string() },
            format!("{:#x}", block.address),
            block.birth.to_string(),
            Millis(block.time).to_string(),
            block.thread.to_string(),
            text::short_caller(place.as_ref(), block.caller, room),
        ];
        table.row(cells.into_iter().chain(state));
    }
    table.write(out)
}

/// How wide a caller may be behind columns that take so much. A table takes no text without end.
pub(crate) fn room(style: Style, taken: usize) -> usize {
    usize::from(style.width).saturating_sub(taken).min(LONGEST_CALLER)
}

/// Writes a table of callers.
pub fn callers(out: &mut impl Write, parts: &[Part<Caller>], style: Style) -> io::Result<()> {
    let room = room(style, SUM_WIDTH);
    let rows = parts.iter().map(|p| (stacks::caller(&p.key, room), &p.sum, Vec::new()));
    sums(out, ("caller", Align::Left), rows, style)
}

/// Writes a table of call stacks, each below its row; with `whole` all of its calls.
pub fn sites(
    out: &mut impl Write,
    parts: &[Part<Caller>],
    whole: bool,
    style: Style,
) -> io::Result<()> {
    let room = room(style, SUM_WIDTH);
    let below = |caller: &Caller| {
        let trace = caller.trace.as_deref();
        trace.map_or_else(Vec::new, |trace| stacks::below(trace, whole, room.saturating_sub(2)))
    };
    let rows = parts.iter().map(|p| (stacks::caller(&p.key, room), &p.sum, below(&p.key)));
    sums(out, ("site", Align::Left), rows, style)
}

/// Writes a table of bins.
pub fn bins(out: &mut impl Write, parts: &[Part<Bin>], style: Style) -> io::Result<()> {
    let rows = parts.iter().map(|p| (Size(p.key.unit()).to_string(), &p.sum, Vec::new()));
    sums(out, ("up to", Align::Right), rows, style)
}

/// Writes how many rows were left out, if any.
pub fn rest(out: &mut impl Write, shown: usize, all: usize, what: &str) -> io::Result<()> {
    match all.checked_sub(shown) {
        Some(left @ 1..) => {
            writeln!(out, "\n… and {} more {what}; --top 0 shows all.", Count(left as u64))
        }
        _ => Ok(()),
    }
}

fn sums<'a>(
    out: &mut impl Write,
    key: (&str, Align),
    rows: impl Iterator<Item = (String, &'a Sum, Vec<String>)>,
    style: Style,
) -> io::Result<()> {
    let columns = [
        ("requested", Align::Right),
        ("usable", Align::Right),
        ("blocks", Align::Right),
        ("largest", Align::Right),
        key,
    ];
    let mut table = Table::new(style, &columns);
    for (name, sum, below) in rows {
        table.row([
            Size(sum.requested).to_string(),
            Size(sum.usable).to_string(),
            Count(sum.blocks).to_string(),
            Size(sum.largest).to_string(),
            name,
        ]);
        for line in below {
            table.row(["", "", "", "", &format!("  {line}")]);
        }
    }
    table.write(out)
}
