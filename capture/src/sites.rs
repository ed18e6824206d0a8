//! The sites of a process: each call stack once, by a hash of all its frames.
//!
//! A table of levels, each larger than the one before, so that what is there lies close together however many there are. A
//! site stands in the first level whose line for it has room, and never moves. An entry is one word. Nobody waits: of two
//! threads that meet a new stack at the same moment each tells the collector what it is, under a number of its own.

use crate::arch;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries of a line of the processor's caches.
const WAYS: usize = 8;
/// The lower bits of an entry, which are the number.
const NUMBER_BITS: u32 = 22;
const NUMBERS: u32 = (1 << NUMBER_BITS) - 1;

/// Entries: the upper bits of a name, and the number; 0 for none. (The lower bits choose the line. Of a process with a million
/// sites the chance that any two are taken for one is some six in a million.)
#[repr(C, align(64))]
struct Line([AtomicU64; WAYS]);

/// All sites.
#[repr(C)]
pub struct Sites {
    next: AtomicU32,
    _rest: [u32; 1023],
    tiny: [Line; 1 << 10],
    small: [Line; 1 << 13],
    medium: [Line; 1 << 16],
    large: [Line; 1 << 18],
}

impl Sites {
    /// Where the table begins; before it stand the numbers that were given, which count for ever.
    pub const TABLE_AT: usize = core::mem::offset_of!(Sites, tiny);

    /// The number of a site. `define` tells the collector what a new one is, before anybody uses its number.
    #[inline(always)]
    pub fn number(&self, name: u64, define: impl FnOnce(u32)) -> u32 {
        // Most are in none of the caches; so they are on their way at once.
        for lines in self.levels() {
            arch::prefetch(line(lines, name));
        }
        for lines in self.levels() {
            for entry in line(lines, name) {
                let found = entry.load(Ordering::Acquire);
                if found == 0 {
                    return self.new_one(name, define);
                }
                if let Some(number) = number_of(found, name) {
                    return number;
                }
            }
        }
        // There are too many to remember them all.
        self.new_one(name, define)
    }

    #[inline(always)]
    fn levels(&self) -> [&[Line]; 4] {
        [&self.tiny, &self.small, &self.medium, &self.large]
    }

    #[cold]
    #[inline(never)]
    fn new_one(&self, name: u64, define: impl FnOnce(u32)) -> u32 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        define(number);
        let new = entry(name, number);
        let entries = self.levels().into_iter().flat_map(|lines| line(lines, name));
        if new != 0 {
            let mut free = entries.filter(|entry| entry.load(Ordering::Relaxed) == 0);
            free.any(|entry| {
                entry.compare_exchange(0, new, Ordering::Release, Ordering::Relaxed).is_ok()
            });
        }
        number
    }
}

/// The entry of a site; 0 where its number is too large for one.
pub fn entry(name: u64, number: u32) -> u64 {
    if number <= NUMBERS { name >> NUMBER_BITS << NUMBER_BITS | u64::from(number) } else { 0 }
}

/// The number in an entry that is this site's.
#[inline(always)]
pub fn number_of(entry: u64, name: u64) -> Option<u32> {
    let is_its = entry != 0 && entry >> NUMBER_BITS == name >> NUMBER_BITS;
    is_its.then_some(entry as u32 & NUMBERS)
}

/// The line of a level that a name may stand in.
#[inline(always)]
fn line(lines: &[Line], name: u64) -> &[AtomicU64; WAYS] {
    &lines[name as usize & (lines.len() - 1)].0
}
