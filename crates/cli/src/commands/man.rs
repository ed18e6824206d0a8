//! `man`: the man pages.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::{Cli, Man};

/// Writes a page for heaptape and one for each command, made from the same definitions as the
/// command line.
pub(crate) fn run(args: &Man) -> Result<ExitCode> {
    let directory = &args.directory;
    let name = directory.display();
    fs::create_dir_all(directory).with_context(|| format!("cannot make the directory {name}"))?;
    let written = clap_mangen::generate_to(Cli::command(), directory);
    written.with_context(|| format!("cannot write the man pages into {name}"))?;
    Ok(ExitCode::SUCCESS)
}
