//! What depends on the processor: adding to a word in one instruction that is not locked.
//!
//! Such an instruction is whole for the thread that executes it and for its signal handlers, since an interrupt comes
//! before or behind it, and it costs a fifth of a locked one. For other processors it is a load and a store, so only one
//! thread may write the word. Under the model checker it is exactly these two.

use crate::atomic::AtomicU64;

#[cfg(all(not(loom), not(target_arch = "x86_64")))]
compile_error!(
    "heaptape runs on x86-64 Linux only; other processors have no unlocked addition here yet"
);

/// Adds to a word that only this thread and its signal handlers write.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn add(word: &AtomicU64, more: u64) {
    // SAFETY: the reference makes the word valid, and an aligned word is read and written whole. Memory is not said to
    // be untouched, so that the compiler moves no access across.
    unsafe {
        core::arch::asm!("add qword ptr [{0}], {1}", in(reg) word.as_ptr(), in(reg) more, options(nostack))
    };
}

/// Takes one away, in the same way.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn count_down(word: &AtomicU64) {
    // SAFETY: as above.
    unsafe { core::arch::asm!("sub qword ptr [{0}], 1", in(reg) word.as_ptr(), options(nostack)) };
}

/// The cheap half of the fence between the owner of a purse and a thief: nothing but an order for the compiler, since
/// the thief makes all other processors pass a fence when it comes. Behind a locked instruction it is a whole one.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn light_fence() {
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}

#[cfg(loom)]
pub(crate) fn add(word: &AtomicU64, more: u64) {
    use crate::atomic::Ordering::{Relaxed, Release};
    word.store(word.load(Relaxed).wrapping_add(more), Release);
}

#[cfg(loom)]
pub(crate) fn count_down(word: &AtomicU64) {
    add(word, u64::MAX);
}

// The checker has no fence that one side pays for both; with a true one on each side the protocol is the same.
#[cfg(loom)]
pub(crate) fn light_fence() {
    crate::atomic::fence(crate::atomic::Ordering::SeqCst);
}
