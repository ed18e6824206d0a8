//! The calls that map memory, and the allocator's settings: forward to libc's function, then note.
//!
//! Never the raw system call: MPI's registration caches watch libc's functions and corrupt data when
//! a mapping changes behind their back. For the same reason `dlsym` does not find these wrappers but
//! libc's functions: `crates/cli/build/hide.rs` sees to it.

use core::ffi::{c_char, c_int, c_uint};

use heaptape_wire::note::NoteKind;

use crate::arch::with_caller;
use crate::exec::name_of;
use crate::following::following;
use crate::mapped::{self, MAP_FIXED, Map, Remap};
use crate::next::{ENOSYS, set_errno};
use crate::{callstack, counting, heaps, lifecycle, thread};

/// One wrapped call: its exported name, how many arguments it has, the next function, its note, what it
/// returns where libc has none, whether its first argument is a text that stands in the note in its
/// place, the types of the other arguments and of the result, what is done instead of a note where calls
/// are counted, what is done beside it while it is not known whether they will be, and what is done where calls
/// are recorded. (Of a word that is narrower than a register the rest means nothing.)
macro_rules! forwarded {
    ($export:ident, $entry:ident, $count:tt, $next:ident = $symbol:literal, $kind:ident, $absent:expr,
     $(text $text:ident,)? ($($arg:ident: $type:ty),*) -> $result:ty
     $(, counted |$caller:ident, $make:ident| $counted:expr)?
     $(, early |$early:ident, $made:ident| $noted:expr)?
     $(, then $then:expr)?) => {
        following!(static $next = $symbol);
        unsafe extern "C" fn $entry($($text: *const c_char,)? $($arg: $type,)* caller: usize) -> $result {
            type Next = unsafe extern "C" fn($(forwarded!(@text $text),)? $($type),*) -> $result;
            let make = || match $next.address() {
                0 => { set_errno(ENOSYS); $absent }
                // SAFETY: the next function of this name takes these arguments.
                address => unsafe {
                    core::mem::transmute::<usize, Next>(address)($($text,)? $($arg),*)
                }
            };
            $(if counting::is_on() {
                let ($caller, $make) = (caller, make);
                return $counted;
            })?
            let result = make();
            $(if !lifecycle::has_joined() {
                let ($early, $made) = (caller, result);
                $noted;
            })?
            $($then;)?
            // SAFETY: the call takes a C string here.
            let name = forwarded!(@name $(unsafe { name_of($text) })?);
            thread::note(NoteKind::$kind, caller, &[$($arg as i64 as u64,)* result as i64 as u64], name);
            result
        }
        with_caller!($export, $count, $entry);
    };
    (@text $text:ident) => { *const c_char };
    (@name) => { &[] };
    (@name $name:expr) => { $name };
}

const FAILED: usize = usize::MAX;
const PROT_READ: c_int = 1;

forwarded!(mmap, mmap_entry, 6, MMAP = c"mmap", Mmap, FAILED,
    (address: usize, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: usize) -> usize,
    counted |caller, make| mapped::map(Map { address, length, protection, flags, fd, offset }, caller, make),
    early |caller, made| mapped::note_heap(made, length, flags, caller),
    then if flags & MAP_FIXED != 0 { callstack::unmapped() });
forwarded!(mmap64, mmap64_entry, 6, MMAP64 = c"mmap64", Mmap, FAILED,
    (address: usize, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: usize) -> usize,
    counted |caller, make| mapped::map(Map { address, length, protection, flags, fd, offset }, caller, make),
    early |caller, made| mapped::note_heap(made, length, flags, caller),
    then if flags & MAP_FIXED != 0 { callstack::unmapped() });
forwarded!(munmap, munmap_entry, 2, MUNMAP = c"munmap", Munmap, -1,
    (address: usize, length: usize) -> c_int,
    counted |_caller, make| mapped::unmap(address, length, make),
    early |_caller, _made| heaps::unmapped(address, length),
    then callstack::unmapped());
forwarded!(mremap, mremap_entry, 5, MREMAP = c"mremap", Mremap, FAILED,
    (address: usize, old: usize, new: usize, flags: c_int, target: usize) -> usize,
    counted |caller, make| mapped::remap(Remap { address, old, new, flags, target }, caller, make),
    then callstack::unmapped());
forwarded!(mprotect, mprotect_entry, 3, MPROTECT = c"mprotect", Mprotect, -1,
    (address: usize, length: usize, protection: c_int) -> c_int,
    counted |caller, make| mapped::protect((address, length, protection), caller, make),
    then if protection & PROT_READ == 0 { callstack::unmapped() });
forwarded!(madvise, madvise_entry, 3, MADVISE = c"madvise", Madvise, -1,
    (address: usize, length: usize, advice: c_int) -> c_int);
forwarded!(brk, brk_entry, 1, BRK = c"brk", Brk, -1, (address: usize) -> c_int,
    counted |caller, make| mapped::set_break(address, caller, data_end, make),
    then callstack::unmapped());
forwarded!(sbrk, sbrk_entry, 1, SBRK = c"sbrk", Sbrk, FAILED, (increment: usize) -> usize,
    counted |caller, make| mapped::move_break(increment as isize, caller, data_end, make),
    then if (increment as isize) < 0 { callstack::unmapped() });
forwarded!(shmat, shmat_entry, 3, SHMAT = c"shmat", Shmat, FAILED,
    (id: c_int, address: usize, flags: c_int) -> usize,
    counted |caller, make| mapped::attach(id, caller, make));
forwarded!(shmdt, shmdt_entry, 1, SHMDT = c"shmdt", Shmdt, -1, (address: usize) -> c_int,
    counted |_caller, make| mapped::detach(address, make),
    then callstack::unmapped());
forwarded!(shmget, shmget_entry, 3, SHMGET = c"shmget", Shmget, -1,
    (key: c_int, size: usize, flags: c_int) -> c_int);
forwarded!(shm_open, shm_open_entry, 3, SHM_OPEN = c"shm_open", ShmOpen, -1, text name,
    (flags: c_int, mode: c_uint) -> c_int);
forwarded!(memfd_create, memfd_create_entry, 2, MEMFD_CREATE = c"memfd_create", MemfdCreate, -1,
    text name, (flags: c_uint) -> c_int);
forwarded!(mallopt, mallopt_entry, 2, MALLOPT = c"mallopt", Mallopt, 0,
    (parameter: c_int, value: c_int) -> c_int);
forwarded!(malloc_trim, malloc_trim_entry, 1, MALLOC_TRIM = c"malloc_trim", MallocTrim, 0,
    (pad: usize) -> c_int);

/// Unmaps what was mapped just now, and nobody has seen.
pub fn unmap_again(address: usize, length: usize) {
    type Unmap = unsafe extern "C" fn(usize, usize) -> c_int;
    let next = MUNMAP.address();
    if next != 0 {
        // SAFETY: the type of libc's `munmap`; the mapping is ours alone.
        unsafe { core::mem::transmute::<usize, Unmap>(next)(address, length) };
    }
}

/// Where the program's data ends, as libc has it.
fn data_end() -> usize {
    match SBRK.address() {
        0 => 0,
        // SAFETY: the type of libc's `sbrk`, which moves nothing.
        address => unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> usize>(address)(0)
        },
    }
}
