//! Asking an allocator that is not libc's for the size of a block.
//!
//! To tell it, the allocator may allocate: one makes an object for that at the first time in each
//! thread. Such calls come from our asking and are no events, and they must not lead to the next
//! question. So a thread's first questions are asked with care, until one is answered without a call. A
//! signal handler is then no longer mistaken for the allocator.

use crate::arch::{self, asking_word, set_asking_word};
use crate::sheets;
use crate::slot::{self, ThreadSlot};

/// Not asked yet.
const NEW: usize = 0;
/// Asked once at least.
const ASKED: usize = 1;
/// Answers without a call.
const TRUSTED: usize = 2;
/// Being asked.
const ASKING: usize = 3;
/// Being asked, and has called.
const CALLED: usize = 4;

/// Whether the thread may ask without care.
#[inline(always)]
pub fn is_trusted() -> bool {
    asking_word() == TRUSTED
}

/// Whether a call comes from our asking.
pub fn is_answer() -> bool {
    let asks = matches!(asking_word(), ASKING | CALLED);
    if asks {
        set_asking_word(CALLED);
    }
    asks
}

/// Asks while whatever this thread calls is not recorded; 0 while it is being asked.
#[cold]
pub fn with_care(ask: impl FnOnce() -> usize) -> usize {
    let before = asking_word();
    if is_answer() {
        return 0;
    }
    let (size, is_quiet) = unseen(ask);
    set_asking_word(if is_quiet && before != NEW { TRUSTED } else { ASKED });
    size
}

/// Does something of our own during which this thread's calls are not recorded; whether it made none.
pub fn unseen<T>(act: impl FnOnce() -> T) -> (T, bool) {
    let before = asking_word();
    set_asking_word(ASKING);
    let slot = arch::thread_word() as *mut ThreadSlot;
    // SAFETY: the thread's own slot, claimed meanwhile if it is not already.
    let result = unsafe {
        let is_claimed = !slot.is_null() && slot::try_claim(slot);
        let lane = sheets::set_aside();
        let result = act();
        sheets::give_back(lane);
        if is_claimed {
            slot::leave(slot);
        }
        result
    };
    let is_quiet = asking_word() == ASKING;
    set_asking_word(before);
    (result, is_quiet)
}
