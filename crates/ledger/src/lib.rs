//! What a counted job held: the words of its ledger as figures.
//!
//! [`Sums`] adds up the sheets of a process's threads, [`Process`] is what is told of one process and
//! [`Job`] of all together, whose sums are [`Totals`] and [`Spread`]. The words come from the shared memory that `wire` lays out; nothing here
//! looks at a clock, a file or another process. Peaks are of sums at one instant, so those of
//! several threads or processes lie between two values: [`Bounds`].
#![forbid(unsafe_code)]

pub mod bins;
mod bounds;
mod felled;
mod job;
mod kernel;
mod patch;
mod process;
mod sums;
mod totals;

pub use bounds::Bounds;
pub use felled::{Cause, Felled, Kills, Line, Moment, Victim};
pub use heaptape_wire::ledger::OnLimit;
pub use job::{Basis, Charged, FirstRefusal, Job, Missed, Stopped, Verdict, unaccounted_allowed};
pub use kernel::{Group, Judge, Kernel, Looks, Over, Parts};
pub use patch::{Patch, Patched};
pub use process::{Ended, Module, Process};
pub use sums::{Sums, Traffic};
pub use totals::{ModuleTotal, Spread, Totals};
