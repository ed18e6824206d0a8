//! Loading: the writable data of what `dlopen` brings is charged before it returns, and one whose data does not fit
//! fails, as where there is no memory.
//!
//! Nothing of ours runs when `dlopen` returns (it looks at who has called it, and so must be called by the program).
//! But the loader asks for memory itself: once all that belongs to a library is mapped it asks for the list of what
//! to search. What is new is looked at then; a request that the loader does not get makes it give up, unmap what it
//! has mapped, and say so by `dlerror`.
//!
//! A thread may end in there, by `pthread_exit` in a constructor or where it is cancelled. Others look for that now and then.

use core::sync::atomic::{AtomicU32, Ordering};

use heaptape_wire::chunk::UNKNOWN_TID;

use crate::arch::{loading_word, set_loading_word};
use crate::next::in_glibc;
use crate::{callers, counting, data, lifecycle, whole};

/// How many threads may be in `dlopen` at one time. What others load is charged later.
const MOST: usize = 64;

/// The threads that may be in `dlopen`, by the kernel's numbers; 0 for a free place. A thread's word is its place, plus one.
static THREADS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];

/// The thread is about to call `dlopen`.
pub fn begin() {
    if counting::is_on() && callers::can_find() && loading_word() == 0 {
        let own = number();
        let is_taken = |place: &AtomicU32| {
            place.compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if let Some(place) = THREADS.iter().position(is_taken) {
            set_loading_word(1 + place);
            counting::look_at_loading(true);
        }
    }
}

fn number() -> u32 {
    lifecycle::own_thread(false)
}

/// Whether a request by this caller goes on, as far as data is concerned that was just loaded.
pub fn goes_on(caller: usize) -> bool {
    if loading_word() == 0 {
        look_for_ended();
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
    let place = loading_word().checked_sub(1);
    THREADS.iter().for_each(|thread| thread.store(0, Ordering::Relaxed));
    if let Some(thread) = place.and_then(|place| THREADS.get(place)) {
        thread.store(number(), Ordering::Relaxed);
    }
    counting::look_at_loading(place.is_some());
}

/// The thread is out of the loader, or in the constructor of what it has loaded.
fn end() {
    let place = loading_word().wrapping_sub(1);
    set_loading_word(0);
    // Where it has failed for another reason, what it had mapped is there no longer.
    data::charge_new();
    if let Some(thread) = THREADS.get(place) {
        thread.store(0, Ordering::Release);
    }
    stop_if_none();
}

fn stop_if_none() {
    let is_any = || THREADS.iter().any(|thread| thread.load(Ordering::Acquire) != 0);
    if !is_any() {
        counting::look_at_loading(false);
        if is_any() {
            counting::look_at_loading(true);
        }
    }
}

/// Takes threads out that have ended. Once in so many calls: who is in the loader for long is in it for milliseconds.
#[cold]
fn look_for_ended() {
    const CALLS: u32 = 1024;
    static SEEN: AtomicU32 = AtomicU32::new(0);
    let is_due = SEEN.fetch_add(1, Ordering::Relaxed) % CALLS == CALLS - 1;
    if !is_due || lifecycle::is_sandboxed() {
        return;
    }
    let mut is_any = false;
    for thread in &THREADS {
        let number = thread.load(Ordering::Acquire);
        let is_gone = number != 0 && number != UNKNOWN_TID && !whole::lives(number);
        // (Of two that look at once one takes it out; its place may be another's by then.)
        is_any |= is_gone
            && thread.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    }
    if is_any {
        // What it has loaded is there.
        data::charge_new();
        stop_if_none();
    }
}
