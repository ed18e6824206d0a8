//! Forks: the parent notes each with a number, and the child makes itself known at once.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

use heaptape_wire::note::NoteKind;

use crate::following::following;
use crate::{arch, lifecycle, thread};

/// Forks so far. A child goes on from its parent's number.
static FORKS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn before_fork() {
    let number = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    thread::note(NoteKind::Fork, 0, &[number as u64], &[]);
    arch::set_fork_word(number);
}

unsafe extern "C" fn after_fork_in_parent() {
    arch::set_fork_word(0);
}

unsafe extern "C" fn after_fork_in_child() {
    lifecycle::is_recording();
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
