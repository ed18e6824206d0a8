//! A process makes itself known: it takes a slot of the session's table and says who it is.

use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;

use heaptape_wire::chunk::UNKNOWN_TID;
use heaptape_wire::process::{
    JOB_BYTES, JOB_RANKS, JOB_VARIABLES, LAUNCHERS, Origin, ProcessSlot, Registration, SLOTS,
};
use heaptape_wire::session::{Refusal, Why};

use crate::arch::{self, syscall};
use crate::arena::{arena, open, private};
use crate::environment::variable;
use crate::lifecycle::{STATE, is_sandboxed, own_thread};
use crate::patience::Patience;
use crate::thread::{STAMPING, UNSTAMPED};
use crate::{counting, forks, sheets};

/// How long a process waits for another one to end when all slots are taken.
const FULL_MS: u64 = 200;
/// How long it waits for one in any case. The collector takes no such time to offer more, unless somebody has written over
/// all that there are.
const MOST_MS: u64 = 10_000;

/// Takes a process slot and says who we are; `environment` is that of a new program, or null.
pub fn register(origin: Origin, environment: *const *const c_char) -> bool {
    let session = arena().session();
    let pid = own_process(origin);
    STATE.pid.store(pid, Ordering::Relaxed);
    // A filter may forbid to ask; of a fork the parent is known in any case.
    let ppid = if is_sandboxed() { 0 } else { arch::ask(arch::SYS_GETPPID) };
    let registration = Registration {
        pid,
        ppid,
        origin,
        parent_slot: STATE.slot.load(Ordering::Relaxed),
        parent_generation: STATE.generation.load(Ordering::Relaxed),
        fork: arch::fork_word() as u32,
        order: session.registered.fetch_add(1, Ordering::AcqRel),
        namespace: pid_namespace(origin, ppid) as u64,
        proof: &raw const private().proof as u64,
        time: session.clock(),
    };
    STATE.namespace.store(registration.namespace as usize, Ordering::Relaxed);
    STAMPING.store(UNSTAMPED, Ordering::Relaxed);
    let mut patience = Patience::new();
    loop {
        let ready = (session.slots_ready.load(Ordering::Acquire) as usize).min(SLOTS);
        for index in 0..ready {
            let slot = arena().slot(index);
            if slot.claim(pid) {
                STATE.slot.store(index as u32, Ordering::Relaxed);
                STATE.generation.store(slot.generation(), Ordering::Relaxed);
                private().proof.set(session.name(), index as u32, slot.generation());
                private().next_thread.store(0, Ordering::Relaxed);
                private().registered.store(1, Ordering::Relaxed);
                // SAFETY: null, or the environment of this program.
                let has_rank = unsafe { tell_job(slot, environment) };
                if counting::is_on() {
                    let is_launcher = origin == Origin::Exec && !has_rank && is_launcher();
                    sheets::begin(origin == Origin::Fork, is_launcher);
                }
                slot.register(&registration);
                return true;
            }
        }
        // Where all the slots that there can be are taken, those who hold them may wait for us.
        let is_full = ready == SLOTS && patience.has_waited(FULL_MS);
        if is_full || patience.has_waited(MOST_MS) || !patience.wait() {
            session.turned_away.fetch_add(1, Ordering::Relaxed);
            return false;
        }
    }
}

/// Tells the collector why this process is not recorded, by way of the arena's file, which is not mapped.
pub fn refuse(path: &CStr, why: Why) {
    let pid = arch::ask(arch::SYS_GETPID);
    let (place, bytes) = Refusal::bytes(pid, pid_namespace(Origin::Exec, 0) as u64, why);
    // SAFETY: opens, writes and closes a file of ours.
    unsafe {
        let fd = open(path);
        if fd >= 0 {
            let bytes_at = bytes.as_ptr() as usize;
            syscall(arch::SYS_PWRITE64, [fd as usize, bytes_at, bytes.len(), place, 0, 0]);
            syscall(arch::SYS_CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
        }
    }
}

/// The process's own number; 0 when it can't be told without a question, which a sandbox may forbid. The
/// only thread of a new copy has the number of the process.
fn own_process(origin: Origin) -> u32 {
    match origin {
        Origin::Fork if is_sandboxed() => match own_thread(true) {
            UNKNOWN_TID => 0,
            number => number,
        },
        _ => arch::ask(arch::SYS_GETPID),
    }
}

/// The inode of the pid namespace: process ids in another than the collector's mean others to it. 0 when it
/// can't be told.
///
/// A copy that libc made and that sees a parent at all is in the namespace of the process that it was copied
/// from: from a new one neither that process nor who takes its place can be seen.
fn pid_namespace(origin: Origin, ppid: u32) -> usize {
    let mut text = [0u8; 64];
    let link = c"/proc/self/ns/pid".as_ptr() as usize;
    if is_sandboxed() {
        return 0;
    }
    if origin == Origin::Fork && ppid != 0 && forks::is_by_libc() {
        return STATE.namespace.load(Ordering::Relaxed);
    }
    // SAFETY: writes at most the text's length into it.
    unsafe { syscall(arch::SYS_READLINK, [link, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]) };
    // It reads `pid:[4026531836]`.
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

/// Says which place in a parallel job the environment tells of; whether it has a rank there.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
unsafe fn tell_job(slot: &ProcessSlot, environment: *const *const c_char) -> bool {
    if environment.is_null() {
        return false;
    }
    let mut left = JOB_BYTES;
    let variables = JOB_VARIABLES.iter().filter_map(|name| {
        // SAFETY: as promised.
        let value = unsafe { variable(environment, name) }?.to_bytes();
        left = left.checked_sub(name.len() + value.len() + 2)?;
        Some(name.bytes().chain([b'=']).chain(value.iter().copied()).chain([0]))
    });
    slot.set_job(variables.flatten());
    // SAFETY: as promised.
    JOB_RANKS.iter().any(|name| unsafe { variable(environment, name) }.is_some())
}

/// Whether this program launches the ranks of a job, by the name of its file.
fn is_launcher() -> bool {
    let mut path = [0u8; 1024];
    let link = c"/proc/self/exe".as_ptr() as usize;
    // SAFETY: writes at most the array's length into it.
    let length = unsafe {
        let place = path.as_mut_ptr() as usize;
        syscall(arch::SYS_READLINK, [link, place, path.len(), 0, 0, 0])
    };
    let path = usize::try_from(length).ok().and_then(|length| path.get(..length));
    let name = path.and_then(|path| path.rsplit(|&byte| byte == b'/').next());
    name.is_some_and(|name| LAUNCHERS.iter().any(|known| known.as_bytes() == name))
}
