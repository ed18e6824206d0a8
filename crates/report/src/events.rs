//! The calls of a process for people, one a line; or their size classes as a table.

use std::io::{self, Write};

use heaptape_analyze::Effect;
use heaptape_analyze::bins::{Histogram, Traffic};
use heaptape_analyze::calls::Row;
use heaptape_analyze::stack::Named;
use heaptape_analyze::{Note, Release, Sample};

use crate::size::{Count, Millis, Size};
use crate::table::{Align, Style, Table, UNLIMITED};
use crate::text;

/// How wide the column of callers is.
const CALLER_WIDTH: usize = 44;

/// Writes the line above the calls.
pub fn head(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>10} {:>11} {:>4} {:<14} {:>12} {:>6} {:>14}  {:<CALLER_WIDTH$} effect",
        "index", "time", "thr", "call", "size", "slack", "address", "caller"
    )
}

/// Writes a call. Names are cut to the width of their column on a terminal.
pub fn row(out: &mut impl Write, row: &Row, style: Style) -> io::Result<()> {
    let freed = matches!(row.effect, Effect::Freed | Effect::Unknown);
    // What a free frees is what one looks for; the effect says that the size is the block's.
    let size = if freed { row.old_size } else { Some(row.size) };
    let size = size.map_or_else(|| "?".to_owned(), |s| s.to_string());
    let slack = if row.slack > 0 { format!("+{}", row.slack) } else { String::new() };
    let address = if freed && row.address == 0 { row.old_address } else { Some(row.address) };
    let width = if style.width == UNLIMITED { usize::MAX } else { CALLER_WIDTH };
    let line = format!(
        "{:>10} {:>11} {:>4} {:<14} {:>12} {:>6} {:>14}  {:<CALLER_WIDTH$} {}",
        row.index,
        Millis(row.time),
        row.thread,
        row.call.name(),
        size,
        slack,
        format!("{:#x}", address.unwrap_or(0)),
        text::plain(&text::short_caller(row.place.as_ref(), row.caller, width)),
        effect(row),
    );
    writeln!(out, "{}", line.trim_end())
}

/// Writes the call stack of the call above, the innermost frame first.
pub fn stack(out: &mut impl Write, stack: &Named) -> io::Result<()> {
    for frame in &stack.frames {
        writeln!(out, "{:>10}   {}", "", text::plain(&text::named_frame(frame)))?;
    }
    match text::stack_end(stack.end) {
        Some(end) => writeln!(out, "{:>10}   … {end}", ""),
        None => Ok(()),
    }
}

fn effect(row: &Row) -> String {
    let old = || row.old_size.map_or_else(|| "?".to_owned(), |s| s.to_string());
    let text = match row.effect {
        Effect::Made => String::new(),
        Effect::Freed => format!("freed {}", block(row)),
        Effect::InPlace => format!("in place, was {} bytes, {}", old(), block(row)),
        Effect::Moved => {
            let from = row.old_address.unwrap_or(0);
            format!("moved from {from:#x}, was {} bytes, {}", old(), block(row))
        }
        Effect::Failed => "failed".to_owned(),
        Effect::Unknown => "freed a block that was not made here".to_owned(),
    };
    let early = if row.early { ", address given up before" } else { "" };
    let text = format!("{text}{early}");
    let comma = if text.is_empty() { "" } else { ", " };
    match row.align {
        0 => text,
        align => format!("{text}{comma}aligned to {align}"),
    }
}

fn block(row: &Row) -> String {
    match (row.birth, row.age) {
        (Some(birth), Some(age)) => format!("block of event {birth}, age {age}"),
        (None, Some(age)) => format!("inherited block, age {age}"),
        _ => "unknown block".to_owned(),
    }
}

/// Writes a note; it has no index.
pub fn note(out: &mut impl Write, note: &Note) -> io::Result<()> {
    between(out, note.time, Some(note.thread), &text::note(note))
}

/// Writes that a realloc, whose call comes later, has given its old address up.
pub fn release(out: &mut impl Write, release: &Release) -> io::Result<()> {
    let what = format!("release of {:#x} by a realloc that comes below", release.address);
    between(out, release.time, Some(release.thread), &what)
}

/// Writes a sample of the kernel's figures.
pub fn sample(out: &mut impl Write, sample: &Sample) -> io::Result<()> {
    let what = format!(
        "sample: system {}, resident {}, pss {}, swap {}, {}",
        text::size_or_na(sample.system),
        text::size_or_na(sample.resident),
        text::size_or_na(sample.pss),
        text::size_or_na(sample.swap),
        text::counted(sample.vmas.len() as u64, "mapping", "mappings"),
    );
    between(out, sample.time, None, &what)
}

fn between(out: &mut impl Write, time: u64, thread: Option<u32>, what: &str) -> io::Result<()> {
    let thread = thread.map_or_else(String::new, |t| t.to_string());
    writeln!(out, "{:>10} {:>11} {thread:>4} {what}", "-", Millis(time))
}

/// Writes the size classes. `balanced` says that both ends of each block were counted; else what
/// lives and the peak are n/a.
pub fn histogram(
    out: &mut impl Write,
    histogram: &Histogram,
    balanced: bool,
    style: Style,
) -> io::Result<()> {
    let columns = |first| {
        let names = ["allocations", "total", "freed", "current", "peak"];
        let mut columns = vec![first];
        columns.extend(names.map(|n| (n, Align::Right)));
        columns
    };
    let mut bins = Table::new(style, &columns(("up to", Align::Right)));
    for (bin, traffic) in histogram.bins() {
        bins.row(cells(Size(bin.unit()).to_string(), traffic, balanced));
    }
    bins.write(out)?;
    writeln!(out)?;
    let mut groups = Table::new(style, &columns(("group", Align::Left)));
    for (group, traffic) in histogram.groups() {
        groups.row(cells(group.name().to_owned(), traffic, balanced));
    }
    groups.row(cells("all".to_owned(), histogram.all(), balanced));
    groups.write(out)
}

fn cells(name: String, t: &Traffic, balanced: bool) -> [String; 6] {
    let known = |bytes: u64| text::size_or_na(balanced.then_some(bytes));
    [
        name,
        Count(t.count).to_string(),
        Size(t.total).to_string(),
        Size(t.freed).to_string(),
        known(t.current),
        known(t.peak.upper),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_analyze::Call;

    fn line(effect: Effect, change: impl FnOnce(&mut Row)) -> String {
        let mut one = Row {
            index: 1500,
            time: 12,
            thread: 0,
            call: Call::Malloc,
            address: 0x1000,
            size: 24,
            slack: 0,
            align: 0,
            old_address: None,
            old_size: None,
            birth: None,
            age: None,
            early: false,
            effect,
            caller: 0x40,
            site: None,
            place: None,
        };
        change(&mut one);
        let mut out = Vec::new();
        row(&mut out, &one, Style { width: UNLIMITED, color: false }).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_became_of_each_call() {
        assert_eq!(line(Effect::Made, |_| {}), "1500 0.012 s 0 malloc 24 0x1000 0x40");
        assert_eq!(
            line(Effect::Made, |r| (r.slack, r.align) = (8, 64)),
            "1500 0.012 s 0 malloc 24 +8 0x1000 0x40 aligned to 64"
        );
        let freed = |r: &mut Row| {
            (r.call, r.size, r.old_size, r.birth, r.age) =
                (Call::Free, 0, Some(100), Some(7), Some(2));
        };
        assert_eq!(
            line(Effect::Freed, freed),
            "1500 0.012 s 0 free 100 0x1000 0x40 freed block of event 7, age 2"
        );
        let moved = |r: &mut Row| {
            (r.call, r.old_address, r.old_size, r.age) =
                (Call::Realloc, Some(0x900), Some(10), Some(2));
        };
        assert_eq!(
            line(Effect::Moved, moved),
            "1500 0.012 s 0 realloc 24 0x1000 0x40 moved from 0x900, was 10 bytes, inherited block, age 2"
        );
        let early = |r: &mut Row| (moved(r), r.early = true).0;
        assert_eq!(
            line(Effect::Moved, early),
            "1500 0.012 s 0 realloc 24 0x1000 0x40 moved from 0x900, was 10 bytes, inherited block, age 2, address given up before"
        );
        assert_eq!(
            line(Effect::Unknown, |r| (r.call, r.size) = (Call::Free, 0)),
            "1500 0.012 s 0 free ? 0x1000 0x40 freed a block that was not made here"
        );
        assert_eq!(
            line(Effect::Failed, |r| r.address = 0),
            "1500 0.012 s 0 malloc 24 0x0 0x40 failed"
        );
    }
}
