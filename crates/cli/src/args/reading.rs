//! Options of the commands that show what is on a tape: `info`, `events`, `live`; and of `symbolize`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use heaptape_analyze::Call;
use heaptape_analyze::choice::{Moment, ProcessChoice, Span};
use heaptape_report::size;

use super::{call, examples, one_process, whole};

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

/// List the calls of a process
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape events ls.tape 1000..1020", "twenty calls"),
    ("heaptape events ls.tape 1000 --stacks", "a call with its stack, of a tape of record --stacks"),
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
    /// Print the call stack of each call below it, where it was recorded (record --stacks)
    #[arg(long, conflicts_with = "histogram")]
    pub(crate) stacks: bool,
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
    /// Add the blocks up by caller, by call stack (site) or by size class
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<By>,
    /// Print only the largest N; 0 prints all [default: 20, with --by bin all]
    #[arg(long, value_name = "N", value_parser = whole::<usize>, allow_hyphen_values = true)]
    pub(crate) top: Option<usize>,
    /// Show call stacks whole
    #[arg(long)]
    pub(crate) stacks: bool,
    /// Print JSON (heaptape.live/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// Put the names of functions, with files and lines, on a tape, so that it reads the same anywhere
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape symbolize ls.tape", "so that it may be read where the programs are not, or later"),
    ("heaptape symbolize job.tape --sysroot image/ -o named.tape", "names from another machine's files"),
]))]
pub(crate) struct Symbolize {
    /// The tape; a new one with names takes its place
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Write the new tape here, and leave the old one as it is
    #[arg(long, short, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// Where the names of functions come from, for the commands that print callers.
#[derive(Debug, Args)]
pub(crate) struct Sysroot {
    /// Look for the recorded files, whose symbol tables name the functions, in DIR too: at their paths below it, by their names, and as debug files in DIR/.build-id. May be given several times
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) sysroot: Vec<PathBuf>,
    /// Ask the servers in DEBUGINFOD_URLS for debug files that are not here, by the program debuginfod-find
    #[arg(long)]
    pub(crate) debuginfod: bool,
}

/// What live blocks are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The calling place.
    Caller,
    /// The whole call stack.
    Site,
    /// The size class.
    Bin,
}
