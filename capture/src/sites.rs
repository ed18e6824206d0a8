//! The sites of a process: each call stack once, by a hash of all its frames.
//!
//! A table of three levels, each larger than the one before; a name stands in the first level whose row for it has
//! room, and never moves. Nobody waits: who meets a name whose number is not there yet, as another thread is just
//! telling the collector what it is, tells it again under a number of its own.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Names in a row.
const ROW: usize = 8;

#[repr(C)]
struct Entry {
    /// The site's name; 0 for none.
    name: AtomicU64,
    /// Its number plus one; 0 while it is not known.
    number: AtomicU32,
}

/// All sites.
#[repr(C)]
pub struct Sites {
    next: AtomicU32,
    small: [Entry; 1 << 12],
    medium: [Entry; 1 << 16],
    large: [Entry; 1 << 20],
}

impl Sites {
    /// The number of a site. `define` tells the collector what a new one is, before anybody uses its number.
    #[inline(always)]
    pub fn number(&self, name: u64, define: impl FnOnce(u32)) -> u32 {
        for level in [&self.small[..], &self.medium[..], &self.large[..]] {
            let first = name as usize & (level.len() - 1) & !(ROW - 1);
            for entry in &level[first..first + ROW] {
                let found = match entry.name.load(Ordering::Relaxed) {
                    0 => entry.name.compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed),
                    found => Err(found),
                };
                match found {
                    Ok(_) => return self.new_one(define, Some(entry)),
                    Err(found) if found == name => match entry.number.load(Ordering::Acquire) {
                        0 => return self.new_one(define, None),
                        number => return number - 1,
                    },
                    Err(_) => {}
                }
            }
        }
        // There are too many to remember them all.
        self.new_one(define, None)
    }

    #[cold]
    #[inline(never)]
    fn new_one(&self, define: impl FnOnce(u32), entry: Option<&Entry>) -> u32 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        define(number);
        if let Some(entry) = entry {
            entry.number.store(number.wrapping_add(1), Ordering::Release);
        }
        number
    }
}
