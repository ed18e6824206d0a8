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

/// Looks the real functions up. An allocator maps memory while it holds its lock, and a look-up then
/// would wait for the loader's lock, whose holder may be waiting for the allocator.
pub fn look_up() {
    let all = [
        &MMAP,
        &MMAP64,
        &MUNMAP,
        &MREMAP,
        &MPROTECT,
        &MADVISE,
        &BRK,
        &SBRK,
        &SHMAT,
        &SHMDT,
        &SHMGET,
        &SHM_OPEN,
        &MEMFD_CREATE,
        &MALLOPT,
        &MALLOC_TRIM,
    ];
    for next in all {
        next.address();
    }
}

/// One wrapped call: its exported name, how many arguments it has, whether the first is a text that
/// stands in the note in its place.
macro_rules! forwarded {
    (@call $next:ident, $absent:expr, ($($arg:ident),*)) => {{
        match $next.address() {
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
    ($export:ident, $entry:ident, $count:tt, $next:ident = $symbol:literal, $kind:ident, $absent:expr, ($($arg:ident),*)) => {
        static $next: Late = Late::new($symbol);
        unsafe extern "C" fn $entry($($arg: usize,)* caller: usize) -> usize {
            let result = forwarded!(@call $next, $absent, ($($arg),*));
            thread::note(NoteKind::$kind, caller, &[$($arg,)* result].map(|word| word as u64), &[]);
            result
        }
        with_caller!($export, $count, $entry);
    };
    ($export:ident, $entry:ident, $count:tt, $next:ident = $symbol:literal, $kind:ident, $absent:expr, text $text:ident, ($($arg:ident),*)) => {
        static $next: Late = Late::new($symbol);
        unsafe extern "C" fn $entry($text: usize, $($arg: usize,)* caller: usize) -> usize {
            let result = forwarded!(@call $next, $absent, ($text, $($arg),*));
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
    MMAP = c"mmap",
    Mmap,
    FAILED,
    (address, length, protection, flags, fd, offset)
);
forwarded!(
    mmap64,
    mmap64_entry,
    6,
    MMAP64 = c"mmap64",
    Mmap,
    FAILED,
    (address, length, protection, flags, fd, offset)
);
forwarded!(munmap, munmap_entry, 2, MUNMAP = c"munmap", Munmap, FAILED, (address, length));
forwarded!(
    mremap,
    mremap_entry,
    5,
    MREMAP = c"mremap",
    Mremap,
    FAILED,
    (address, old, new, flags, target)
);
forwarded!(
    mprotect,
    mprotect_entry,
    3,
    MPROTECT = c"mprotect",
    Mprotect,
    FAILED,
    (address, length, protection)
);
forwarded!(
    madvise,
    madvise_entry,
    3,
    MADVISE = c"madvise",
    Madvise,
    FAILED,
    (address, length, advice)
);
forwarded!(brk, brk_entry, 1, BRK = c"brk", Brk, FAILED, (address));
forwarded!(sbrk, sbrk_entry, 1, SBRK = c"sbrk", Sbrk, FAILED, (increment));
forwarded!(shmat, shmat_entry, 3, SHMAT = c"shmat", Shmat, FAILED, (id, address, flags));
forwarded!(shmdt, shmdt_entry, 1, SHMDT = c"shmdt", Shmdt, FAILED, (address));
forwarded!(shmget, shmget_entry, 3, SHMGET = c"shmget", Shmget, FAILED, (key, size, flags));
forwarded!(shm_open, shm_open_entry, 3, SHM_OPEN = c"shm_open", ShmOpen, FAILED, text name, (flags, mode));
forwarded!(memfd_create, memfd_create_entry, 2, MEMFD_CREATE = c"memfd_create", MemfdCreate, FAILED, text name, (flags));
forwarded!(mallopt, mallopt_entry, 2, MALLOPT = c"mallopt", Mallopt, 0, (parameter, value));
forwarded!(malloc_trim, malloc_trim_entry, 1, MALLOC_TRIM = c"malloc_trim", MallocTrim, 0, (pad));
