//! The heaps of all processes, and what forked children inherit of them.
//!
//! A child copies nothing. An address that it did not allocate itself is looked up in its
//! parent as of the fork point, and so on through its ancestors. For that a parent keeps the
//! blocks that died after a point that somebody may still ask for (its graveyard), and lives on
//! here after its end until the last such point is gone.

use crate::Error;
use crate::event::ForkPoint;
use crate::live::{Block, LiveMap};
use hashbrown::HashMap;

/// A graveyard is looked through for blocks that nobody needs when it has grown so much.
const PRUNE_STEP: usize = 4096;

/// A block that was given up by a reallocation whose event has not come yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) address: u64,
    /// `None` if no block was known there.
    pub(crate) block: Option<Block>,
}

/// What a process has at its addresses.
pub(crate) struct Heap {
    pub(crate) live: LiveMap,
    /// Early releases by thread.
    pub(crate) pending: HashMap<u32, Pending>,
    /// Where its inherited blocks are looked up.
    origin: Option<u32>,
    /// Inherited blocks that it ended, by number, and when.
    ended: HashMap<u64, u64>,
    /// Blocks that died after a fork point, by address, and when.
    graveyard: HashMap<u64, Vec<(Block, u64)>>,
    buried: usize,
    prune_at: usize,
    points: usize,
    /// Allocations before the youngest fork point that is still needed; 0 for no point.
    youngest_point: u64,
    running: bool,
}

/// A moment of a heap that somebody may ask for.
struct Point {
    owner: u32,
    /// Allocations before it.
    ordinal: u64,
    /// Events and early releases before it.
    items: u64,
    pending: Vec<Pending>,
    /// The point itself while it is open, and each child's heap that is still needed.
    users: u32,
    open: bool,
    /// The counts of the owner.
    events: u64,
    blocks: u64,
    requested: u64,
}

/// What a child starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Inheritance {
    /// Events of the parent before the fork.
    pub(crate) events: u64,
    /// Events and early releases of the parent before the fork.
    pub(crate) items: u64,
    /// Allocations of the parent before the fork, its own inherited ones counted.
    pub(crate) ordinal: u64,
    pub(crate) blocks: u64,
    pub(crate) requested: u64,
}

/// All heaps, by process number.
#[derive(Default)]
pub(crate) struct Family {
    heaps: Vec<Option<Box<Heap>>>,
    points: HashMap<u32, Point>,
    next_point: u32,
}

impl Family {
    /// Adds the heap of the next process; gives what it inherits from `origin`.
    pub(crate) fn start(&mut self, origin: Option<ForkPoint>) -> Result<Inheritance, Error> {
        let inherited = match origin {
            None => Inheritance::default(),
            Some(ForkPoint(id)) => {
                let point = self.points.get_mut(&id).filter(|point| point.open);
                let point = point.ok_or(Error::NoForkPoint(id))?;
                point.users += 1;
                Inheritance {
                    events: point.events,
                    items: point.items,
                    ordinal: point.ordinal,
                    blocks: point.blocks,
                    requested: point.requested,
                }
            }
        };
        self.heaps.push(Some(Box::new(Heap {
            live: LiveMap::default(),
            pending: HashMap::default(),
            origin: origin.map(|point| point.0),
            ended: HashMap::default(),
            graveyard: HashMap::default(),
            buried: 0,
            prune_at: PRUNE_STEP,
            points: 0,
            youngest_point: 0,
            running: true,
        })));
        Ok(inherited)
    }

    /// The heap of a process that runs, or that somebody inherits from.
    pub(crate) fn heap(&mut self, process: u32) -> Option<&mut Heap> {
        self.heaps.get_mut(process as usize)?.as_deref_mut()
    }

    /// Opens a fork point of `process` as it is now.
    pub(crate) fn open(&mut self, process: u32, now: Inheritance) -> Option<ForkPoint> {
        let heap = self.heaps.get_mut(process as usize)?.as_mut()?;
        let id = self.next_point;
        self.next_point += 1;
        heap.points += 1;
        heap.youngest_point = now.ordinal;
        let point = Point {
            owner: process,
            ordinal: now.ordinal,
            items: now.items,
            pending: heap.pending.values().copied().filter(|p| p.block.is_some()).collect(),
            users: 1,
            open: true,
            events: now.events,
            blocks: now.blocks,
            requested: now.requested,
        };
        self.points.insert(id, point);
        Some(ForkPoint(id))
    }

    /// The point itself is not needed any more; children started from it may still be.
    pub(crate) fn close(&mut self, point: ForkPoint) -> Result<(), Error> {
        let open = self.points.get_mut(&point.0).ok_or(Error::NoForkPoint(point.0))?;
        if !std::mem::replace(&mut open.open, false) {
            return Err(Error::NoForkPoint(point.0));
        }
        self.leave(point)
    }

    /// One user less of a fork point; with the last one, what was kept for it goes.
    fn leave(&mut self, point: ForkPoint) -> Result<(), Error> {
        let mut next = Some(point.0);
        while let Some(id) = next {
            let point = self.points.get_mut(&id).ok_or(Error::NoForkPoint(id))?;
            point.users -= 1;
            if point.users > 0 {
                break;
            }
            let owner = point.owner;
            self.points.remove(&id);
            next = self.settle(owner);
        }
        Ok(())
    }

    /// The process has ended; its heap goes unless somebody inherits from it.
    pub(crate) fn end(&mut self, process: u32) -> Result<(), Error> {
        let Some(heap) = self.heap(process) else { return Ok(()) };
        heap.running = false;
        let origin = heap.origin;
        let needed = heap.points > 0;
        if !needed {
            self.drop_heap(process);
        }
        match origin {
            Some(id) if !needed => self.leave(ForkPoint(id)),
            _ => Ok(()),
        }
    }

    fn drop_heap(&mut self, process: u32) {
        if let Some(slot) = self.heaps.get_mut(process as usize) {
            *slot = None;
        }
    }

    /// A point of `process` is gone. Gives the point that its heap held, if the heap goes too.
    fn settle(&mut self, process: u32) -> Option<u32> {
        let heap = self.heap(process)?;
        heap.points -= 1;
        if heap.points == 0 {
            heap.youngest_point = 0;
            heap.graveyard = HashMap::default();
            heap.buried = 0;
            heap.prune_at = PRUNE_STEP;
            if !heap.running {
                let origin = heap.origin;
                self.drop_heap(process);
                return origin;
            }
        } else if heap.buried > heap.prune_at {
            self.prune(process);
        }
        None
    }

    fn prune(&mut self, process: u32) {
        let moments: Vec<(u64, u64)> = self
            .points
            .values()
            .filter(|p| p.owner == process)
            .map(|p| (p.ordinal, p.items))
            .collect();
        let Some(heap) = self.heap(process) else { return };
        let needed = |&(block, died): &(Block, u64)| {
            moments.iter().any(|&(ordinal, items)| block.ordinal < ordinal && died >= items)
        };
        heap.graveyard.retain(|_, dead| {
            dead.retain(needed);
            !dead.is_empty()
        });
        heap.buried = heap.graveyard.values().map(Vec::len).sum();
        heap.prune_at = heap.buried * 2 + PRUNE_STEP;
        heap.youngest_point = moments.iter().map(|m| m.0).max().unwrap_or(0);
    }

    /// Fetches what an event of `process` will look up.
    #[inline]
    pub(crate) fn fetch(&self, process: u32, address: u64) {
        if let Some(Some(heap)) = self.heaps.get(process as usize) {
            heap.live.fetch(address);
        }
    }

    /// Takes the block at `address` out of the heap of `process`, inherited ones too. `items` is
    /// the number of the event or release that does it.
    #[inline(always)]
    pub(crate) fn take(&mut self, process: u32, address: u64, items: u64) -> Option<Block> {
        let heap = self.heaps.get_mut(process as usize)?.as_mut()?;
        match heap.live.remove(address) {
            Some(block) => {
                heap.bury(address, block, items);
                Some(block)
            }
            None => self.take_inherited(process, address, items),
        }
    }

    /// Takes the inherited block at `address`.
    #[cold]
    pub(crate) fn take_inherited(
        &mut self,
        process: u32,
        address: u64,
        items: u64,
    ) -> Option<Block> {
        let heap = self.heaps.get(process as usize)?.as_ref()?;
        let block = self.find(heap.origin?, address)?;
        let heap = self.heap(process)?;
        if heap.ended.contains_key(&block.ordinal) {
            return None;
        }
        heap.ended.insert(block.ordinal, items);
        Some(block)
    }

    /// The block at `address` in the heap of `process`, inherited ones too.
    pub(crate) fn look(&self, process: u32, address: u64) -> Option<Block> {
        let heap = self.heaps.get(process as usize)?.as_ref()?;
        heap.live.get(address).or_else(|| {
            let block = self.find(heap.origin?, address)?;
            (!heap.ended.contains_key(&block.ordinal)).then_some(block)
        })
    }

    /// Puts a block at `address`; gives the one that stood there, inherited ones too.
    #[inline]
    pub(crate) fn put(
        &mut self,
        process: u32,
        address: u64,
        block: Block,
        items: u64,
    ) -> Option<Block> {
        let heap = self.heaps.get_mut(process as usize)?.as_mut()?;
        match heap.live.insert(address, block) {
            Some(displaced) => {
                heap.bury(address, displaced, items);
                Some(displaced)
            }
            None if heap.origin.is_none() => None,
            None => self.take_inherited(process, address, items),
        }
    }

    /// The block at `address` as of a fork point: that of the nearest ancestor which had one, if
    /// none of those between ended it before its own child was forked.
    fn find(&self, point: u32, address: u64) -> Option<Block> {
        let mut at = point;
        let block = loop {
            let (point, heap) = self.moment(at)?;
            match heap.block_at(address, point) {
                Some(block) => break block,
                None => at = heap.origin?,
            }
        };
        let mut between = point;
        while between != at {
            let (point, heap) = self.moment(between)?;
            if heap.ended.get(&block.ordinal).is_some_and(|&ended| ended < point.items) {
                return None;
            }
            between = heap.origin?;
        }
        Some(block)
    }

    /// A fork point and the heap that it is a moment of.
    fn moment(&self, point: u32) -> Option<(&Point, &Heap)> {
        let point = self.points.get(&point)?;
        Some((point, self.heaps.get(point.owner as usize)?.as_ref()?))
    }
}

impl Heap {
    /// The block at `address` as of a fork point of this heap, inherited ones left out.
    fn block_at(&self, address: u64, point: &Point) -> Option<Block> {
        if let Some(block) = self.live.get(address).filter(|b| b.ordinal < point.ordinal) {
            return Some(block);
        }
        let dead = self.graveyard.get(&address).into_iter().flatten();
        let mut dead = dead.filter(|(b, died)| b.ordinal < point.ordinal && *died >= point.items);
        if let Some(&(block, _)) = dead.next() {
            return Some(block);
        }
        let waiting = point.pending.iter().filter(|p| p.address == address);
        waiting.filter_map(|p| p.block).max_by_key(|block| block.ordinal)
    }

    #[inline]
    fn bury(&mut self, address: u64, block: Block, items: u64) {
        if block.ordinal < self.youngest_point {
            self.keep_dead(address, block, items);
        }
    }

    #[cold]
    fn keep_dead(&mut self, address: u64, block: Block, items: u64) {
        self.graveyard.entry(address).or_default().push((block, items));
        self.buried += 1;
    }
}
