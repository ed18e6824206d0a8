//! `sites`: what was made, by call stack, or by a part of it.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use heaptape_analyze::choice::Moment;
use heaptape_analyze::gather::Ask;
use heaptape_analyze::profile::{Measure, Metric};
use heaptape_analyze::ranking;
use heaptape_report::{json, sites as report};

use super::{open, stacks};
use crate::args::{self, Sort};
use crate::terminal::Terminal;

/// Prints the table.
pub(crate) fn run(args: &args::Sites, terminal: &Terminal) -> Result<ExitCode> {
    if matches!(args.at, Some(Moment::Peak | Moment::End)) {
        bail!(
            "what is live at the peak and at the end is in the table already: --at takes an index or a time"
        );
    }
    if args.sort == Sort::At && args.at.is_none() {
        bail!("--sort at needs a moment: give --at an index or a time such as 12.5s");
    }
    let tape = open::tape(&args.file, terminal)?;
    let name = args.file.display().to_string();
    let by = ranking::By::from(args.by);
    let ask = Ask {
        moment: args.at,
        processes: matches!(args.by, args::SitesBy::Process | args::SitesBy::Rank),
        threads: args.by == args::SitesBy::Thread,
        raw: false,
    };
    let measure = measure(args.sort);
    let stacks =
        stacks::read(&name, &tape, &args.selection, ask, measure, &args.sysroot, terminal)?;
    let rows = ranking::rows(&stacks.profile, by, measure);
    let subject = stacks.subject();
    let found = report::Found { subject, by, rows: &rows, top: args.top, whole: args.stacks };
    let mut out = terminal.out();
    if args.json {
        json::stacks::sites(&mut out, found)?;
    } else {
        report::write(&mut out, found, terminal.style())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn measure(sort: Sort) -> Measure {
    let metric = match sort {
        Sort::Peak => Metric::Peak,
        Sort::End => Metric::End,
        Sort::At => Metric::Moment,
        Sort::Total | Sort::Count => Metric::Total,
        Sort::Temporary => Metric::Temporary,
    };
    Measure { metric, blocks: sort == Sort::Count }
}
