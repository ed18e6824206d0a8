//! The allocator's functions where calls are counted: each is a function of its own, to which the hook jumps,
//! so that recording pays nothing for it.

use core::ffi::c_int;

use crate::counting::{allocate, release};
use crate::next::{ENOMEM, next};

macro_rules! allocations {
    ($($(#[$about:meta])* $name:ident($($arg:ident),*) = $bytes:expr, $sizes:ident, $make:expr;)*) => {$(
        $(#[$about])*
        #[inline(never)]
        pub extern "C" fn $name($($arg: usize,)* caller: usize) -> *mut u8 {
            // SAFETY: forwarded as the program asked.
            allocate($bytes, caller, || next().sizes.$sizes, || unsafe { $make })
        }
    )*};
}

allocations! {
    /// `malloc`.
    malloc(size) = size, malloc, (next().malloc)(size);
    /// `calloc`.
    calloc(count, size) = count.saturating_mul(size), malloc, (next().calloc)(count, size);
    /// `operator new`: of nothing it is a block, too.
    new(size) = size, malloc, (next().malloc)(size.max(1));
    /// The aligned `operator new`, which asks for a multiple of the alignment.
    new_aligned(size, align, whole) = size, aligned_alloc, (next().aligned_alloc)(align, whole);
    /// `memalign`.
    memalign(align, size) = size, memalign, (next().memalign)(align, size);
    /// `aligned_alloc`.
    aligned_alloc(align, size) = size, aligned_alloc, (next().aligned_alloc)(align, size);
    /// `valloc`.
    valloc(size) = size, valloc, (next().valloc)(size);
    /// `pvalloc`.
    pvalloc(size) = size, pvalloc, (next().pvalloc)(size);
}

/// `posix_memalign`.
///
/// # Safety
/// As for libc's.
#[inline(never)]
pub unsafe fn posix_memalign(out: *mut *mut u8, align: usize, size: usize, caller: usize) -> c_int {
    let (mut error, mut made) = (ENOMEM, core::ptr::null_mut());
    // SAFETY: as promised.
    let block = allocate(
        size,
        caller,
        || next().sizes.posix_memalign,
        || unsafe {
            error = (next().posix_memalign)(&raw mut made, align, size);
            if error == 0 { made } else { core::ptr::null_mut() }
        },
    );
    if !block.is_null() {
        // SAFETY: it is written when the call succeeds.
        unsafe { *out = block };
    } else if error == 0 {
        // It was made, and turned out to be too large.
        error = ENOMEM;
    }
    error
}

/// `free`.
///
/// # Safety
/// As for libc's.
#[inline(never)]
pub unsafe extern "C" fn free(block: *mut u8) {
    // SAFETY: as promised.
    release(block, |block| unsafe { (next().free)(block) });
}
