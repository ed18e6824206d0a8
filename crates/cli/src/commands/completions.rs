//! `completions`: a script that completes heaptape's commands in a shell.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;

use crate::args::{Cli, Completions};
use crate::terminal::Terminal;

/// Prints the script, made from the same definitions as the command line.
pub(crate) fn run(args: &Completions, terminal: &Terminal) -> Result<ExitCode> {
    // The generator takes no error, so the script is made first.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "heaptape", &mut script);
    let mut out = terminal.out();
    out.write_all(&script)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
