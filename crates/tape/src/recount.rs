//! A process's counts made again from its items, beside the ones that its blocks carry.

use crate::item::{Item, Lent, OldBlock, Release, Resolved};
use crate::tally::Tally;
use hashbrown::HashMap;

/// The counts after the items so far.
pub(crate) struct Recount {
    tally: Tally,
    /// Requested sizes of the blocks that wait for their event, by thread.
    waiting: HashMap<u32, Option<u64>>,
}

impl Recount {
    /// Begins with what the process inherited.
    pub(crate) fn new(start: Tally) -> Recount {
        Recount { tally: start, waiting: HashMap::new() }
    }

    /// The counts after the last item.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Counts an item. `displaced` gives the requested size of the block that stands at an address.
    pub(crate) fn item(&mut self, item: &Lent<'_>, displaced: impl Fn(u64) -> u64) {
        match item {
            Lent::Event(resolved) => self.event(resolved, displaced),
            Lent::Other(Item::Release(release)) => self.release(release),
            Lent::Other(_) => {}
        }
    }

    fn release(&mut self, release: &Release) {
        let size = release.block.map(|block| block.size);
        // A second release of a thread ends the block of the first for good.
        if let Some(Some(lost)) = self.waiting.insert(release.thread, size) {
            self.tally.ended(lost);
        }
        self.tally.release(release.thread);
    }

    fn event(&mut self, resolved: &Resolved, displaced: impl Fn(u64) -> u64) {
        let event = &resolved.event;
        let (failed, old) = (event.failed(), resolved.block.map(|block: OldBlock| block.size));
        if resolved.early {
            self.waiting.remove(&event.thread);
        }
        if !failed {
            let gives_up = event.call.is_release() || event.old != 0;
            self.tally.unknown_frees += u64::from(gives_up && old.is_none());
            old.into_iter().for_each(|size| self.tally.ended(size));
        }
        if resolved.displaced.is_some() {
            self.tally.order_faults += 1;
            // A failed call's own block comes back to where another may stand.
            let address = if failed { event.old } else { event.address };
            self.tally.ended(displaced(address));
        }
        if resolved.ordinal.is_some() {
            self.tally.born(event.size);
        }
        self.tally.event(event.call, event.thread);
    }
}
