//! Calls that change what happens later: threads, loaded libraries, sandboxes, the start of MPI.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering;

use heaptape_wire::note::NoteKind;

use crate::arch::{
    SYS_CLONE, SYS_CLONE3, SYS_FORK, SYS_NANOSLEEP, SYS_SECCOMP, seen_in_passing, with_caller,
};
use crate::following::{Following, following};
use crate::lifecycle::STATE;
use crate::next::DLOPEN;
use crate::starting::Starting;
use crate::thread::expect_threads;
use crate::{
    callers, counting, filter, forks, loading, modules, pages, python, sizes, spending, thread,
    threads, whole,
};

following!(static PTHREAD_CREATE = c"pthread_create");
following!(static THRD_CREATE = c"thrd_create");
following!(static DLMOPEN = c"dlmopen");
following!(static DLCLOSE = c"dlclose");
following!(static PRCTL = c"prctl");
following!(static SYSCALL = c"syscall");
static MPI_INIT: Following = Following::later(c"MPI_Init");
static MPI_INIT_THREAD: Following = Following::later(c"MPI_Init_thread");

/// What a function stands in with when the real one can't be found: an error.
unsafe extern "C" fn failing() -> isize {
    crate::next::set_errno(crate::next::ENOSYS);
    -1
}

fn or_failing(next: &Following) -> usize {
    match next.address() {
        0 => failing as *const () as usize,
        found => found,
    }
}

macro_rules! passing {
    ($export:ident, $mark:ident, $next:ident, $next_function:expr) => {
        unsafe extern "C" fn $next() -> usize {
            or_failing($next_function)
        }
        seen_in_passing!($export, $mark, $next);
    };
}

with_caller!(pthread_create, 4, pthread_create_entry);

unsafe extern "C" fn pthread_create_entry(
    thread: *mut usize,
    attributes: usize,
    start: usize,
    argument: usize,
    caller: usize,
) -> c_int {
    type Create = unsafe extern "C" fn(*mut usize, usize, usize, usize) -> c_int;
    let address = PTHREAD_CREATE.address();
    if address == 0 {
        return crate::next::ENOSYS;
    }
    // SAFETY: as the program asked.
    let make = || unsafe {
        core::mem::transmute::<usize, Create>(address)(thread, attributes, start, argument)
    };
    create_thread(|| {
        if counting::is_on() { whole::create(thread, attributes, caller, make) } else { make() }
    })
}

with_caller!(thrd_create, 3, thrd_create_entry);

unsafe extern "C" fn thrd_create_entry(
    thread: *mut usize,
    start: usize,
    argument: usize,
    _caller: usize,
) -> c_int {
    type Create = unsafe extern "C" fn(*mut usize, usize, usize) -> c_int;
    const THRD_ERROR: c_int = 2;
    let address = THRD_CREATE.address();
    if address == 0 {
        return THRD_ERROR;
    }
    // SAFETY: as the program asked.
    create_thread(|| unsafe {
        core::mem::transmute::<usize, Create>(address)(thread, start, argument)
    })
}

/// A thread is to be made, by `make`, which gives 0 back if it was.
fn create_thread(make: impl FnOnce() -> c_int) -> c_int {
    thread::note(NoteKind::ThreadCreate, 0, &[], &[]);
    expect_threads();
    let before = if counting::is_on() { threads::living() } else { 0 };
    let error = make();
    if error == 0
        && let Some(account) = counting::account()
    {
        // This one and the new one, which may have ended since.
        account.note_thread(before.max(threads::living()).max(2));
    }
    error
}
passing!(dlopen, library_opened, next_dlopen, &DLOPEN);
passing!(dlmopen, namespace_opened, next_dlmopen, &DLMOPEN);
passing!(prctl, process_controlled, next_prctl, &PRCTL);
passing!(syscall, system_called, next_syscall, &SYSCALL);

unsafe extern "C" fn library_opened(file: *const c_char, flags: usize) {
    note_library(file, &[u64::from(flags as u32)]);
}

unsafe extern "C" fn namespace_opened(namespace: usize, file: *const c_char, flags: usize) {
    note_library(file, &[u64::from(flags as u32), namespace as u64]);
}

const RTLD_DEEPBIND: u64 = 8;

fn note_library(file: *const c_char, how: &[u64]) {
    // What was loaded before is listed here, since nothing runs of ours when `dlopen` returns.
    modules::refresh();
    let text = if file.is_null() {
        &[]
    } else {
        // SAFETY: dlopen takes null or a C string.
        unsafe { CStr::from_ptr(file) }.to_bytes()
    };
    thread::note(NoteKind::Dlopen, 0, how, text);
    loading::begin();
    if how[0] & RTLD_DEEPBIND != 0 {
        // Whether it was loaded shows in the next list, which comes for that even if nothing is new.
        modules::forget();
    }
}

with_caller!(dlclose, 1, dlclose_entry);

unsafe extern "C" fn dlclose_entry(handle: usize, caller: usize) -> isize {
    modules::refresh();
    let interpreter = python::forget();
    // SAFETY: the type of dlclose.
    let result = unsafe {
        core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> isize>(or_failing(&DLCLOSE))(
            handle,
        )
    };
    modules::refresh();
    callers::forget();
    python::remember(interpreter);
    thread::note(NoteKind::Dlclose, caller, &[handle as u64, result as u64], &[]);
    result
}

unsafe extern "C" fn process_controlled(operation: usize, value: usize, filter: usize) {
    const PR_SET_SECCOMP: usize = 22;
    const SECCOMP_MODE_STRICT: usize = 1;
    if operation as u32 as usize == PR_SET_SECCOMP {
        // The modes have other numbers here than as operations of the call.
        sandboxed(value.wrapping_sub(SECCOMP_MODE_STRICT), filter);
    }
}

unsafe extern "C" fn system_called(number: usize, operation: usize, _flags: usize, filter: usize) {
    /// The process and its copy share their memory, as after a vfork.
    const CLONE_VM: u64 = 0x100;
    let flags = match number {
        SYS_SECCOMP => return sandboxed(operation, filter),
        SYS_CLONE => operation as u64,
        // SAFETY: `struct clone_args` of <linux/sched.h> begins with the flags.
        SYS_CLONE3 if operation != 0 => unsafe { *(operation as *const u64) },
        SYS_FORK => 0,
        _ => return,
    };
    if flags & CLONE_VM == 0 {
        forks::before_copy();
    }
}

/// The program is about to go into a sandbox: from here on nothing is asked, and who waits may sleep only
/// where every filter lets that through.
fn sandboxed(operation: usize, program: usize) {
    const STRICT: usize = 0;
    const FILTER: usize = 1;
    let may_sleep = match operation {
        STRICT => false,
        // Without a filter it asks whether there are any.
        FILTER if program == 0 => return,
        // SAFETY: the program's own filter, on its way to the kernel.
        FILTER => unsafe { filter::lets_through(program, SYS_NANOSLEEP) },
        _ => return,
    };
    if counting::is_on() {
        sizes::provide();
        pages::provide();
        spending::enter_sandbox();
    }
    STATE.sandboxed.store(1, Ordering::Relaxed);
    if !may_sleep {
        STATE.sleepless.store(1, Ordering::Relaxed);
    }
    thread::note(NoteKind::Seccomp, 0, &[operation as u64], &[]);
}

with_caller!(MPI_Init, 2, mpi_init_entry);
with_caller!(MPI_Init_thread, 4, mpi_init_thread_entry);

unsafe extern "C" fn mpi_init_entry(argc: usize, argv: usize, caller: usize) -> isize {
    type Init = unsafe extern "C" fn(usize, usize) -> isize;
    thread::note(NoteKind::MpiInitEnter, caller, &[], &[]);
    let starting = Starting::enter();
    // SAFETY: the type of MPI_Init.
    let result = unsafe { core::mem::transmute::<usize, Init>(or_failing(&MPI_INIT))(argc, argv) };
    drop(starting);
    thread::note(NoteKind::MpiInitReturn, caller, &[result as u64], &[]);
    result
}

unsafe extern "C" fn mpi_init_thread_entry(
    argc: usize,
    argv: usize,
    required: usize,
    provided: usize,
    caller: usize,
) -> isize {
    type Init = unsafe extern "C" fn(usize, usize, usize, usize) -> isize;
    thread::note(NoteKind::MpiInitEnter, caller, &[], &[]);
    let starting = Starting::enter();
    // SAFETY: the type of MPI_Init_thread.
    let result = unsafe {
        core::mem::transmute::<usize, Init>(or_failing(&MPI_INIT_THREAD))(
            argc, argv, required, provided,
        )
    };
    drop(starting);
    thread::note(NoteKind::MpiInitReturn, caller, &[result as u64], &[]);
    result
}

/// Fortran's entries, which need not come by C's: they leave the error in a word that their last
/// argument points to, which may be missing with `use mpi_f08`.
macro_rules! fortran_init {
    ($export:ident, $entry:ident, $count:tt, $symbol:literal, ($($arg:ident),*)) => {
        with_caller!($export, $count, $entry);

        unsafe extern "C" fn $entry($($arg: usize,)* error: *const i32, caller: usize) {
            static NEXT: Following = Following::later($symbol);
            type Init = unsafe extern "C" fn($(fortran_init!(@word $arg),)* *const i32) -> isize;
            thread::note(NoteKind::MpiInitEnter, caller, &[], &[]);
            let starting = Starting::enter();
            // SAFETY: the type of this function, whose result nobody reads; it writes the error.
            let error = unsafe {
                core::mem::transmute::<usize, Init>(or_failing(&NEXT))($($arg,)* error);
                if error.is_null() { 0 } else { *error }
            };
                drop(starting);
            thread::note(NoteKind::MpiInitReturn, caller, &[error as u64], &[]);
        }
    };
    (@word $arg:ident) => { usize };
}

fortran_init!(mpi_init_, mpi_init_f_entry, 1, c"mpi_init_", ());
fortran_init!(mpi_init_f08_, mpi_init_f08_entry, 1, c"mpi_init_f08_", ());
fortran_init!(
    mpi_init_thread_,
    mpi_init_thread_f_entry,
    3,
    c"mpi_init_thread_",
    (required, provided)
);
fortran_init!(
    mpi_init_thread_f08_,
    mpi_init_thread_f08_entry,
    3,
    c"mpi_init_thread_f08_",
    (required, provided)
);
