//! Whether this process is recorded: it joins the session at its first record, is a process of its own
//! after a fork, and goes on without us when the collector is gone.
//!
//! ```text
//! UNKNOWN ──first record, with an environment──▶ RECORDING ──collector gone, session over──▶ PASSING
//!    └────────────── no session, or none that can be joined ────────────────────────────────────▶┘
//! ```

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use heaptape_wire::chunk::UNKNOWN_TID;
use heaptape_wire::process::{Origin, SlotState};
use heaptape_wire::session::SESSION_VARIABLE;

use crate::arena::{arena, map_arena, map_private, private};
use crate::environment::{NOWHERE, first_environment, variable};
use crate::registering::{refuse, register};
use crate::summon::{self, Room};
use crate::{arch, callstack, environment, forks, limits, modules, next};

const UNKNOWN: u32 = 0;
const JOINING: u32 = 1;
const RECORDING: u32 = 2;
const PASSING: u32 = 3;

/// What a fork leaves in place: the child knows by it whose copy it is.
pub struct State {
    mode: AtomicU32,
    /// The process slot.
    pub slot: AtomicU32,
    /// Its generation.
    pub generation: AtomicU32,
    /// Set once the program asked for a sandbox: no system call for our own ends any more.
    pub sandboxed: AtomicU32,
    /// Set once a sandbox may forbid to sleep.
    pub sleepless: AtomicU32,
    /// The inode of the pid namespace that the process's numbers are of; 0 when it is not known.
    pub namespace: AtomicUsize,
    /// The process id.
    pub pid: AtomicU32,
    /// 1 when libc notes the numbers of threads where we look for them.
    notes_threads: AtomicU32,
    /// 1 in a copy that was made behind libc's back: what libc has noted for its first thread is then the
    /// number of the thread that it was copied from.
    copied: AtomicU32,
}

/// The process's own state.
pub static STATE: State = State {
    mode: AtomicU32::new(UNKNOWN),
    slot: AtomicU32::new(0),
    generation: AtomicU32::new(0),
    sandboxed: AtomicU32::new(0),
    sleepless: AtomicU32::new(0),
    namespace: AtomicUsize::new(0),
    pid: AtomicU32::new(0),
    notes_threads: AtomicU32::new(0),
    copied: AtomicU32::new(0),
};

/// Whether records are to be written; joins the session at the first call and registers a process
/// that turns out to be a fork of a covered one.
pub fn is_recording() -> bool {
    match STATE.mode.load(Ordering::Acquire) {
        RECORDING => {
            // A wiped page reads as zeros.
            private().registered.load(Ordering::Relaxed) == 1 || register_fork()
        }
        UNKNOWN => join(),
        _ => false,
    }
}

/// Whether this process, or the one that it is a fork of, has joined a session and is in it.
pub fn has_joined() -> bool {
    STATE.mode.load(Ordering::Acquire) == RECORDING
}

/// Whether this process, or the one whose memory it still shares, is recorded.
pub fn is_covered() -> bool {
    has_joined() && arena().session().is_open()
}

/// The process id, as it was when the process registered.
pub fn registered_pid() -> u32 {
    STATE.pid.load(Ordering::Relaxed)
}

/// The kernel's number of this thread, the process's first or another one. In a sandbox it is the one that
/// libc has noted, where that is certain to be right.
pub fn own_thread(is_first: bool) -> u32 {
    let noted = arch::noted_thread();
    if is_sandboxed() {
        let is_copied = is_first && STATE.copied.load(Ordering::Relaxed) != 0;
        let is_right = !is_copied && STATE.notes_threads.load(Ordering::Relaxed) != 0;
        return if is_right { noted } else { UNKNOWN_TID };
    }
    let asked = arch::ask(arch::SYS_GETTID);
    if noted == asked {
        STATE.notes_threads.store(1, Ordering::Relaxed);
    }
    if asked == 0 { UNKNOWN_TID } else { asked }
}

/// Whether libc notes the numbers of threads where we look for them, and the kernel may be asked about them.
pub fn is_thread_noted() -> bool {
    !is_sandboxed() && STATE.notes_threads.load(Ordering::Relaxed) != 0
}

/// Whether the program has asked for a sandbox.
pub fn is_sandboxed() -> bool {
    STATE.sandboxed.load(Ordering::Relaxed) != 0
}

/// Whether a sandbox may forbid to sleep.
pub fn is_sleepless() -> bool {
    STATE.sleepless.load(Ordering::Relaxed) != 0
}

/// Joins the session that the environment names, if there is one. This is where most of our stack is needed; whoever
/// only asks whether he is recorded may be a thread with hardly any.
#[cold]
#[inline(never)]
fn join() -> bool {
    if !next::look_up()
        || STATE
            .mode
            .compare_exchange(UNKNOWN, JOINING, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
    {
        return false;
    }
    // Whoever wraps dlsym may allocate in it: from here on that leads to no further try to join.
    if !next::is_glibc() {
        STATE.mode.store(PASSING, Ordering::Release);
        return false;
    }
    let environment = first_environment();
    if environment.is_null() {
        STATE.mode.store(UNKNOWN, Ordering::Release);
        return false;
    }
    let mut room = Room::new();
    // SAFETY: a null-terminated array of C strings.
    let session = unsafe {
        match variable(environment, SESSION_VARIABLE) {
            Some(session) => Some(session).filter(|session| session.to_bytes() != NOWHERE),
            None => summon::session(environment, &mut room),
        }
    };
    let recording =
        session.is_some_and(|session| map(session) && register(Origin::Exec, environment));
    if recording || summon::is_declined() {
        // SAFETY: as above.
        unsafe { environment::remember(environment, session.map_or(NOWHERE, CStr::to_bytes)) };
    }
    if recording {
        callstack::begin();
    }
    STATE.mode.store(if recording { RECORDING } else { PASSING }, Ordering::Release);
    recording
}

/// Maps all that is needed, or tells the collector why that can't be.
fn map(path: &CStr) -> bool {
    let mapped =
        limits::make_room(path).and_then(|()| map_arena(path)).and_then(|()| map_private());
    if let Err(Some(why)) = mapped {
        refuse(path, why);
    }
    mapped.is_ok()
}

/// Whether this is the process that registered, and not one that a vfork lent its memory to.
pub fn is_itself() -> bool {
    is_recording() && {
        let slot = arena().slot(STATE.slot.load(Ordering::Relaxed) as usize);
        STATE.sandboxed.load(Ordering::Relaxed) != 0
            || slot.state() == SlotState::Live(arch::ask(arch::SYS_GETPID))
    }
}

/// Makes a forked child a process of its own.
#[cold]
#[inline(never)]
fn register_fork() -> bool {
    arch::set_thread_word(0);
    STATE.copied.store(u32::from(!forks::is_by_libc()), Ordering::Relaxed);
    let recording = register(Origin::Fork, core::ptr::null());
    if recording {
        modules::forget();
    } else {
        callstack::end();
        STATE.mode.store(PASSING, Ordering::Release);
    }
    arch::set_fork_word(0);
    recording
}

/// This process records no more; its calls pass through.
pub fn detach() {
    callstack::end();
    STATE.mode.store(PASSING, Ordering::Release);
    arena().slot(STATE.slot.load(Ordering::Relaxed) as usize).detach();
}
