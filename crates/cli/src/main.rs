//! The command `heaptape`: reads the command line, runs one command, and says what went wrong.
//!
//! Every command is a file in [`commands`]; what it prints goes to stdout, what it says beside that
//! to stderr.
#![forbid(unsafe_code)]

mod args;
mod capture;
mod commands;
mod terminal;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use terminal::Terminal;

/// The exit status when heaptape itself failed and no command was to be run.
const FAILED: u8 = 1;
/// The same when there was one, whose own statuses are to be told apart from this.
const FAILED_TO_RUN: u8 = 125;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let terminal = Terminal::new(cli.color, cli.quiet);
    let failed = match cli.command {
        Command::Record(_) => FAILED_TO_RUN,
        _ => FAILED,
    };
    match commands::run(cli.command, &terminal) {
        Ok(status) => status,
        // The reader, such as `head`, has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal.error(&format!("{error:#}"));
            ExitCode::from(failed)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|e| Some(e.downcast_ref::<std::io::Error>()?.kind()));
    kinds.into_iter().any(|kind| kind == ErrorKind::BrokenPipe)
}
