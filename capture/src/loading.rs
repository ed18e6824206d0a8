//! Loading: the writable data of what `dlopen` brings is charged before it returns, and one whose data does not fit
//! fails, as where there is no memory.
//!
//! Nothing of ours runs when `dlopen` returns (it looks at who has called it, and so must be called by the program).
//! But the loader asks for memory itself: once all that belongs to a library is mapped it asks for the list of what
//! to search. What is new is looked at then; a request that the loader does not get makes it give up, unmap what it
//! has mapped, and say so by `dlerror`.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::{loading_word, set_loading_word};
use crate::next::in_glibc;
use crate::{callers, counting, data};

/// Threads that may be in `dlopen`.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The thread is about to call `dlopen`.
pub fn begin() {
    if counting::is_on() && callers::can_find() && loading_word() == 0 {
        set_loading_word(1);
        THREADS.fetch_add(1, Ordering::Relaxed);
        counting::look_at_loading(true);
    }
}

/// Whether a request by this caller goes on, as far as data is concerned that was just loaded.
pub fn goes_on(caller: usize) -> bool {
    if loading_word() == 0 {
        return true;
    }
    let found = callers::find(caller);
    if found.as_ref().is_some_and(callers::is_loader) {
        return data::charge_new();
    }
    let is_libc = found.is_some_and(|found| (found.start..found.end).contains(&in_glibc()));
    if !is_libc {
        end();
    }
    true
}

/// In a fork's child, which has this thread alone.
pub fn inherit() {
    let is_loading = loading_word() != 0;
    THREADS.store(usize::from(is_loading), Ordering::Relaxed);
    counting::look_at_loading(is_loading);
}

/// The thread is out of the loader, or in the constructor of what it has loaded.
fn end() {
    set_loading_word(0);
    // Where it has failed for another reason, what it had mapped is there no longer.
    data::charge_new();
    if THREADS.fetch_sub(1, Ordering::Relaxed) == 1 {
        counting::look_at_loading(false);
        if THREADS.load(Ordering::Relaxed) != 0 {
            counting::look_at_loading(true);
        }
    }
}
