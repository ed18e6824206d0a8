//! Blocks that have left the ring of young ones, by the numbers of their allocations.
//!
//! They lie in one row in the order in which they came, each group of neighbours without a gap: so that
//! finding one takes a look at its group, of which there are few, and one at the block. A block that dies
//! leaves a hole, and once there are more holes than blocks, the row is closed up. The memory is bounded by
//! what is alive.

use super::held::Packed;
use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Allocations in a group; the bits of a word.
pub(super) const GROUP: u64 = 64;
/// Blocks that are fetched together.
pub(crate) const FETCHED: usize = 32;
/// Holes that are never too many.
const SPARE: usize = 4096;

/// Neighbours that lie in the row.
#[derive(Clone, Copy)]
struct Group {
    /// The place of the first in the row.
    start: usize,
    /// Which have a place, one bit each.
    stored: u64,
    /// Which of those are alive; never none.
    alive: u64,
}

impl Group {
    /// The place in the row of the allocation with this bit, if it has one.
    #[inline]
    fn place(&self, bit: u64) -> usize {
        self.start + (self.stored & (bit - 1)).count_ones() as usize
    }

    /// Where the next group can begin.
    fn end(&self) -> usize {
        self.start + self.stored.count_ones() as usize
    }
}

/// The bits that are set in a word, from the lowest.
pub(super) fn bits(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = word & word.wrapping_neg();
        word ^= bit;
        (bit != 0).then_some(bit)
    })
}

/// The bit of an allocation in its group.
#[inline]
pub(super) fn bit(ordinal: u64) -> u64 {
    1 << (ordinal % GROUP)
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

/// Blocks by number.
#[derive(Default)]
pub(super) struct Survivors {
    row: Vec<Packed>,
    groups: HashMap<u64, Group, BuildHasherDefault<Spread>>,
    alive: usize,
}

impl Survivors {
    /// Takes in those of a new group that are alive; their blocks come in order.
    pub(super) fn add_group(
        &mut self,
        number: u64,
        alive: u64,
        blocks: impl Iterator<Item = Packed>,
    ) {
        let start = self.row.len();
        self.row.extend(blocks);
        let before = self.groups.insert(number, Group { start, stored: alive, alive });
        debug_assert!(before.is_none());
        self.alive += alive.count_ones() as usize;
    }

    /// Takes a group out: which are alive, and their blocks.
    pub(super) fn take_group(&mut self, number: u64) -> Vec<(u64, Packed)> {
        let Some(group) = self.groups.remove(&number) else { return Vec::new() };
        self.alive -= group.alive.count_ones() as usize;
        let blocks = blocks_of(&self.row, number, group).collect();
        self.close_up();
        blocks
    }

    /// The block with this number.
    #[inline]
    pub(super) fn get(&self, ordinal: u64) -> Option<Packed> {
        let group = self.groups.get(&(ordinal / GROUP))?;
        let bit = bit(ordinal);
        if group.alive & bit == 0 { None } else { self.row.get(group.place(bit)).copied() }
    }

    /// Brings blocks into the processor's caches, [`FETCHED`] at the most; what it gives means nothing.
    ///
    /// First all groups, then all blocks: a processor looks only so many instructions ahead.
    #[inline]
    pub(super) fn fetch(&self, ordinals: impl Iterator<Item = u64>) -> u64 {
        let mut places = [0; FETCHED];
        for (place, ordinal) in places.iter_mut().zip(ordinals) {
            let group = self.groups.get(&(ordinal / GROUP));
            *place = group.map_or(0, |group| group.place(bit(ordinal)));
        }
        let blocks = places.iter().filter_map(|&place| self.row.get(place));
        blocks.fold(0, |all, block| all ^ block.touch())
    }

    /// Takes a block out.
    #[inline]
    pub(super) fn take(&mut self, ordinal: u64) -> Option<Packed> {
        let number = ordinal / GROUP;
        let group = self.groups.get_mut(&number)?;
        let bit = bit(ordinal);
        if group.alive & bit == 0 {
            return None;
        }
        group.alive ^= bit;
        let (place, was_last) = (group.place(bit), group.alive == 0);
        let block = self.row.get(place).copied();
        self.alive -= 1;
        if was_last {
            self.groups.remove(&number);
        }
        self.close_up();
        block
    }

    /// Puts a block in, or in the place of the one that has its number.
    pub(super) fn put(&mut self, ordinal: u64, block: Packed) {
        let (number, bit) = (ordinal / GROUP, bit(ordinal));
        let Some(group) = self.groups.get_mut(&number) else {
            return self.add_group(number, bit, std::iter::once(block));
        };
        self.alive += usize::from(group.alive & bit == 0);
        if group.stored & bit == 0 {
            let is_after_all = group.end() == self.row.len() && bit > group.stored;
            if is_after_all {
                self.row.push(Packed::EMPTY);
            } else {
                *group = moved_to_end(&mut self.row, *group, bit);
            }
            group.stored |= bit;
        }
        if let Some(slot) = self.row.get_mut(group.place(bit)) {
            *slot = block;
        }
        group.alive |= bit;
        self.close_up();
    }

    /// All blocks with their numbers, in the order of the row.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Packed)> + '_ {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_unstable_by_key(|(_, group)| group.start);
        groups.into_iter().flat_map(|(&number, &group)| blocks_of(&self.row, number, group))
    }

    /// The places that the row has room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.row.capacity()
    }

    /// Closes the row up if it has more holes than blocks.
    #[inline]
    fn close_up(&mut self) {
        if self.row.len() > self.alive * 2 + SPARE {
            self.close_up_now();
        }
    }

    #[cold]
    fn close_up_now(&mut self) {
        let mut groups: Vec<_> =
            self.groups.values_mut().map(|group| (group.start, group)).collect();
        groups.sort_unstable_by_key(|&(start, _)| start);
        let mut end = 0;
        for (_, group) in groups {
            let start = end;
            for bit in bits(group.alive) {
                // They come in order: what it overwrites has been moved, or was a hole.
                if let Some(&block) = self.row.get(group.place(bit)) {
                    self.row[end] = block;
                    end += 1;
                }
            }
            *group = Group { start, stored: group.alive, alive: group.alive };
        }
        self.row.truncate(end);
        if self.row.capacity() > end * 4 + SPARE {
            self.row.shrink_to(end * 2 + SPARE);
        }
    }
}

/// The live blocks of a group, with their numbers.
fn blocks_of(
    row: &[Packed],
    number: u64,
    group: Group,
) -> impl Iterator<Item = (u64, Packed)> + '_ {
    bits(group.alive).filter_map(move |bit| {
        let ordinal = number * GROUP + u64::from(bit.trailing_zeros());
        Some((ordinal, *row.get(group.place(bit))?))
    })
}

/// Copies what is alive of a group to the end of the row, with a place for one more.
fn moved_to_end(row: &mut Vec<Packed>, group: Group, more: u64) -> Group {
    let start = row.len();
    for bit in bits(group.alive | more) {
        let block = row.get(group.place(bit)).copied();
        row.push(block.unwrap_or(Packed::EMPTY));
    }
    Group { start, stored: group.alive, alive: group.alive }
}
