//! Functions that somebody has patched in the processes of a job, so that calls of them go elsewhere first.

/// What was patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Patched {
    /// The begin of functions of libc: this tool's wrappers go through it, so calls are still seen.
    Libc,
    /// The begin of this tool's own wrappers: calls come to them only if the patcher passes them on.
    Wrapper,
    /// The entries by which a module calls functions: as above.
    Entry,
}

/// A patch, the same in all processes that are named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Patch {
    /// What was patched.
    pub what: Patched,
    /// The file that was patched in memory; for entries, the one that calls.
    pub module: String,
    /// The file that calls go to; `None` where that is not known.
    pub by: Option<String>,
    /// The functions.
    pub functions: Vec<String>,
    /// The processes, by their places in the job's list.
    pub processes: Vec<usize>,
}
