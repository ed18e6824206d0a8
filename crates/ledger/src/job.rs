//! What is told of all processes of a counted job together.

use crate::{Bounds, Felled, Kernel, Over, Patch, Process};

/// Which bytes of heap blocks are held against the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// What the program asked for.
    #[default]
    Requested,
    /// What the allocator set aside.
    Usable,
    /// No blocks: what is resident of the whole job is.
    Resident,
}

/// What came of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The job stayed within it, or there was none.
    Within,
    /// Requests were refused.
    Refused,
    /// The job was killed, or stopped, at the first request beyond it, or for what was resident; or the kernel has killed
    /// a process of it for want of memory.
    Killed,
    /// A process could not be counted.
    Uncovered,
    /// Much was resident that nothing charged stands for.
    Unaccounted,
    /// Somebody has written over what is counted.
    Tampered,
}

/// What the job held, by what for, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Heap blocks.
    pub heap: u64,
    /// Writable private mappings that programs made themselves.
    pub mappings: u64,
    /// Memory that processes share, once a job.
    pub shared: u64,
    /// Writable data of executables and libraries.
    pub data: u64,
    /// Stacks.
    pub stacks: u64,
    /// What the MPI runtime took while it started.
    pub mpi_runtime: u64,
    /// That is not held against the limit, and not in the sum.
    pub mpi_excluded: bool,
    /// What was set aside for libraries after a refusal.
    pub reserve: u64,
}

impl Charged {
    /// All together.
    pub fn total(&self) -> u64 {
        let mpi_runtime = if self.mpi_excluded { 0 } else { self.mpi_runtime };
        let rows = [self.mappings, self.shared, self.data, self.stacks, mpi_runtime];
        let rows = rows.into_iter().chain([self.reserve]);
        rows.fold(self.heap, u64::saturating_add)
    }
}

/// The first request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstRefusal {
    /// Milliseconds since the job began.
    pub time: u64,
    /// The place of its process in the job's list.
    pub process: Option<usize>,
    /// The kernel's number of the thread.
    pub thread: u32,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// The address that it was asked from.
    pub caller: u64,
    /// The path of that address's module, empty for the executable, and the offset in it; `None` where
    /// that is not known.
    pub place: Option<(String, u64)>,
    /// What the job held then: charged bytes.
    pub job: u64,
    /// Nobody asked: it is the writable data of modules, of which `place` is the largest.
    pub is_data: bool,
}

/// A process that could not be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Its process id; 0 when it is not known.
    pub pid: u32,
    /// Its command line.
    pub command: Vec<String>,
    /// Why, as a whole sentence's end.
    pub why: String,
}

/// A process that was stopped for a request beyond the limit, and still is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Its process id.
    pub pid: u32,
    /// Its command line.
    pub command: Vec<String>,
}

/// What is told of a counted job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// The command line.
    pub command: Vec<String>,
    /// The limit in bytes, if there was one.
    pub limit: Option<u64>,
    /// What is held against it.
    pub basis: Basis,
    /// Whether peaks are exact.
    pub exact: bool,
    /// Whether usable bytes, size classes and modules were counted.
    pub details: bool,
    /// Requests that were refused.
    pub refused: u64,
    /// The first of them.
    pub first: Option<FirstRefusal>,
    /// Whether the job was killed, or stopped, for it.
    pub killed: bool,
    /// Whether the limit was written over while the job ran, or more was charged than it.
    pub is_tampered: bool,
    /// The most that was charged at one instant.
    pub peak: Bounds,
    /// The rows of `charged` when the most was seen: a sample, which may lie a little below the peak.
    pub charged: Charged,
    /// The most requested, usable (`None` where not counted) and resident bytes at one instant.
    pub requested: Bounds,
    /// See `requested`.
    pub usable: Option<Bounds>,
    /// See `requested`; a sample.
    pub resident: Option<u64>,
    /// Wall time in seconds.
    pub elapsed: f64,
    /// Processor time of all processes that were waited for, in seconds: in programs, in the kernel.
    pub processor: [f64; 2],
    /// Page faults of them: minor, major.
    pub faults: [u64; 2],
    /// The most threads at one time, and threads in all.
    pub threads: [u64; 2],
    /// NUMA nodes of the machine.
    pub numa_nodes: u64,
    /// The processes, in order of start.
    pub processes: Vec<Process>,
    /// Processes that could not be counted.
    pub uncovered: Vec<Missed>,
    /// Processes that were stopped, and still were when the counting ended.
    pub stopped: Vec<Stopped>,
    /// Names of exempt modules, as the programs were told them, that no module had which was seen to be loaded.
    pub unmet: Vec<String>,
    /// Threads for which there was no room in the ledger.
    pub uncounted_threads: u64,
    /// Resident bytes that no row of `charged` stands for, as many as were seen at one time, at least; `None` where
    /// nobody could tell.
    pub unaccounted: Option<u64>,
    /// Functions that were patched in its processes.
    pub patches: Vec<Patch>,
    /// In how many processes it was looked for patched functions.
    pub patches_sought: u64,
    /// Processes that ended by SIGKILL which was not this tool's, and whose doing that was.
    pub felled: Option<Felled>,
    /// What the kernel says of the whole job, where that was asked for.
    pub kernel: Option<Kernel>,
}

/// So much may be unaccounted under a limit: 16 MiB, or a hundredth of it.
pub fn unaccounted_allowed(limit: u64) -> u64 {
    (16 << 20).max(limit / 100)
}

impl Job {
    /// The processes that are held against the limit: all but launchers.
    pub fn counted(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| !process.launcher)
    }

    /// The process whose request was refused first.
    pub fn first_refused(&self) -> Option<&Process> {
        self.processes.get(self.first.as_ref()?.process?)
    }

    fn has_uncovered(&self) -> bool {
        !self.uncovered.is_empty() || self.uncounted_threads > 0
    }

    /// Why the job was ended for what was resident, if it was.
    pub fn over(&self) -> Option<&Over> {
        self.kernel.as_ref()?.over.as_ref()
    }

    /// Whether the kernel has killed a process of the job for want of memory.
    pub fn is_felled(&self) -> bool {
        self.felled.as_ref().is_some_and(Felled::is_by_kernel)
    }

    /// Whether a group holds every process to the limit, whatever it is and whoever can count it.
    pub fn is_enclosed(&self) -> bool {
        let holds = |kernel: &Kernel| kernel.group.is_some() && !kernel.is_left;
        self.basis == Basis::Resident && self.kernel.as_ref().is_some_and(holds)
    }

    /// Whether so much is unaccounted that the limit may have been passed by it.
    fn has_unaccounted(&self) -> bool {
        let (bytes, is_resident) = (self.unaccounted.unwrap_or(0), self.basis == Basis::Resident);
        self.limit.is_some_and(|limit| bytes > unaccounted_allowed(limit)) && !is_resident
    }

    /// What came of the limit.
    pub fn verdict(&self) -> Verdict {
        if self.is_tampered {
            Verdict::Tampered
        } else if self.killed || self.over().is_some() || self.is_felled() {
            Verdict::Killed
        } else if self.refused > 0 {
            Verdict::Refused
        } else if !self.is_enclosed() && self.has_uncovered() {
            Verdict::Uncovered
        } else if self.has_unaccounted() {
            Verdict::Unaccounted
        } else {
            Verdict::Within
        }
    }
}
