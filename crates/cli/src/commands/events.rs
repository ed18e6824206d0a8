//! `events`: the calls of a process, or their size classes.

use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Context, Result};
use heaptape_analyze::bins::Histogram;
use heaptape_analyze::callers::Callers;
use heaptape_analyze::calls::Row;
use heaptape_analyze::choice::Span;
use heaptape_analyze::filter::Filter;
use heaptape_analyze::stack::{Named, Stack};
use heaptape_analyze::{ProcessSummary, gather, live, processes};
use heaptape_report::{Style, events, json, stacks, text};
use heaptape_tape::{Columns, Item, Lent, Tape};

use super::open;
use crate::args::{Events, Sysroot};
use crate::names::Names;
use crate::terminal::Terminal;

/// How many calls `--around` shows before and after.
const MARGIN: u64 = 10;

/// Prints calls in their order, each as soon as it is read.
pub(crate) fn run(args: Events, terminal: &Terminal) -> Result<ExitCode> {
    let tape = open::tape(&args.file, terminal)?;
    let listing = Listing {
        process: processes::one(tape.summary(), args.process)
            .with_context(|| args.file.display().to_string())?,
        span: match args.around {
            Some(index) => Span::around(index, MARGIN),
            None => args.range.unwrap_or(Span::ALL),
        },
        filter: Filter { calls: args.call, sizes: args.size, thread: args.thread },
        notes: args.notes,
        stacks: args.stacks,
        json: args.json,
        sysroot: args.sysroot,
        tape: &tape,
        name: args.file.display().to_string(),
    };
    if listing.stacks && listing.process.events > 0 && listing.process.sites.sites == 0 {
        terminal.say(stacks::no_stacks(&[listing.process]));
    }
    let any =
        if args.histogram { listing.histogram(terminal)? } else { listing.calls(terminal)? };
    if !any {
        terminal.say(&listing.nothing());
    }
    Ok(ExitCode::SUCCESS)
}

struct Listing<'a> {
    tape: &'a Tape,
    /// The tape's name, for errors.
    name: String,
    process: &'a ProcessSummary,
    span: Span,
    filter: Filter,
    notes: bool,
    stacks: bool,
    json: bool,
    sysroot: Sysroot,
}

impl Listing<'_> {
    fn range(&self) -> Range<u64> {
        self.span.within(self.process.events)
    }

    /// Why nothing was listed.
    fn nothing(&self) -> String {
        let process = text::process(self.process);
        let events = text::counted(self.process.events, "event", "events");
        if self.range().is_empty() {
            format!("{process} has {events}, and none in this range.")
        } else {
            format!("Nothing matches; {process} has {events}.")
        }
    }

    /// Lists the calls; `false` if there was nothing to list.
    fn calls(&self, terminal: &Terminal) -> Result<bool> {
        let mut out = terminal.out();
        let any;
        if self.json {
            let complete = self.tape.summary().complete;
            let mut lines = json::events::Events::new(&mut out, complete, self.process)?;
            any = self.each(&mut lines)?;
            lines.finish()?;
        } else {
            let process = Some(self.process);
            let style = terminal.style();
            any = self.each(&mut Lines { out: &mut out, process, style })?;
        }
        out.flush()?;
        Ok(any)
    }

    fn each(&self, sink: &mut impl Sink) -> Result<bool> {
        let mut any = false;
        let mut callers = Callers::new(self.tape);
        let mut names = Names::new(&self.sysroot, self.tape)?;
        let name = || self.name.clone();
        let modules = callers.modules(self.process.number).with_context(name)?;
        let columns = Columns { notes: self.notes, ..Columns::ALL };
        let sites = self.stacks.then(|| self.tape.sites(self.process.number)).transpose();
        let sites = sites.with_context(name)?;
        let mut range = self.range();
        if range.end == self.process.events {
            // What stands after the last call belongs to the listing too.
            range.end = u64::MAX;
        }
        let items = self.tape.events_with(self.process.number, range, columns);
        for item in items.with_context(name)? {
            match item.with_context(name)? {
                Item::Event(event) if self.filter.admits(&event) => {
                    let mut row = Row::of(&event, modules);
                    names.complete(&mut row.place);
                    let site = sites.as_ref().zip(row.site);
                    let stack =
                        site.and_then(|(sites, site)| Stack::of(sites, site, modules, row.index));
                    let stack = stack.map(|stack| Named {
                        frames: gather::all_named(&stack, self.process, &mut names),
                        end: stack.end,
                    });
                    sink.row(&row, stack.as_ref())?;
                    any = true;
                }
                Item::Event(_) => {}
                item if self.notes && self.filter.admits_thread(thread_of(&item)) => {
                    sink.between(&item)?;
                    any = true;
                }
                _ => {}
            }
        }
        Ok(any)
    }

    /// Prints the size classes; `false` if nothing is in any.
    fn histogram(&self, terminal: &Terminal) -> Result<bool> {
        let histogram = self.counted(terminal)?;
        let any = histogram.bins().next().is_some();
        let mut out = terminal.out();
        let balanced = self.filter.balances();
        if self.json {
            let complete = self.tape.summary().complete;
            json::histogram::write(&mut out, complete, self.process, &histogram, balanced)?;
        } else if any {
            writeln!(out, "Sizes requested by {}:\n", text::process(self.process))?;
            events::histogram(&mut out, &histogram, balanced, terminal.style())?;
        }
        out.flush()?;
        Ok(any)
    }

    /// What the calls of the range did. A range without calls has none of the blocks before it.
    fn counted(&self, terminal: &Terminal) -> Result<Histogram> {
        let range = self.range();
        let mut histogram = Histogram::new();
        if range.is_empty() {
            return Ok(histogram);
        }
        let name = || self.name.clone();
        let before = live::after(self.tape, self.process.number, range.start);
        let before = before.with_context(name)?;
        for block in before.iter().filter(|b| self.filter.admits_size(b.size)) {
            histogram.begin(block.size);
        }
        let mut progress = terminal.progress(range.end - range.start, false);
        let items = self.tape.events_with(self.process.number, range, Columns::REPLAY);
        let mut items = items.with_context(name)?;
        while let Some(item) = items.lend().with_context(name)? {
            if let Lent::Event(event) = item {
                progress.event();
                histogram.call(event, &self.filter);
            }
        }
        Ok(histogram)
    }
}

/// The thread of what stands between calls; samples are of the whole process.
fn thread_of(item: &Item) -> Option<u32> {
    match item {
        Item::Event(event) => Some(event.event.thread),
        Item::Release(release) => Some(release.thread),
        Item::Note { note, .. } => Some(note.thread),
        Item::Sample(_) => None,
    }
}

/// Where calls and what stands between them go.
trait Sink {
    fn row(&mut self, row: &Row, stack: Option<&Named>) -> io::Result<()>;
    fn between(&mut self, item: &Item) -> io::Result<()>;
}

impl<W: Write> Sink for json::events::Events<W> {
    fn row(&mut self, row: &Row, stack: Option<&Named>) -> io::Result<()> {
        self.row(row, stack)
    }

    fn between(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Event(_) => Ok(()),
            Item::Release(release) => self.release(release),
            Item::Note { index, note } => self.note(*index, note),
            Item::Sample(sample) => self.sample(sample),
        }
    }
}

/// Lines for people, with the head above the first.
struct Lines<'a, W: Write> {
    out: &'a mut W,
    /// Whose events they are; `None` when the head has said it.
    process: Option<&'a ProcessSummary>,
    style: Style,
}

impl<W: Write> Lines<'_, W> {
    /// Where the next line goes.
    fn next(&mut self) -> io::Result<&mut W> {
        if let Some(process) = self.process.take() {
            writeln!(self.out, "Events of {}:\n", text::process(process))?;
            events::head(self.out)?;
        }
        Ok(self.out)
    }
}

impl<W: Write> Sink for Lines<'_, W> {
    fn row(&mut self, row: &Row, stack: Option<&Named>) -> io::Result<()> {
        let style = self.style;
        let out = self.next()?;
        events::row(out, row, style)?;
        stack.map_or(Ok(()), |stack| events::stack(out, stack))
    }

    fn between(&mut self, item: &Item) -> io::Result<()> {
        let out = self.next()?;
        match item {
            Item::Event(_) => Ok(()),
            Item::Release(release) => events::release(out, release),
            Item::Note { note, .. } => events::note(out, note),
            Item::Sample(sample) => events::sample(out, sample),
        }
    }
}
