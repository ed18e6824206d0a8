//! `leaks`: what is never freed, on a tape or on each of several.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use heaptape_analyze::callers::Callers;
use heaptape_analyze::leaks::{self, Plan};
use heaptape_analyze::live::Caller;
use heaptape_analyze::suppressions::Suppressions;
use heaptape_analyze::{Summary, processes};
use heaptape_report::leaks::Found;
use heaptape_report::{json, leaks as report, text};
use heaptape_tape::Tape;

use super::open;
use crate::args::Leaks;
use crate::names::Names;
use crate::terminal::Terminal;

/// The exit status of a check that is not passed; 1 is for what went wrong, as everywhere.
const NOT_PASSED: u8 = 3;

/// Prints what is left. With `--check` anything that is left is a failure, and so is a tape that can't tell. A tape
/// that can't be read keeps no other from being shown.
pub(crate) fn run(args: &Leaks, terminal: &Terminal) -> Result<ExitCode> {
    let suppressions = args.suppress.as_deref().map(suppressions).transpose()?;
    let (mut wrong, mut not_passed) = (false, false);
    for (n, file) in args.files.iter().enumerate() {
        if args.files.len() > 1 && !args.json {
            title(file, n == 0, terminal)?;
        }
        match one(file, args, suppressions.clone(), terminal) {
            Ok(None) => {}
            Ok(Some(why)) => {
                not_passed = true;
                terminal.error(&format!("{}: {why}", file.display()));
            }
            Err(error) if args.files.len() == 1 => return Err(error),
            Err(error) => {
                wrong = true;
                terminal.error(&format!("{error:#}"));
            }
        }
    }
    Ok(match (wrong, not_passed) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(NOT_PASSED),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// Which of several tapes the following is about.
fn title(file: &Path, is_first: bool, terminal: &Terminal) -> io::Result<()> {
    let mut out = terminal.out();
    if !is_first {
        writeln!(out)?;
    }
    writeln!(out, "{}", text::plain(&file.display().to_string()))?;
    out.flush()
}

/// Prints what is left on one tape; tells why it does not pass the check, where there is to be one.
fn one(
    file: &Path,
    args: &Leaks,
    mut suppressions: Option<Suppressions>,
    terminal: &Terminal,
) -> Result<Option<String>> {
    let (tape, incomplete) = open::judged(file)?;
    let name = file.display().to_string();
    if let Some(why) = incomplete.as_ref().filter(|_| !args.check) {
        terminal.say(&format!("{name} is incomplete: {why}."));
    }
    let found = find(args, &tape, &mut suppressions, terminal);
    let (leaks, others) = found.with_context(|| name.clone())?;
    let found = Found {
        tape: &name,
        summary: tape.summary(),
        leaks: &leaks,
        ignored: args.ignore_last,
        suppressions: suppressions.as_ref(),
        others,
        top: args.top,
        whole: args.stacks,
    };
    let fault = if args.check { fault(found, incomplete) } else { None };
    match print(found, args, terminal) {
        // Who reads the beginning only has not made the check pass.
        Err(why) if why.kind() == ErrorKind::BrokenPipe && fault.is_some() => {}
        printed => printed?,
    }
    Ok(fault)
}

fn print(found: Found<'_>, args: &Leaks, terminal: &Terminal) -> io::Result<()> {
    let mut out = terminal.out();
    if args.json {
        json::leaks::write(&mut out, found)?;
    } else {
        report::write(&mut out, found, terminal.style(), args.verbose)?;
    }
    out.flush()
}

/// Why this does not pass a check.
fn fault(found: Found<'_>, incomplete: Option<String>) -> Option<String> {
    let leaks = found.leaks;
    if let Some(why) = incomplete {
        return Some(format!("The tape is incomplete and passes no check: {why}."));
    }
    if leaks.processes.iter().all(|leaver| leaver.process.events == 0) {
        return Some("There is no event to be judged, which passes no check.".to_owned());
    }
    (found.wanted().blocks > 0).then(|| found.sentence())
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
            let texts = texts(caller.clone(), &mut names, tape.summary());
            suppressions.take(&texts.iter().map(String::as_str).collect::<Vec<_>>(), left)
        },
        progress: &mut |events| progress.events(events),
    };
    let mut leaks = leaks::Leaks::of(tape, &chosen, &mut Callers::new(tape), &mut plan)?;
    // Only names tell which of the stacks are of the same lines.
    let on_stacks = leaks.callers.iter_mut().filter(|kept| kept.caller.trace.is_some());
    on_stacks.for_each(|kept| names.complete_caller(&mut kept.caller, tape.summary()));
    leaks.fold();
    let others = args.growing.then(|| leaks.retain_growing());
    let shown = if args.top == 0 { usize::MAX } else { args.top };
    let shown = leaks.callers.iter_mut().take(shown);
    shown.for_each(|kept| names.complete(&mut kept.caller.place));
    Ok((leaks, others))
}

/// What suppressions are held against: the function, the module's path, and the caller as it is printed; the same of
/// every call on its stack.
fn texts(mut caller: Caller, names: &mut Names, summary: &Summary) -> Vec<String> {
    names.complete_caller(&mut caller, summary);
    let place = caller.place.as_ref();
    let function = place.and_then(|p| p.function.as_deref()).unwrap_or_default();
    let path = place.map(|p| p.module.path.clone()).unwrap_or_default();
    let mut texts = vec![function.to_owned(), path, text::caller(place, caller.address)];
    for frame in caller.trace.iter().flat_map(|trace| &trace.frames) {
        texts.extend([frame.function.to_string(), frame.module.to_string()]);
        texts.push(text::named_frame(frame));
    }
    texts
}

fn suppressions(path: &Path) -> Result<Suppressions> {
    let name = || path.display().to_string();
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", name()))?;
    Suppressions::parse(&String::from_utf8_lossy(&bytes)).with_context(name)
}
