//! What a reader gets: events with what they did to the live set, releases, notes, samples.

use crate::births::{Held, MakerCode};
use crate::event::{Event, Note, Sample};
use crate::site::SiteNumber;
use heaptape_wire::event::Call;

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

/// A return address, or a site, by its place among those that the stream has met, from 0: the same one has the same
/// number throughout one stream of a process's events. On a tape with sites two numbers may have the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerNumber(pub u32);

/// Who made a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    /// The return address of the call.
    pub caller: CallerNumber,
    /// The thread, numbered in its process from 0.
    pub thread: u32,
}

/// What a call did to the live set. It is known whichever columns are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It made a block.
    Made,
    /// It ended a block.
    Freed,
    /// It gave a block another size at the same address.
    InPlace,
    /// It gave a block another size and address.
    Moved,
    /// It failed and changed nothing.
    Failed,
    /// It ended a block that was not made on this tape.
    Unknown,
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
    /// Who made it; `None` when that was before the stream began, or the callers are not read.
    pub maker: Option<Maker>,
}

impl OldBlock {
    /// The same where `next` is the number of the next allocation.
    #[inline]
    pub(crate) fn at(self, next: u64) -> OldBlock {
        OldBlock { age: next.wrapping_sub(1).wrapping_sub(self.ordinal), ..self }
    }

    /// It as one of the live blocks; `None` for an inherited one, which is not among them.
    pub(crate) fn held(&self) -> Option<Held> {
        let OldBlock { size, slack, address, maker, .. } = *self;
        self.birth.map(|birth| Held { birth, size, slack, address, maker: MakerCode::of(maker) })
    }
}

/// An event with what it did to the live set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its index.
    pub index: u64,
    /// The event as it was written.
    pub event: Event,
    /// What it did.
    pub effect: Effect,
    /// Its caller's number; `None` when callers are not read.
    pub caller: Option<CallerNumber>,
    /// Its call stack, if that is known; see [`Tape::sites`](crate::Tape::sites).
    pub site: Option<SiteNumber>,
    /// The number of the block it made, among the allocations of the process.
    pub ordinal: Option<u64>,
    /// The block it ended; `None` for none, and for a free of an address never seen.
    pub block: Option<OldBlock>,
    /// Whether a [`Release`] gave the old block up before.
    pub early: bool,
    /// A live block that stood at the new address: an order fault; it ended here.
    pub displaced: Option<OldBlock>,
}

impl Resolved {
    /// Nothing yet.
    pub(crate) const EMPTY: Resolved = Resolved {
        index: 0,
        event: Event {
            call: Call::Free,
            thread: 0,
            time: 0,
            caller: 0,
            address: 0,
            size: 0,
            slack: 0,
            align: 0,
            old: 0,
        },
        effect: Effect::Unknown,
        caller: None,
        site: None,
        ordinal: None,
        block: None,
        early: false,
        displaced: None,
    };

    /// The blocks that it ended, for good: the one that it was given, and one that stood in the way.
    #[inline]
    pub fn ended(&self) -> impl Iterator<Item = &OldBlock> {
        let given = self.block.as_ref().filter(|_| self.effect != Effect::Failed);
        given.into_iter().chain(&self.displaced)
    }

    /// Makes this the event `index` that did nothing yet.
    #[inline]
    pub(crate) fn clear(&mut self, index: u64) {
        *self = Resolved { index, ..Resolved::EMPTY };
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
    /// The block of the thread's release before, whose event never came; it ended here.
    pub lost: Option<OldBlock>,
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

/// The same, lent by the stream: nothing is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent<'a> {
    /// A heap call.
    Event(&'a Resolved),
    /// Anything else, never an [`Item::Event`].
    Other(&'a Item),
}

impl Lent<'_> {
    /// The index of the event, or of the event that comes next.
    #[inline]
    pub fn index(&self) -> u64 {
        match self {
            Lent::Event(resolved) => resolved.index,
            Lent::Other(item) => item.index(),
        }
    }
}

impl From<Lent<'_>> for Item {
    #[inline]
    fn from(lent: Lent<'_>) -> Item {
        match lent {
            Lent::Event(resolved) => Item::Event(*resolved),
            Lent::Other(item) => item.clone(),
        }
    }
}

impl Item {
    /// The index of the event, or of the event that comes next.
    #[inline]
    pub fn index(&self) -> u64 {
        match self {
            Item::Event(resolved) => resolved.index,
            Item::Release(release) => release.index,
            Item::Note { index, .. } => *index,
            Item::Sample(sample) => sample.index,
        }
    }
}
