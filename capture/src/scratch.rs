//! Lists of pointers that live as long as a call: an environment, or arguments. Nothing is allocated.

use core::ffi::c_char;

use crate::arch::{self, syscall};

/// Room for an environment or an argument list on the stack, in pointers.
const SHORT: usize = 192;
/// A list of pointers, on the stack while it is short, else in pages of its own.
pub struct Scratch {
    short: [*const c_char; SHORT],
    pages: Option<(*mut *const c_char, usize)>,
    len: usize,
}

impl Scratch {
    /// An empty one.
    pub fn new() -> Scratch {
        Scratch { short: [core::ptr::null(); SHORT], pages: None, len: 0 }
    }

    /// Makes room for `count` pointers and the null at the end.
    pub fn reserve(&mut self, count: usize) -> bool {
        if count < SHORT {
            return true;
        }
        let bytes = (count + 1) * size_of::<*const c_char>();
        // SAFETY: a new private mapping.
        let base = unsafe { syscall(arch::SYS_MMAP, [0, bytes, 3, 0x22, usize::MAX, 0]) };
        if (-4095..0).contains(&base) {
            return false;
        }
        self.pages = Some((base as *mut *const c_char, bytes));
        true
    }

    /// One pointer more.
    pub fn push(&mut self, text: *const c_char) {
        match self.pages {
            // SAFETY: `reserve` made room.
            Some((base, _)) => unsafe { base.add(self.len).write(text) },
            None => self.short[self.len.min(SHORT - 1)] = text,
        }
        self.len += 1;
    }

    /// The list, null at its end (the memory was zero).
    pub fn list(&self) -> *const *const c_char {
        self.pages.map_or(self.short.as_ptr(), |(base, _)| base.cast_const())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some((base, bytes)) = self.pages {
            // SAFETY: our own mapping.
            unsafe { syscall(arch::SYS_MUNMAP, [base as usize, bytes, 0, 0, 0, 0]) };
        }
    }
}
