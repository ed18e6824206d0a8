//! The report on a counted job, with a limit or without one: the verdict, then the figures it stands on.
//!
//! The figures come from the ledger's [`Job`] and its sums; what comes out is a list of [`Part`]s, for a
//! terminal or as Markdown.

pub mod auto;
mod felled;
mod heap;
mod held;
mod kernel;
mod patches;
mod processes;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
mod verdict;

use heaptape_ledger::{Ended, Job, OnLimit, Spread, Totals};

use crate::document::Part;
use crate::text;

pub use kernel::over;
pub use processes::how_to_go_on;
pub use verdict::refusal;
pub(crate) use verdict::{caller, module};

/// Up to so many processes each has a row.
const FEW_PROCESSES: usize = 20;
/// Of more, so many have.
const LARGEST_PROCESSES: usize = 10;
/// Up to so many size classes, or modules, each has a row.
const FEW_CLASSES: usize = 20;

/// How the job was to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What was to happen to a request beyond the limit.
    pub on_limit: OnLimit,
    /// What the MPI runtime took is not held against the limit.
    pub exclude_mpi_runtime: bool,
    /// Modules whose requests are not held against the limit.
    pub exempt: Vec<String>,
    /// Launchers are held against the limit.
    pub count_launcher: bool,
    /// Where the limit comes from, if it was to be what the job was given.
    pub source: Option<String>,
    /// Any verdict but `within` is a failure.
    pub strict: bool,
}

/// What the report is made from.
pub struct Figures<'a> {
    /// The job.
    pub job: &'a Job,
    /// What its processes counted, added up.
    pub totals: &'a Totals,
    /// How far they are apart.
    pub spread: Option<Spread>,
    /// How it was to be counted.
    pub settings: &'a Settings,
    /// How the command ended.
    pub exit: Ended,
    /// The function that asked for what was refused first, where its name is known.
    pub function: Option<&'a str>,
    /// Exempt modules, as they were named, that the job was never seen to load.
    pub unmatched: &'a [String],
    /// Whether long tables are printed whole.
    pub verbose: bool,
}

impl Figures<'_> {
    /// Whether a table of so many rows is printed.
    fn is_shown(&self, rows: usize, few: usize) -> bool {
        self.verbose || rows <= few
    }
}

/// The whole report.
pub fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let mut parts =
        vec![Part::Title(format!("Memory of {}", text::short_command(&figures.job.command)))];
    parts.extend(verdict::parts(figures));
    parts.extend(auto::part(figures));
    parts.extend(felled::part(figures));
    parts.extend(held::parts(figures));
    parts.extend(kernel::parts(figures));
    parts.extend(patches::parts(figures));
    parts.extend(processes::parts(figures));
    parts.extend(heap::parts(figures));
    parts.extend(unmatched(figures));
    parts.extend(processes::uncovered(figures));
    parts.extend(processes::stopped(figures));
    parts.extend(next(figures));
    parts
}

/// What to do next. What can't be counted can't be recorded either.
fn next(figures: &Figures<'_>) -> Option<Part> {
    let job = figures.job;
    if job.processes.is_empty() && !job.uncovered.is_empty() {
        return None;
    }
    let command = text::command(&job.command);
    Some(Part::Text(format!(
        "Next: heaptape record -o job.tape -- {command} · heaptape report job.tape"
    )))
}

/// A name that was exempt for nothing may be a wrong one.
fn unmatched(figures: &Figures<'_>) -> Option<Part> {
    let names = figures.unmatched;
    let (what, them) = match names {
        [] => return None,
        [_] => ("no library of this name", "it"),
        _ => ("no libraries of these names", "them"),
    };
    let names = names.join(", ");
    Some(Part::Text(format!(
        "--exempt {names}: {what} was seen to be loaded, and nothing was exempt for {them}."
    )))
}
