//! The writable memory of a process as its last sample listed it, and whether a block lies outside.
//!
//! The writer asks of every block that is born. What it learns is only whether the kernel should be
//! asked again; nothing of this goes to the tape.

use crate::event::Vma;

/// How many regions are remembered, each by a part of its addresses.
const PLACES: usize = 64;
/// Bits of an address within such a part: 4 MiB.
const PLACE_BITS: u32 = 22;

/// An address range; the end is the address after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    start: u64,
    end: u64,
}

impl Region {
    /// Holds no block.
    const NONE: Region = Region { start: i64::MAX as u64, end: 0 };
    /// Holds every block of a process.
    const ALL: Region = Region { start: 0, end: i64::MAX as u64 };

    /// Whether the bytes from `start` to `end` lie within. It is one comparison, because the addresses
    /// of programs leave the sign bit free; for any other the answer means nothing.
    #[inline]
    fn holds(self, start: u64, end: u64) -> bool {
        (start.wrapping_sub(self.start) | self.end.wrapping_sub(end)) >> 63 == 0
    }
}

/// The regions known of a process.
#[derive(Debug)]
pub(crate) struct Regions {
    /// By address; those that touch are one, because a block may span them.
    known: Vec<Region>,
    /// The region in which the last block of a place lay.
    recent: [Region; PLACES],
    outgrown: bool,
}

impl Regions {
    /// Nothing is known: every block lies outside.
    pub(crate) fn new() -> Regions {
        Regions { known: Vec::new(), recent: [Region::NONE; PLACES], outgrown: false }
    }

    /// Takes the regions from a sample, whose mappings come in order.
    pub(crate) fn learn(&mut self, vmas: &[Vma]) {
        self.known.clear();
        for vma in vmas.iter().filter(|vma| vma.is_writable()) {
            match self.known.last_mut() {
                Some(last) if last.end == vma.start => last.end = vma.end,
                _ => self.known.push(Region { start: vma.start, end: vma.end }),
            }
        }
        self.recent = [Region::NONE; PLACES];
        self.outgrown = false;
    }

    /// Takes over what is known of a process that this one is a copy of.
    pub(crate) fn inherit(&mut self, parent: &Regions) {
        self.known.clone_from(&parent.known);
    }

    /// Whether a block lay outside since the last sample.
    pub(crate) fn are_outgrown(&self) -> bool {
        self.outgrown
    }

    /// Looks where a new block of `usable` bytes lies.
    #[inline]
    pub(crate) fn look(&mut self, address: u64, usable: u64) {
        let end = address.wrapping_add(usable);
        let recent = self.recent[place(address)];
        if !recent.holds(address, end) {
            self.find(address, end);
        }
    }

    #[cold]
    fn find(&mut self, address: u64, end: u64) {
        let after = self.known.partition_point(|region| region.start <= address);
        let region = after.checked_sub(1).and_then(|i| self.known.get(i)).copied();
        match region.filter(|region| region.holds(address, end)) {
            Some(region) => self.recent[place(address)] = region,
            None => {
                // No more needs to be known before the next sample.
                self.outgrown = true;
                self.recent = [Region::ALL; PLACES];
            }
        }
    }
}

/// The place of an address. The arenas of threads, which are used in turn, lie 64 MiB apart and begin
/// alike; they must not share places.
#[inline]
fn place(address: u64) -> usize {
    let part = address >> PLACE_BITS;
    (part ^ part >> 4) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(start: u64, end: u64, perms: u8) -> Vma {
        Vma { start, end, perms, name: String::new() }
    }

    /// A heap of two mappings that touch, a reserve behind it, and a large region far above.
    fn regions() -> Regions {
        let mut regions = Regions::new();
        regions.learn(&[
            vma(0x1000, 0x2000, 1),
            vma(0x5000, 0x6000, 3),
            vma(0x6000, 0x8000, 3),
            vma(0x8000, 0x9000, 0),
            vma(0x7f00_0000_0000, 0x7f10_0000_0000, 3),
        ]);
        regions
    }

    fn is_outside(address: u64, usable: u64) -> bool {
        let mut regions = regions();
        regions.look(address, usable);
        // What is remembered must not change the answer.
        for inside in [0x5000, 0x7ff0, 0x7f00_0000_0000, 0x7f01_2345_0000] {
            regions.look(inside, 16);
        }
        let once = regions.are_outgrown();
        regions.look(address, usable);
        assert_eq!(regions.are_outgrown(), once);
        once
    }

    #[test]
    fn blocks_within_writable_memory() {
        for (address, usable) in [
            (0x5000, 24),
            (0x5000, 0x3000),
            (0x5ff8, 24),
            (0x7ff8, 8),
            (0x8000 - 16, 16),
            (0x7f00_0000_0000, 0x10_0000_0000),
            (0x7f0f_ffff_fff0, 16),
        ] {
            assert!(!is_outside(address, usable), "{address:#x} {usable:#x}");
        }
    }

    #[test]
    fn blocks_elsewhere_or_beyond_an_edge() {
        for (address, usable) in [
            (0x4ff0, 8),
            (0x4ff8, 16),
            (0x7ff8, 16),
            (0x8000, 8),
            (0x1000, 8),
            (0x9000, 8),
            (0x7eff_ffff_fff8, 16),
            (0x7f0f_ffff_fff8, 16),
            (0, 0),
            (u64::MAX, 0),
            (u64::MAX - 8, 16),
        ] {
            assert!(is_outside(address, usable), "{address:#x} {usable:#x}");
        }
    }

    #[test]
    fn arenas_of_threads_have_places_of_their_own() {
        let mut places: Vec<usize> =
            (0..PLACES as u64).map(|n| place(0x7f00_0000_0000 + n * (64 << 20))).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), PLACES);
    }

    #[test]
    fn a_sample_answers_until_the_next_block_outside() {
        let mut regions = Regions::new();
        regions.look(0x5000, 16);
        assert!(regions.are_outgrown());
        regions.learn(&[vma(0x5000, 0x6000, 3)]);
        regions.look(0x5000, 16);
        assert!(!regions.are_outgrown());
        regions.look(0x6000, 16);
        assert!(regions.are_outgrown());
        regions.learn(&[]);
        assert!(!regions.are_outgrown());
        regions.look(0x5000, 16);
        assert!(regions.are_outgrown());
    }
}
