//! The `wait` family: how a child ended is known to its parent alone once it has asked.

use core::ffi::c_int;

use heaptape_wire::note::NoteKind;

use crate::following::following;
use crate::next::{ENOSYS, set_errno};
use crate::{counting, thread};

/// Notes a child that ended; one that was stopped or goes on has not.
fn note(pid: c_int, status: c_int) {
    let signal = status & 0x7f;
    let is_stopped = signal == 0x7f;
    let goes_on = status == 0xffff;
    if pid > 0 && !is_stopped && !goes_on {
        if counting::is_on() {
            counting::ledger().header().note_death();
        }
        thread::note(NoteKind::ChildEnded, 0, &[pid as u64, status as u32 as u64], &[]);
    }
}

/// A function that gives back a pid and writes a status through its `$status` argument, which may be
/// null.
macro_rules! waiting {
    ($name:ident, $symbol:literal, ($($before:ident: $before_type:ty,)*), ($($after:ident: $after_type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($before: $before_type,)* status: *mut c_int, $($after: $after_type),*
        ) -> c_int {
            following!(static NEXT = $symbol);
            let address = NEXT.address();
            if address == 0 {
                set_errno(ENOSYS);
                return -1;
            }
            let mut own: c_int = 0;
            let place = if status.is_null() { &raw mut own } else { status };
            // SAFETY: the type of this function; the status has a place to go.
            unsafe {
                let next: unsafe extern "C" fn($($before_type,)* *mut c_int, $($after_type),*) -> c_int =
                    core::mem::transmute(address);
                let pid = next($($before,)* place, $($after),*);
                if pid > 0 {
                    note(pid, *place);
                }
                pid
            }
        }
    };
}

waiting!(wait, c"wait", (), ());
waiting!(waitpid, c"waitpid", (pid: c_int,), (options: c_int));
waiting!(wait3, c"wait3", (), (options: c_int, usage: usize));
waiting!(wait4, c"wait4", (pid: c_int,), (options: c_int, usage: usize));

/// What `waitid` writes, as far as it is read here (`siginfo_t` of <signal.h>).
#[repr(C)]
struct ChildInfo {
    signal: c_int,
    error: c_int,
    code: c_int,
    _pad: c_int,
    pid: c_int,
    uid: c_int,
    status: c_int,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn waitid(kind: c_int, id: c_int, info: *mut u8, options: c_int) -> c_int {
    const CLD_EXITED: c_int = 1;
    const CLD_KILLED: c_int = 2;
    const CLD_DUMPED: c_int = 3;
    following!(static NEXT = c"waitid");
    let address = NEXT.address();
    if address == 0 {
        set_errno(ENOSYS);
        return -1;
    }
    // SAFETY: the type of this function; after success it has written `info`, if that is not null.
    unsafe {
        let next: unsafe extern "C" fn(c_int, c_int, *mut u8, c_int) -> c_int =
            core::mem::transmute(address);
        let result = next(kind, id, info, options);
        if result == 0 && !info.is_null() {
            let child = &*info.cast::<ChildInfo>();
            match child.code {
                CLD_EXITED => note(child.pid, (child.status & 0xff) << 8),
                CLD_KILLED | CLD_DUMPED => note(child.pid, child.status & 0x7f),
                _ => {}
            }
        }
        result
    }
}
