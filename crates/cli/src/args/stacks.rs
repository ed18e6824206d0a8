//! Options of the commands that show call stacks: `tree`, `sites`; some are `export`'s too.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use heaptape_analyze::choice::{Moment, ProcessChoice};
use heaptape_analyze::profile::{self, Measure};
use heaptape_analyze::ranking;
use regex::Regex;

use super::{Sysroot, examples, whole};

/// Show who called whom to make how much
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape tree server.tape --at end", "the paths to what was never freed"),
    ("heaptape tree server.tape --metric count --reverse --focus parse", "who calls the allocating functions most, below parse"),
]))]
pub(crate) struct Tree {
    /// The tape
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) measured: Measured,
    /// Begin with the functions that allocate, and show who called them
    #[arg(long)]
    pub(crate) reverse: bool,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Fold paths with less than this part of what is selected, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent, allow_hyphen_values = true)]
    pub(crate) min: f64,
    /// Fold calls deeper than this; 0 folds none
    #[arg(long, value_name = "N", default_value = "0", value_parser = whole::<usize>, allow_hyphen_values = true)]
    pub(crate) depth: usize,
    /// Show no more than the N largest calls; 0 shows a million at the most
    #[arg(long, value_name = "N", default_value = "1000", value_parser = whole::<usize>, allow_hyphen_values = true)]
    pub(crate) top: usize,
    /// Take each line of a function apart, where lines are known; those of Python always are
    #[arg(long)]
    pub(crate) lines: bool,
    /// Show long chains of calls that only hand on to one other whole
    #[arg(long)]
    pub(crate) whole: bool,
    /// Print JSON (heaptape.tree/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// Add up what was made by call stack, caller, function, module, file, thread, process or rank
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape sites server.tape --by site --top 5", "the five call stacks with most at the peak"),
    ("heaptape sites job.tape --by function --sort temporary", "below which functions blocks are freed at once"),
]))]
pub(crate) struct Sites {
    /// The tape
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// What the stacks are added up by; of functions, each has what was made below it
    #[arg(long, value_name = "WHAT", default_value = "site")]
    pub(crate) by: By,
    /// Which figure comes first: live at the peak, at the end, at the moment of --at, the bytes or the count of all that was made, or of what was freed again at once
    #[arg(
        long,
        value_name = "FIGURE",
        default_value = "peak",
        default_value_if("at", clap::builder::ArgPredicate::IsPresent, "at")
    )]
    pub(crate) sort: Sort,
    /// Also tell what is live at this moment: after the event with this index, or at a time such as 12.5s
    #[arg(long, value_name = "INDEX|TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<Moment>,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Print only the first N rows; 0 prints all
    #[arg(long, value_name = "N", default_value = "10", value_parser = whole::<usize>, allow_hyphen_values = true)]
    pub(crate) top: usize,
    /// Show long stacks whole
    #[arg(long)]
    pub(crate) stacks: bool,
    /// Print JSON (heaptape.sites/1)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// Which stacks are meant.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Only this process: a process id, rank:R, #N for the Nth to start (from 0), or all; call stacks of several are added up
    #[arg(long, value_name = "PROCESS", default_value = "all", allow_hyphen_values = true)]
    pub(crate) process: ProcessChoice,
    /// Only stacks with a call that matches: its function, the path of its module or source file, or its text as it is printed
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    pub(crate) focus: Option<Regex>,
    /// No stacks with a call that matches
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    pub(crate) ignore: Option<Regex>,
    /// Show the calls of the Python interpreter too, where lines of Python stand for them
    #[arg(long)]
    pub(crate) raw_frames: bool,
}

/// What is measured, and when.
#[derive(Debug, Args)]
pub(crate) struct Measured {
    /// What is measured: what is live, all that was made (total), how many blocks were made (count), or what was freed again before its thread's next allocation (temporary) [default: live]
    #[arg(long, value_name = "WHAT")]
    pub(crate) metric: Option<Metric>,
    /// When what is live is looked at: the peak of requested bytes, the end, after the event with this index, or a time such as 12.5s [default: peak]
    #[arg(long, value_name = "INDEX|peak|end|TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<Moment>,
}

impl Measured {
    fn is_live(&self) -> bool {
        self.metric.unwrap_or(Metric::Live) == Metric::Live
    }

    /// The moment, where it is one that has to be asked for.
    pub(crate) fn moment(&self) -> Option<Moment> {
        let is_asked = |at: &Moment| matches!(at, Moment::Index(_) | Moment::Millis(_));
        self.at.filter(is_asked)
    }

    /// Refuses a moment of what is of no moment.
    pub(crate) fn check(&self) -> Result<()> {
        let metric = self.metric.filter(|_| self.at.is_some() && !self.is_live());
        if let Some(metric) = metric.and_then(|metric| metric.to_possible_value()) {
            bail!(
                "--at says when what is live is looked at, and --metric {} adds up the whole run: leave one of them out",
                metric.get_name()
            );
        }
        Ok(())
    }

    /// The measure that is asked for.
    pub(crate) fn measure(&self) -> Measure {
        let live = match self.at {
            None | Some(Moment::Peak) => profile::Metric::Peak,
            Some(Moment::End) => profile::Metric::End,
            Some(_) => profile::Metric::Moment,
        };
        let metric = match self.metric.unwrap_or(Metric::Live) {
            Metric::Live => live,
            Metric::Total | Metric::Count => profile::Metric::Total,
            Metric::Temporary => profile::Metric::Temporary,
        };
        Measure { metric, blocks: self.metric == Some(Metric::Count) }
    }
}

/// What a tree is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Metric {
    /// What is live at a moment.
    Live,
    /// All that was made.
    Total,
    /// How many blocks were made.
    Count,
    /// What was freed again at once.
    Temporary,
}

/// What a table is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// What is live at the peak.
    Peak,
    /// What is live at the end.
    End,
    /// What is live at the moment of --at.
    At,
    /// The bytes of all that was made.
    Total,
    /// The blocks of all that was made.
    Count,
    /// What was freed again at once.
    Temporary,
}

/// What stacks are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The whole call stack.
    Site,
    /// The calling place.
    Caller,
    /// Every function on the stack.
    Function,
    /// The file that the caller is in; of Python its source file.
    Module,
    /// The source file of the innermost call of which it is known.
    File,
    /// The thread.
    Thread,
    /// The process.
    Process,
    /// The MPI rank.
    Rank,
}

impl From<By> for ranking::By {
    fn from(by: By) -> ranking::By {
        match by {
            By::Site => ranking::By::Site,
            By::Caller => ranking::By::Caller,
            By::Function => ranking::By::Function,
            By::Module => ranking::By::Module,
            By::File => ranking::By::File,
            By::Thread => ranking::By::Thread,
            By::Process => ranking::By::Process,
            By::Rank => ranking::By::Rank,
        }
    }
}

/// Reads a part in percent.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    // Also turns away NaN and infinity.
    let number = number.filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| format!("'{text}' is no part in percent from 0 to 100, such as 0.5."))
}
