//! `info`: what is on a tape, or on each of several.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use heaptape_analyze::overview::Overview;
use heaptape_report::{info, json};

use super::open;
use crate::args::Info;
use crate::terminal::Terminal;

/// Prints the overviews. A tape that can't be read keeps no other from being shown; that, or one that
/// does not hold what a heap can do, is a failure.
pub(crate) fn run(args: &Info, terminal: &Terminal) -> Result<ExitCode> {
    let (mut out, mut status) = (terminal.out(), ExitCode::SUCCESS);
    let mut wrong = |what: &str| {
        terminal.error(what);
        status = ExitCode::FAILURE;
    };
    for (i, file) in args.files.iter().enumerate() {
        let name = file.display().to_string();
        let overview = match read(file, args, terminal) {
            Ok(overview) => overview,
            Err(error) => {
                wrong(&format!("{error:#}"));
                continue;
            }
        };
        if args.json {
            json::tape::write(&mut out, &overview)?;
        } else {
            if i > 0 {
                writeln!(out)?;
            }
            info::write(&mut out, &name, &overview, terminal.style())?;
        }
        out.flush()?;
        if let Some(faults @ 1..) = overview.faults() {
            wrong(&format!("{name}: {faults} blocks lie over blocks that were alive"));
        }
    }
    Ok(status)
}

fn read(file: &Path, args: &Info, terminal: &Terminal) -> Result<Overview> {
    let tape = open::tape(file, terminal)?;
    Overview::of(&tape, args.process, args.verify).with_context(|| file.display().to_string())
}
