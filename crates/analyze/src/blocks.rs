//! Blocks from birth to death: each comes out once, when it ends or when the tape does.
//!
//! It is told of everything that its process did, in order, and keeps the blocks that are alive: its memory is
//! bounded by the live set.

use std::ops::Range;

use hashbrown::HashMap;
use heaptape_tape::{Call, Effect, LiveBlock, OldBlock, ProcessNumber, Release, Resolved};

/// The call that made or ended a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deed {
    /// The process: for an inherited block's birth an ancestor.
    pub process: ProcessNumber,
    /// Its index in that process.
    pub index: u64,
    /// Milliseconds since the recording began, coarse.
    pub time: u64,
    /// The thread, numbered in its process from 0.
    pub thread: u32,
    /// The function; `None` when it is not known.
    pub call: Option<Call>,
    /// The return address; 0 when unknown.
    pub caller: u64,
}

impl Deed {
    fn of(process: ProcessNumber, resolved: &Resolved) -> Deed {
        let event = &resolved.event;
        Deed {
            process,
            index: resolved.index,
            time: event.time,
            thread: event.thread,
            call: Some(event.call),
            caller: event.caller,
        }
    }
}

/// How a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was freed.
    Freed,
    /// A reallocation made another block of it, at the same address or not.
    Resized,
    /// Another block was made at its address: an order fault.
    Displaced,
    /// A reallocation gave it up whose event is not on the tape.
    Lost,
    /// It was alive at the end.
    Left,
}

/// A block that has ended, or was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number among the allocations of the process.
    pub ordinal: u64,
    /// Its address.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Usable less requested bytes.
    pub slack: u64,
    /// The alignment asked for, 0 for none; `None` when it is not known.
    pub align: Option<u64>,
    /// How it ended.
    pub end: End,
    /// What made it; `None` when that is not on the tape.
    pub birth: Option<Deed>,
    /// What ended it; `None` when it was left.
    pub death: Option<Deed>,
    /// Allocations of the process since its own when it ended.
    pub age: Option<u64>,
}

impl Block {
    /// Events of the process from birth to death; `None` when it was left, or made by an ancestor.
    pub fn lifetime(&self) -> Option<u64> {
        let (birth, death) = self.birth.zip(self.death)?;
        (birth.process == death.process).then(|| death.index.wrapping_sub(birth.index))
    }
}

/// What is kept of a live block.
#[derive(Clone, Copy)]
struct Alive {
    address: u64,
    size: u64,
    slack: u64,
    align: u64,
    birth: Deed,
}

/// The blocks of one process that are alive, and were born where it was asked.
pub struct Blocks {
    process: ProcessNumber,
    births: Range<u64>,
    inherits: bool,
    alive: HashMap<u64, Alive>,
}

impl Blocks {
    /// All of a process, which begins with these from its ancestors.
    pub fn all(process: ProcessNumber, inherited: Vec<LiveBlock>) -> Blocks {
        let alive = inherited.into_iter().map(|block| {
            let LiveBlock { address, size, slack, align, birth, time, thread, caller, .. } = block;
            let birth =
                Deed { process: block.process, index: birth, time, thread, call: None, caller };
            (block.ordinal, Alive { address, size, slack, align, birth })
        });
        Blocks { process, births: 0..u64::MAX, inherits: true, alive: alive.collect() }
    }

    /// Those that events with these indexes make.
    pub fn born_in(process: ProcessNumber, births: Range<u64>) -> Blocks {
        Blocks { process, births, inherits: false, alive: HashMap::new() }
    }

    /// Whether nothing more will come of what happens from the event `index` on.
    pub fn is_done(&self, index: u64) -> bool {
        index >= self.births.end && self.alive.is_empty()
    }

    /// Takes in the next event; gives the blocks that it ended.
    pub fn event(&mut self, resolved: &Resolved) -> impl Iterator<Item = Block> + use<> {
        let deed = Deed::of(self.process, resolved);
        let end = if resolved.effect == Effect::Freed { End::Freed } else { End::Resized };
        let given = resolved.block.filter(|_| resolved.effect != Effect::Failed);
        let given = given.and_then(|old| self.ended(&old, end, deed));
        let displaced = resolved.displaced.and_then(|old| self.ended(&old, End::Displaced, deed));
        if let Some(ordinal) = resolved.ordinal
            && self.births.contains(&resolved.index)
        {
            let heaptape_tape::Event { address, size, slack, align, .. } = resolved.event;
            self.alive.insert(ordinal, Alive { address, size, slack, align, birth: deed });
        }
        [given, displaced].into_iter().flatten()
    }

    /// Takes in an early release; gives the block that the thread's release before it had given up, if its event
    /// never came.
    pub fn release(&mut self, release: &Release) -> Option<Block> {
        let &Release { index, time, thread, .. } = release;
        let deed = Deed { process: self.process, index, time, thread, call: None, caller: 0 };
        release.lost.and_then(|old| self.ended(&old, End::Lost, deed))
    }

    /// Those that are alive now, in order of birth.
    pub fn left(self) -> impl Iterator<Item = Block> {
        let mut left: Vec<_> = self.alive.into_iter().collect();
        left.sort_unstable_by_key(|&(ordinal, _)| ordinal);
        left.into_iter().map(|(ordinal, alive)| block(ordinal, alive, End::Left))
    }

    fn ended(&mut self, old: &OldBlock, end: End, deed: Deed) -> Option<Block> {
        let ended = match self.alive.remove(&old.ordinal) {
            Some(alive) => block(old.ordinal, alive, end),
            // What it inherited is not whole where its parent's tape is cut.
            None if self.inherits && old.birth.is_none() => Block {
                ordinal: old.ordinal,
                address: old.address,
                size: old.size,
                slack: old.slack,
                align: None,
                end,
                birth: None,
                death: None,
                age: None,
            },
            None => return None,
        };
        Some(Block { death: Some(deed), age: Some(old.age), ..ended })
    }
}

fn block(ordinal: u64, alive: Alive, end: End) -> Block {
    let Alive { address, size, slack, align, birth } = alive;
    Block {
        ordinal,
        address,
        size,
        slack,
        align: Some(align),
        end,
        birth: Some(birth),
        death: None,
        age: None,
    }
}
