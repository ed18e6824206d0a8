//! `leaks`: what is never freed.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use heaptape_analyze::callers::Callers;
use heaptape_analyze::leaks::{self, Plan};
use heaptape_analyze::live::Caller;
use heaptape_analyze::processes;
use heaptape_analyze::suppressions::Suppressions;
use heaptape_report::leaks::Found;
use heaptape_report::{json, leaks as report, text};
use heaptape_tape::Tape;

use super::open;
use crate::args::Leaks;
use crate::names::Names;
use crate::terminal::Terminal;

/// Prints what is left. With `--check` anything that is left is a failure.
pub(crate) fn run(args: &Leaks, terminal: &Terminal) -> Result<ExitCode> {
    let mut suppressions = args.suppress.as_deref().map(suppressions).transpose()?;
    let tape = open::tape(&args.file, terminal)?;
    let name = || args.file.display().to_string();
    let (leaks, others) = find(args, &tape, &mut suppressions, terminal).with_context(name)?;
    let tape_name = name();
    let found = Found {
        tape: &tape_name,
        summary: tape.summary(),
        leaks: &leaks,
        ignored: args.ignore_last,
        suppressions: suppressions.as_ref(),
        others,
        top: args.top,
    };
    let mut out = terminal.out();
    if args.json {
        json::leaks::write(&mut out, found)?;
    } else {
        report::write(&mut out, found, terminal.style(), args.verbose)?;
    }
    out.flush()?;
    if args.check && found.wanted().blocks > 0 {
        bail!("{}: {}", name(), found.sentence());
    }
    Ok(ExitCode::SUCCESS)
}

/// What is left, and how much of it is of callers that were not wanted as they do not grow.
fn find(
    args: &Leaks,
    tape: &Tape,
    suppressions: &mut Option<Suppressions>,
    terminal: &Terminal,
) -> Result<(leaks::Leaks, Option<heaptape_analyze::lives::Load>)> {
    let chosen = processes::all(tape.summary(), args.process)?;
    let events = chosen.iter().map(|process| process.events).sum();
    let mut progress = terminal.progress(events, false);
    let mut names = Names::new(&args.sysroot, tape)?;
    let mut plan = Plan {
        ignored: args.ignore_last,
        suppressed: &mut |caller, left| {
            let Some(suppressions) = suppressions else { return false };
            let texts = texts(caller.clone(), &mut names);
            suppressions.take(&texts.each_ref().map(String::as_str), left)
        },
        progress: &mut |events| progress.events(events),
    };
    let mut leaks = leaks::Leaks::of(tape, &chosen, &mut Callers::new(tape), &mut plan)?;
    let others = args.growing.then(|| leaks.retain_growing());
    leaks.callers.iter_mut().for_each(|kept| names.complete(&mut kept.caller.place));
    Ok((leaks, others))
}

/// What suppressions are held against: the function, the module's path, and the caller as it is printed.
fn texts(mut caller: Caller, names: &mut Names) -> [String; 3] {
    names.complete(&mut caller.place);
    let place = caller.place.as_ref();
    let function = place.and_then(|p| p.function.as_deref()).unwrap_or_default();
    let path = place.map(|p| p.module.path.clone()).unwrap_or_default();
    [function.to_owned(), path, text::caller(place, caller.address)]
}

fn suppressions(path: &Path) -> Result<Suppressions> {
    let name = || path.display().to_string();
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", name()))?;
    Suppressions::parse(&String::from_utf8_lossy(&bytes)).with_context(name)
}
