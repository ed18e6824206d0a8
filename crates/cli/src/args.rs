//! The command line: every command and option once, from which help, completions and man pages are
//! made as well. Nothing is read or run here.

mod counting;
mod exporting;
mod reading;
mod recording;
mod stacks;
mod system;
mod telling;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand, ValueEnum};
use heaptape_analyze::Call;
use heaptape_analyze::choice::ProcessChoice;
use heaptape_analyze::curves::Figure;

use crate::output::Stdout;

pub(crate) use counting::{Counting, Limit, Size, Stat, Summoned, limit};
pub(crate) use exporting::{Export, Format, Label, Table};
pub(crate) use reading::{By, Events, Info, Live, Symbolize, Sysroot};
pub(crate) use recording::{DEPTH, Record};
pub(crate) use stacks::{By as SitesBy, Selection, Sites, Sort, Tree};
pub(crate) use system::{CapturePath, Completions, Doctor, Man};
pub(crate) use telling::{Diff, DiffBy, Leaks, PlotOptions, Report};

/// A tape measure and a tape recorder for the memory of Linux programs.
#[derive(Debug, Parser)]
#[command(name = "heaptape", version, arg_required_else_help = true, after_help = examples([
    ("heaptape record -o ls.tape -- ls -lR /usr/share", "record every heap call of ls"),
    ("heaptape info ls.tape", "say what is on the tape"),
]))]
pub(crate) struct Cli {
    /// When to print in colour: auto, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        display_order = 900,
        hide_possible_values = true
    )]
    pub(crate) color: Color,
    /// Say nothing but errors on stderr
    #[arg(long, short, global = true, display_order = 901)]
    pub(crate) quiet: bool,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads the command line; what is wrong with it, or the help, ends the process.
    pub(crate) fn read() -> Cli {
        let words = without_help_of_help(std::env::args_os().collect());
        Cli::try_parse_from(words).unwrap_or_else(|error| leave(&without_a_wrong_tip(error)))
    }
}

/// `help --help` asks for the help as `help` does.
fn without_help_of_help(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    words
}

/// Prints what is wrong, or the help, and ends the process.
fn leave(error: &clap::Error) -> ! {
    let is_asked_for = !error.use_stderr();
    let open = if is_asked_for { Stdout::check() } else { Ok(()) };
    let written = open.and_then(|()| error.print()).and_then(|()| io::stdout().flush());
    let failed = written.err().filter(|why| why.kind() != io::ErrorKind::BrokenPipe);
    let status = match failed {
        Some(why) if is_asked_for => {
            let _ = writeln!(io::stderr(), "heaptape: cannot write to stdout: {why}");
            1
        }
        _ => error.exit_code(),
    };
    std::process::exit(status)
}

/// No option is a digit: who writes `-5` or `-5..` means a number or a range, and would be told to
/// write `-- -5`, which is as wrong.
fn without_a_wrong_tip(error: clap::Error) -> clap::Error {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) if is_negative(text) => {
            let what = format!(
                "'{text}' is no option, and numbers here count from 0; a range of indexes is A..B \
                 (B excluded), A.., ..B, or one index.\n"
            );
            clap::Error::raw(ErrorKind::ValueValidation, what)
        }
        _ => error,
    }
}

fn is_negative(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// When to print in colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Record(Record),
    Limit(Limit),
    Stat(Stat),
    Info(Info),
    Report(Report),
    Events(Events),
    Live(Live),
    Leaks(Leaks),
    Diff(Diff),
    Tree(Tree),
    Sites(Sites),
    Export(Export),
    Symbolize(Symbolize),
    Doctor(Doctor),
    CapturePath(CapturePath),
    Completions(Completions),
    Man(Man),
    Summoned(Summoned),
}

/// The text at the end of a command's help: two commands with what they do.
fn examples<const N: usize>(pairs: [(&str, &str); N]) -> String {
    let lines = pairs.map(|(command, purpose)| format!("  # {purpose}\n  {command}"));
    format!("Examples:\n{}", lines.join("\n"))
}

/// Reads the name of a call, as the listing or the program has it.
fn call(text: &str) -> Result<Call, String> {
    let name = match text {
        "cfree" | "free_sized" | "free_aligned_sized" => "free",
        "new[]" => "new",
        "delete[]" => "delete",
        other => other,
    };
    Call::ALL.into_iter().find(|c| c.name() == name).ok_or_else(|| {
        let names = Call::ALL.map(Call::name).join(", ");
        format!("'{text}' is no call that is recorded; those are {names}.")
    })
}

/// Reads the name of a curve.
fn figure(text: &str) -> Result<Figure, String> {
    let known = Figure::ALL.into_iter().find(|figure| figure.name() == text.trim());
    known.ok_or_else(|| {
        let names = Figure::ALL.map(Figure::name).join(", ");
        format!("'{text}' is no curve; those are {names}.")
    })
}

/// Reads a count or a number, as whole numbers from 0 are written.
fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = text.trim().parse::<u64>().ok().and_then(|n| T::try_from(n).ok());
    number.ok_or_else(|| format!("'{text}' is no whole number from 0 up, or too large a one."))
}

/// Reads the choice of one process.
fn one_process(text: &str) -> Result<ProcessChoice, String> {
    match text.parse().map_err(|error: heaptape_analyze::Error| error.to_string())? {
        ProcessChoice::All => {
            Err("This command is about one process: give its id, rank:R, or #N.".to_owned())
        }
        one => Ok(one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_all_their_names() {
        for (text, known) in [
            ("malloc", Call::Malloc),
            ("cfree", Call::Free),
            ("free_sized", Call::Free),
            ("free_aligned_sized", Call::Free),
            ("new[]", Call::New),
            ("delete[]", Call::Delete),
        ] {
            assert_eq!(call(text), Ok(known), "{text}");
        }
        assert!(call("mmap").is_err_and(|e| e.contains("'mmap' is no call")));
    }

    #[test]
    fn numbers_and_processes() {
        assert_eq!(whole::<u32>("7"), Ok(7));
        for text in ["-1", "", "x", "4294967296"] {
            assert!(whole::<u32>(text).is_err(), "{text}");
        }
        assert_eq!(one_process("#2"), Ok(ProcessChoice::Number(2)));
        assert!(one_process("all").is_err_and(|e| e.starts_with("This command")));
    }
}
