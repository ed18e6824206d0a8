//! How the process leaves, in its own words: its parent may be the only one that the kernel tells, and may
//! ask where no wrapper of ours sees it, as `system` does.
//!
//! `exit` and the end of `main` come by the last of the handlers that `exit` runs; the ways that run no
//! handlers are wrapped. Nothing is looked up on the way out, which may begin in a signal handler, or in
//! a forked child of a process that had threads.

use core::ffi::{c_int, c_void};

use heaptape_wire::note::NoteKind;

use crate::arch::{self, syscall};
use crate::following::{Following, following};
use crate::{lifecycle, thread};

following!(static EXIT = c"_exit");
following!(static EXIT_C99 = c"_Exit");
following!(static QUICK_EXIT = c"quick_exit");
following!(static ON_EXIT = c"on_exit");

/// From the constructor: is told when the process leaves.
pub fn follow() {
    let address = ON_EXIT.address();
    if address == 0 {
        return;
    }
    type Handler = unsafe extern "C" fn(c_int, *mut c_void);
    type Register = unsafe extern "C" fn(Handler, *mut c_void) -> c_int;
    // SAFETY: the type that this function of libc has; the library is never unloaded.
    unsafe { core::mem::transmute::<usize, Register>(address)(by_exit, core::ptr::null_mut()) };
}

unsafe extern "C" fn by_exit(status: c_int, _: *mut c_void) {
    tell(status);
}

fn tell(status: c_int) {
    if lifecycle::is_itself() {
        thread::note(NoteKind::Exit, 0, &[(status & 0xff) as u64], &[]);
    }
}

fn leave(next: &Following, status: c_int) -> ! {
    tell(status);
    let address = next.address();
    // SAFETY: the type of these functions; where there is none, the system call that they make.
    unsafe {
        if address != 0 {
            core::mem::transmute::<usize, unsafe extern "C" fn(c_int) -> !>(address)(status);
        }
        loop {
            syscall(arch::SYS_EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    leave(&EXIT, status)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    leave(&EXIT_C99, status)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    leave(&QUICK_EXIT, status)
}
