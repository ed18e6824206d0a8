//! What depends on the processor: adding to a word in one instruction that is not locked, fetching ahead,
//! and finding a key among four.
//!
//! An addition of this kind is whole for the thread that executes it and for its signal handlers, since an interrupt comes
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

/// Has the processor bring a place into its caches, and does not wait for it.
#[inline(always)]
pub fn fetch<T>(place: &T) {
    // SAFETY: nothing is read; the instruction is a hint, which no address makes fail.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
            (&raw const *place).cast(),
        )
    };
}

/// Which of the keys are this one: a bit for each, the first one's lowest.
#[inline(always)]
pub fn find(keys: &[u32; 4], key: u32) -> u32 {
    use core::arch::x86_64::{
        _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_movemask_ps, _mm_set_epi32, _mm_set1_epi32,
    };
    let [a, b, c, d] = keys.map(u32::cast_signed);
    // SAFETY: every x86-64 processor has SSE2.
    unsafe {
        let same = _mm_cmpeq_epi32(_mm_set_epi32(d, c, b, a), _mm_set1_epi32(key.cast_signed()));
        _mm_movemask_ps(_mm_castsi128_ps(same)).cast_unsigned()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::find;

    #[test]
    fn each_key_has_its_bit() {
        let keys = [7, u32::MAX, 0, 7];
        assert_eq!(find(&keys, 7), 0b1001);
        assert_eq!(find(&keys, u32::MAX), 0b10);
        assert_eq!(find(&keys, 0), 0b100);
        assert_eq!(find(&keys, 8), 0);
    }
}
