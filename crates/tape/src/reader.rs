//! Opens a tape and streams what is on it.

use crate::summary::Summary;
use crate::{Error, Event, Note, ProcessNumber, Sample};
use std::ops::Range;
use std::path::Path;

/// An open tape.
pub struct Tape {
    summary: Summary,
}

/// Which of the columns that a reader may skip are wanted; the fields of the others read as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// `slack`.
    pub slack: bool,
    /// `address` (and `old`).
    pub address: bool,
    /// `caller`.
    pub caller: bool,
    /// `time`.
    pub time: bool,
    /// Notes and samples.
    pub notes: bool,
}

impl Columns {
    /// Everything.
    pub const ALL: Columns =
        Columns { slack: true, address: true, caller: true, time: true, notes: true };
    /// Operations, sizes, ages, alignments and threads only.
    pub const REPLAY: Columns =
        Columns { slack: false, address: false, caller: false, time: false, notes: false };
}

/// The block that an event ended (a release, or the old block of a reallocation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldBlock {
    /// The index of the event that made it; `None` when it was inherited by fork.
    pub birth: Option<u64>,
    /// Its number among the allocations of the process (a fork's go on from its parent's).
    pub ordinal: u64,
    /// Allocations since its own.
    pub age: u64,
    /// Its requested size in bytes.
    pub size: u64,
    /// Its slack in bytes.
    pub slack: u64,
    /// Its address.
    pub address: u64,
}

/// An event with what it did to the live set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its index.
    pub index: u64,
    /// The event as it was written.
    pub event: Event,
    /// The number of the block it made, among the allocations of the process.
    pub ordinal: Option<u64>,
    /// The block it ended; `None` for none, and for a free of an address never seen.
    pub block: Option<OldBlock>,
    /// The number of a live block that stood at the new address: an order fault; it ended here.
    pub displaced: Option<u64>,
}

impl Resolved {
    /// For a successful reallocation of a known block: whether it got another place.
    pub fn moved(&self) -> Option<bool> {
        let reallocated = self.event.call.is_reallocation() && self.event.address != 0;
        (reallocated && self.event.old != 0).then(|| self.event.old != self.event.address)
    }
}

/// A reallocation gave its old address up before its event; see
/// [`Writer::release`](crate::Writer::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The index of the event that comes next.
    pub index: u64,
    /// The thread.
    pub thread: u32,
    /// Milliseconds since the recording began, coarse.
    pub time: u64,
    /// The address given up.
    pub address: u64,
    /// The block that stood there, if one is known.
    pub block: Option<OldBlock>,
}

/// The next thing on a process's tape.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // nearly all are events
pub enum Item {
    /// A heap call.
    Event(Resolved),
    /// The early release of a reallocation.
    Release(Release),
    /// A note; it stands before the event `index`.
    Note {
        /// The index of the event that comes next.
        index: u64,
        /// The note.
        note: Note,
    },
    /// A sample.
    Sample(Sample),
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Its address.
    pub address: u64,
    /// Its requested size in bytes.
    pub size: u64,
    /// Its slack in bytes.
    pub slack: u64,
    /// Its requested alignment in bytes; 0 for none.
    pub align: u64,
    /// The index of the event that made it, in the process `process`.
    pub birth: u64,
    /// Its number among the allocations of the process.
    pub ordinal: u64,
    /// The process that made it: an ancestor for inherited blocks.
    pub process: ProcessNumber,
    /// The thread that made it, in that process.
    pub thread: u32,
    /// The return address of the call that made it.
    pub caller: u64,
    /// Milliseconds since the recording began when it was made.
    pub time: u64,
}

/// A stream over the events of one process. Its memory is bounded by the live set.
pub struct Events<'a> {
    tape: &'a Tape,
}

impl Iterator for Events<'_> {
    type Item = Result<Item, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let _ = self.tape;
        None
    }
}

#[allow(unused_variables)] // signatures first
impl Tape {
    /// Opens a file. A cut one opens, with `summary().complete` false.
    pub fn open(path: impl AsRef<Path>) -> Result<Tape, Error> {
        Err(Error::Foreign)
    }

    /// Opens a tape that is in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Tape, Error> {
        Err(Error::Foreign)
    }

    /// What the tape says about itself; no event is read.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The items of a process whose index lies in `range`, everything resolved. A range that
    /// goes beyond the end stops there.
    pub fn events(&self, process: ProcessNumber, range: Range<u64>) -> Result<Events<'_>, Error> {
        self.events_with(process, range, Columns::ALL)
    }

    /// The same with only some columns read.
    pub fn events_with(
        &self,
        process: ProcessNumber,
        range: Range<u64>,
        columns: Columns,
    ) -> Result<Events<'_>, Error> {
        Ok(Events { tape: self })
    }

    /// The blocks that are alive after the event `index` (the last one, if it is beyond the
    /// end), inherited ones included, by address.
    pub fn live_at(&self, process: ProcessNumber, index: u64) -> Result<Vec<LiveBlock>, Error> {
        Ok(Vec::new())
    }
}
