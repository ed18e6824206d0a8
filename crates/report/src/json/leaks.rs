//! `heaptape.leaks/1`: what is never freed, by caller.

use std::io::{self, Write};

use heaptape_analyze::growth::Growth;
use heaptape_analyze::leaks::{Birth, Fate, Kept, Leaver, Sums};
use heaptape_analyze::timeline::Axis;
use serde::Serialize;

use super::document;
use super::parts::{CallerName, LoadPart, ProcessName};
use super::stacks::{FramePart, frames};
use crate::leaks::Found;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    tape: &'a str,
    complete: bool,
    ignored_last: Option<String>,
    growing_only: bool,
    #[serde(flatten)]
    sums: SumsPart,
    processes: Vec<ProcessPart<'a>>,
    callers: Vec<CallerPart<'a>>,
    callers_in_all: usize,
    suppressions: Vec<SuppressionPart<'a>>,
}

#[derive(Serialize)]
struct SumsPart {
    left: LoadPart,
    ignored: LoadPart,
    suppressed: LoadPart,
    inherited: LoadPart,
}

impl From<Sums> for SumsPart {
    fn from(sums: Sums) -> SumsPart {
        SumsPart {
            left: sums.left.into(),
            ignored: sums.recent.into(),
            suppressed: sums.suppressed.into(),
            inherited: sums.inherited.into(),
        }
    }
}

#[derive(Serialize)]
struct ProcessPart<'a> {
    #[serde(flatten)]
    name: ProcessName<'a>,
    end: &'static str,
    ignored_from: u64,
    #[serde(flatten)]
    sums: SumsPart,
}

impl<'a> ProcessPart<'a> {
    fn of(leaver: &'a Leaver) -> ProcessPart<'a> {
        ProcessPart {
            name: ProcessName::of(&leaver.process),
            end: match leaver.fate {
                Fate::Exited => "exit",
                Fate::Killed => "signal",
                Fate::Replaced => "exec",
                Fate::Unknown => "unknown",
                Fate::Unfinished => "unfinished",
            },
            ignored_from: leaver.ignored_from,
            sums: leaver.sums.into(),
        }
    }
}

#[derive(Serialize)]
struct BirthPart {
    process: u32,
    index: u64,
    time_ms: u64,
    size: u64,
}

impl From<Birth> for BirthPart {
    fn from(birth: Birth) -> BirthPart {
        let Birth { process, index, time, size } = birth;
        BirthPart { process: process.0, index, time_ms: time, size }
    }
}

#[derive(Serialize)]
struct CallerPart<'a> {
    #[serde(flatten)]
    caller: CallerName<'a>,
    bytes: u64,
    blocks: u64,
    made: LoadPart,
    unloaded: LoadPart,
    oldest: BirthPart,
    newest: BirthPart,
    growth: &'static str,
    /// The eighth that the word is about: since, until or at.
    eighth: usize,
    /// What the eighths are of: `time` or `calls`.
    axis: &'static str,
    /// The process that the word and the eighths are about, by its number, and what it left of this caller.
    at_process: u32,
    at_left: LoadPart,
    at: Vec<LoadPart>,
    frames: Option<Vec<FramePart<'a>>>,
}

impl<'a> CallerPart<'a> {
    fn of(kept: &'a Kept) -> CallerPart<'a> {
        let (address, place) = (kept.caller.address, kept.caller.place.as_ref());
        let growth: Growth = kept.growth();
        CallerPart {
            caller: CallerName::of(place, address),
            bytes: kept.left.bytes,
            blocks: kept.left.blocks,
            made: kept.made.into(),
            unloaded: kept.unloaded.into(),
            oldest: kept.oldest.into(),
            newest: kept.newest.into(),
            growth: growth.name(),
            eighth: growth.eighth(),
            axis: match kept.course.axis {
                Axis::Index => "calls",
                Axis::Time => "time",
            },
            at_process: kept.course.process.0,
            at_left: kept.course.left.into(),
            at: kept.course.at.iter().map(|&load| load.into()).collect(),
            frames: frames(&kept.caller),
        }
    }
}

#[derive(Serialize)]
struct SuppressionPart<'a> {
    pattern: &'a str,
    line: usize,
    callers: u64,
    bytes: u64,
    blocks: u64,
}

/// Writes all of it.
pub fn write(out: &mut impl Write, found: Found<'_>) -> io::Result<()> {
    let suppressions = found.suppressions.into_iter().flat_map(|s| s.iter());
    document(
        out,
        &Document {
            schema: "heaptape.leaks/1",
            tape: found.tape,
            complete: found.summary.complete,
            ignored_last: found.ignored.map(|part| part.to_string()),
            growing_only: found.others.is_some(),
            sums: found.leaks.sums.into(),
            processes: found.leaks.processes.iter().map(ProcessPart::of).collect(),
            callers: found.shown().iter().map(CallerPart::of).collect(),
            callers_in_all: found.leaks.callers.len(),
            suppressions: suppressions
                .map(|s| SuppressionPart {
                    pattern: s.pattern(),
                    line: s.line(),
                    callers: s.callers(),
                    bytes: s.matched().bytes,
                    blocks: s.matched().blocks,
                })
                .collect(),
        },
    )
}
