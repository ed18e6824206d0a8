//! The process's [knell](heaptape_wire::knell): taken by its first thread at its first call, and never given back.
//!
//! The kernel breaks it at the end of the process, however that comes. Where the C library has no robust mutexes, or
//! they are not its own functions that are found (a sanitizer's may not be called so early), or the program has told
//! the kernel of locks of its own, others learn of the end from the collector alone.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use heaptape_wire::process::SLOTS;

use crate::arena::arena;
use crate::counting::ledger;
use crate::following::{Following, following};
use crate::next::in_glibc;
use crate::{callers, lifecycle, sheets};

following!(static SET_UP_ATTRIBUTES = c"pthread_mutexattr_init");
following!(static SET_ROBUST = c"pthread_mutexattr_setrobust");
following!(static SET_SHARED = c"pthread_mutexattr_setpshared");
following!(static SET_UP = c"pthread_mutex_init");
following!(static LOCK = c"pthread_mutex_lock");

/// What `pthread_mutexattr_t` has room in, several times over.
type Attributes = [u64; 8];

/// A process begins: its thread with this number takes the knell. (Only the first thread lives as long as the
/// process, mostly.)
pub fn hang(thread: u32) {
    if thread != lifecycle::registered_pid() {
        return;
    }
    let knell = ledger().knell(sheets::own_slot() as usize);
    knell.clear();
    let is_held = take(knell.mutex()).is_some() && knell.is_held_by(thread);
    if !is_held {
        knell.clear();
    }
}

/// Makes a robust mutex there and takes it; `None` where that can't be done.
fn take(mutex: *mut u8) -> Option<()> {
    const PTHREAD_MUTEX_ROBUST: c_int = 1;
    const PTHREAD_PROCESS_SHARED: c_int = 1;
    let all = [&SET_UP_ATTRIBUTES, &SET_ROBUST, &SET_SHARED, &SET_UP, &LOCK];
    let libc = callers::find(in_glibc())?;
    if !all.into_iter().all(|next| (libc.start..libc.end).contains(&next.address())) {
        return None;
    }
    let mut attributes: Attributes = [0; 8];
    let of = &raw mut attributes as usize;
    call(&SET_UP_ATTRIBUTES, [of, 0])?;
    call(&SET_ROBUST, [of, PTHREAD_MUTEX_ROBUST as usize])?;
    call(&SET_SHARED, [of, PTHREAD_PROCESS_SHARED as usize])?;
    call(&SET_UP, [mutex as usize, of])?;
    call(&LOCK, [mutex as usize, 0])
}

/// Calls one of these functions, which all take two words at most and return an error or 0.
fn call(next: &Following, words: [usize; 2]) -> Option<()> {
    type Function = unsafe extern "C" fn(usize, usize) -> c_int;
    // SAFETY: such a function, whose first argument points to memory of our own that is large enough.
    let error =
        unsafe { core::mem::transmute::<usize, Function>(next.address())(words[0], words[1]) };
    (error == 0).then_some(())
}

/// The knells of all processes of the job.
fn all() -> impl Iterator<Item = &'static heaptape_wire::knell::Knell> {
    let slots = arena().session().slots_ready.load(Ordering::Acquire) as usize;
    (0..slots.min(SLOTS)).map(|slot| ledger().knell(slot))
}

/// Whether a process of the job has ended, and what it had is not given back yet.
pub fn has_rung() -> bool {
    all().any(|knell| knell.has_rung())
}

/// Nothing came of those that ring: their processes go on without the thread that had begun them.
pub fn give_up() {
    all().for_each(|knell| knell.give_up());
}
