//! `tree`: who called whom to make how much.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use heaptape_analyze::gather::Ask;
use heaptape_analyze::tree::{self, Grain};
use heaptape_report::{json, tree as report};

use super::{open, stacks};
use crate::args;
use crate::terminal::Terminal;

/// No more calls than these are shown, whatever is asked for.
const MOST: usize = 1_000_000;

/// Prints the tree.
pub(crate) fn run(args: &args::Tree, terminal: &Terminal) -> Result<ExitCode> {
    args.measured.check()?;
    let tape = open::tape(&args.file, terminal)?;
    let name = args.file.display().to_string();
    let measure = args.measured.measure();
    let ask = Ask { moment: args.measured.moment(), ..Ask::default() };
    let stacks =
        stacks::read(&name, &tape, &args.selection, ask, measure, &args.sysroot, terminal)?;
    let unless_0 = |number: usize, most: usize| if number == 0 { most } else { number };
    let least = args.min / 100.0;
    let plan = tree::Plan {
        measure,
        reverse: args.reverse,
        grain: if args.lines { Grain::Line } else { Grain::PythonLine },
        least,
        depth: unless_0(args.depth, usize::MAX),
        most: unless_0(args.top, MOST).min(MOST),
    };
    let tree = tree::Tree::of(&stacks.profile, &plan);
    let found = report::Found {
        subject: stacks.subject(),
        tree: &tree,
        reverse: args.reverse,
        lines: args.lines,
        least,
        whole: args.whole,
    };
    let mut out = terminal.out();
    if args.json {
        json::stacks::tree(&mut out, found)?;
    } else {
        report::write(&mut out, found, terminal.style())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
