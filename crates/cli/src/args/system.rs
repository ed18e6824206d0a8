//! Options of the commands that need no tape: `doctor`, `capture-path`, `completions`, `man`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::examples;

/// Say whether recording works here, or with a command, and what will be seen
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape doctor", "this system: kernel, shared memory, limits, MPI, a recording on trial"),
    ("heaptape doctor python3 -c pass", "a command, without running it: its allocator, and what will be seen"),
]))]
pub(crate) struct Doctor {
    /// Print JSON (heaptape.doctor/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// A program and its arguments, to look at and not to run [default: look at this system]
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Print where the capture library is, for LD_PRELOAD by hand
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape capture-path", "print the path"),
    ("LD_PRELOAD=$(heaptape capture-path) HEAPTAPE_LIMIT=1GB ./solver", "count and limit by variables alone"),
]))]
pub(crate) struct CapturePath {}

/// Print a script that completes heaptape's commands in a shell
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape completions bash > ~/.local/share/bash-completion/completions/heaptape", "for bash"),
    ("heaptape completions fish > ~/.config/fish/completions/heaptape.fish", "for fish"),
]))]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Write the man pages into a directory
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape man ~/.local/share/man/man1", "one page for each command"),
    ("heaptape man /tmp && man /tmp/heaptape-record.1", "read one"),
]))]
pub(crate) struct Man {
    /// The directory; it is made if it is not there
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}
