//! Threads that live in this process, as libc counts them for its own ends.

use core::hint::black_box;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::following::following;

following! {
    /// glibc's count: with the last of them the process ends. Others lack it, and older ones.
    static LIVING = c"__nptl_nthreads"
}

/// How many live at this moment; 0 where libc does not tell.
pub fn living() -> u64 {
    // (It is written through its section alone, of which the compiler does not know.)
    match black_box(&LIVING).known() as *const AtomicU32 {
        count if count.is_null() => 0,
        // SAFETY: a word of glibc's, which is never unloaded.
        count => unsafe { (*count).load(Ordering::Relaxed) }.into(),
    }
}
