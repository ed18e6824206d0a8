//! The commands, one a file.

mod capture_path;
mod completions;
mod diff;
mod doctor;
mod events;
mod export;
mod info;
mod leaks;
mod limit;
mod live;
mod man;
mod open;
mod plot;
mod record;
mod report;
mod running;
mod sites;
mod stacks;
mod symbolize;
mod tree;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Command;
use crate::terminal::Terminal;

/// Runs a command and returns the exit status.
pub(crate) fn run(command: Command, terminal: &Terminal) -> Result<ExitCode> {
    match command {
        Command::Record(args) => Ok(record::run(args, terminal.is_quiet())),
        Command::Limit(args) => Ok(limit::limit(args, terminal)),
        Command::Stat(args) => Ok(limit::stat(args, terminal)),
        Command::Info(args) => info::run(&args, terminal),
        Command::Report(args) => report::run(&args, terminal),
        Command::Events(args) => events::run(args, terminal),
        Command::Live(args) => live::run(&args, terminal),
        Command::Leaks(args) => leaks::run(&args, terminal),
        Command::Diff(args) => diff::run(&args, terminal),
        Command::Tree(args) => tree::run(&args, terminal),
        Command::Sites(args) => sites::run(&args, terminal),
        Command::Export(args) => export::run(&args, terminal),
        Command::Symbolize(args) => symbolize::run(&args, terminal),
        Command::Doctor(args) => doctor::run(&args, terminal),
        Command::CapturePath(_) => capture_path::run(terminal),
        Command::Completions(args) => completions::run(&args, terminal),
        Command::Man(args) => man::run(&args),
        Command::Summoned(args) => Ok(limit::summoned(&args)),
    }
}
