//! What a plot shows: how much was requested, usable, mapped and in RAM, over the call index or over time.
//!
//! The calls come from the tape's stream, one pass over each process, and the samples from its marks. A curve is
//! a list of [`Column`]s, about one a pixel, each with the least and the most of what lies in it, so that nothing
//! between two pixels is lost. Memory is bounded by what the tape's stream itself holds, the live set.

mod kernel;
mod run;

use std::ops::Range;

use heaptape_tape::{ProcessSummary, Tape};

use crate::Error;
use crate::choice::Window;
use crate::timeline::Axis;
use heaptape_ledger::Bounds;

/// What a curve tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Requested bytes, after every call.
    Requested,
    /// Usable bytes, after every call.
    Usable,
    /// The writable, committed part of the address space, in samples of the kernel's.
    System,
    /// Pages in RAM, in samples of the kernel's.
    Resident,
}

impl Figure {
    /// All of them.
    pub const ALL: [Figure; 4] =
        [Figure::Requested, Figure::Usable, Figure::System, Figure::Resident];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Requested => "requested",
            Figure::Usable => "usable",
            Figure::System => "system",
            Figure::Resident => "resident",
        }
    }
}

/// A short part of the axis, in bytes. It ends where the next begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Where it begins.
    pub at: u64,
    /// The level as it began.
    pub began: u64,
    /// The level as it ended.
    pub ended: u64,
    /// The least in it, `began` included.
    pub least: u64,
    /// The most in it, `began` included.
    pub most: u64,
}

/// A curve of one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// What it tells.
    pub figure: Figure,
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// Where the last column ends.
    pub end: u64,
    /// The samples that it was made of, as places on the axis with bytes; none for exact curves.
    pub samples: Vec<(u64, u64)>,
}

/// The most requested bytes of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summit {
    /// Where on the axis.
    pub at: u64,
    /// The bytes: of several processes only their bounds are known.
    pub bytes: Bounds,
}

/// A tape's curves over a part of the axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curves {
    /// One for each figure that is known.
    pub curves: Vec<Curve>,
    /// Where most was requested; `None` if nothing ever was.
    pub summit: Option<Summit>,
}

impl Curves {
    /// The curve of a figure.
    pub fn of(&self, figure: Figure) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.figure == figure)
    }
}

/// What is drawn of one tape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its curves over the chosen part.
    pub near: Curves,
    /// Over the whole run, where another part was chosen.
    pub whole: Option<Curves>,
}

/// Everything that a plot shows, but for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// What it runs over. Times are milliseconds since each recording began.
    pub axis: Axis,
    /// The whole run; the longest of several.
    pub whole: Range<u64>,
    /// The part that is drawn large.
    pub part: Range<u64>,
    /// The tapes.
    pub runs: Vec<Run>,
}

/// A tape with the processes of it that are wanted.
pub struct Source<'a> {
    /// The tape.
    pub tape: &'a Tape,
    /// Those of its processes, in order of start.
    pub processes: Vec<&'a ProcessSummary>,
}

impl Source<'_> {
    /// How many events there are.
    pub fn events(&self) -> u64 {
        self.processes.iter().map(|process| process.events).sum()
    }
}

/// What is wanted of the drawing.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// What it runs over.
    pub axis: Axis,
    /// The part that is drawn large, if not all.
    pub window: Option<Window>,
    /// How many columns fit.
    pub columns: usize,
}

/// Reads the events of the sources, each once. `progress` is told how many more have been read. Curves over the
/// index are of the first process of each source.
pub fn draw(
    sources: &[Source<'_>],
    wish: &Wish,
    progress: &mut dyn FnMut(u64),
) -> Result<Drawing, Error> {
    let ranges: Vec<Range<u64>> =
        sources.iter().map(|source| run::range(source, wish.axis)).collect::<Result<_, _>>()?;
    let start = ranges.iter().map(|range| range.start).min().unwrap_or(0);
    let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    let whole = start..end.max(start.saturating_add(1));
    let part = part(&whole, wish)?;
    let mut runs = Vec::new();
    for (source, range) in sources.iter().zip(&ranges) {
        runs.push(run::of(source, range, &whole, &part, wish, progress)?);
    }
    Ok(Drawing { axis: wish.axis, whole, part, runs })
}

/// The part of the axis that is wanted, within the run.
fn part(whole: &Range<u64>, wish: &Wish) -> Result<Range<u64>, Error> {
    let span = match (wish.axis, wish.window) {
        (_, None) => return Ok(whole.clone()),
        (Axis::Time, Some(Window::Millis(span) | Window::Bare { millis: span, .. })) => span,
        (Axis::Index, Some(Window::Millis(_))) => return Err(Error::TimeOverIndex),
        (Axis::Index, Some(Window::Bare { indexes, .. })) => {
            indexes.ok_or(Error::FractionalIndexes)?
        }
    };
    let within = span.within(u64::MAX);
    let (start, end) = (within.start.max(whole.start), within.end.min(whole.end));
    if start < end {
        return Ok(start..end);
    }
    Err(match wish.axis {
        Axis::Index => Error::OutsideCalls { calls: whole.end },
        Axis::Time => Error::OutsideTime { from: whole.start, to: whole.end },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(axis: Axis, window: &str) -> Wish {
        Wish { axis, window: Some(window.parse().unwrap()), columns: 100 }
    }

    #[test]
    fn a_part_lies_within_the_run() {
        let of = |window: &str| part(&(0..1000), &wish(Axis::Index, window)).unwrap();
        assert_eq!(of("10..20"), 10..20);
        assert_eq!(of("990..5000"), 990..1000);
        assert_eq!(of("7..8"), 7..8);
        assert_eq!(of(".."), 0..1000);
        let time = part(&(500..9000), &wish(Axis::Time, "0..2")).unwrap();
        assert_eq!(time, 500..2000);
    }

    #[test]
    fn a_range_of_nothing_is_told() {
        for nothing in ["5000..6000", "1000..", "7..7"] {
            let error = part(&(0..1000), &wish(Axis::Index, nothing)).unwrap_err();
            assert!(matches!(error, Error::OutsideCalls { calls: 1000 }), "{error}");
        }
        let error = part(&(500..9000), &wish(Axis::Time, "9..10")).unwrap_err();
        assert!(error.to_string().contains("0.500 s to 9.000 s"), "{error}");
    }

    #[test]
    fn a_range_must_suit_the_axis() {
        let error = part(&(0..9), &wish(Axis::Index, "1s..2s")).unwrap_err();
        assert!(matches!(error, Error::TimeOverIndex), "{error}");
        let error = part(&(0..9), &wish(Axis::Index, "1.5..2")).unwrap_err();
        assert!(matches!(error, Error::FractionalIndexes), "{error}");
    }
}
