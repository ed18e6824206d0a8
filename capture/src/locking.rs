//! `mlockall`: the program wants its memory in RAM, and that is not the arena, of which it uses little.

use core::ffi::c_int;

use crate::arch::{self, syscall};
use crate::following::following;
use crate::next::{ENOSYS, set_errno};
use crate::{arena, callstack, lifecycle};

const MADV_DONTNEED: usize = 4;
const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 3;

/// Locks as the program asked, with the unused parts of the arena out of reach for that time, so that
/// the kernel gives them no memory; afterwards what is ours is not locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    following!(static NEXT = c"mlockall");
    let address = NEXT.address();
    if address == 0 {
        set_errno(ENOSYS);
        return -1;
    }
    let is_covered = lifecycle::is_covered() && !lifecycle::is_sandboxed();
    let unused = if is_covered { arena::unused() } else { [(0, 0); 4] };
    protect(unused, PROT_NONE);
    // SAFETY: the type of mlockall; forwarded as the program asked.
    let result = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(c_int) -> c_int>(address)(flags)
    };
    if is_covered {
        let (shared, (private, length)) = arena::mapped();
        // SAFETY: our own mappings; what is in those that are shared stays, since they are a file's.
        unsafe {
            for (start, bytes) in shared {
                syscall(arch::SYS_MUNLOCK, [start, bytes, 0, 0, 0, 0]);
                syscall(arch::SYS_MADVISE, [start, bytes, MADV_DONTNEED, 0, 0, 0]);
            }
            let (stacks, bytes) = callstack::mapped();
            syscall(arch::SYS_MUNLOCK, [private, length, 0, 0, 0, 0]);
            syscall(arch::SYS_MUNLOCK, [stacks, bytes, 0, 0, 0, 0]);
            // Of what is kept for stacks nothing is needed that can't be found again, but for the numbers at its begin.
            let rest = callstack::forgettable();
            syscall(arch::SYS_MADVISE, [rest.0, rest.1, MADV_DONTNEED, 0, 0, 0]);
        }
    }
    protect(unused, PROT_READ_WRITE);
    result
}

fn protect(ranges: [(usize, usize); 4], protection: usize) {
    for (start, length) in ranges.into_iter().filter(|(_, length)| *length > 0) {
        // SAFETY: parts of our own mapping that nobody uses yet.
        unsafe { syscall(arch::SYS_MPROTECT, [start, length, protection, 0, 0, 0]) };
    }
}
