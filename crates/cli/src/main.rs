//! The command `heaptape`: reads the command line, runs one command, and says what went wrong.
//!
//! Every command is a file in [`commands`]; what it prints goes to stdout, what it says beside that
//! to stderr.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod library;
mod names;
mod output;
mod progress;
mod terminal;

use std::io::ErrorKind;
use std::process::ExitCode;

use args::Cli;
use terminal::Terminal;

fn main() -> ExitCode {
    let cli = Cli::read();
    let terminal = Terminal::new(cli.color, cli.quiet);
    match commands::run(cli.command, &terminal) {
        Ok(status) => status,
        // The reader, such as `head`, has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal.error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|e| Some(e.downcast_ref::<std::io::Error>()?.kind()));
    kinds.into_iter().any(|kind| kind == ErrorKind::BrokenPipe)
}
