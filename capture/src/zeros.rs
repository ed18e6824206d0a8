//! Memory of the library's own: zeros, which get memory when they are touched. They count for no core dump, and, being
//! touched here and there, come in no huge pages.

use crate::arch::{self, syscall};

/// The system call that did not do it, and its answer.
pub type Failed = (usize, isize);

/// So many bytes.
pub fn map(bytes: usize) -> Result<*mut u8, Failed> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x4022;
    const MADV_DONTDUMP: usize = 16;
    const MADV_NOHUGEPAGE: usize = 15;
    let how = [0, bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0];
    // SAFETY: a new mapping.
    let base = unsafe { syscall(arch::SYS_MMAP, how) };
    if (-4095..0).contains(&base) {
        return Err((arch::SYS_MMAP, base));
    }
    advise(base, bytes, MADV_DONTDUMP);
    advise(base, bytes, MADV_NOHUGEPAGE);
    Ok(base as *mut u8)
}

/// So many bytes that the kernel wipes in a forked child.
pub fn map_wiped(bytes: usize) -> Result<*mut u8, Failed> {
    const MADV_WIPEONFORK: usize = 18;
    let base = map(bytes)?;
    match advise(base as isize, bytes, MADV_WIPEONFORK) {
        0 => Ok(base),
        refused => {
            // SAFETY: it was just made.
            unsafe { unmap(base, bytes) };
            Err((arch::SYS_MADVISE, refused))
        }
    }
}

/// Gives them back.
///
/// # Safety
/// Nobody uses them any more.
pub unsafe fn unmap(base: *mut u8, bytes: usize) {
    // SAFETY: as promised.
    unsafe { syscall(arch::SYS_MUNMAP, [base as usize, bytes, 0, 0, 0, 0]) };
}

fn advise(base: isize, bytes: usize, advice: usize) -> isize {
    // SAFETY: only used for what `map` has just made.
    unsafe { syscall(arch::SYS_MADVISE, [base as usize, bytes, advice, 0, 0, 0]) }
}
