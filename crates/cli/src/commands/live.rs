//! `live`: the blocks that are alive at a moment.

use std::cmp::Reverse;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use heaptape_analyze::bins::Bin;
use heaptape_analyze::callers::Callers;
use heaptape_analyze::choice::Moment;
use heaptape_analyze::live::Part;
use heaptape_analyze::modules::Place;
use heaptape_analyze::{LiveBlock, ProcessSummary, live, moment, processes};
use heaptape_report::json::live::Head;
use heaptape_report::size::Millis;
use heaptape_report::{json, live as report, text};
use heaptape_tape::Tape;

use super::open;
use crate::args::{By, Live};
use crate::names::Names;
use crate::terminal::Terminal;

/// Blocks or callers that are shown unless told otherwise.
const TOP: usize = 20;

/// Prints the live set, or the sums of its parts.
pub(crate) fn run(args: &Live, terminal: &Terminal) -> Result<ExitCode> {
    let tape = open::tape(&args.file, terminal)?;
    let name = || args.file.display().to_string();
    let process = processes::one(tape.summary(), args.process).with_context(name)?;
    if let Some(what) = beyond(args.at, &tape, process).with_context(name)? {
        terminal.say(&format!("{} {what}.", text::process(process)));
    }
    print(args, &tape, process, terminal)?;
    Ok(ExitCode::SUCCESS)
}

/// What there is of a process, if the moment lies beyond it.
pub(super) fn beyond(at: Moment, tape: &Tape, process: &ProcessSummary) -> Result<Option<String>> {
    Ok(match at {
        Moment::Index(index) if index >= process.events => {
            let events = text::counted(process.events, "event", "events");
            Some(format!("has {events}; this is after the last"))
        }
        Moment::Millis(time) => {
            let last = moment::last_time(tape, process)?;
            (time > last)
                .then(|| format!("is on the tape up to {}; this is after it", Millis(last)))
        }
        _ => None,
    })
}

fn print(args: &Live, tape: &Tape, process: &ProcessSummary, terminal: &Terminal) -> Result<()> {
    let name = || args.file.display().to_string();
    let made = moment::events_made(tape, process, args.at).with_context(name)?;
    let mut blocks = live::after(tape, process.number, made).with_context(name)?;
    let sum = live::Sum::of(&blocks);
    let head =
        Head { complete: tape.summary().complete, process, at: made.checked_sub(1), sum: &sum };
    let mut callers = Callers::new(tape);
    let mut names = Names::new(&args.sysroot, tape)?;
    let mut out = terminal.out();
    if !args.json {
        report::head(&mut out, head.at, &text::process(process), &sum)?;
        writeln!(out)?;
    }
    let style = terminal.style();
    match args.by {
        Some(By::Caller) => {
            let mut parts = live::by_caller(&blocks, |b| callers.of_block(b)).with_context(name)?;
            let all = parts.len();
            parts.truncate(top(&parts, args.top.unwrap_or(TOP)).len());
            parts.iter_mut().for_each(|part| names.complete(&mut part.key.place));
            if args.json {
                json::live::callers(&mut out, head, &parts)?;
            } else {
                report::callers(&mut out, &parts, style)?;
                report::rest(&mut out, parts.len(), all, "callers")?;
            }
        }
        Some(By::Site) => {
            let mut parts = live::by_site(&blocks, &mut callers).with_context(name)?;
            // Only names tell which of them are the same line.
            parts.iter_mut().for_each(|p| names.complete_caller(&mut p.key, tape.summary()));
            let mut parts = live::fold(parts);
            let all = parts.len();
            parts.truncate(top(&parts, args.top.unwrap_or(TOP)).len());
            if args.json {
                json::live::sites(&mut out, head, &parts)?;
            } else {
                report::sites(&mut out, &parts, args.stacks, style)?;
                report::rest(&mut out, parts.len(), all, "sites")?;
            }
        }
        Some(By::Bin) => {
            // A histogram with its tail cut off would mislead, so all are shown unless told otherwise.
            let parts = live::by_bin(&blocks);
            let all = parts.len();
            let parts = largest(parts, args.top.unwrap_or(0));
            if args.json {
                json::live::bins(&mut out, head, &parts)?;
            } else {
                report::bins(&mut out, &parts, style)?;
                report::rest(&mut out, parts.len(), all, "size classes")?;
            }
        }
        None => {
            live::sort(&mut blocks);
            let mut shown = with_places(top(&blocks, args.top.unwrap_or(TOP)), &mut callers)
                .with_context(name)?;
            shown.iter_mut().for_each(|(_, place)| names.complete(place));
            if args.json {
                json::live::blocks(&mut out, head, &shown)?;
            } else {
                report::blocks(&mut out, &shown, style)?;
                report::rest(&mut out, shown.len(), blocks.len(), "blocks")?;
            }
        }
    }
    Ok(out.flush()?)
}

/// The `n` bins with most requested bytes, still in order of size; all for 0.
fn largest(mut parts: Vec<Part<Bin>>, n: usize) -> Vec<Part<Bin>> {
    if n > 0 && n < parts.len() {
        parts.sort_by_key(|p| Reverse(p.sum.requested));
        parts.truncate(n);
        parts.sort_by_key(|p| p.key);
    }
    parts
}

/// The first `n`; all for 0.
fn top<T>(list: &[T], n: usize) -> &[T] {
    if n == 0 { list } else { list.get(..n).unwrap_or(list) }
}

fn with_places(
    blocks: &[LiveBlock],
    callers: &mut Callers<'_>,
) -> Result<Vec<(LiveBlock, Option<Place>)>> {
    blocks.iter().map(|block| Ok((*block, callers.of_block(block)?))).collect()
}
