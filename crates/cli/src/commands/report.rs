//! `report`: what a tape tells, from what stands out to the tables it stands on.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use heaptape_analyze::account::Account;
use heaptape_analyze::callers::Callers;
use heaptape_analyze::live::Trace;
use heaptape_analyze::lives::Load;
use heaptape_analyze::overview::Overview;
use heaptape_analyze::sites::{Origin, Site, Standing};
use heaptape_analyze::{ProcessSummary, Summary, findings};
use heaptape_report::account::{self, Figures};
use heaptape_report::table::UNLIMITED;
use heaptape_report::{document, json, text};

use super::{open, plot};
use crate::args::Report;
use crate::names::Names;
use crate::terminal::Terminal;

/// The width of plots where the output has none of its own, and the largest.
const PLOT_WIDTH: (u16, u16) = (100, 160);

/// Reads all events of the chosen processes and prints, or draws, what they come to.
pub(crate) fn run(args: &Report, terminal: &Terminal) -> Result<ExitCode> {
    if let Some(out) = &args.plot.plot {
        return plot::run(&args.files, args.process, out, &args.plot, terminal);
    }
    let [file] = args.files.as_slice() else {
        bail!("a report is about one tape; --plot OUT.svg draws several into one picture");
    };
    print(file, args, terminal)
}

fn print(file: &Path, args: &Report, terminal: &Terminal) -> Result<ExitCode> {
    let tape = open::tape(file, terminal)?;
    let name = file.display().to_string();
    let overview = Overview::of(&tape, args.process, false).with_context(|| name.clone())?;
    let chosen: Vec<&ProcessSummary> = overview.members.iter().map(|m| &m.process).collect();
    let mut callers = Callers::new(&tape);
    let account = {
        let mut progress = terminal.progress(Account::reads(&chosen), false);
        Account::of(&tape, &chosen, &mut callers, &mut |more| progress.events(more))
    };
    let mut account = account.with_context(|| name.clone())?;
    let mut names = Names::new(&args.sysroot, &tape)?;
    for site in &mut account.sites {
        if let Origin::Caller { place, .. } = &mut site.origin {
            names.complete(place);
        }
    }
    add_stacks(&mut account.sites, args.top, &mut callers, &mut names, tape.summary())
        .with_context(|| name.clone())?;
    let findings = findings::of(&account);
    let style = terminal.style();
    let width = if style.width == UNLIMITED { PLOT_WIDTH.0 } else { style.width.min(PLOT_WIDTH.1) };
    let figures = Figures {
        file: &name,
        overview: &overview,
        account: &account,
        findings: &findings,
        top: args.top,
        whole: args.stacks,
        width: usize::from(width),
    };
    let mut out = terminal.out();
    if args.json {
        json::account::write(&mut out, &figures)?;
    } else if args.markdown {
        document::write_markdown(&mut out, &account::parts(&figures))?;
    } else {
        document::write_terminal(&mut out, &account::parts(&figures), style)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Looks up the call stacks of the callers that are shown with them: those with most at the peak, and at the end.
fn add_stacks(
    sites: &mut [Site],
    top: usize,
    callers: &mut Callers<'_>,
    names: &mut Names,
    summary: &Summary,
) -> Result<(), heaptape_analyze::Error> {
    let mut named = |standing: &Standing| -> Result<_, heaptape_analyze::Error> {
        let mut trace = callers.trace(standing)?;
        trace.iter_mut().for_each(|trace| names.complete_trace(trace, summary));
        Ok(trace.map(Box::new))
    };
    let at_peak = first(sites, top, |site| site.deeds.at_peak);
    let left = first(sites, top, |site| site.deeds.left);
    let shown: BTreeSet<usize> = at_peak.iter().chain(&left).copied().collect();
    for place in shown {
        let site = &mut sites[place];
        if let [_, _, ..] = site.shares.as_slice() {
            let traces = site.shares.iter().map(|share| named(&share.standing));
            let printed: Result<Vec<u64>, heaptape_analyze::Error> =
                traces.map(|trace| trace.map(printed)).collect();
            site.fold(&printed?);
        }
    }
    for place in at_peak {
        sites[place].trace = named(&sites[place].standing)?;
    }
    for place in left {
        sites[place].left_trace = named(&sites[place].left)?;
    }
    Ok(())
}

/// What tells a stack from those that print another text. The texts of a caller's stacks would be a lot to hold.
fn printed(trace: Option<Box<Trace>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let frames = trace.iter().flat_map(|trace| &trace.frames);
    frames.for_each(|frame| text::named_frame(frame).hash(&mut hasher));
    hasher.finish()
}

/// The places of those with most.
fn first(sites: &[Site], top: usize, load: impl Fn(&Site) -> Load) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sites.len()).collect();
    order.sort_by_key(|&place| Reverse(load(&sites[place])));
    order.truncate(if top == 0 { usize::MAX } else { top });
    order
}
