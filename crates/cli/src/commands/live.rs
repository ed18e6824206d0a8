//! `live`: the blocks that are alive at a moment.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use heaptape_analyze::callers::Callers;
use heaptape_analyze::modules::Place;
use heaptape_analyze::{LiveBlock, ProcessSummary, live, moment, processes};
use heaptape_report::json::live::Head;
use heaptape_report::{json, live as report, text};
use heaptape_tape::Tape;

use super::open;
use crate::args::{By, Live};
use crate::terminal::Terminal;

/// Prints the live set, or the sums of its parts.
pub(crate) fn run(args: &Live, terminal: &Terminal) -> Result<ExitCode> {
    let tape = open::tape(&args.file, terminal)?;
    let process = processes::one(tape.summary(), args.process)?;
    print(args, &tape, process, terminal)?;
    Ok(ExitCode::SUCCESS)
}

fn print(args: &Live, tape: &Tape, process: &ProcessSummary, terminal: &Terminal) -> Result<()> {
    let name = || args.file.display().to_string();
    let made = moment::events_made(tape, process, args.at).with_context(name)?;
    let mut blocks = live::after(tape, process.number, made).with_context(name)?;
    let sum = live::Sum::of(&blocks);
    let head =
        Head { complete: tape.summary().complete, process, at: made.checked_sub(1), sum: &sum };
    let mut callers = Callers::new(tape);
    let mut out = terminal.out();
    if !args.json {
        report::head(&mut out, head.at, &text::process(process), &sum)?;
        writeln!(out)?;
    }
    let style = terminal.style();
    match args.by {
        Some(By::Caller) => {
            let parts = live::by_caller(&blocks, |b| callers.of_block(b)).with_context(name)?;
            let shown = top(&parts, args.top);
            if args.json {
                json::live::callers(&mut out, head, shown)?;
            } else {
                report::callers(&mut out, shown, style)?;
                report::rest(&mut out, shown.len(), parts.len(), "callers")?;
            }
        }
        Some(By::Bin) => {
            // A histogram with its tail cut off would mislead, so all bins are shown.
            let parts = live::by_bin(&blocks);
            if args.json {
                json::live::bins(&mut out, head, &parts)?;
            } else {
                report::bins(&mut out, &parts, style)?;
            }
        }
        None => {
            live::sort(&mut blocks);
            let shown = with_places(top(&blocks, args.top), &mut callers).with_context(name)?;
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
