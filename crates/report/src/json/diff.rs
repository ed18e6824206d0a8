//! `heaptape.diff/1`: what two moments differ in.

use std::io::{self, Write};

use heaptape_analyze::diff::{By, Figures, Row, Subject, Sum};
use serde::Serialize;

use super::document;
use super::parts::{CallerName, LoadPart, ProcessName};
use super::stacks::{FramePart, frames};
use crate::diff::{Found, Moment};

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    complete: bool,
    before: MomentPart<'a>,
    after: MomentPart<'a>,
    by: &'static str,
    total: SumPart,
    unchanged: SumPart,
    others: SumPart,
    list: Vec<RowPart<'a>>,
}

#[derive(Serialize)]
struct MomentPart<'a> {
    tape: &'a str,
    process: ProcessName<'a>,
    moment: Option<&'static str>,
    at: Option<u64>,
    time_ms: u64,
}

impl<'a> MomentPart<'a> {
    fn of(moment: &Moment<'a>) -> MomentPart<'a> {
        MomentPart {
            tape: moment.tape,
            process: ProcessName::of(moment.process),
            moment: moment.name,
            at: moment.at,
            time_ms: moment.time,
        }
    }
}

#[derive(Serialize)]
struct FiguresPart {
    live: LoadPart,
    made: Option<LoadPart>,
}

#[derive(Serialize)]
struct Difference {
    bytes: i128,
    blocks: i128,
}

#[derive(Serialize)]
struct Sides {
    before: FiguresPart,
    after: FiguresPart,
    /// Of what lives.
    difference: Difference,
}

impl Sides {
    fn of(before: &Figures, after: &Figures, made: bool) -> Sides {
        let part = |figures: &Figures| FiguresPart {
            live: figures.live.into(),
            made: made.then(|| figures.made.into()),
        };
        let more = |after: u64, before: u64| i128::from(after) - i128::from(before);
        Sides {
            before: part(before),
            after: part(after),
            difference: Difference {
                bytes: more(after.live.bytes, before.live.bytes),
                blocks: more(after.live.blocks, before.live.blocks),
            },
        }
    }
}

#[derive(Serialize)]
struct SumPart {
    rows: u64,
    #[serde(flatten)]
    sides: Sides,
}

impl SumPart {
    fn of(sum: &Sum, made: bool) -> SumPart {
        SumPart { rows: sum.rows, sides: Sides::of(&sum.before, &sum.after, made) }
    }
}

#[derive(Serialize)]
struct RowPart<'a> {
    #[serde(flatten)]
    caller: CallerName<'a>,
    unit: Option<u64>,
    #[serde(flatten)]
    sides: Sides,
    frames: Option<Vec<FramePart<'a>>>,
}

impl<'a> RowPart<'a> {
    fn of(row: &'a Row, by: By, made: bool) -> RowPart<'a> {
        let sides = Sides::of(&row.before, &row.after, made);
        let (caller, unit) = match &row.subject {
            Subject::Bin(bin) => (None, Some(bin.unit())),
            Subject::Caller(caller) => (Some(caller), None),
        };
        let place = caller.and_then(|c| c.place.as_ref());
        let address = caller.map_or(0, |c| c.address);
        RowPart {
            caller: match by {
                By::Module => CallerName::of_module(place),
                _ => CallerName::of(place, address),
            },
            unit,
            sides,
            frames: caller.and_then(frames),
        }
    }
}

/// Writes all of it.
pub fn write(out: &mut impl Write, found: Found<'_>) -> io::Result<()> {
    let [before, after] = &found.moments;
    let (rows, others) = found.shown();
    document(
        out,
        &Document {
            schema: "heaptape.diff/1",
            complete: before.complete && after.complete,
            before: MomentPart::of(before),
            after: MomentPart::of(after),
            by: match found.by {
                By::Caller => "caller",
                By::Bin => "bin",
                By::Module => "module",
                By::Site => "site",
            },
            total: SumPart::of(&found.diff.total, found.made),
            unchanged: SumPart::of(&found.diff.unchanged, found.made),
            others: SumPart::of(&others, found.made),
            list: rows.into_iter().map(|row| RowPart::of(row, found.by, found.made)).collect(),
        },
    )
}
