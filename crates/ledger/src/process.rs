//! What is told of one process.

use crate::totals::file_name;
use crate::{Bounds, Sums, Traffic};

/// How a process ended. Both are `None` while it runs, or where the kernel would not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code, if it left by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// A module whose calls are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its path; empty for the executable, `None` for all that are not told apart.
    pub path: Option<String>,
    /// Whether its blocks are held against no limit.
    pub exempt: bool,
    /// What its calls brought and released.
    pub traffic: Traffic,
}

/// What is told of one process of the job, as one program: an exec begins a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The kernel's process id; `None` when it is not known.
    pub pid: Option<u32>,
    /// The place in the job's list of the process that started it.
    pub parent: Option<usize>,
    /// Its MPI rank.
    pub rank: Option<u32>,
    /// The host it ran on.
    pub host: String,
    /// The command line.
    pub command: Vec<String>,
    /// Milliseconds since the job began, at its start and at its end (or when it was last looked at).
    pub time: [u64; 2],
    /// How it ended.
    pub ended: Ended,
    /// Whether it only launches others and is held against no limit.
    pub launcher: bool,
    /// The most that it held at one instant: charged bytes.
    pub peak: Bounds,
    /// What it held at the end: charged bytes.
    pub end: u64,
    /// The most requested bytes that lived in it at one instant.
    pub requested: Bounds,
    /// The most usable bytes that lived in it at one instant; `None` where they were not counted.
    pub usable: Option<Bounds>,
    /// The most that was resident in samples, in bytes: the proportional share of pages that others map,
    /// too. `None` where there was no sample.
    pub resident: Option<u64>,
    /// Threads that it ever had.
    pub threads: u64,
    /// What its threads counted.
    pub sums: Sums,
    /// The modules that were told apart, those with calls.
    pub modules: Vec<Module>,
}

impl Process {
    /// The name of its command: the last part of the path.
    pub fn name(&self) -> &str {
        self.command.first().map_or("", |word| file_name(word))
    }
}
