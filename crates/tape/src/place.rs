//! Addresses and slacks as small numbers: allocators do again what they did last.
//!
//! The model keeps, for each usable size, the addresses freed last. A new block is coded as the
//! place of its address in that list, or else as its distance from where the last block ends
//! that was not in its list. The slack is coded as its difference from that of the last block of
//! the same size. Writer and reader drive a model in the same way from the start of a block.

use crate::column::{delta, undelta, unzigzag, zigzag};

/// Places in a list of freed addresses that have a code.
const REACH: usize = 16;
/// Freed addresses that a list keeps; it forgets the older half when it is full.
const DEPTH: usize = 64;
/// Usable sizes below this have a list each; the larger ones share the last lists.
const DIRECT: u64 = 1 << 14;
const DIRECT_LISTS: usize = (DIRECT >> 4) as usize;
const LISTS: usize = DIRECT_LISTS + 256;
/// The code of a distance that is no multiple of [`GRAIN`]: the distance itself comes next.
const ODD: u64 = REACH as u64;
/// What distances are nearly always multiples of, in bytes.
const GRAIN: i64 = 16;
/// What an allocator puts between two blocks, in bytes: the header of a block.
const HEADER: u64 = 8;
/// Slacks that are remembered, by the size's remainder.
const SLACKS: usize = 4096;

/// Predicts the address and the slack of the next block.
pub(crate) struct PlaceModel {
    /// The lists of freed addresses, the last one at the end.
    freed: Vec<u64>,
    lengths: [u8; LISTS],
    /// Where the next block would lie if it were carved after the last one.
    carve: u64,
    slacks: Vec<u64>,
}

fn list_of(usable: u64) -> usize {
    if usable < DIRECT {
        (usable >> 4) as usize
    } else {
        DIRECT_LISTS + ((usable >> 4) ^ (usable >> 12)) as usize % (LISTS - DIRECT_LISTS)
    }
}

impl PlaceModel {
    pub(crate) fn new() -> PlaceModel {
        PlaceModel {
            freed: vec![0; LISTS * DEPTH],
            lengths: [0; LISTS],
            carve: 0,
            slacks: vec![0; SLACKS],
        }
    }

    /// Forgets everything, for the next block of events.
    pub(crate) fn reset(&mut self) {
        self.lengths.fill(0);
        self.slacks.fill(0);
        self.carve = 0;
    }

    /// A block was freed.
    #[inline]
    pub(crate) fn freed(&mut self, address: u64, usable: u64) {
        let list = list_of(usable);
        let Some(places) = self.freed.get_mut(list * DEPTH..(list + 1) * DEPTH) else { return };
        let length = &mut self.lengths[list];
        if usize::from(*length) == DEPTH {
            places.copy_within(DEPTH / 2.., 0);
            *length = (DEPTH / 2) as u8;
        }
        places[usize::from(*length)] = address;
        *length += 1;
    }

    /// Passes the code of a new block's address to `out`: one number or two.
    #[inline]
    pub(crate) fn code(&mut self, address: u64, usable: u64, mut out: impl FnMut(u64)) {
        let list = list_of(usable);
        let length = usize::from(self.lengths[list]);
        let start = list * DEPTH;
        // Most allocators give out the last one first.
        if length > 0 && self.freed.get(start + length - 1) == Some(&address) {
            self.lengths[list] -= 1;
            return out(0);
        }
        let near = self.freed.get(start + length.saturating_sub(REACH)..start + length);
        let back = near.and_then(|near| near.iter().rev().position(|&freed| freed == address));
        if let Some(back) = back {
            self.take(list, back);
            out(back as u64);
            return;
        }
        let distance = address.wrapping_sub(self.carve) as i64;
        if distance % GRAIN == 0 {
            out(zigzag(distance / GRAIN) + ODD + 1);
        } else {
            out(ODD);
            out(zigzag(distance));
        }
        self.carve = address.wrapping_add(usable).wrapping_add(HEADER);
    }

    /// The address that the next code in `codes` stands for; `None` if there is none.
    #[inline]
    pub(crate) fn place(
        &mut self,
        usable: u64,
        codes: &mut impl Iterator<Item = u64>,
    ) -> Option<u64> {
        let code = codes.next()?;
        if code < REACH as u64 {
            return self.take(list_of(usable), code as usize);
        }
        let distance = match code - ODD {
            0 => unzigzag(codes.next()?),
            grains => unzigzag(grains - 1).wrapping_mul(GRAIN),
        };
        let address = self.carve.wrapping_add(distance as u64);
        self.carve = address.wrapping_add(usable).wrapping_add(HEADER);
        Some(address)
    }

    /// Takes an address out of its list; those after it move up.
    #[inline]
    fn take(&mut self, list: usize, back: usize) -> Option<u64> {
        let length = usize::from(self.lengths[list]);
        let at = length.checked_sub(back + 1)?;
        let places = self.freed.get_mut(list * DEPTH..list * DEPTH + length)?;
        let address = places[at];
        places.copy_within(at + 1.., at);
        self.lengths[list] -= 1;
        Some(address)
    }

    /// The code of a block's slack.
    #[inline]
    pub(crate) fn slack_code(&mut self, size: u64, slack: u64) -> u64 {
        let last = &mut self.slacks[size as usize % SLACKS];
        delta(std::mem::replace(last, slack), slack)
    }

    /// The slack that a code stands for.
    #[inline]
    pub(crate) fn slack(&mut self, size: u64, code: u64) -> u64 {
        let last = &mut self.slacks[size as usize % SLACKS];
        *last = undelta(*last, code);
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_forgets_its_older_half() {
        let (mut from, mut to) = (PlaceModel::new(), PlaceModel::new());
        for address in 0..200 {
            from.freed(address * 3, 24);
            to.freed(address * 3, 24);
        }
        for address in (0..220).rev() {
            let mut codes = Vec::new();
            from.code(address * 3, 24, |code| codes.push(code));
            let mut codes = codes.into_iter();
            assert_eq!(to.place(24, &mut codes), Some(address * 3));
            assert_eq!(codes.next(), None);
        }
    }

    #[test]
    fn addresses_at_the_ends_have_codes() {
        let (mut from, mut to) = (PlaceModel::new(), PlaceModel::new());
        for address in [u64::MAX, 0, 1 << 63, 16, u64::MAX - 15, (1 << 63) - 16] {
            for usable in [0, 8, DIRECT, u64::MAX] {
                let mut codes = Vec::new();
                from.code(address, usable, |code| codes.push(code));
                assert_eq!(to.place(usable, &mut codes.into_iter()), Some(address));
            }
        }
    }
}
