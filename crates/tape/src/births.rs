//! The reader's live blocks, by the number of their allocation.
//!
//! Most blocks die young: the last few thousand allocations lie in a ring. Those that are still
//! alive when the ring comes round move on to the [`Survivors`]. So the memory is bounded by the live set
//! and the ring, and blocks that were made one after the other lie side by side. The few that do not fit in
//! three words lie in a map of their own.

mod held;
mod survivors;

pub(crate) use held::{Held, MakerCode};

use hashbrown::HashMap;
use held::{Packed, WORDS};
pub(crate) use survivors::FETCHED;
use survivors::{GROUP, Survivors, bit, bits};

/// Allocations in the ring; a power of two.
const RING: usize = 1 << 14;

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
    old: Survivors,
    /// The blocks that are [`Packed::WIDE`].
    wide: HashMap<u64, Held>,
}

fn slot(ordinal: u64) -> usize {
    ordinal as usize % RING
}

/// The place of a group's word in `alive`.
fn word(ordinal: u64) -> usize {
    slot(ordinal) / GROUP as usize
}

impl Births {
    /// An empty table whose first block has the number `next`.
    pub(crate) fn new(next: u64) -> Births {
        Births {
            ring: vec![[0; WORDS]; RING],
            alive: vec![0; RING / GROUP as usize],
            ring_first: next - next % GROUP,
            next,
            old: Survivors::default(),
            wide: HashMap::new(),
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
        for (ordinal, block) in self.old.take_group(self.ring_first / GROUP) {
            self.put_young(ordinal, block);
        }
    }

    #[inline]
    fn put_young(&mut self, ordinal: u64, block: Packed) {
        self.ring[slot(ordinal)] = block.0;
        self.alive[word(ordinal)] |= bit(ordinal);
    }

    fn young(&self, ordinal: u64) -> Option<Packed> {
        let alive = self.alive[word(ordinal)] & bit(ordinal) != 0;
        alive.then(|| Packed(self.ring[slot(ordinal)]))
    }

    #[inline]
    fn pack(&mut self, ordinal: u64, held: Held) -> Packed {
        Packed::pack(held).unwrap_or_else(|| {
            self.wide.insert(ordinal, held);
            Packed::WIDE
        })
    }

    /// The next block is born; gives its number.
    #[inline]
    pub(crate) fn born(&mut self, held: Held) -> u64 {
        let ordinal = self.next;
        if ordinal - self.ring_first >= RING as u64 {
            self.evict();
        }
        let block = self.pack(ordinal, held);
        self.put_young(ordinal, block);
        self.next = ordinal.wrapping_add(1);
        ordinal
    }

    /// The oldest group leaves the ring.
    fn evict(&mut self) {
        let first = self.ring_first;
        let alive = std::mem::take(&mut self.alive[word(first)]);
        if alive != 0 {
            let places = bits(alive).map(|bit| slot(first) + bit.trailing_zeros() as usize);
            self.old.add_group(first / GROUP, alive, places.map(|place| Packed(self.ring[place])));
        }
        self.ring_first = first.wrapping_add(GROUP);
    }

    /// Brings blocks into the processor's caches, [`FETCHED`] at once.
    #[inline]
    pub(crate) fn fetch(&self, ordinals: &[u64]) {
        let old = ordinals.iter().copied().filter(|&ordinal| ordinal < self.ring_first);
        std::hint::black_box(self.old.fetch(old));
    }

    /// Takes a block out.
    #[inline]
    pub(crate) fn take(&mut self, ordinal: u64) -> Option<Held> {
        let block = if ordinal >= self.next {
            return None;
        } else if ordinal >= self.ring_first {
            let block = self.young(ordinal)?;
            self.alive[word(ordinal)] ^= bit(ordinal);
            block
        } else {
            self.old.take(ordinal)?
        };
        block.unpack().or_else(|| self.wide.remove(&ordinal))
    }

    /// The block with this number.
    pub(crate) fn get(&self, ordinal: u64) -> Option<Held> {
        let block = if ordinal >= self.next {
            return None;
        } else if ordinal >= self.ring_first {
            self.young(ordinal)?
        } else {
            self.old.get(ordinal)?
        };
        self.unpack(ordinal, block)
    }

    fn unpack(&self, ordinal: u64, block: Packed) -> Option<Held> {
        block.unpack().or_else(|| self.wide.get(&ordinal).copied())
    }

    /// Puts a block back that was taken out, or one that was read from a keyframe.
    pub(crate) fn put_back(&mut self, ordinal: u64, held: Held) {
        if ordinal >= self.next {
            return;
        }
        if !self.wide.is_empty() {
            self.wide.remove(&ordinal);
        }
        let block = self.pack(ordinal, held);
        if ordinal >= self.ring_first {
            self.put_young(ordinal, block);
        } else {
            self.old.put(ordinal, block);
        }
    }

    /// All blocks with their numbers, nearly in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Held)> + '_ {
        let young = (self.ring_first..self.next).filter_map(|o| Some((o, self.young(o)?)));
        let all = self.old.iter().chain(young);
        all.filter_map(|(ordinal, block)| Some((ordinal, self.unpack(ordinal, block)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn held(n: u64) -> Held {
        Held { birth: n, size: n * 2, slack: n % 5, address: n << 4, maker: MakerCode(n % 3) }
    }

    /// One that does not fit in the words of a packed block, every now and then.
    fn some(random: u64) -> Held {
        let mut held = held(random >> 40);
        match random % 64 {
            0 => held.size = u64::MAX - random,
            1 => held.birth = u64::MAX,
            2 => held.slack = 1 << 20,
            3 => held.address = u64::MAX << 20,
            _ => {}
        }
        held
    }

    fn next_random(random: &mut u64) -> u64 {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *random >> 20
    }

    #[test]
    fn blocks_of_any_age_are_found_until_they_are_taken() {
        let mut births = Births::new(1000);
        let mut model = BTreeMap::new();
        let mut random = 1u64;
        for n in 0..200_000u64 {
            let held = some(next_random(&mut random));
            let ordinal = births.born(held);
            assert_eq!(ordinal, 1000 + n);
            model.insert(ordinal, held);
            let victim = 1000 + next_random(&mut random) % (n + 1);
            births.fetch(&[victim, 0, u64::MAX]);
            assert_eq!(births.get(victim), model.get(&victim).copied());
            assert_eq!(births.take(victim), model.remove(&victim));
            assert_eq!(births.take(victim), None);
            if n % 3 == 0 && n > 0 {
                // At its old place or at another, alive or not.
                for ordinal in [victim, 1000 + next_random(&mut random) % n] {
                    let held = some(next_random(&mut random));
                    births.put_back(ordinal, held);
                    model.insert(ordinal, held);
                }
            }
        }
        assert!(!births.wide.is_empty());
        for gap in [0, 1, 70, 1 << 20] {
            births.go_on_from(births.next() + gap);
            assert_eq!(births.iter().collect::<BTreeMap<_, _>>(), model);
            model.insert(births.born(held(5)), held(5));
        }
        model.keys().for_each(|&ordinal| assert_eq!(births.take(ordinal), Some(model[&ordinal])));
        assert_eq!((births.iter().count(), births.wide.len()), (0, 0));
    }

    /// However long the run was and wherever its blocks lie, the room is that of those that are alive.
    #[test]
    fn survivors_take_room_for_no_more_than_themselves() {
        let mut births = Births::new(0);
        let mut most = 0;
        // Of every 64 neighbours 40 leave the ring, and one of them stays.
        for n in 0..3_000_000u64 {
            births.born(held(n));
            if let Some(old) = n.checked_sub(2 * RING as u64)
                && (1..40).contains(&(old % 64))
            {
                assert!(births.take(old).is_some());
            }
            if n % 64 >= 40 {
                births.take(n);
            }
            most = most.max(births.old.room());
        }
        assert!(most < 2 * (3_000_000 / 64 + 2 * RING) + 10_000, "{most}");
        for n in (0..3_000_000 - 2 * RING as u64).step_by(64) {
            assert!(births.take(n).is_some());
        }
        assert!(births.old.room() < 10_000 + 2 * RING, "{}", births.old.room());
    }
}
