//! The blocks that are alive at a moment, inherited ones included.

use crate::column::Unpacker;
use crate::events::Events;
use crate::index::ProcessContents;
use crate::operation::{Deed, Operation};
use crate::site::SiteNumber;
use crate::unpacked::{KnownCallers, UnpackedBlock};
use crate::{Error, ProcessNumber, Tape};
use hashbrown::HashSet;

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
    /// Its call stack, if that is known, in that process.
    pub site: Option<SiteNumber>,
    /// Milliseconds since the recording began when it was made.
    pub time: u64,
    /// Whether a [`Release`](crate::Release) has given its address up: a reallocation of it is under
    /// way, whose event comes later. It counts until then, though another block may stand there.
    pub released: bool,
}

/// A moment of a process.
#[derive(Clone, Copy)]
pub(crate) enum Moment {
    /// After the event with this index.
    Event(u64),
    /// After so many events and early releases.
    Items(u64),
}

/// The blocks of `process` that are alive at a moment, by address.
pub(crate) fn live_at(
    tape: &Tape,
    process: ProcessNumber,
    moment: Moment,
) -> Result<Vec<LiveBlock>, Error> {
    let mut all = Vec::new();
    let mut gone = Gone::default();
    let mut next = Some((process, moment));
    while let Some((process, moment)) = next {
        let contents = tape.process(process)?;
        let mut own = own_blocks(tape, process, moment, &mut gone)?;
        describe(tape, contents, &mut own)?;
        if all.is_empty() {
            all = own;
        } else {
            all.append(&mut own);
        }
        let parent = contents.summary.parent.filter(|_| contents.summary.forked_at.is_some());
        next = parent.map(|parent| (parent, Moment::Items(contents.forked_items)));
    }
    all.sort_by_cached_key(|block| (block.address, block.ordinal));
    Ok(all)
}

/// What the descendants did to the blocks of a process, by the blocks' numbers.
#[derive(Default)]
struct Gone {
    /// They end there.
    ended: HashSet<u64>,
    /// Their addresses are given up there.
    released: HashSet<u64>,
}

/// The blocks that the process made itself and that are not in `gone.ended`; the inherited ones that
/// it ended or gave up are added to `gone`.
fn own_blocks(
    tape: &Tape,
    process: ProcessNumber,
    moment: Moment,
    gone: &mut Gone,
) -> Result<Vec<LiveBlock>, Error> {
    let mut events = Events::until(tape, process, moment)?;
    while events.lend()?.is_some() {}
    let state = events.state();
    gone.released.extend(state.waiting().map(|old| old.ordinal));
    let waiting = state.waiting().filter_map(|old| Some((old.ordinal, old.held()?)));
    let own = state.births.iter().chain(waiting);
    let own =
        own.filter(|(ordinal, _)| !gone.ended.contains(ordinal)).map(|(ordinal, held)| LiveBlock {
            address: held.address,
            size: held.size,
            slack: held.slack,
            align: 0,
            birth: held.birth,
            ordinal,
            process,
            thread: 0,
            caller: 0,
            site: None,
            time: 0,
            released: gone.released.contains(&ordinal),
        });
    let own = own.collect();
    gone.ended.extend(&state.ended);
    Ok(own)
}

/// Fills in what only the event that made a block tells: alignment, thread, caller, time.
fn describe(
    tape: &Tape,
    contents: &ProcessContents,
    blocks: &mut [LiveBlock],
) -> Result<(), Error> {
    blocks.sort_unstable_by_key(|block| block.birth);
    let mut rest = blocks;
    let mut known = KnownCallers::of(tape, contents)?;
    for located in &contents.blocks {
        let here = rest.partition_point(|block| block.birth < located.header.end.events);
        let (these, later) = rest.split_at_mut(here);
        rest = later;
        if these.is_empty() {
            continue;
        }
        let from = Unpacker { source: tape.payload(located), streams: &located.streams };
        let unpacked = UnpackedBlock::unpack_origins(&from, tape.has_sites());
        let mut unpacked = unpacked.map_err(|why| why.at(located.frame))?;
        known.number(&mut unpacked.callers).map_err(|why| why.at(located.frame))?;
        fill(unpacked, located.header.first_event, these);
    }
    Ok(())
}

/// Goes through the events of one block beside its births, in order.
fn fill(mut from: UnpackedBlock, mut index: u64, births: &mut [LiveBlock]) {
    let mut births = births.iter_mut().peekable();
    for operation in std::mem::take(&mut from.operations) {
        let (thread, time) = (from.threads.next() as u32, from.times.next());
        let deed = Operation(operation).deed();
        if matches!(deed, None | Some(Deed::EarlyRelease { .. })) {
            continue;
        }
        let caller = from.callers.next().unwrap_or_default();
        let aligned = matches!(deed, Some(Deed::Allocate { aligned: true, .. }));
        let align = if aligned { from.aligns.next().unwrap_or(0) } else { 0 };
        if let Some(block) = births.next_if(|block| block.birth == index) {
            (block.thread, block.time, block.align) = (thread, time, align);
            (block.caller, block.site) = (caller.address, caller.site);
        }
        index = index.wrapping_add(1);
    }
}
