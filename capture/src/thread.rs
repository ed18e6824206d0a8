//! What a thread writes down: one record after another, into its slot.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heaptape_wire::event::{
    self, Allocation, Call, put_narrow_allocation, put_realloc_begin, put_reallocation, put_release,
};
use heaptape_wire::note::{self, NoteKind};
use heaptape_wire::session::Stamp;

use crate::arena::arena;
use crate::slot::{EVENT_BYTES, Rest, claim, claim_now, claim_slowly, leave, write};
use crate::{arch, counting, lifecycle, shortage};

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
        kind => Some(stamp_of(kind)),
    }
}

#[inline(always)]
fn stamp_of(kind: u32) -> u64 {
    if kind == BY_TSC { arch::stamp() } else { next_count() }
}

#[cold]
fn next_count() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    COUNT.fetch_add(1, Ordering::SeqCst)
}

/// Records an allocation that has just been made (or has failed: null), and gives its block back.
///
/// All that is rare is a function of its own that this one ends with: so the way that nearly every call takes
/// calls nothing and saves no registers.
#[inline(always)]
pub fn allocation(
    call: Call,
    block: *mut u8,
    size: usize,
    slack: u64,
    align: usize,
    caller: usize,
) -> *mut u8 {
    let a = of(block, size, slack, align, caller);
    let claim = if a.is_wide() { None } else { claim_now() };
    let Some(claim) = claim else {
        return rare_allocation(call, block, size, slack, align, caller);
    };
    let rest = match STAMPING.load(Ordering::Relaxed) {
        UNSTAMPED => claim.write(|out| put_narrow_allocation(out, call, &a, None)),
        kind => {
            let stamp = Some(stamp_of(kind));
            claim.write(|out| put_narrow_allocation(out, call, &a, stamp))
        }
    };
    match rest {
        None => block,
        Some(rest) => finish_with(rest, block),
    }
}

fn of(block: *mut u8, size: usize, slack: u64, align: usize, caller: usize) -> Allocation {
    Allocation {
        address: block as u64,
        size: size as u64,
        slack,
        align: align as u64,
        caller: caller as u64,
    }
}

#[cold]
#[inline(never)]
fn finish_with(rest: Rest, block: *mut u8) -> *mut u8 {
    rest.finish();
    block
}

#[cold]
#[inline(never)]
fn rare_allocation(
    call: Call,
    block: *mut u8,
    size: usize,
    slack: u64,
    align: usize,
    caller: usize,
) -> *mut u8 {
    let a = of(block, size, slack, align, caller);
    let stamp = stamp();
    let slot = claim_slowly(EVENT_BYTES);
    if slot.is_null() {
        return block;
    }
    if counting::is_on() {
        // The call by which the session was joined.
        // SAFETY: the slot is claimed.
        unsafe { leave(slot) };
        return counting::count_made(block, size, caller, false);
    }
    // SAFETY: the slot is claimed for the longest event.
    unsafe {
        if (*slot).short.is_any() {
            shortage::inside(slot, call, &a, stamp);
        } else {
            write(slot, |out| event::put_allocation(out, call, &a, stamp));
        }
    }
    block
}

/// Records an allocation whatever the thread is in.
pub fn plain_allocation(call: Call, a: &Allocation, stamp: Option<u64>) {
    let slot = claim(EVENT_BYTES);
    if !slot.is_null() {
        // SAFETY: the slot is claimed for the longest event.
        unsafe { write(slot, |out| event::put_allocation(out, call, a, stamp)) };
    }
}

/// Records that a block is about to be given back, and hands it on to `free`.
///
/// # Safety
/// `free` may be called for the block.
#[inline(always)]
pub unsafe fn release(call: Call, block: *mut u8, caller: usize, free: Free) {
    let Some(claim) = claim_now() else {
        // SAFETY: as promised.
        return unsafe { rare_release(call, block, caller, free) };
    };
    let (address, caller) = (block as u64, caller as u64);
    let rest = match STAMPING.load(Ordering::Relaxed) {
        UNSTAMPED => claim.write(|out| put_release(out, call, address, caller, None)),
        kind => {
            let stamp = Some(stamp_of(kind));
            claim.write(|out| put_release(out, call, address, caller, stamp))
        }
    };
    // SAFETY: as promised.
    unsafe {
        match rest {
            None => free(block),
            Some(rest) => finish_and_free(rest, block, free),
        }
    }
}

/// The next allocator's `free`.
type Free = unsafe extern "C" fn(*mut u8);

/// # Safety
/// As for [`release`].
#[cold]
#[inline(never)]
unsafe fn finish_and_free(rest: Rest, block: *mut u8, free: Free) {
    rest.finish();
    // SAFETY: as promised.
    unsafe { free(block) }
}

/// # Safety
/// As for [`release`].
#[cold]
#[inline(never)]
unsafe fn rare_release(call: Call, block: *mut u8, caller: usize, free: Free) {
    let slot = claim_slowly(EVENT_BYTES);
    // SAFETY: the slot is claimed for the longest event.
    unsafe {
        if !slot.is_null() && counting::is_on() {
            leave(slot);
        } else if !slot.is_null() {
            let stamp = stamp();
            write(slot, |out| put_release(out, call, block as u64, caller as u64, stamp));
        }
        free(block);
    }
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

/// Records a reallocation that has just been made (or has failed), and gives its block back.
#[inline(always)]
pub fn reallocation(call: Call, a: &Allocation, old: u64, begun: bool) -> *mut u8 {
    let (block, stamp) = (a.address as *mut u8, stamp());
    let slot = claim(EVENT_BYTES);
    if slot.is_null() {
        return block;
    }
    if counting::is_on() {
        // The call by which the session was joined.
        // SAFETY: the slot is claimed.
        unsafe { leave(slot) };
        return counting::count_made(block, a.size as usize, a.caller as usize, old != 0);
    }
    // SAFETY: as above.
    unsafe { write(slot, |out| put_reallocation(out, call, a, old, begun, stamp)) };
    block
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
