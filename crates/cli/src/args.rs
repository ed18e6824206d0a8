//! The command line: every command and option once, from which help, completions and man pages are
//! made as well. Nothing is read or run here.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use heaptape_analyze::Call;
use heaptape_analyze::choice::{LastPart, Moment, ProcessChoice, Span, Window};
use heaptape_analyze::curves::Figure;
use heaptape_analyze::timeline;
use heaptape_report::size;

use crate::output::Stdout;

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
    Info(Info),
    Report(Report),
    Events(Events),
    Live(Live),
    Leaks(Leaks),
    Diff(Diff),
    Export(Export),
    Doctor(Doctor),
    CapturePath(CapturePath),
    Completions(Completions),
    Man(Man),
}

/// Record every heap call of a program and its children onto a tape
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape record -- ls -lR /usr/share", "onto ls.PID.tape"),
    ("mpirun -n 4 heaptape record --join -o tapes -- ./solver", "all ranks of a host, onto tapes/JOB.HOST.tape"),
]))]
pub(crate) struct Record {
    /// The tape to write; %p stands for the command's process id, %r for its rank [default: COMMAND.PID.tape]. With --join the directory of the tapes
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Run the command without address space randomisation, so that addresses repeat
    #[arg(long)]
    pub(crate) no_aslr: bool,
    /// Set PYTHONMALLOC=malloc, so that Python's own small-object allocator is bypassed
    #[arg(long)]
    pub(crate) python_malloc: bool,
    /// End the recording when the command ends, though children may still run
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Put all commands of one job on this host onto one tape, DIR/JOB.HOST.tape: for use behind a launcher such as mpirun. The job is known by its launcher's variables, or named by HEAPTAPE_JOB
    #[arg(long)]
    pub(crate) join: bool,
    /// End the recording (not the command) when the tape has this size: bytes, or 512K, 1.5GB and so on; K is 1024, M 1024 K
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_hyphen_values = true)]
    pub(crate) max_size: Option<u64>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true,
          value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Say what is on a tape
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape info tapes/*.tape", "the recordings and each of their processes"),
    ("heaptape info --json --verify ls.tape", "for a script, after checking every block of the file"),
]))]
pub(crate) struct Info {
    /// The tape, or several
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Print JSON (heaptape.tape/1); of several tapes one document after the other
    #[arg(long)]
    pub(crate) json: bool,
    /// Read the whole tape and check it: every checksum, every count, no two live blocks overlapping
    #[arg(long)]
    pub(crate) verify: bool,
    /// Only this process: a process id, rank:R, #N for the Nth to start (from 0), or all
    #[arg(long, value_name = "PROCESS", default_value = "all", allow_hyphen_values = true)]
    pub(crate) process: ProcessChoice,
}

/// Tell what happened: what grew, when and by whom, and the tables it stands on
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape report ls.tape", "the whole job, or the one process that there is"),
    ("heaptape report before.tape after.tape --plot both.svg", "two runs in one picture"),
]))]
pub(crate) struct Report {
    /// The tape; with --plot it may be several
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Only this process: a process id, rank:R, #N for the Nth to start (from 0), or all, added up
    #[arg(long, value_name = "PROCESS", default_value = "all", allow_hyphen_values = true)]
    pub(crate) process: ProcessChoice,
    /// How many rows a table has at the most; 0 for all
    #[arg(long, value_name = "N", default_value = "10", value_parser = whole::<usize>, allow_hyphen_values = true)]
    pub(crate) top: usize,
    /// Print Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Print JSON (heaptape.report/1), with all callers and the curves
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
    /// A picture instead of the report
    #[command(flatten)]
    pub(crate) plot: PlotOptions,
}

/// What is drawn, and how.
#[derive(Debug, Args)]
pub(crate) struct PlotOptions {
    /// Draw the curves into this file instead of printing, a picture by its ending: .svg or .png
    #[arg(long, conflicts_with_all = ["markdown", "json"], value_name = "OUT.svg|OUT.png", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,
    /// Draw this part large, with the whole run below it: indexes A..B (B excluded), or times such as 1.5s..3s
    #[arg(long, value_name = "A..B", requires = "plot", allow_hyphen_values = true)]
    pub(crate) range: Option<Window>,
    /// What the curves run over [default: index for one process, time for several]
    #[arg(long, value_name = "AXIS", requires = "plot")]
    pub(crate) over: Option<Over>,
    /// Which curves: requested, usable, system, resident [default: all; of several tapes requested,resident]
    #[arg(long, value_name = "CURVES", requires = "plot", value_delimiter = ',', value_parser = figure)]
    pub(crate) curves: Vec<Figure>,
    /// Draw bytes on a logarithmic axis
    #[arg(long, requires = "plot")]
    pub(crate) log: bool,
}

/// What curves run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Over {
    /// The index of the call.
    Index,
    /// The time since the recording began.
    Time,
}

impl From<Over> for timeline::Axis {
    fn from(over: Over) -> timeline::Axis {
        match over {
            Over::Index => timeline::Axis::Index,
            Over::Time => timeline::Axis::Time,
        }
    }
}

/// List the calls of a process
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape events ls.tape 1000..1020", "twenty calls"),
    ("heaptape events ls.tape --call realloc --size 1M..", "all reallocs to 1 MiB or more"),
]))]
pub(crate) struct Events {
    /// The tape
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The calls from index A to B, B excluded; N alone is one call [default: all]
    #[arg(value_name = "A..B")]
    pub(crate) range: Option<Span>,
    /// The ten calls before this index, the call itself and the ten after it
    #[arg(long, value_name = "N", conflicts_with = "range", value_parser = whole::<u64>, allow_hyphen_values = true)]
    pub(crate) around: Option<u64>,
    /// Which process: a process id, rank:R, or #N for the Nth to start (from 0) [default: the one with most events]
    #[arg(long, value_name = "PROCESS", value_parser = one_process, allow_hyphen_values = true)]
    pub(crate) process: Option<ProcessChoice>,
    /// Only these calls, such as malloc,free: malloc, calloc, realloc, reallocarray, free (cfree, free_sized and free_aligned_sized too), memalign, posix_memalign, aligned_alloc, valloc, pvalloc, new (new[] too), delete (delete[] too)
    #[arg(long, value_name = "CALLS", value_delimiter = ',', value_parser = call)]
    pub(crate) call: Vec<Call>,
    /// Only sizes from A to B, B included; a size alone is that size. Bytes, or 1K, 2MB and so on; K is 1024, M 1024 K. Of a free it is the block's
    #[arg(long, value_name = "A..B", value_parser = size::parse_range, allow_hyphen_values = true)]
    pub(crate) size: Option<RangeInclusive<u64>>,
    /// Only this thread, by its number in the listing
    #[arg(long, value_name = "T", value_parser = whole::<u32>, allow_hyphen_values = true)]
    pub(crate) thread: Option<u32>,
    /// Print how many blocks and bytes went through each size class, instead of the calls; small is up to 1 KiB, medium to 128 KiB, large to 32 MiB
    #[arg(long, conflicts_with = "notes")]
    pub(crate) histogram: bool,
    /// Also print what stands between the calls: mapping calls, settings, marks, samples
    #[arg(long)]
    pub(crate) notes: bool,
    /// Print JSON (heaptape.events/1): one document, each call on a line of its own; heaptape.histogram/1 with --histogram
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// Show the blocks that are alive at a moment
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape live ls.tape --at peak", "the largest blocks when most was requested"),
    ("heaptape live ls.tape --at end --by caller --top 5", "who made what was never freed"),
]))]
pub(crate) struct Live {
    /// The tape
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// When: after the event with this index, at the peak of requested bytes, at the end, or at a time such as 12.5s or 100ms
    #[arg(
        long,
        value_name = "INDEX|peak|end|TIME",
        default_value = "peak",
        allow_hyphen_values = true
    )]
    pub(crate) at: Moment,
    /// Which process: a process id, rank:R, or #N for the Nth to start (from 0) [default: the one with most events]
    #[arg(long, value_name = "PROCESS", value_parser = one_process, allow_hyphen_values = true)]
    pub(crate) process: Option<ProcessChoice>,
    /// Add the blocks up by caller or by size class
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<By>,
    /// Print only the largest N; 0 prints all [default: 20, with --by bin all]
    #[arg(long, value_name = "N", value_parser = whole::<usize>, allow_hyphen_values = true)]
    pub(crate) top: Option<usize>,
    /// Print JSON (heaptape.live/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// Where the names of functions come from, for the commands that print callers.
#[derive(Debug, Args)]
pub(crate) struct Sysroot {
    /// Look for the recorded files, whose symbol tables name the functions, in DIR too: at their paths below it, by their names, and as debug files in DIR/.build-id. May be given several times
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) sysroot: Vec<PathBuf>,
}

/// What live blocks are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The calling place.
    Caller,
    /// The size class.
    Bin,
}

/// Say what is never freed, by caller, and whether it grows
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape leaks server.tape --growing", "who keeps more and more"),
    ("heaptape leaks test.tape --suppress known.supp --check", "for a script: status 3 if anything else is left"),
]))]
pub(crate) struct Leaks {
    /// The tape, or several, one after the other
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Only this process: a process id, rank:R, #N for the Nth to start (from 0), or all
    #[arg(long, value_name = "PROCESS", default_value = "all", allow_hyphen_values = true)]
    pub(crate) process: ProcessChoice,
    /// Do not count blocks born in the last part of each process's run, as work in progress: 10% of its events, a number of events, or a time such as 2s [default: 0 of a process that ended by itself, 10% of others]
    #[arg(long, value_name = "PART", allow_hyphen_values = true)]
    pub(crate) ignore_last: Option<LastPart>,
    /// Do not count callers that this file suppresses, in the form of LeakSanitizer: lines of leak:PATTERN, which match the function, the module's path or the caller as it is printed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) suppress: Option<PathBuf>,
    /// Only callers that grow all the time: in the process that left most of theirs, over its time, or over its calls where it lived for less than 256 ms
    #[arg(long)]
    pub(crate) growing: bool,
    /// Print only the N callers with most bytes; 0 prints all
    #[arg(long, value_name = "N", default_value = "10", value_parser = whole::<usize>, allow_hyphen_values = true)]
    pub(crate) top: usize,
    /// Also print how often each pattern of the suppression file matched
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Exit with status 3 if anything is left that is counted, if a tape is incomplete, or if there is no event to be judged; with 1 if something went wrong
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON (heaptape.leaks/1); of several tapes one document after the other
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// Compare two tapes, or two moments of them
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape diff before.tape after.tape", "two runs, each at its peak"),
    ("heaptape diff server.tape@10s server.tape@end --by module", "what came between two moments of one run"),
]))]
pub(crate) struct Diff {
    /// A tape, or FILE@MOMENT: after the event with this index, at the peak, the end, or a time such as 12.5s [default: its peak]
    #[arg(value_name = "A[@MOMENT]", value_hint = ValueHint::FilePath)]
    pub(crate) before: OsString,
    /// The tape or moment that it is compared with. Of two tapes without a moment it is also said what was made in all
    #[arg(value_name = "B[@MOMENT]", value_hint = ValueHint::FilePath)]
    pub(crate) after: OsString,
    /// Which process of each: a process id, rank:R, or #N for the Nth to start (from 0) [default: the one with most events]
    #[arg(long, value_name = "PROCESS", value_parser = one_process, allow_hyphen_values = true)]
    pub(crate) process: Option<ProcessChoice>,
    /// Add the blocks up by caller, by size class or by module
    #[arg(long, value_name = "WHAT", default_value = "caller")]
    pub(crate) by: DiffBy,
    /// Print only the N rows that changed most; 0 prints all
    #[arg(long, value_name = "N", default_value = "20", value_parser = whole::<usize>, allow_hyphen_values = true)]
    pub(crate) top: usize,
    /// Print JSON (heaptape.diff/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// What a difference is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffBy {
    /// The calling place.
    Caller,
    /// The size class.
    Bin,
    /// The file that the caller is in.
    Module,
}

/// Write the calls or the blocks in another format
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape export ls.tape --to csv --range 0..1000 | head", "the first calls of every process, one a line"),
    ("heaptape export ls.tape --table blocks --to parquet -o ls.parquet", "every block from birth to death, for SQL"),
]))]
pub(crate) struct Export {
    /// The tape
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The format
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Format,
    /// A row for each call, or for each block from its birth to its death
    #[arg(long, value_name = "TABLE", default_value = "calls")]
    pub(crate) table: Table,
    /// The file to write [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Which process: a process id, rank:R, #N for the Nth to start (from 0), or all
    #[arg(long, value_name = "PROCESS", default_value = "all", allow_hyphen_values = true)]
    pub(crate) process: ProcessChoice,
    /// Of each process only the calls from index A to B, B excluded; N alone is one call. Of blocks those that these calls made
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    pub(crate) range: Option<Span>,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// Formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated values with a head line
    Csv,
    /// Apache Parquet, compressed with zstd
    Parquet,
}

/// Tables of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// A row for each call
    Calls,
    /// A row for each block
    Blocks,
}

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
    ("HEAPTAPE_CAPTURE=/opt/capture.so heaptape capture-path", "use another library"),
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

/// The text at the end of a command's help: two commands with what they do.
fn examples(pairs: [(&str, &str); 2]) -> String {
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
