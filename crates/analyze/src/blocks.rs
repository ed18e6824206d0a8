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

    /// Takes in the next event; gives the blocks that it ended to `each`.
    #[inline]
    pub fn event<E>(
        &mut self,
        resolved: &Resolved,
        mut each: impl FnMut(&Block) -> Result<(), E>,
    ) -> Result<(), E> {
        let deed = Deed::of(self.process, resolved);
        if let Some(old) = resolved.block.as_ref().filter(|_| resolved.effect != Effect::Failed) {
            let end = if resolved.effect == Effect::Freed { End::Freed } else { End::Resized };
            self.ended(old, end, deed).iter().try_for_each(&mut each)?;
        }
        if let Some(old) = &resolved.displaced {
            self.ended(old, End::Displaced, deed).iter().try_for_each(&mut each)?;
        }
        if let Some(ordinal) = resolved.ordinal
            && self.births.contains(&resolved.index)
        {
            let heaptape_tape::Event { address, size, slack, align, .. } = resolved.event;
            self.alive.insert(ordinal, Alive { address, size, slack, align, birth: deed });
        }
        Ok(())
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
        left.into_iter().map(|(ordinal, alive)| block(ordinal, &alive, End::Left))
    }

    #[inline]
    fn ended(&mut self, old: &OldBlock, end: End, deed: Deed) -> Option<Block> {
        let (death, age) = (Some(deed), Some(old.age));
        match self.alive.remove(&old.ordinal) {
            Some(alive) => Some(Block { death, age, ..block(old.ordinal, &alive, end) }),
            // What it inherited is not whole where its parent's part of the tape is cut.
            None if self.inherits && old.birth.is_none() => Some(Block {
                ordinal: old.ordinal,
                address: old.address,
                size: old.size,
                slack: old.slack,
                align: None,
                end,
                birth: None,
                death,
                age,
            }),
            None => None,
        }
    }
}

#[inline]
fn block(ordinal: u64, alive: &Alive, end: End) -> Block {
    let &Alive { address, size, slack, align, birth } = alive;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::tests::resolved;
    use std::convert::Infallible;

    const FIRST: ProcessNumber = ProcessNumber(0);

    /// An event `index` that makes the block `made` and ends the block `old`, each a number and a size.
    fn event(index: u64, made: Option<(u64, u64)>, old: Option<(u64, u64)>) -> Resolved {
        let call = match (made, old) {
            (Some(_), None) => Call::Malloc,
            (Some(_), Some(_)) => Call::Realloc,
            _ => Call::Free,
        };
        let (size, address) = (made.map_or(0, |m| m.1), if made.is_some() { 0x200 } else { 0 });
        let given = if old.is_some() { 0x100 } else { 0 };
        let address = if call == Call::Free { 0x100 } else { address };
        let mut event = resolved(call, size, address, given, old.map_or(0, |o| o.1));
        (event.index, event.ordinal) = (index, made.map(|m| m.0));
        if let (Some(block), Some((ordinal, _))) = (&mut event.block, old) {
            (block.ordinal, block.birth) = (ordinal, Some(0));
        }
        event
    }

    fn ended(blocks: &mut Blocks, event: &Resolved) -> Vec<Block> {
        let mut all = Vec::new();
        let taken: Result<(), Infallible> = blocks.event(event, |block| {
            all.push(*block);
            Ok(())
        });
        assert!(taken.is_ok());
        all
    }

    #[test]
    fn a_block_comes_once_with_its_birth_and_its_death() {
        let mut blocks = Blocks::all(FIRST, Vec::new());
        assert_eq!(ended(&mut blocks, &event(0, Some((0, 10)), None)), []);
        let resized = ended(&mut blocks, &event(3, Some((1, 20)), Some((0, 10))));
        let [block] = resized[..] else { panic!("{resized:?}") };
        assert_eq!((block.ordinal, block.size, block.end), (0, 10, End::Resized));
        assert_eq!((block.lifetime(), block.age), (Some(3), Some(4)));
        let freed = ended(&mut blocks, &event(5, None, Some((1, 20))));
        assert_eq!((freed.len(), freed[0].end, freed[0].lifetime()), (1, End::Freed, Some(2)));
        assert_eq!(ended(&mut blocks, &event(6, None, Some((1, 20)))), []);
        assert_eq!(blocks.left().count(), 0);
    }

    #[test]
    fn only_what_is_born_in_the_range_comes() {
        let mut blocks = Blocks::born_in(FIRST, 1..2);
        for (index, ordinal) in [(0, 7), (1, 8), (2, 9)] {
            ended(&mut blocks, &event(index, Some((ordinal, 1)), None));
        }
        assert!(!blocks.is_done(3));
        assert_eq!(ended(&mut blocks, &event(3, None, Some((7, 1)))), []);
        assert_eq!(ended(&mut blocks, &event(4, None, Some((8, 1)))).len(), 1);
        assert!(blocks.is_done(5));
        assert_eq!(blocks.left().count(), 0);
    }

    #[test]
    fn an_inherited_block_keeps_the_process_that_made_it() {
        let inherited = LiveBlock {
            address: 0x100,
            size: 5,
            slack: 3,
            align: 64,
            birth: 40,
            ordinal: 2,
            process: FIRST,
            thread: 1,
            caller: 9,
            site: None,
            time: 4,
            released: false,
        };
        let mut blocks = Blocks::all(ProcessNumber(1), vec![inherited]);
        let mut free = event(0, None, Some((2, 5)));
        free.block.iter_mut().for_each(|b| b.birth = None);
        let freed = ended(&mut blocks, &free);
        assert_eq!(freed[0].birth.map(|b| (b.process, b.index, b.call)), Some((FIRST, 40, None)));
        assert_eq!((freed[0].align, freed[0].lifetime()), (Some(64), None));
        // One that the parent's part of the tape does not tell of.
        free.block.iter_mut().for_each(|b| b.ordinal = 1);
        let freed = ended(&mut blocks, &free);
        assert_eq!((freed.len(), freed[0].birth, freed[0].size), (1, None, 5));
    }

    #[test]
    fn what_is_left_comes_in_order_of_birth() {
        let mut blocks = Blocks::all(FIRST, Vec::new());
        (0..100).for_each(|n| drop(ended(&mut blocks, &event(n, Some((n, n)), None))));
        let left: Vec<u64> = blocks.left().map(|b| b.ordinal).collect();
        assert!(left.into_iter().eq(0..100));
    }
}
