//! Heads: how large a block is, as glibc has it in the word before the block.
//!
//! `malloc_usable_size` reads this word, and the one before the next block, which is seldom in a cache; two calls of
//! it for each block were a good part of what counting in detail takes. What it reads is no promise of glibc's. So it
//! is asked first, for some blocks, and the word is relied on where it has said the same each time. Other allocators
//! are asked always.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::next::UsableSize;

/// The word is not relied on.
const ASK: u32 = u32::MAX;
/// Blocks for which the word has to be right.
const ENOUGH: u32 = 64;
/// [`ASK`], or for how many blocks it still has to be right.
static LEFT: AtomicU32 = AtomicU32::new(ASK);

/// The low bits of the word tell about the block and its neighbour, and this one that the block is a mapping of its
/// own.
const FLAGS: u64 = 7;
const IS_MAPPING: u64 = 2;
/// What of its memory a block can't use.
const OWN: u64 = 8;

/// Blocks come from glibc.
pub fn begin() {
    if LEFT.load(Ordering::Relaxed) == ASK {
        LEFT.store(ENOUGH, Ordering::Relaxed);
    }
}

/// How large a live block is for which so many bytes were asked, of the library that `ask` finds.
#[inline(always)]
pub fn usable_size(block: *mut u8, bytes: u64, ask: impl FnOnce() -> UsableSize) -> u64 {
    if LEFT.load(Ordering::Relaxed) == 0
        && let Some(size) = told(block)
    {
        return size;
    }
    asked(block, bytes, ask())
}

/// What the word before a block says.
#[inline(always)]
fn told(block: *mut u8) -> Option<u64> {
    // SAFETY: a live block of glibc's, before which this word stands.
    let head = unsafe { block.cast::<u64>().sub(1).read() };
    (head & IS_MAPPING == 0).then(|| (head & !FLAGS).wrapping_sub(OWN))
}

#[cold]
#[inline(never)]
fn asked(block: *mut u8, bytes: u64, ask: UsableSize) -> u64 {
    // SAFETY: a live block of the library that is asked.
    let size = unsafe { ask(block) as u64 };
    let left = LEFT.load(Ordering::Relaxed);
    if left != ASK
        && left > 0
        && let Some(told) = told(block)
    {
        let next = if told == size { left - 1 } else { ASK };
        // (Of threads that do this at once one counts; what is wrong once is wrong again.)
        let _ = LEFT.compare_exchange(left, next, Ordering::Relaxed, Ordering::Relaxed);
    }
    // Some tell nothing of blocks that they have made before their own begin, or at all.
    size.max(bytes)
}
