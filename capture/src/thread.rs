//! What a thread writes down: one record after another, into its slot.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heaptape_wire::event::{
    self, Allocation, Call, put_realloc_begin, put_reallocation, put_release,
};
use heaptape_wire::note::{self, NoteKind};
use heaptape_wire::session::Stamp;

use crate::arena::arena;
use crate::slot::{EVENT_BYTES, claim, claim_now, leave, write};
use crate::{arch, lifecycle, shortage};

/// How the process stamps its events: not at all while it has one thread.
pub static STAMPING: AtomicU32 = AtomicU32::new(UNSTAMPED);
pub const UNSTAMPED: u32 = 0;
pub const BY_TSC: u32 = 1;
pub const BY_COUNTER: u32 = 2;

/// From here on events are stamped, because there is about to be more than one thread.
pub fn expect_threads() {
    if lifecycle::has_joined() && STAMPING.load(Ordering::Relaxed) == UNSTAMPED {
        let kind = match arena().session().stamp() {
            Stamp::Tsc => BY_TSC,
            Stamp::Counter => BY_COUNTER,
        };
        STAMPING.store(kind, Ordering::SeqCst);
    }
}

#[inline(always)]
pub fn stamp() -> Option<u64> {
    match STAMPING.load(Ordering::Relaxed) {
        UNSTAMPED => None,
        BY_TSC => Some(arch::stamp()),
        _ => Some(next_count()),
    }
}

#[cold]
fn next_count() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    COUNT.fetch_add(1, Ordering::SeqCst)
}

/// Records an allocation that has just been made (or has failed: address 0).
#[inline(always)]
pub fn allocation(call: Call, a: &Allocation) {
    let stamp = stamp();
    let slot = if a.is_wide() { core::ptr::null_mut() } else { claim_now(EVENT_BYTES) };
    // SAFETY: the slot is claimed for the longest event.
    unsafe {
        if !slot.is_null() {
            if !(*slot).short.is_any() {
                return write(slot, |out| event::put_narrow_allocation(out, call, a, stamp));
            }
            leave(slot);
        }
    }
    // All else in a function of its own: the way above then calls nothing and saves no registers.
    rare_allocation(call, *a, stamp);
}

#[cold]
#[inline(never)]
fn rare_allocation(call: Call, a: Allocation, stamp: Option<u64>) {
    let slot = claim(EVENT_BYTES);
    if slot.is_null() {
        return;
    }
    // SAFETY: the slot is claimed for the longest event.
    unsafe {
        if (*slot).short.is_any() {
            return shortage::inside(slot, call, &a, stamp);
        }
        write(slot, |out| event::put_allocation(out, call, &a, stamp));
    }
}

/// Records an allocation whatever the thread is in.
pub fn plain_allocation(call: Call, a: &Allocation, stamp: Option<u64>) {
    let slot = claim(EVENT_BYTES);
    if !slot.is_null() {
        // SAFETY: the slot is claimed for the longest event.
        unsafe { write(slot, |out| event::put_allocation(out, call, a, stamp)) };
    }
}

/// Records that a block is about to be given back.
#[inline(always)]
pub fn release(call: Call, address: u64, caller: u64) {
    let slot = claim_now(EVENT_BYTES);
    if slot.is_null() {
        return rare_release(call, address, caller);
    }
    let stamp = stamp();
    // SAFETY: the slot is claimed for the longest event.
    unsafe { write(slot, |out| put_release(out, call, address, caller, stamp)) };
}

#[cold]
#[inline(never)]
fn rare_release(call: Call, address: u64, caller: u64) {
    let slot = claim(EVENT_BYTES);
    if slot.is_null() {
        return;
    }
    let stamp = stamp();
    // SAFETY: as above.
    unsafe { write(slot, |out| put_release(out, call, address, caller, stamp)) };
}

/// Records that a block is about to be reallocated, where other threads could be handed its address
/// before the call returns; says whether it was recorded.
#[inline(always)]
pub fn begin_reallocation(old: u64) -> bool {
    if STAMPING.load(Ordering::Relaxed) == UNSTAMPED {
        return false;
    }
    let slot = claim(EVENT_BYTES);
    if slot.is_null() {
        return false;
    }
    let stamp = stamp().unwrap_or(0);
    // SAFETY: as above.
    unsafe { write(slot, |out| put_realloc_begin(out, old, stamp)) };
    true
}

/// Records a reallocation that has just been made (or has failed).
#[inline(always)]
pub fn reallocation(call: Call, a: &Allocation, old: u64, begun: bool) {
    let stamp = stamp();
    let slot = claim(EVENT_BYTES);
    if slot.is_null() {
        return;
    }
    // SAFETY: as above.
    unsafe { write(slot, |out| put_reallocation(out, call, a, old, begun, stamp)) };
}

/// Counts a `free(NULL)`, which is no event.
#[inline(always)]
pub fn free_null() {
    let slot = claim(0);
    if !slot.is_null() {
        // SAFETY: a claimed slot.
        unsafe {
            (*slot).count_free_null();
            leave(slot);
        }
    }
}

/// Records something that is not a heap call.
pub fn note(kind: NoteKind, caller: usize, args: &[u64], text: &[u8]) {
    let stamp = stamp();
    let words = note::note_words(args.len(), text.len().min(note::MAX_TEXT), stamp.is_some());
    let slot = claim(words * 8);
    if slot.is_null() {
        return;
    }
    // SAFETY: the slot is claimed for that many bytes.
    unsafe { write(slot, |out| note::put_note(out, kind, caller as u64, args, text, stamp)) };
}
