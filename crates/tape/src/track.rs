//! What a process is being written as: its counts, its block so far, and what each event adds.
//!
//! The reader's mirror of this is `resolve.rs`.

use crate::age::Ages;
use crate::callers::Callers;
use crate::event::Event;
use crate::family::Family;
use crate::live::Block;
use crate::made::Made;
use crate::notes::RawNotes;
use crate::operation::{Old, Operation, Outcome};
use crate::place::PlaceModel;
use crate::pool::{Pool, Pooled};
use crate::regions::Regions;
use crate::stacks::Stacks;
use crate::tally::Tally;

/// What is being written of a running process.
pub(crate) struct Track {
    pub(crate) tally: Tally,
    pub(crate) block: Box<Pooled>,
    pub(crate) notes: RawNotes,
    /// The number of its first own allocation.
    pub(crate) base: u64,
    ages: Ages,
    places: PlaceModel,
    callers: Callers,
    /// Its call stacks, on a tape with sites.
    pub(crate) stacks: Option<Box<Stacks>>,
    pub(crate) last_keyframe: Tally,
    /// What the events since the last keyframe made.
    pub(crate) made: Made,
    /// Blocks older than the last keyframe that ended since.
    pub(crate) ended: Vec<u64>,
    /// Where blocks may lie without a new sample being wanted.
    pub(crate) regions: Regions,
    /// Whether a keyframe was made after the last sample.
    pub(crate) keyframe_unsampled: bool,
}

impl Track {
    pub(crate) fn new(tally: Tally, pool: &Pool, has_sites: bool) -> Track {
        Track {
            tally,
            block: Box::new(pool.first(tally)),
            notes: RawNotes::default(),
            base: tally.ordinal,
            ages: Ages::new(tally.ordinal),
            places: PlaceModel::new(),
            callers: Callers::new(),
            stacks: has_sites.then(Box::default),
            last_keyframe: tally,
            made: Made::default(),
            ended: Vec::new(),
            regions: Regions::new(),
            keyframe_unsampled: false,
        }
    }

    /// Begins the next block of events; gives the last one.
    pub(crate) fn next_block(&mut self, pool: &Pool) -> Box<Pooled> {
        self.block.end = self.tally;
        self.made.add(&self.block.operations);
        self.ages = Ages::new(self.tally.ordinal);
        self.places.reset();
        self.callers.reset();
        let next = Box::new(pool.follower(&self.block, self.tally));
        let mut block = std::mem::replace(&mut self.block, next);
        block.has_sites = self.stacks.is_some();
        block
    }

    /// Notes that a block has ended for good.
    #[inline(always)]
    pub(crate) fn ended(&mut self, block: &Block) {
        self.tally.ended(block.size);
        if block.ordinal < self.last_keyframe.ordinal {
            self.ended.push(block.ordinal);
        }
    }

    /// Writes which block an item refers to: its age, and all of it if it is inherited.
    #[inline(always)]
    fn refer(&mut self, address: u64, block: &Block) {
        self.block.ages.push_any(self.ages.code(block.ordinal, self.tally.ordinal));
        self.describe(address, block);
    }

    /// The same for a block that leaves its address.
    #[inline(always)]
    pub(crate) fn leave(&mut self, address: u64, block: &Block) {
        self.refer(address, block);
        self.places.freed(address, block.size.wrapping_add(block.slack));
    }

    /// Writes where a new block is.
    #[inline(always)]
    fn place(&mut self, event: &Event) {
        let usable = event.size.wrapping_add(event.slack);
        let codes = &mut self.block.addresses;
        self.places.code(event.address, usable, |code| codes.push(code));
    }

    #[inline]
    fn describe(&mut self, address: u64, block: &Block) {
        if block.ordinal < self.base {
            self.block.inherited.extend([block.size, block.slack, address]);
        }
    }

    /// A block stood where the current item puts another one.
    #[cold]
    fn displaced(&mut self, address: u64, block: &Block) {
        let age = self.tally.ordinal.wrapping_sub(1).wrapping_sub(block.ordinal);
        let item = self.block.items() as u64;
        self.block.faults.extend([item, age]);
        self.describe(address, block);
        self.ended(block);
        self.tally.order_faults += 1;
    }

    /// Writes what all items have.
    #[inline(always)]
    pub(crate) fn item(&mut self, operation: Operation, thread: u32, time: u64) {
        let block = &mut **self.block;
        let item = block.items();
        block.operations.push(operation.0);
        block.threads.item(item, u64::from(thread));
        block.times.item(item, time);
    }

    /// Writes an event.
    #[inline]
    pub(crate) fn event(&mut self, family: &mut Family, process: u32, event: &Event) {
        let operation = self.apply(family, process, event);
        let stacks = self.stacks.as_deref();
        let code = self.callers.code(event.caller, &mut self.block.caller_names, stacks);
        self.block.callers.push(code);
        self.item(operation, event.thread, event.time);
        self.tally.event(event.call, event.thread);
    }

    /// Does what an event does; gives its operation.
    #[inline(always)]
    fn apply(&mut self, family: &mut Family, process: u32, event: &Event) -> Operation {
        if event.call.is_release() {
            free(family, process, self, event)
        } else if event.call.is_reallocation() {
            reallocate(family, process, self, event)
        } else {
            allocate(family, process, self, event)
        }
    }
}

#[inline(always)]
fn free(family: &mut Family, process: u32, track: &mut Track, event: &Event) -> Operation {
    let block = family.take(process, event.address, track.tally.items);
    match &block {
        Some(block) => {
            track.leave(event.address, block);
            track.ended(block);
        }
        None => {
            track.block.unknown.push(event.address);
            track.tally.unknown_frees += 1;
        }
    }
    Operation::release(event.call, block.is_some())
}

#[inline(always)]
fn allocate(family: &mut Family, process: u32, track: &mut Track, event: &Event) -> Operation {
    track.block.sizes.push(event.size);
    let (failed, aligned) = (event.address == 0, event.align != 0);
    if aligned {
        track.block.aligns.push(event.align);
    }
    if !failed {
        track.place(event);
        born(family, process, track, event);
    }
    Operation::allocate(event.call, failed, aligned)
}

/// The block of an event is born at its address.
#[inline(always)]
fn born(family: &mut Family, process: u32, track: &mut Track, event: &Event) {
    let code = track.places.slack_code(event.size, event.slack);
    track.block.slacks.push(code);
    let block = Block { ordinal: track.tally.ordinal, size: event.size, slack: event.slack };
    put(family, process, track, event.address, block);
    track.regions.look(event.address, event.size.wrapping_add(event.slack));
    track.tally.born(event.size);
}

/// A block comes to stand at an address; one that stood there ends.
#[inline]
fn put(family: &mut Family, process: u32, track: &mut Track, address: u64, block: Block) {
    if let Some(displaced) = family.put(process, address, block, track.tally.items) {
        track.displaced(address, &displaced);
    }
}

fn reallocate(family: &mut Family, process: u32, track: &mut Track, event: &Event) -> Operation {
    let outcome = match event.address {
        0 if event.size == 0 && event.old != 0 => Outcome::Freed,
        0 => Outcome::Failed,
        address if address == event.old => Outcome::InPlace,
        _ => Outcome::Moved,
    };
    let old = find_old(family, process, track, event, outcome);
    if outcome != Outcome::Freed {
        track.block.sizes.push(event.size);
    }
    if outcome == Outcome::Moved {
        track.place(event);
    }
    if matches!(outcome, Outcome::InPlace | Outcome::Moved) {
        born(family, process, track, event);
    }
    Operation::reallocate(event.call, old, outcome)
}

/// Finds and, unless the call failed, ends the block that a reallocation was given.
fn find_old(
    family: &mut Family,
    process: u32,
    track: &mut Track,
    event: &Event,
    outcome: Outcome,
) -> Old {
    if event.old == 0 {
        return Old::None;
    }
    if let Some(block) = take_pending(family, process, event) {
        finish_pending(family, process, track, event, block, outcome);
        return Old::Released;
    }
    let failed = outcome == Outcome::Failed;
    let block = match failed {
        true => family.look(process, event.old),
        false => family.take(process, event.old, track.tally.items),
    };
    let Some(block) = block else {
        track.block.unknown.push(event.old);
        track.tally.unknown_frees += u64::from(!failed);
        return Old::Unknown;
    };
    if failed {
        track.refer(event.old, &block);
    } else {
        track.leave(event.old, &block);
        track.ended(&block);
    }
    Old::Known
}

/// The release that waits for this event, if one does. The inner option is its block.
fn take_pending(family: &mut Family, process: u32, event: &Event) -> Option<Option<Block>> {
    let heap = family.heap(process)?;
    if heap.pending.is_empty() || heap.pending.get(&event.thread)?.address != event.old {
        return None;
    }
    heap.pending.remove(&event.thread).map(|pending| pending.block)
}

/// Ends the block of an early release, or puts it back if the call failed.
fn finish_pending(
    family: &mut Family,
    process: u32,
    track: &mut Track,
    event: &Event,
    block: Option<Block>,
    outcome: Outcome,
) {
    let failed = outcome == Outcome::Failed;
    match block {
        Some(block) if failed => {
            put(family, process, track, event.old, block);
        }
        Some(block) => track.ended(&block),
        None => track.tally.unknown_frees += u64::from(!failed),
    }
}
