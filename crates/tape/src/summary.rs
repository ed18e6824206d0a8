//! What a tape says about itself without its events being read.

use crate::{Ended, Header, Placement, ProcessNumber, SiteCounts, Uncovered};
use heaptape_wire::event::Call;

/// Calls by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CallCounts {
    counts: [u64; Call::ALL.len()],
}

impl CallCounts {
    /// How often `call` was made, failed calls included.
    pub fn of(&self, call: Call) -> u64 {
        self.counts.get(call.code() as usize - 1).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, call: Call, more: u64) {
        if let Some(count) = self.counts.get_mut(call.code() as usize - 1) {
            *count = count.saturating_add(more);
        }
    }

    /// All of them, in the order of their codes.
    pub fn iter(&self) -> impl Iterator<Item = (Call, u64)> + '_ {
        Call::ALL.into_iter().zip(self.counts)
    }
}

impl FromIterator<(Call, u64)> for CallCounts {
    fn from_iter<T: IntoIterator<Item = (Call, u64)>>(all: T) -> CallCounts {
        let mut counts = CallCounts::default();
        all.into_iter().for_each(|(call, count)| counts.add(call, count));
        counts
    }
}

/// A process of the tape, as its counts stood at the end of what can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSummary {
    /// Its number.
    pub number: ProcessNumber,
    /// The kernel's process id; 0 when it is not known.
    pub pid: u32,
    /// The process that started it, if it is on the tape.
    pub parent: Option<ProcessNumber>,
    /// For a fork: how many events its parent had made by then. `None` for an exec.
    pub forked_at: Option<u64>,
    /// Blocks inherited by fork.
    pub inherited_blocks: u64,
    /// Their requested bytes.
    pub inherited_bytes: u64,
    /// Milliseconds since the recording began, at start.
    pub started: u64,
    /// The same at the end; `None` when it is not known to have ended.
    pub ended: Option<u64>,
    /// The MPI rank.
    pub rank: Option<u32>,
    /// What else is known of its place in a parallel job.
    pub placement: Option<Placement>,
    /// The command line.
    pub command: Vec<String>,
    /// The exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its events.
    pub events: u64,
    /// Its threads.
    pub threads: u64,
    /// Its calls by kind.
    pub calls: CallCounts,
    /// Frees of the null pointer.
    pub free_null: u64,
    /// Events known to be missing.
    pub lost: u64,
    /// Allocations at a live address.
    pub order_faults: u64,
    /// Frees of an address never seen.
    pub unknown_frees: u64,
    /// The largest sum of requested bytes, after any one event; at least `inherited_bytes`.
    pub peak_requested: u64,
    /// The index of the event after which the sum was largest first; 0 when the start was.
    pub peak_at: u64,
    /// Requested bytes at the end.
    pub end_requested: u64,
    /// Live blocks at the end.
    pub end_blocks: u64,
    /// Its call stacks, where they were recorded.
    pub sites: SiteCounts,
}

impl ProcessSummary {
    /// The process id, where it is known.
    pub fn known_pid(&self) -> Option<u32> {
        (self.pid != 0).then_some(self.pid)
    }
}

/// The whole tape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What was known at the beginning.
    pub header: Header,
    /// Whether the recording ran to the end of the job and the file is whole.
    pub complete: bool,
    /// Whether the file ends without its index: it was cut, or the recorder was killed.
    pub cut: bool,
    /// Why the recording ended early, if it says so.
    pub ended: Option<Ended>,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// Events of all processes.
    pub events: u64,
    /// Lost events of all processes.
    pub lost: u64,
    /// Order faults of all processes.
    pub order_faults: u64,
    /// Unknown frees of all processes.
    pub unknown_frees: u64,
    /// Processes that could not be recorded.
    pub uncovered: Vec<Uncovered>,
    /// The processes, in order of start.
    pub processes: Vec<ProcessSummary>,
}
