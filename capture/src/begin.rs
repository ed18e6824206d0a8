//! The constructor and the destructor of the library: what stands at the beginning of a process's
//! stream, and at its end.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering;

use heaptape_wire::note::NoteKind;

use crate::arena::arena;
use crate::lifecycle::{self, STATE};
use crate::{data, forks, heads, heaps, leaving, modules, next, owner, thread};

/// Environment variables that change what an allocator does; they go on the tape.
const SETTINGS: [&str; 7] = [
    "MALLOC_",
    "GLIBC_TUNABLES=",
    "_RJEM_MALLOC_CONF=",
    "MIMALLOC_",
    "TCMALLOC_",
    "PYTHONMALLOC=",
    "LD_PRELOAD=",
];

unsafe extern "C" fn begin(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
    next::look_up();
    next::look_up_rest();
    if !next::is_glibc() || !lifecycle::is_recording() {
        return;
    }
    // SAFETY: the loader passes the program's arguments and environment to constructors.
    unsafe {
        let command = (0..argc.max(0) as usize)
            .map(|i| *argv.add(i))
            .take_while(|arg| !arg.is_null())
            .flat_map(|arg| CStr::from_ptr(arg).to_bytes_with_nul().iter().copied());
        let slot = arena().slot(STATE.slot.load(Ordering::Relaxed) as usize);
        slot.set_command(command);
        if let Some((gap, module)) = next::gap() {
            let first = if argc > 0 { *argv } else { core::ptr::null() };
            let path = module.as_ref().map_or(&[][..], |module| module.path_later(first));
            slot.set_gap(gap, path.iter().copied());
        }
        let mut at = envp;
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            if SETTINGS.iter().any(|name| entry.starts_with(name.as_bytes())) {
                thread::note(NoteKind::Setting, 0, &[], entry);
            }
            at = at.add(1);
        }
    }
    heaps::look_up();
    let is_libcs = owner::libc().is_some_and(|libc| libc.holds(next::next().malloc as usize));
    // Beneath a tool that replaces libc's functions no block is libc's.
    if is_libcs && owner::replacing_tool().is_none() {
        heads::begin();
    }
    modules::refresh();
    data::end_if_refused();
    forks::follow();
    leaving::follow();
}

unsafe extern "C" fn end() {
    modules::refresh();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: unsafe extern "C" fn() = end;
