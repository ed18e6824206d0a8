//! Forks: the parent notes each with a number, and the child makes itself known at once.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

use heaptape_wire::note::NoteKind;

use crate::following::following;
use crate::{arch, lifecycle, sheets, thread};

/// Forks so far. A child goes on from its parent's number.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// The thread's word during a fork is the fork's number, with this bit where libc does not know of it.
const BEHIND_LIBC: usize = 1 << 32;

fn announce_fork() -> usize {
    let number = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    sheets::before_fork();
    thread::note(NoteKind::Fork, 0, &[number as u64], &[]);
    number
}

unsafe extern "C" fn before_fork() {
    arch::set_fork_word(announce_fork());
}

/// The program is about to make the system call for a copy of itself. (The word stays in the parent until
/// its next fork; what was announced is there once, so nobody takes it for a later one.)
pub fn before_copy() {
    if lifecycle::is_recording() {
        arch::set_fork_word(announce_fork() | BEHIND_LIBC);
    }
}

/// Whether libc makes, or has made, the copy that this is.
pub fn is_by_libc() -> bool {
    let word = arch::fork_word();
    word != 0 && word & BEHIND_LIBC == 0
}

unsafe extern "C" fn after_fork_in_parent() {
    arch::set_fork_word(0);
}

unsafe extern "C" fn after_fork_in_child() {
    if lifecycle::is_recording() {
        sheets::after_fork();
    }
}

/// From the constructor: is told of forks.
pub fn follow() {
    following!(static REGISTER = c"__register_atfork");
    let address = REGISTER.address();
    if address == 0 {
        return;
    }
    type Handler = Option<unsafe extern "C" fn()>;
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, usize) -> c_int;
    // SAFETY: the type that this function of libc has; the library is never unloaded.
    unsafe {
        core::mem::transmute::<usize, Register>(address)(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork_in_child),
            0,
        );
    }
}
