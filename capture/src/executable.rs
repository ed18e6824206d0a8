//! Where the executable lies, as the kernel has told the program.

use core::ops::Range;

use crate::modules::{self, Header};

const PT_PHDR: u32 = 6;
const AT_PHDR: usize = 3;
const AT_PHNUM: usize = 5;

unsafe extern "C" {
    /// libc's, which looks into what it has kept: no lock, no memory.
    fn getauxval(kind: usize) -> usize;
}

/// From the first byte of its first segment to behind the last of its last; empty where that is not known.
#[cold]
pub fn extent() -> Range<usize> {
    // SAFETY: the kernel's table of the executable's segments, which stays mapped.
    let headers = unsafe {
        let (table, count) = (getauxval(AT_PHDR), getauxval(AT_PHNUM));
        if table == 0 {
            return 0..0;
        }
        core::slice::from_raw_parts(table as *const Header, count)
    };
    let Some(own) = headers.iter().find(|header| header.kind == PT_PHDR) else { return 0..0 };
    let bias = (headers.as_ptr() as usize).wrapping_sub(own.address as usize);
    let Some((low, high)) = modules::extent(headers) else { return 0..0 };
    bias.wrapping_add(low as usize)..bias.wrapping_add(high as usize)
}
