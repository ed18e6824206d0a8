//! `export`: the calls, the blocks or the call stacks in another format.

mod stacks;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use heaptape_analyze::blocks::{Block, Blocks, Deed};
use heaptape_analyze::callers::Callers;
use heaptape_analyze::calls::Row;
use heaptape_analyze::choice::Span;
use heaptape_analyze::modules::Place;
use heaptape_analyze::{ProcessSummary, processes};
use heaptape_report::columns::{self, BlockRecord, CallRecord, Record};
use heaptape_report::csv::Csv;
use heaptape_report::sheet::Sheet;
use heaptape_tape::{Columns, Item, Lent, Tape};

use super::open;
use crate::args::{Export, Format, Table};
use crate::names::Names;
use crate::output::{Named, check_other};
use crate::progress::Progress;
use crate::terminal::Terminal;

const COLUMNS: Columns = Columns { notes: false, ..Columns::ALL };

/// Writes what is chosen to a file or to stdout.
pub(crate) fn run(args: &Export, terminal: &Terminal) -> Result<ExitCode> {
    check(args)?;
    if !args.to.is_table() {
        return stacks::run(args, terminal);
    }
    let available = args.to == Format::Csv || cfg!(feature = "parquet");
    ensure!(available, "this heaptape was built without the feature parquet; --to csv works");
    let tape = open::tape(&args.file, terminal)?;
    match &args.output {
        None => export(&tape, args, terminal.out(), terminal)?,
        Some(path) => {
            check_other(path, &args.file)?;
            // What is there is lost once the file is created.
            chosen(&tape, args)?;
            let name = path.display().to_string();
            let file = File::create(path).with_context(|| format!("cannot create {name}"))?;
            let out = BufWriter::with_capacity(1 << 16, Named::new(name, file));
            export(&tape, args, out, terminal)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses options that are for other formats.
fn check(args: &Export) -> Result<()> {
    let selection = &args.selection;
    let of_stacks = [
        (args.measured.metric.is_some(), "--metric"),
        (args.measured.at.is_some(), "--at"),
        (selection.focus.is_some(), "--focus"),
        (selection.ignore.is_some(), "--ignore"),
        (selection.raw_frames, "--raw-frames"),
    ];
    let of_tables = [(args.table.is_some(), "--table"), (args.range.is_some(), "--range")];
    let (others, what) = if args.to.is_table() {
        (of_stacks.as_slice(), "call stacks: --to folded, flamegraph, pprof and so on")
    } else {
        (of_tables.as_slice(), "tables: --to csv and parquet")
    };
    args.measured.check()?;
    let name = args.to.name();
    if let Some((_, option)) = others.iter().find(|(is_given, _)| *is_given) {
        bail!("{option} is for {what}, and not for --to {name}");
    }
    ensure!(
        args.label.is_empty() || args.to == Format::Pprof,
        "--label is for --to pprof, and not for --to {name}"
    );
    let is_binary = matches!(args.to, Format::Parquet | Format::Pprof);
    let is_shown = args.output.is_none() && io::stdout().is_terminal();
    ensure!(
        !(is_binary && is_shown),
        "--to {name} is nothing to read on a terminal: name a file with -o, or send stdout to a program"
    );
    Ok(())
}

fn export(tape: &Tape, args: &Export, out: impl Write + Send, terminal: &Terminal) -> Result<()> {
    let table = match args.table() {
        Table::Calls => &CallRecord::TABLE,
        Table::Blocks => &BlockRecord::TABLE,
    };
    let processes = chosen(tape, args)?;
    let all = processes.iter().map(|p| read(args, p)).map(|r| r.end - r.start).sum();
    let mut exporter = Exporter {
        tape,
        args,
        callers: Callers::new(tape),
        names: Names::new(&args.sysroot, tape)?,
        sheet: sheet(tape, args.to, table, out)?,
        progress: terminal.progress(all, args.output.is_none()),
    };
    for process in processes {
        match args.table() {
            Table::Calls => exporter.calls(process)?,
            Table::Blocks => exporter.blocks(process)?,
        }
    }
    Ok(exporter.sheet.finish()?)
}

impl Export {
    fn table(&self) -> Table {
        self.table.unwrap_or(Table::Calls)
    }
}

fn chosen<'a>(tape: &'a Tape, args: &Export) -> Result<Vec<&'a ProcessSummary>> {
    processes::all(tape.summary(), args.selection.process)
        .with_context(|| args.file.display().to_string())
}

#[cfg_attr(not(feature = "parquet"), allow(unused_variables))] // only Parquet says what tape it is of
fn sheet<W: Write + Send>(
    tape: &Tape,
    format: Format,
    table: &columns::Table,
    out: W,
) -> Result<Sheet<W>> {
    Ok(match format {
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            use heaptape_report::parquet::Parquet;
            Sheet::Parquet(Parquet::new(out, table, &tape.summary().header)?)
        }
        _ => Sheet::Csv(Csv::new(out, table)?),
    })
}

/// The events of a process that are asked for.
fn asked(args: &Export, process: &ProcessSummary) -> Range<u64> {
    args.range.unwrap_or(Span::ALL).within(process.events)
}

/// Those that are read for them: a block may end in any later one.
fn read(args: &Export, process: &ProcessSummary) -> Range<u64> {
    let asked = asked(args, process);
    match args.table() {
        Table::Blocks if !asked.is_empty() => asked.start..process.events,
        _ => asked,
    }
}

/// An export that is under way.
struct Exporter<'a, W: Write + Send> {
    tape: &'a Tape,
    args: &'a Export,
    callers: Callers<'a>,
    names: Names,
    sheet: Sheet<W>,
    progress: Progress,
}

impl<W: Write + Send> Exporter<'_, W> {
    fn name(&self) -> String {
        self.args.file.display().to_string()
    }

    fn calls(&mut self, process: &ProcessSummary) -> Result<()> {
        let name = self.name();
        let name = || name.clone();
        let modules = self.callers.modules(process.number).with_context(name)?;
        let range = read(self.args, process);
        let items = self.tape.events_with(process.number, range, COLUMNS);
        let mut items = items.with_context(name)?;
        while let Some(item) = items.lend().with_context(name)? {
            if let Lent::Event(event) = item {
                self.progress.event();
                let mut row = Row::of(event, modules);
                self.names.complete(&mut row.place);
                let (process, pid) = (process.number.0, process.known_pid());
                self.sheet.row(&CallRecord { process, pid, row: &row })?;
            }
        }
        Ok(())
    }

    fn blocks(&mut self, process: &ProcessSummary) -> Result<()> {
        let name = self.name();
        let name = || name.clone();
        let mut blocks = match self.args.range {
            Some(_) => Blocks::born_in(process.number, asked(self.args, process)),
            None => {
                let inherited = self.tape.inherited(process.number).with_context(name)?;
                Blocks::all(process.number, inherited)
            }
        };
        let range = read(self.args, process);
        let items = self.tape.events_with(process.number, range, COLUMNS);
        let mut items = items.with_context(name)?;
        while let Some(item) = items.lend().with_context(name)? {
            if blocks.is_done(item.index()) {
                break;
            }
            match item {
                Lent::Event(event) => {
                    self.progress.event();
                    blocks.event(event, |block| self.block(process, block))?;
                }
                Lent::Other(Item::Release(release)) => {
                    if let Some(block) = blocks.release(release) {
                        self.block(process, &block)?;
                    }
                }
                Lent::Other(_) => {}
            }
        }
        for block in blocks.left() {
            self.block(process, &block)?;
        }
        Ok(())
    }

    fn block(&mut self, process: &ProcessSummary, block: &Block) -> Result<()> {
        let (process, pid) = (process.number.0, process.known_pid());
        let made = self.place(block.birth.as_ref())?;
        let ended = self.place(block.death.as_ref())?;
        let (made, ended) = (made.as_ref(), ended.as_ref());
        Ok(self.sheet.row(&BlockRecord { process, pid, block, made, ended })?)
    }

    fn place(&mut self, deed: Option<&Deed>) -> Result<Option<Place>> {
        let Some(deed) = deed else { return Ok(None) };
        let modules = self
            .callers
            .modules(deed.process)
            .with_context(|| self.args.file.display().to_string())?;
        let mut place = modules.find_call(deed.caller, deed.index);
        self.names.complete(&mut place);
        Ok(place)
    }
}
