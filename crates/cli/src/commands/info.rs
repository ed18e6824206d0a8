//! `info`: what is on a tape.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use heaptape_analyze::overview::Overview;
use heaptape_report::{info, json};

use super::open;
use crate::args::Info;
use crate::terminal::Terminal;

/// Prints the overview. A tape that does not hold what a heap can do is a failure.
pub(crate) fn run(args: &Info, terminal: &Terminal) -> Result<ExitCode> {
    let tape = open::tape(&args.file, terminal)?;
    let name = args.file.display().to_string();
    let overview = Overview::of(&tape, args.process, args.verify).with_context(|| name.clone())?;
    let mut out = terminal.out();
    if args.json {
        json::tape::write(&mut out, &overview)?;
    } else {
        info::write(&mut out, &name, &overview, terminal.style())?;
    }
    out.flush()?;
    match overview.faults() {
        Some(faults @ 1..) => bail!("{name}: {faults} blocks lie over blocks that were alive"),
        _ => Ok(ExitCode::SUCCESS),
    }
}
