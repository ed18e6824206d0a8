//! The reader's live blocks, by the number of their allocation.
//!
//! Most blocks die young: the last few thousand allocations lie in a ring, and only those that
//! are still alive when the ring comes round move to a map. So the memory is bounded by the live
//! set and the ring.

use hashbrown::HashMap;

/// Allocations in the ring; a power of two.
const RING: usize = 1 << 14;

/// A live block as the reader keeps it. Sizes are bytes; what was not asked for is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Held {
    /// The index of the event that made it.
    pub(crate) birth: u64,
    pub(crate) size: u64,
    pub(crate) slack: u64,
    pub(crate) address: u64,
}

const DEAD: u64 = u64::MAX;
const NOTHING: Held = Held { birth: DEAD, size: 0, slack: 0, address: 0 };

/// Live blocks by number.
pub(crate) struct Births {
    ring: Vec<Held>,
    /// The number that the next allocation has.
    next: u64,
    old: HashMap<u64, Held>,
}

impl Births {
    /// An empty table whose first block has the number `next`.
    pub(crate) fn new(next: u64) -> Births {
        Births { ring: vec![NOTHING; RING], next, old: HashMap::new() }
    }

    /// The number that the next allocation has.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The numbers from here up to `next` are of blocks that are dead, as far as is known.
    pub(crate) fn go_on_from(&mut self, next: u64) {
        if next <= self.next {
            return;
        }
        let first = self.next.saturating_sub(RING as u64);
        for ordinal in first..self.next {
            let held = std::mem::replace(&mut self.ring[ordinal as usize % RING], NOTHING);
            if held.birth != DEAD {
                self.old.insert(ordinal, held);
            }
        }
        self.next = next;
        let first = next.saturating_sub(RING as u64);
        for ordinal in first..next {
            if let Some(held) = self.old.remove(&ordinal) {
                self.ring[ordinal as usize % RING] = held;
            }
        }
    }

    /// The next block is born; gives its number.
    #[inline]
    pub(crate) fn born(&mut self, held: Held) -> u64 {
        let ordinal = self.next;
        let slot = &mut self.ring[ordinal as usize % RING];
        let before = std::mem::replace(slot, held);
        if before.birth != DEAD {
            self.old.insert(ordinal.wrapping_sub(RING as u64), before);
        }
        self.next = self.next.wrapping_add(1);
        ordinal
    }

    /// Takes a block out.
    #[inline]
    pub(crate) fn take(&mut self, ordinal: u64) -> Option<Held> {
        if ordinal >= self.next {
            return None;
        }
        if self.next - ordinal <= RING as u64 {
            let slot = &mut self.ring[ordinal as usize % RING];
            let held = std::mem::replace(slot, NOTHING);
            return if held.birth == DEAD { None } else { Some(held) };
        }
        self.old.remove(&ordinal)
    }

    /// The block with this number.
    pub(crate) fn get(&self, ordinal: u64) -> Option<Held> {
        if ordinal >= self.next {
            return None;
        }
        if self.next - ordinal <= RING as u64 {
            let held = self.ring[ordinal as usize % RING];
            return if held.birth == DEAD { None } else { Some(held) };
        }
        self.old.get(&ordinal).copied()
    }

    /// Puts a block back that was taken out, or one that was read from a keyframe.
    pub(crate) fn put_back(&mut self, ordinal: u64, held: Held) {
        if ordinal < self.next && self.next - ordinal <= RING as u64 {
            self.ring[ordinal as usize % RING] = held;
        } else if ordinal < self.next {
            self.old.insert(ordinal, held);
        }
    }

    /// All blocks with their numbers, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Held)> + '_ {
        let first = self.next.saturating_sub(RING as u64);
        let young = (first..self.next).map(|ordinal| (ordinal, self.ring[ordinal as usize % RING]));
        let young = young.filter(|(_, held)| held.birth != DEAD);
        self.old.iter().map(|(&ordinal, &held)| (ordinal, held)).chain(young)
    }
}
