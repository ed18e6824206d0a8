//! Addresses as small numbers: allocators hand out again what was freed last.
//!
//! The model keeps, for each usable size, the addresses freed last. A new block is coded as the
//! place of its address in that list, or else as its distance from where the block that was
//! carved last ends. Writer and reader drive a model in the same way from the start of a block.

use crate::column::{delta, undelta};

/// Freed addresses that are kept for one usable size.
const DEPTH: usize = 16;
/// Lists of freed addresses; usable sizes share them.
const LISTS: usize = 1024;

/// The addresses freed last of some usable sizes, the last one first.
#[derive(Clone, Copy)]
struct Freed {
    addresses: [u64; DEPTH],
    next: usize,
}

/// Predicts the address of the next block.
pub(crate) struct PlaceModel {
    freed: Vec<Freed>,
    /// Where the next block would lie if it were carved after the last one.
    carve: u64,
}

fn list(usable: u64) -> usize {
    ((usable >> 3) ^ (usable >> 13)) as usize % LISTS
}

impl PlaceModel {
    pub(crate) fn new() -> PlaceModel {
        PlaceModel { freed: vec![Freed { addresses: [0; DEPTH], next: 0 }; LISTS], carve: 0 }
    }

    /// A block was freed.
    #[inline]
    pub(crate) fn freed(&mut self, address: u64, usable: u64) {
        if let Some(list) = self.freed.get_mut(list(usable)) {
            list.addresses[list.next % DEPTH] = address;
            list.next = (list.next + 1) % DEPTH;
        }
    }

    /// The code of a new block's address.
    #[inline]
    pub(crate) fn code(&mut self, address: u64, usable: u64) -> u64 {
        let Some(list) = self.freed.get_mut(list(usable)) else { return 0 };
        let back =
            (0..DEPTH).find(|k| list.addresses[(list.next + DEPTH - 1 - k) % DEPTH] == address);
        match back {
            Some(back) if address != 0 => {
                list.take(back);
                back as u64
            }
            _ => {
                let code = delta(self.carve, address);
                self.carve = address.wrapping_add(usable).wrapping_add(8);
                code.wrapping_add(DEPTH as u64)
            }
        }
    }

    /// The address that a code stands for.
    #[inline]
    pub(crate) fn place(&mut self, code: u64, usable: u64) -> u64 {
        let Some(list) = self.freed.get_mut(list(usable)) else { return 0 };
        if code < DEPTH as u64 {
            list.take(code as usize)
        } else {
            let address = undelta(self.carve, code - DEPTH as u64);
            self.carve = address.wrapping_add(usable).wrapping_add(8);
            address
        }
    }
}

impl Freed {
    /// Takes the address `back` places back out; those after it move up.
    #[inline]
    fn take(&mut self, back: usize) -> u64 {
        let at = |k: usize, next: usize| (next + 2 * DEPTH - 1 - k) % DEPTH;
        let address = self.addresses[at(back, self.next)];
        for k in (0..back).rev() {
            self.addresses[at(k + 1, self.next)] = self.addresses[at(k, self.next)];
        }
        self.addresses[at(0, self.next)] = 0;
        self.next = (self.next + DEPTH - 1) % DEPTH;
        address
    }
}
