//! The calls that map memory, and the allocator's settings: forward to libc's function, then note.
//!
//! Never the raw system call: MPI's registration caches watch libc's functions and corrupt data when
//! a mapping changes behind their back. For the same reason `dlsym` does not find these wrappers but
//! libc's functions: `crates/cli/build/hide.rs` sees to it.

use heaptape_wire::note::NoteKind;

use crate::arch::with_caller;
use crate::next::{ENOSYS, Late, set_errno};
use crate::thread;

/// A call's C string argument, for the note.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn bytes<'a>(text: usize) -> &'a [u8] {
    if text == 0 {
        return &[];
    }
    // SAFETY: as promised.
    unsafe { core::ffi::CStr::from_ptr(text as *const core::ffi::c_char).to_bytes() }
}

/// One wrapped call: its exported name, how many arguments it has, whether the first is a text that
/// stands in the note in its place.
macro_rules! forwarded {
    (@call $next:ident, $absent:expr, ($($arg:ident),*)) => {{
        static NEXT: Late = Late::new($next);
        match NEXT.address() {
            0 => { set_errno(ENOSYS); $absent }
            address => {
                // SAFETY: the next function of this name takes these arguments.
                unsafe {
                    core::mem::transmute::<usize, unsafe extern "C" fn($(forwarded!(@word $arg)),*) -> usize>(address)($($arg),*)
                }
            }
        }
    }};
    (@word $arg:ident) => { usize };
    ($export:ident, $entry:ident, $count:tt, $symbol:literal, $kind:ident, $absent:expr, ($($arg:ident),*)) => {
        unsafe extern "C" fn $entry($($arg: usize,)* caller: usize) -> usize {
            const SYMBOL: &core::ffi::CStr = $symbol;
            let result = forwarded!(@call SYMBOL, $absent, ($($arg),*));
            thread::note(NoteKind::$kind, caller, &[$($arg,)* result].map(|word| word as u64), &[]);
            result
        }
        with_caller!($export, $count, $entry);
    };
    ($export:ident, $entry:ident, $count:tt, $symbol:literal, $kind:ident, $absent:expr, text $text:ident, ($($arg:ident),*)) => {
        unsafe extern "C" fn $entry($text: usize, $($arg: usize,)* caller: usize) -> usize {
            const SYMBOL: &core::ffi::CStr = $symbol;
            let result = forwarded!(@call SYMBOL, $absent, ($text, $($arg),*));
            // SAFETY: the call takes a C string here.
            let name = unsafe { bytes($text) };
            thread::note(NoteKind::$kind, caller, &[$($arg,)* result].map(|word| word as u64), name);
            result
        }
        with_caller!($export, $count, $entry);
    };
}

const FAILED: usize = usize::MAX;

forwarded!(
    mmap,
    mmap_entry,
    6,
    c"mmap",
    Mmap,
    FAILED,
    (address, length, protection, flags, fd, offset)
);
forwarded!(
    mmap64,
    mmap64_entry,
    6,
    c"mmap64",
    Mmap,
    FAILED,
    (address, length, protection, flags, fd, offset)
);
forwarded!(munmap, munmap_entry, 2, c"munmap", Munmap, FAILED, (address, length));
forwarded!(mremap, mremap_entry, 5, c"mremap", Mremap, FAILED, (address, old, new, flags, target));
forwarded!(
    mprotect,
    mprotect_entry,
    3,
    c"mprotect",
    Mprotect,
    FAILED,
    (address, length, protection)
);
forwarded!(madvise, madvise_entry, 3, c"madvise", Madvise, FAILED, (address, length, advice));
forwarded!(brk, brk_entry, 1, c"brk", Brk, FAILED, (address));
forwarded!(sbrk, sbrk_entry, 1, c"sbrk", Sbrk, FAILED, (increment));
forwarded!(shmat, shmat_entry, 3, c"shmat", Shmat, FAILED, (id, address, flags));
forwarded!(shmdt, shmdt_entry, 1, c"shmdt", Shmdt, FAILED, (address));
forwarded!(shmget, shmget_entry, 3, c"shmget", Shmget, FAILED, (key, size, flags));
forwarded!(shm_open, shm_open_entry, 3, c"shm_open", ShmOpen, FAILED, text name, (flags, mode));
forwarded!(memfd_create, memfd_create_entry, 2, c"memfd_create", MemfdCreate, FAILED, text name, (flags));
forwarded!(mallopt, mallopt_entry, 2, c"mallopt", Mallopt, 0, (parameter, value));
forwarded!(malloc_trim, malloc_trim_entry, 1, c"malloc_trim", MallocTrim, 0, (pad));
