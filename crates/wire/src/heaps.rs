//! Where an allocator keeps its blocks: the ranges of addresses that it has mapped for them, as far as its calls are
//! seen. (glibc maps where nobody sees it; its heaps are known by what the kernel shows of them.)
//!
//! Changes are rare. Who makes one holds the table for a moment; who can't get it in time only adds up how much was
//! mapped, so that nobody waits, not even a signal handler that has interrupted another change.

use crate::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Ranges that are told apart.
pub const RANGES: usize = 96;
/// Tries to get the table.
const TRIES: u32 = 1000;

/// A table of ranges. Zeroed memory is an empty one.
#[repr(C)]
pub struct Heaps {
    held: AtomicU32,
    /// Bytes that were mapped and stand in no range.
    elsewhere: AtomicU64,
    /// Begin and end, both 0 for a free place.
    ranges: [[AtomicU64; 2]; RANGES],
}

impl Heaps {
    /// An empty table.
    #[cfg(not(loom))]
    pub const fn new() -> Heaps {
        Heaps {
            held: AtomicU32::new(0),
            elsewhere: AtomicU64::new(0),
            ranges: [const { [const { AtomicU64::new(0) }; 2] }; RANGES],
        }
    }

    /// Empties it, and lets it go, whoever holds it.
    pub fn clear(&self) {
        let words = self.ranges.iter().flatten().chain([&self.elsewhere]);
        words.for_each(|word| word.store(0, Relaxed));
        self.held.store(0, Release);
    }

    /// Lets it go, whoever holds it: in a fork's child, which has no other threads.
    pub fn let_go(&self) {
        self.held.store(0, Release);
    }

    /// The ranges, as they are at some moment each.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ranges =
            self.ranges.iter().map(|[start, end]| (start.load(Acquire), end.load(Acquire)));
        ranges.filter(|(start, end)| start < end)
    }

    /// Bytes that were mapped and stand in no range, at most.
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Relaxed)
    }

    /// Whether nothing was ever mapped.
    pub fn is_empty(&self) -> bool {
        self.ranges().next().is_none() && self.elsewhere() == 0
    }

    fn hold(&self) -> bool {
        (0..TRIES).any(|_| {
            core::hint::spin_loop();
            self.held.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
        })
    }

    fn release(&self) {
        self.held.store(0, Release);
    }

    /// This range was mapped.
    pub fn add(&self, start: u64, end: u64) {
        let is_there = self.hold() && {
            let is_there = self.put(start, end);
            self.release();
            is_there
        };
        if !is_there {
            self.elsewhere.fetch_add(end.saturating_sub(start), Relaxed);
        }
    }

    /// Puts it beside a range that it continues, or into a free place.
    fn put(&self, start: u64, end: u64) -> bool {
        let mut free = None;
        for [its_start, its_end] in &self.ranges {
            let (s, e) = (its_start.load(Relaxed), its_end.load(Relaxed));
            if s >= e {
                free = free.or(Some([its_start, its_end]));
            } else if start <= e && end >= s {
                its_start.store(s.min(start), Release);
                its_end.store(e.max(end), Release);
                return true;
            }
        }
        let Some([its_start, its_end]) = free else { return false };
        its_start.store(start, Relaxed);
        its_end.store(end, Release);
        true
    }

    /// This range is mapped no longer; whether any of it was here. (Where the table can't be had it stays.)
    pub fn remove(&self, start: u64, end: u64) -> bool {
        if !self.hold() {
            return false;
        }
        let (mut rest, mut is_changed) = (None, false);
        for [its_start, its_end] in &self.ranges {
            let (s, e) = (its_start.load(Relaxed), its_end.load(Relaxed));
            if start >= e || end <= s {
                continue;
            }
            is_changed = true;
            match (start <= s, end >= e) {
                (true, true) => {
                    its_end.store(0, Release);
                    its_start.store(0, Release);
                }
                (true, false) => its_start.store(end, Release),
                (false, true) => its_end.store(start, Release),
                (false, false) => {
                    its_end.store(start, Release);
                    rest = Some((end, e));
                }
            }
        }
        let is_lost = rest.filter(|&(start, end)| !self.put(start, end));
        self.release();
        if let Some((start, end)) = is_lost {
            self.elsewhere.fetch_add(end - start, Relaxed);
        }
        is_changed
    }

    /// Takes over all that stands in another table.
    pub fn copy(&self, other: &Heaps) {
        if self.hold() {
            for (own, theirs) in self.ranges.iter().flatten().zip(other.ranges.iter().flatten()) {
                own.store(theirs.load(Acquire), Release);
            }
            self.elsewhere.store(other.elsewhere(), Relaxed);
            self.release();
        }
    }
}

#[cfg(not(loom))]
impl Default for Heaps {
    fn default() -> Heaps {
        Heaps::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn ranges(heaps: &Heaps) -> Vec<(u64, u64)> {
        let mut ranges: Vec<_> = heaps.ranges().collect();
        ranges.sort_unstable();
        ranges
    }

    #[test]
    fn ranges_grow_together_and_are_cut() {
        let heaps = Heaps::new();
        assert!(heaps.is_empty());
        heaps.add(100, 200);
        heaps.add(300, 400);
        heaps.add(200, 250);
        heaps.add(90, 100);
        assert_eq!(ranges(&heaps), [(90, 250), (300, 400)]);
        heaps.remove(150, 180);
        heaps.remove(350, 500);
        assert_eq!(ranges(&heaps), [(90, 150), (180, 250), (300, 350)]);
        heaps.remove(0, 200);
        assert_eq!((ranges(&heaps), heaps.elsewhere()), ([(200, 250), (300, 350)].to_vec(), 0));
        let copy = Heaps::new();
        copy.copy(&heaps);
        assert_eq!(ranges(&copy), ranges(&heaps));
        copy.clear();
        assert!(copy.is_empty());
    }

    #[test]
    fn what_has_no_place_is_added_up() {
        let heaps = Heaps::new();
        (0..RANGES as u64 + 2).for_each(|i| heaps.add(1000 * i + 1, 1000 * i + 11));
        assert_eq!((heaps.ranges().count(), heaps.elsewhere()), (RANGES, 20));
        // Somebody holds it and never lets it go.
        heaps.held.store(1, Relaxed);
        heaps.add(5, 10);
        heaps.remove(0, u64::MAX);
        assert_eq!((heaps.ranges().count(), heaps.elsewhere()), (RANGES, 25));
        heaps.let_go();
        heaps.remove(0, u64::MAX);
        assert_eq!(heaps.ranges().count(), 0);
    }
}
