//! The sites of a process: each call stack once, by a hash of all its frames.
//!
//! A table of two levels, a small one that stays in the processor's caches and a large one; a name stands in the first row
//! for it that has room, and never moves. Nobody waits: who meets a name whose number is not there yet, as another thread is
//! just telling the collector what it is, tells it again under a number of its own.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Names in a row, which is a line of the processor's caches.
const ROW: usize = 5;
/// Rows that a name may stand in, in each level.
const PROBES: usize = 4;

#[repr(C, align(64))]
struct Row {
    /// The sites' names; 0 for none.
    names: [AtomicU64; ROW],
    /// Their numbers plus one; 0 while they are not known.
    numbers: [AtomicU32; ROW],
}

/// All sites.
#[repr(C)]
pub struct Sites {
    next: AtomicU32,
    small: [Row; 1 << 10],
    large: [Row; 1 << 18],
}

impl Sites {
    /// The number of a site. `define` tells the collector what a new one is, before anybody uses its number.
    #[inline(always)]
    pub fn number(&self, name: u64, define: impl FnOnce(u32)) -> u32 {
        for (level, probes) in [(&self.small[..], 1), (&self.large[..], PROBES)] {
            for probe in 0..probes {
                let row = &level[(name as usize).wrapping_add(probe) & (level.len() - 1)];
                for (entry, number) in row.names.iter().zip(&row.numbers) {
                    let found = match entry.load(Ordering::Relaxed) {
                        0 => entry.compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed),
                        found => Err(found),
                    };
                    match found {
                        Ok(_) => return self.new_one(define, Some(number)),
                        Err(found) if found == name => match number.load(Ordering::Acquire) {
                            0 => return self.new_one(define, None),
                            number => return number - 1,
                        },
                        Err(_) => {}
                    }
                }
            }
        }
        // There are too many to remember them all.
        self.new_one(define, None)
    }

    #[cold]
    #[inline(never)]
    fn new_one(&self, define: impl FnOnce(u32), place: Option<&AtomicU32>) -> u32 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        define(number);
        if let Some(place) = place {
            place.store(number.wrapping_add(1), Ordering::Release);
        }
        number
    }
}
