//! What stands on a tape: heap calls, notes, samples, and the start and end of processes.
//!
//! The collector makes these values from what the capture library sent and hands them to the
//! [`Writer`](crate::Writer); the reader gives the same values back. Nothing here does I/O.

use heaptape_wire::event::Call;
use heaptape_wire::note::NoteKind;

/// A process of the job, numbered in order of start from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessNumber(pub u32);

impl std::fmt::Display for ProcessNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One heap call. Its index is its place among the events of its process, from 0.
///
/// - An allocation has a new `address`; with address 0 it failed and changes nothing.
/// - A release (`free`, `delete`) has the freed block's `address`; its size fields are 0.
/// - A reallocation has `old`. `old` 0 makes it an allocation; `address` 0 with `size` 0 and
///   `old` set makes it a free that counts under realloc; `address` 0 otherwise a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The function that the program called.
    pub call: Call,
    /// The thread, numbered in its process from 0.
    pub thread: u32,
    /// Milliseconds since the recording began, coarse.
    pub time: u64,
    /// The return address of the call; 0 when unknown.
    ///
    /// A writer of a tape with sites is given [`heaptape_wire::site::site_word`] for a call whose stack is known. A reader
    /// gives the first address of the stack, and the site [beside](crate::Resolved::site).
    pub caller: u64,
    /// The new block (0: none), or the freed block.
    pub address: u64,
    /// The requested size in bytes.
    pub size: u64,
    /// Usable less requested size in bytes.
    pub slack: u64,
    /// The requested alignment in bytes; 0 for none.
    pub align: u64,
    /// The address that was given to a reallocation; 0 for none.
    pub old: u64,
}

impl Event {
    /// Whether the call asked for memory and got none, so that nothing changed.
    pub fn failed(&self) -> bool {
        !self.call.is_release() && self.address == 0 && !self.frees_by_realloc()
    }

    /// The address that the event looks up first.
    #[inline]
    pub(crate) fn looked_up(&self) -> u64 {
        if self.old == 0 { self.address } else { self.old }
    }

    /// Whether the call is a reallocation to nothing: a free that counts under realloc.
    pub fn frees_by_realloc(&self) -> bool {
        self.call.is_reallocation() && self.address == 0 && self.size == 0 && self.old != 0
    }
}

/// A mapping call, setting, mark or module; it stands before the event with its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The thread that made it.
    pub thread: u32,
    /// Milliseconds since the recording began, coarse.
    pub time: u64,
    /// The return address of the call; 0 when unknown.
    pub caller: u64,
    /// What it tells.
    pub kind: NoteKind,
    /// Its arguments, as the kind lists them.
    pub args: Vec<u64>,
    /// Its text, as the kind describes it.
    pub text: Vec<u8>,
}

/// A mapping of a process, as `/proc/PID/smaps` showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Bits: 1 readable, 2 writable, 4 executable, 8 shared.
    pub perms: u8,
    /// The file or the kernel's name for it, such as `[heap]`; empty for none.
    pub name: String,
}

impl Vma {
    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.perms & 2 != 0
    }
}

/// What the kernel said of a process at one instant. Sizes are bytes; `None` is not known.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sample {
    /// Milliseconds since the recording began.
    pub time: u64,
    /// Events of the process that were on the tape before. The writer sets it to its own count.
    pub index: u64,
    /// The writable, committed part of the address space.
    pub system: Option<u64>,
    /// Pages in RAM.
    pub resident: Option<u64>,
    /// Pages in RAM, each divided by its number of users.
    pub pss: Option<u64>,
    /// The anonymous part of `pss`.
    pub pss_anon: Option<u64>,
    /// The file part of `pss`.
    pub pss_file: Option<u64>,
    /// The shared-memory part of `pss`.
    pub pss_shmem: Option<u64>,
    /// Pages swapped out.
    pub swap: Option<u64>,
    /// The mappings.
    pub vmas: Vec<Vma>,
}

/// What is known when the recording begins.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// Nanoseconds since 1970 when the recording began.
    pub started: u64,
    /// The command that was recorded.
    pub command: Vec<String>,
    /// The host's name.
    pub host: String,
    /// The kernel's page size in bytes.
    pub page_size: u32,
    /// Settings of the recording and of the allocator, by name.
    pub settings: Vec<(String, String)>,
}

impl Header {
    /// The setting that makes a tape one with sites: how many frames of each call stack are wanted.
    pub const STACKS: &str = "stacks";

    /// The value of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.0 == name).map(|(_, value)| value.as_str())
    }

    /// The frames that were wanted of each call stack; `None` where calls were recorded without.
    pub fn stacks(&self) -> Option<&str> {
        self.setting(Header::STACKS)
    }
}

/// A moment of a process whose live set forked children inherit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ForkPoint(pub(crate) u32);

/// Where a process comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A fresh address space: nothing is inherited.
    Exec,
    /// A fork: the live set of the parent at `point` is inherited.
    Fork {
        /// The moment of the fork.
        point: ForkPoint,
    },
}

/// What is known when a process starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStart {
    /// The kernel's process id; 0 when it is not known, as of one in a pid namespace that was gone too soon.
    pub pid: u32,
    /// The process that started it, if it is on the tape. An exec names its predecessor's parent
    /// or predecessor, as the collector sees fit.
    pub parent: Option<ProcessNumber>,
    /// Where it comes from.
    pub origin: Origin,
    /// Milliseconds since the recording began.
    pub time: u64,
    /// The MPI rank.
    pub rank: Option<u32>,
    /// The command line.
    pub command: Vec<String>,
}

/// A process's place in a parallel job.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Placement {
    /// Its rank, from 0.
    pub rank: u32,
    /// Ranks in all, where that is known.
    pub size: Option<u32>,
    /// What the launcher calls the job; empty where it has no name.
    pub job: String,
    /// The host as the launcher names it; empty where it does not.
    pub host: String,
    /// Who started the ranks: `Open MPI`, `Hydra`, `Slurm`; empty where that is not known.
    pub launcher: String,
}

/// What is known when a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ProcessEnd {
    /// Milliseconds since the recording began.
    pub time: u64,
    /// The exit code, if it left by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Threads that it had in all.
    pub threads: u64,
    /// Calls of `free(NULL)` and the like.
    pub free_null: u64,
    /// Events that happened and are not on the tape.
    pub lost: u64,
}

/// A process that the capture library did not run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncovered {
    /// The kernel's process id; 0 when it is not known.
    pub pid: u32,
    /// The command line.
    pub command: Vec<String>,
    /// Why, as one phrase.
    pub why: String,
}

impl Uncovered {
    /// The process id, where it is known.
    pub fn known_pid(&self) -> Option<u32> {
        (self.pid != 0).then_some(self.pid)
    }
}

/// Why a recording ended before its job did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The tape reached the size that the user allowed.
    MaxSize,
    /// The file system was full.
    DiskFull,
    /// Anything else, as one phrase.
    Other(String),
}

impl Ended {
    /// The word in JSON: `max-size`, `disk-full`, or the phrase.
    pub fn as_str(&self) -> &str {
        match self {
            Ended::MaxSize => "max-size",
            Ended::DiskFull => "disk-full",
            Ended::Other(text) => text,
        }
    }

    /// The ending that [`Ended::as_str`] names.
    pub fn from_text(text: &str) -> Ended {
        match text {
            "max-size" => Ended::MaxSize,
            "disk-full" => Ended::DiskFull,
            other => Ended::Other(other.to_owned()),
        }
    }
}
