//! One heap call as a row of a listing: what was asked, what it did, and from where.

use heaptape_tape::{Call, Effect, Resolved, SiteNumber};

use crate::modules::{Modules, Place};

/// A heap call. Sizes are requested bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its index.
    pub index: u64,
    /// Milliseconds since the recording began, coarse.
    pub time: u64,
    /// The thread, numbered in its process from 0.
    pub thread: u32,
    /// The function.
    pub call: Call,
    /// The new block's address, or the freed one's; 0 when the call failed.
    pub address: u64,
    /// The size asked for; 0 for a free.
    pub size: u64,
    /// Usable less requested bytes.
    pub slack: u64,
    /// The alignment asked for; 0 for none.
    pub align: u64,
    /// The address that went into a realloc.
    pub old_address: Option<u64>,
    /// The requested size of the block that ended here.
    pub old_size: Option<u64>,
    /// The index at which that block was made; `None` also for one inherited by fork.
    pub birth: Option<u64>,
    /// Allocations of the process since that block's own.
    pub age: Option<u64>,
    /// For a realloc, whether its block's address was given up before this event, as another thread's
    /// call had to come between; the block itself counted until here.
    pub early: bool,
    /// What the call did.
    pub effect: Effect,
    /// The return address; 0 when unknown.
    pub caller: u64,
    /// The call stack, where one is known.
    pub site: Option<SiteNumber>,
    /// Where that is; `None` when no module was known there.
    pub place: Option<Place>,
}

impl Row {
    /// The row of an event; `modules` are those of its process.
    pub fn of(resolved: &Resolved, modules: &Modules) -> Row {
        let event = &resolved.event;
        let block = resolved.block.as_ref();
        Row {
            index: resolved.index,
            time: event.time,
            thread: event.thread,
            call: event.call,
            address: event.address,
            size: event.size,
            slack: event.slack,
            align: event.align,
            old_address: (event.call.is_reallocation() && event.old != 0).then_some(event.old),
            old_size: block.map(|b| b.size),
            birth: block.and_then(|b| b.birth),
            age: block.map(|b| b.age),
            early: resolved.early,
            effect: resolved.effect,
            caller: event.caller,
            site: resolved.site,
            place: modules.find_call(event.caller, resolved.index),
        }
    }

    /// For a successful reallocation of a block: whether it got another place.
    pub fn moved(&self) -> Option<bool> {
        match self.effect {
            Effect::Moved => Some(true),
            Effect::InPlace => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use heaptape_tape::{Event, OldBlock};

    pub(crate) fn resolved(call: Call, size: u64, address: u64, old: u64, block: u64) -> Resolved {
        let event =
            Event { call, thread: 1, time: 5, caller: 9, address, size, slack: 0, align: 0, old };
        let block = (block > 0).then_some(OldBlock {
            birth: Some(3),
            ordinal: 2,
            age: 4,
            size: block,
            slack: 8,
            address: 0x100,
            maker: None,
        });
        let made = address != 0 && !call.is_release();
        let ordinal = made.then_some(6);
        let effect = match (event.failed(), call.is_release() || event.frees_by_realloc(), old) {
            (true, ..) => Effect::Failed,
            (_, true, _) if block.is_none() => Effect::Unknown,
            (_, true, _) => Effect::Freed,
            (.., 0) => Effect::Made,
            (.., old) if old == address => Effect::InPlace,
            _ => Effect::Moved,
        };
        let (caller, site, early, displaced) = (None, None, false, None);
        Resolved { index: 7, event, effect, caller, site, ordinal, block, early, displaced }
    }

    #[test]
    fn a_realloc_tells_whether_it_moved() {
        for (address, old, moved) in [
            (0x100, 0, None),
            (0x100, 0x100, Some(false)),
            (0x200, 0x100, Some(true)),
            (0, 0x100, None),
        ] {
            let block = if address == 0 { 0 } else { old };
            let row =
                Row::of(&resolved(Call::Realloc, 10, address, old, block), &Modules::default());
            assert_eq!(row.moved(), moved, "{row:?}");
        }
    }

    #[test]
    fn a_free_tells_of_its_block() {
        let row = Row::of(&resolved(Call::Free, 0, 0x100, 0, 24), &Modules::default());
        assert_eq!((row.size, row.old_size, row.birth, row.age), (0, Some(24), Some(3), Some(4)));
        assert_eq!(row.old_address, None);
    }
}
