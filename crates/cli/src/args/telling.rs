//! Options of the commands that say what a tape comes to: `report`, `leaks`, `diff`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use heaptape_analyze::choice::{LastPart, ProcessChoice, Window};
use heaptape_analyze::curves::Figure;
use heaptape_analyze::timeline;

use super::{Sysroot, examples, figure, one_process, whole};

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
    /// Show call stacks whole, of a tape that has them
    #[arg(long)]
    pub(crate) stacks: bool,
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

/// Say what is never freed, by caller or call stack, and whether it grows
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
    /// Do not count callers that this file suppresses, in the form of LeakSanitizer: lines of leak:PATTERN, which match the function, the module's path or the caller as it is printed, of a tape with call stacks those of any call on them
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
    /// Show call stacks whole, of a tape that has them
    #[arg(long)]
    pub(crate) stacks: bool,
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
    /// Add the blocks up by caller, by call stack (site), by size class or by module
    #[arg(long, value_name = "WHAT", default_value = "caller")]
    pub(crate) by: DiffBy,
    /// Print only the N rows that changed most; 0 prints all
    #[arg(long, value_name = "N", default_value = "20", value_parser = whole::<usize>, allow_hyphen_values = true)]
    pub(crate) top: usize,
    /// Show call stacks whole
    #[arg(long)]
    pub(crate) stacks: bool,
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
    /// The whole call stack.
    Site,
}
