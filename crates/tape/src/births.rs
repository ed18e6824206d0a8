//! The reader's live blocks, by the number of their allocation.
//!
//! Most blocks die young: the last few thousand allocations lie in a ring. Those that are still
//! alive when the ring comes round move to groups of neighbours, which shrink as their blocks
//! die. So the memory is bounded by the live set and the ring, and blocks that were made one
//! after the other are found without a miss.

use crate::item::{CallerNumber, Maker};
use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Allocations in the ring; a power of two.
const RING: usize = 1 << 14;
/// Allocations in a group; the bits of a word.
const GROUP: u64 = 64;

/// A live block as the reader keeps it. Sizes are bytes; what was not asked for is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Held {
    /// The index of the event that made it.
    pub(crate) birth: u64,
    pub(crate) size: u64,
    pub(crate) slack: u64,
    pub(crate) address: u64,
    pub(crate) maker: MakerCode,
}

/// The words of a block.
const WORDS: usize = 5;

impl Held {
    fn words(self) -> [u64; WORDS] {
        [self.birth, self.size, self.slack, self.address, self.maker.0]
    }

    fn from_words([birth, size, slack, address, maker]: [u64; WORDS]) -> Held {
        Held { birth, size, slack, address, maker: MakerCode(maker) }
    }
}

/// Who made a block, in one word: the caller's number plus one, the thread above it; 0 for unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct MakerCode(u64);

impl MakerCode {
    #[inline]
    pub(crate) fn of(maker: Option<Maker>) -> MakerCode {
        let code = |m: Maker| (u64::from(m.caller.0) + 1) | u64::from(m.thread) << 32;
        MakerCode(maker.map_or(0, code))
    }

    #[inline]
    pub(crate) fn maker(self) -> Option<Maker> {
        let caller = (self.0 as u32).checked_sub(1).map(CallerNumber)?;
        Some(Maker { caller, thread: (self.0 >> 32) as u32 })
    }
}

/// Blocks of one group that were alive when it left the ring.
#[derive(Default)]
struct Group {
    /// Which of the group are in `held`, one bit each.
    stored: u64,
    /// Which of those are still alive.
    alive: u64,
    held: Vec<Held>,
}

impl Group {
    /// The place in `held` of the allocation with this bit.
    fn place(&self, bit: u64) -> usize {
        (self.stored & (bit - 1)).count_ones() as usize
    }

    fn get(&self, bit: u64) -> Option<Held> {
        if self.alive & bit == 0 { None } else { self.held.get(self.place(bit)).copied() }
    }

    fn insert(&mut self, bit: u64, held: Held) {
        let place = self.place(bit);
        if self.stored & bit == 0 {
            self.held.insert(place, held);
        } else if let Some(slot) = self.held.get_mut(place) {
            *slot = held;
        }
        self.stored |= bit;
        self.alive |= bit;
    }

    /// Gives the memory of dead blocks back once they are the most.
    fn shrink(&mut self) {
        if self.held.len() > 4 && self.alive.count_ones() as usize * 2 < self.held.len() {
            let alive: Vec<Held> = bits(self.alive).filter_map(|bit| self.get(bit)).collect();
            (self.held, self.stored) = (alive, self.alive);
        }
    }
}

/// The bits that are set in a word, from the lowest.
fn bits(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = word & word.wrapping_neg();
        word ^= bit;
        (bit != 0).then_some(bit)
    })
}

/// Spreads group numbers, which count up, over a table.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// Live blocks by number.
pub(crate) struct Births {
    /// Plain words, so that a fresh ring costs nothing until it is used.
    ring: Vec<[u64; WORDS]>,
    /// Which allocations in the ring are alive: a word for each group.
    alive: Vec<u64>,
    /// The number of the first allocation that may lie in the ring; the first of its group.
    ring_first: u64,
    /// The number that the next allocation has.
    next: u64,
    groups: HashMap<u64, Group, BuildHasherDefault<Spread>>,
}

fn slot(ordinal: u64) -> usize {
    ordinal as usize % RING
}

/// The place of a group's word in `alive`.
fn word(ordinal: u64) -> usize {
    slot(ordinal) / GROUP as usize
}

fn bit(ordinal: u64) -> u64 {
    1 << (ordinal % GROUP)
}

impl Births {
    /// An empty table whose first block has the number `next`.
    pub(crate) fn new(next: u64) -> Births {
        Births {
            ring: vec![[0; WORDS]; RING],
            alive: vec![0; RING / GROUP as usize],
            ring_first: next - next % GROUP,
            next,
            groups: HashMap::default(),
        }
    }

    /// The number that the next allocation has.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The numbers from here up to `next` are of blocks that are dead, as far as is known.
    pub(crate) fn go_on_from(&mut self, next: u64) {
        if next <= self.next {
            return;
        }
        while self.ring_first < self.next {
            self.evict();
        }
        self.next = next;
        self.ring_first = next - next % GROUP;
        if let Some(group) = self.groups.remove(&(self.ring_first / GROUP)) {
            for bit in bits(group.alive) {
                let ordinal = self.ring_first + u64::from(bit.trailing_zeros());
                if let Some(held) = group.get(bit) {
                    self.put_young(ordinal, held);
                }
            }
        }
    }

    #[inline]
    fn put_young(&mut self, ordinal: u64, held: Held) {
        self.ring[slot(ordinal)] = held.words();
        self.alive[word(ordinal)] |= bit(ordinal);
    }

    fn young(&self, ordinal: u64) -> Option<Held> {
        let alive = self.alive[word(ordinal)] & bit(ordinal) != 0;
        alive.then(|| Held::from_words(self.ring[slot(ordinal)]))
    }

    /// The next block is born; gives its number.
    #[inline]
    pub(crate) fn born(&mut self, held: Held) -> u64 {
        let ordinal = self.next;
        if ordinal - self.ring_first >= RING as u64 {
            self.evict();
        }
        self.put_young(ordinal, held);
        self.next = ordinal.wrapping_add(1);
        ordinal
    }

    /// The oldest group leaves the ring.
    fn evict(&mut self) {
        let first = self.ring_first;
        let alive = std::mem::take(&mut self.alive[word(first)]);
        if alive != 0 {
            let places = bits(alive).map(|bit| slot(first) + bit.trailing_zeros() as usize);
            let held = places.map(|place| Held::from_words(self.ring[place])).collect();
            self.groups.insert(first / GROUP, Group { stored: alive, alive, held });
        }
        self.ring_first = first.wrapping_add(GROUP);
    }

    /// Takes a block out.
    #[inline]
    pub(crate) fn take(&mut self, ordinal: u64) -> Option<Held> {
        if ordinal >= self.next {
            None
        } else if ordinal >= self.ring_first {
            let held = self.young(ordinal)?;
            self.alive[word(ordinal)] ^= bit(ordinal);
            Some(held)
        } else {
            self.take_old(ordinal)
        }
    }

    fn take_old(&mut self, ordinal: u64) -> Option<Held> {
        let number = ordinal / GROUP;
        let group = self.groups.get_mut(&number)?;
        let held = group.get(bit(ordinal))?;
        group.alive ^= bit(ordinal);
        if group.alive == 0 {
            self.groups.remove(&number);
        } else {
            group.shrink();
        }
        Some(held)
    }

    /// The block with this number.
    pub(crate) fn get(&self, ordinal: u64) -> Option<Held> {
        if ordinal >= self.next {
            None
        } else if ordinal >= self.ring_first {
            self.young(ordinal)
        } else {
            self.groups.get(&(ordinal / GROUP))?.get(bit(ordinal))
        }
    }

    /// Puts a block back that was taken out, or one that was read from a keyframe.
    pub(crate) fn put_back(&mut self, ordinal: u64, held: Held) {
        if ordinal >= self.next {
            return;
        }
        if ordinal >= self.ring_first {
            self.put_young(ordinal, held);
        } else {
            self.groups.entry(ordinal / GROUP).or_default().insert(bit(ordinal), held);
        }
    }

    /// All blocks with their numbers, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Held)> + '_ {
        let young = (self.ring_first..self.next).filter_map(|o| Some((o, self.young(o)?)));
        let old = self.groups.iter().flat_map(|(number, group)| {
            bits(group.alive).filter_map(move |bit| {
                let ordinal = number * GROUP + u64::from(bit.trailing_zeros());
                Some((ordinal, group.get(bit)?))
            })
        });
        old.chain(young)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn held(n: u64) -> Held {
        Held { birth: n, size: n * 2, slack: n % 5, address: n << 4, maker: MakerCode(n % 3) }
    }

    #[test]
    fn blocks_of_any_age_are_found_until_they_are_taken() {
        let mut births = Births::new(1000);
        let mut model = BTreeMap::new();
        let mut random = 1u64;
        for n in 0..200_000u64 {
            let ordinal = births.born(held(n));
            assert_eq!(ordinal, 1000 + n);
            model.insert(ordinal, held(n));
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let victim = 1000 + (random >> 33) % (n + 1);
            assert_eq!(births.get(victim), model.get(&victim).copied());
            assert_eq!(births.take(victim), model.remove(&victim));
            assert_eq!(births.take(victim), None);
            if n % 3 == 0 && n > 0 {
                births.put_back(victim, held(1));
                model.insert(victim, held(1));
            }
        }
        for gap in [0, 1, 70, 1 << 20] {
            births.go_on_from(births.next() + gap);
            assert_eq!(births.iter().collect::<BTreeMap<_, _>>(), model);
            model.insert(births.born(held(5)), held(5));
        }
    }
}
