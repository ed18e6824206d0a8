//! `export`: the calls in another format.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use heaptape_analyze::callers::Callers;
use heaptape_analyze::calls::Row;
use heaptape_analyze::choice::Span;
use heaptape_analyze::{ProcessSummary, processes};
use heaptape_report::csv::Csv;
use heaptape_tape::{Columns, Lent, Tape};

use super::open;
use crate::args::{Export, Format};
use crate::names::Names;
use crate::output::Named;
use crate::terminal::Terminal;

/// Writes the chosen calls to a file or to stdout.
pub(crate) fn run(args: &Export, terminal: &Terminal) -> Result<ExitCode> {
    let tape = open::tape(&args.file, terminal)?;
    let Format::Csv = args.to;
    match &args.output {
        None => csv(&tape, args, terminal.out(), terminal)?,
        Some(path) => {
            check_other(path, &args.file)?;
            let name = path.display().to_string();
            let file = File::create(path).with_context(|| format!("cannot create {name}"))?;
            csv(&tape, args, BufWriter::new(Named::new(name, file)), terminal)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses to write over the tape that is being read, under whatever name.
fn check_other(output: &Path, input: &Path) -> Result<()> {
    let identity = |path| fs::metadata(path).map(|m| (m.dev(), m.ino()));
    let same = identity(output).is_ok_and(|o| identity(input).is_ok_and(|i| i == o));
    ensure!(!same, "{} is the tape itself and would be overwritten", output.display());
    Ok(())
}

fn csv(tape: &Tape, args: &Export, out: impl Write, terminal: &Terminal) -> Result<()> {
    let name = || args.file.display().to_string();
    let mut csv = Csv::new(out)?;
    let mut callers = Callers::new(tape);
    let mut names = Names::new(&args.sysroot, tape)?;
    let columns = Columns { notes: false, ..Columns::ALL };
    let processes = processes::all(tape.summary(), args.process).with_context(name)?;
    let span = args.range.unwrap_or(Span::ALL);
    let events = |p: &ProcessSummary| span.within(p.events);
    let all = processes.iter().map(|p| events(p).end - events(p).start).sum();
    let mut progress = terminal.progress(all, args.output.is_none());
    for process in processes {
        let modules = callers.modules(process.number).with_context(name)?;
        let items = tape.events_with(process.number, events(process), columns);
        let mut items = items.with_context(name)?;
        while let Some(item) = items.lend().with_context(name)? {
            if let Lent::Event(event) = item {
                progress.event();
                let mut row = Row::of(event, modules);
                names.complete(&mut row.place);
                csv.row(process.number.0, process.known_pid(), &row)?;
            }
        }
    }
    csv.finish()?.flush()?;
    Ok(())
}
