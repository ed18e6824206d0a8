//! What two moments differ in, for people.

use std::cmp::Reverse;
use std::io::{self, Write};

use heaptape_analyze::ProcessSummary;
use heaptape_analyze::diff::{By, Diff, Figures, Row, Subject, Sum};
use heaptape_analyze::lives::Load;

use crate::size::{Count, Millis, Size};
use crate::table::{Align, Style, Table};
use crate::{live, stacks, text};

/// What the columns before the name take, mostly, and the one of what was made.
const FIGURES: usize = 44;
const MADE: usize = 12;

/// One of the two moments.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The tape's name.
    pub tape: &'a str,
    /// Whether the tape is complete.
    pub complete: bool,
    /// The process.
    pub process: &'a ProcessSummary,
    /// How the moment is called, if it is the peak or the end.
    pub name: Option<&'static str>,
    /// The index of the last event before it; `None` before the first.
    pub at: Option<u64>,
    /// Milliseconds since the recording began, of that event.
    pub time: u64,
}

/// A difference, and what was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The two moments.
    pub moments: [Moment<'a>; 2],
    /// What it is by.
    pub by: By,
    /// The difference.
    pub diff: &'a Diff,
    /// Whether it is known what was made in all.
    pub made: bool,
    /// How many rows are wanted; all for 0.
    pub top: usize,
    /// Whether call stacks are shown whole.
    pub whole: bool,
}

impl Found<'_> {
    /// The rows that are shown, those that changed most, the one that grew most first; and the sum of the others.
    pub(crate) fn shown(&self) -> (Vec<&Row>, Sum) {
        let rows = &self.diff.rows;
        let mut order: Vec<usize> = (0..rows.len()).collect();
        if self.top > 0 {
            order.sort_by_key(|&n| (Reverse(change(&rows[n])), n));
        }
        let wanted = if self.top == 0 { rows.len() } else { self.top.min(rows.len()) };
        let mut others = Sum::default();
        order[wanted..].iter().for_each(|&n| others.add(&rows[n]));
        order.truncate(wanted);
        order.sort_unstable();
        (order.into_iter().map(|n| &rows[n]).collect(), others)
    }
}

/// How much a row changed, in live bytes first.
fn change(row: &Row) -> (u64, u64) {
    let made = row.after.made.bytes.abs_diff(row.before.made.bytes);
    (row.after.live.bytes.abs_diff(row.before.live.bytes), made)
}

/// Writes all of it.
pub fn write(out: &mut impl Write, found: Found<'_>, style: Style) -> io::Result<()> {
    for (when, moment) in ["Before", "After"].into_iter().zip(&found.moments) {
        writeln!(out, "{when}: {}", moment_text(moment))?;
    }
    writeln!(out)?;
    let total = &found.diff.total;
    writeln!(out, "{}", sentence("live", total.before.live, total.after.live))?;
    if found.made {
        writeln!(out, "{}", sentence("made in all", total.before.made, total.after.made))?;
    }
    if found.diff.rows.is_empty() {
        let (one, many) = names(found.by);
        let same = text::counted(found.diff.unchanged.rows, one, many);
        return writeln!(out, "Nothing differs: {same} without a change.");
    }
    writeln!(out)?;
    table(out, found, style)
}

/// What rows are called: one, and several.
fn names(by: By) -> (&'static str, &'static str) {
    match by {
        By::Caller => ("caller", "callers"),
        By::Bin => ("size class", "size classes"),
        By::Module => ("module", "modules"),
        By::Site => ("site", "sites"),
    }
}

fn moment_text(moment: &Moment<'_>) -> String {
    let name = match (moment.name, moment.at) {
        (Some(name), Some(at)) => format!("at the {name}, after event {}", Count(at)),
        (Some(name), None) => format!("at the {name}, before the first event"),
        (None, Some(at)) => format!("after event {}", Count(at)),
        (None, None) => "before the first event".to_owned(),
    };
    let (tape, process) = (text::plain(moment.tape), text::process(moment.process));
    format!("{tape}, {process}, {name} ({})", Millis(moment.time))
}

/// `Live: A before, B after, C more.`
fn sentence(what: &str, before: Load, after: Load) -> String {
    let amount = |load: Load| {
        format!("{} in {}", Size(load.bytes), text::counted(load.blocks, "block", "blocks"))
    };
    let bytes = match i128::from(after.bytes) - i128::from(before.bytes) {
        0 => "as much".to_owned(),
        more => {
            let word = if more > 0 { "more" } else { "less" };
            let size = Size(u64::try_from(more.unsigned_abs()).unwrap_or(u64::MAX));
            format!("{size} {word}{}", percent(more, before.bytes))
        }
    };
    let mut what = what.to_owned();
    what[..1].make_ascii_uppercase();
    format!("{what}: {} before, {} after: {bytes}.", amount(before), amount(after))
}

fn percent(more: i128, before: u64) -> String {
    if before == 0 {
        return String::new();
    }
    match (more.unsigned_abs() * 200 / u128::from(before)).div_ceil(2) {
        0 => " (<1 %)".to_owned(),
        percent => format!(" ({percent} %)"),
    }
}

fn table(out: &mut impl Write, found: Found<'_>, style: Style) -> io::Result<()> {
    let (one, many) = names(found.by);
    let head = if found.by == By::Bin { "up to" } else { one };
    let made = found.made.then_some(("made", Align::Right));
    let columns = [
        ("change", Align::Right),
        ("blocks", Align::Right),
        ("before", Align::Right),
        ("after", Align::Right),
    ];
    let columns: Vec<_> = columns.into_iter().chain(made).chain([(head, Align::Left)]).collect();
    let mut table = Table::new(style, &columns);
    let outer = vec![String::new(); columns.len() - 1];
    let mut add = |name: String, before: &Figures, after: &Figures, below: Vec<String>| {
        let cells = [
            signed(before.live.bytes, after.live.bytes, |n| Size(n).to_string()),
            signed(before.live.blocks, after.live.blocks, |n| Count(n).to_string()),
            Size(before.live.bytes).to_string(),
            Size(after.live.bytes).to_string(),
        ];
        let size = |n| Size(n).to_string();
        let made = found.made.then(|| signed(before.made.bytes, after.made.bytes, size));
        table.row(cells.into_iter().chain(made).chain([name]));
        for line in below {
            table.row(outer.iter().cloned().chain([format!("  {line}")]));
        }
    };
    let (rows, others) = found.shown();
    let room = live::room(style, if found.made { FIGURES + MADE } else { FIGURES });
    for row in rows {
        let trace = match &row.subject {
            Subject::Caller(caller) => caller.trace.as_deref(),
            Subject::Bin(_) => None,
        };
        let below = |trace| stacks::below(trace, found.whole, room.saturating_sub(2));
        let below = trace.map_or_else(Vec::new, below);
        add(subject(&row.subject, found.by, room), &row.before, &row.after, below);
    }
    for (sum, what) in [(&others, "more (--top 0)"), (&found.diff.unchanged, "without a change")] {
        if sum.rows > 0 {
            let name = format!("… {} {what}", text::counted(sum.rows, one, many));
            add(name, &sum.before, &sum.after, Vec::new());
        }
    }
    let total = &found.diff.total;
    add("total".to_owned(), &total.before, &total.after, Vec::new());
    table.write(out)
}

/// What a row is called.
fn subject(subject: &Subject, by: By, room: usize) -> String {
    match subject {
        Subject::Bin(bin) => Size(bin.unit()).to_string(),
        Subject::Caller(caller) if by == By::Module => match &caller.place {
            Some(place) => place.module.path.clone(),
            None => "-".to_owned(),
        },
        Subject::Caller(caller) => stacks::caller(caller, room),
    }
}

/// A difference with its sign.
fn signed(before: u64, after: u64, text: impl Fn(u64) -> String) -> String {
    match after.checked_sub(before) {
        Some(0) => text(0),
        Some(more) => format!("+{}", text(more)),
        None => format!("-{}", text(before - after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_words() {
        let load = |bytes, blocks| Load { bytes, blocks };
        assert_eq!(
            sentence("made in all", load(1000, 1), load(1500, 2)),
            "Made in all: 1000 B in 1 block before, 1.5 KiB in 2 blocks after: 500 B more (50 %)."
        );
        assert!(sentence("live", load(0, 0), load(5, 1)).ends_with("after: 5 B more."));
        assert!(sentence("live", load(5, 1), load(0, 0)).ends_with("after: 5 B less (100 %)."));
        assert!(sentence("live", load(5, 1), load(5, 2)).ends_with("after: as much."));
        assert_eq!(signed(u64::MAX, 0, |n| n.to_string()), format!("-{}", u64::MAX));
    }
}
