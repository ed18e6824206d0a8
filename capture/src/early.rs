//! Blocks that are asked for while the next allocator is looked up: stretches of a static region, each
//! handed out once.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

const EARLY_BYTES: usize = 64 << 10;

#[repr(C, align(16))]
struct Early(UnsafeCell<[u8; EARLY_BYTES]>);

// SAFETY: stretches of it are handed out once each.
unsafe impl Sync for Early {}

static EARLY: Early = Early(UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// Whether a block is one of those handed out during the look-up.
#[inline(always)]
pub fn is_early(block: *mut u8) -> bool {
    (block as usize).wrapping_sub(EARLY.0.get() as usize) < EARLY_BYTES
}

/// A block from the static region, zeroed, aligned to 16 bytes; null when it is used up.
pub fn early(size: usize) -> *mut u8 {
    let Some(need) = size.checked_next_multiple_of(16).and_then(|n| n.checked_add(16)) else {
        return core::ptr::null_mut();
    };
    if need > EARLY_BYTES {
        return core::ptr::null_mut();
    }
    let start = EARLY_USED.fetch_add(need, Ordering::Relaxed);
    if start + need > EARLY_BYTES {
        return core::ptr::null_mut();
    }
    // SAFETY: this stretch lies in the region and is handed out once; its first word keeps the size.
    unsafe {
        let block = EARLY.0.get().cast::<u8>().add(start + 16);
        block.sub(16).cast::<usize>().write(size);
        block
    }
}

/// The size of a block from the static region.
pub fn early_size(block: *mut u8) -> usize {
    // SAFETY: `early` wrote it there.
    unsafe { block.sub(16).cast::<usize>().read() }
}
