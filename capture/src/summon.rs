//! A program that no heaptape has started, in whose environment a limit is named: calls heaptape, which finds
//! or starts the counting of the job, and is told by a pipe which session to join.
//!
//! This is done once, when the process joins: before its `main`, and mostly before anything else has run
//! in it. heaptape is started as `vfork` does it, on a stack of its own, and is given none of what is preloaded
//! here. When it has answered it is gone and waited for, nothing stays open, and the signal that tells of its
//! end is taken away: the program has no child that it did not start.
//!
//! What can't be done is told in one sentence on standard error, by heaptape or, where that can't be started, from
//! here; then the program goes on as if nothing had been asked for, and so do those that it starts.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use heaptape_wire::session::{LIMIT_VARIABLE, SESSION_BYTES, SESSION_VARIABLE, VERSION};

use crate::arch::{self, syscall};
use crate::environment::{NOWHERE, length, variable};
use crate::owner;
use crate::scratch::Scratch;
use crate::text::Text;

/// Bytes of the stack on which the child starts heaptape.
const STACK: usize = 8192;

/// Nobody is to be asked, and nothing to be told, in what this program starts.
static DECLINED: AtomicU32 = AtomicU32::new(0);

/// Whether nothing came of the limit that the environment names, which was said.
pub fn is_declined() -> bool {
    DECLINED.load(Ordering::Relaxed) != 0
}

/// The path of a session, as a C string.
pub struct Room([u8; SESSION_BYTES]);

impl Room {
    /// An empty one.
    pub const fn new() -> Room {
        Room([0; SESSION_BYTES])
    }
}

/// The session of the job that this program is of, where its environment asks for one.
///
/// # Safety
/// `environment` is a null-terminated array of C strings.
pub unsafe fn session(environment: *const *const c_char, room: &mut Room) -> Option<&CStr> {
    // SAFETY: as promised.
    unsafe { variable(environment, LIMIT_VARIABLE) }?;
    let mut path = Text::new();
    let asked = way_to_heaptape(&mut path).and_then(|()| {
        // SAFETY: as promised; the path is a C string.
        unsafe { ask(&path, environment, &mut room.0) }
    });
    match asked {
        Ok(true) => CStr::from_bytes_until_nul(&room.0).ok().filter(|path| !path.is_empty()),
        // It has said why.
        Ok(false) => decline(),
        Err(why) => {
            say(&path, why);
            decline()
        }
    }
}

fn decline<T>() -> Option<T> {
    DECLINED.store(1, Ordering::Relaxed);
    None
}

/// Why heaptape could not be asked.
#[derive(Clone, Copy)]
enum Why {
    /// This library does not lie where it was put.
    NoPath,
    /// A system call has failed, with this error.
    Call(i32),
    /// heaptape can't be run, with this error.
    NotRun(i32),
}

/// Where heaptape has left its own place: beside this library, under its name without `lib` and `.so`.
fn way_to_heaptape(path: &mut Text) -> Result<(), Why> {
    let own = owner::module_of(way_to_heaptape as *const () as usize).ok_or(Why::NoPath)?;
    let at = own.path().iter().rposition(|&byte| byte == b'/').ok_or(Why::NoPath)?;
    let (folder, name) = own.path().split_at(at + 1);
    let name = name.strip_prefix(b"lib").and_then(|name| name.strip_suffix(b".so"));
    path.push(folder);
    path.push(name.ok_or(Why::NoPath)?);
    if path.is_whole() { Ok(()) } else { Err(Why::NoPath) }
}

/// What the child needs, in the memory that it shares with us.
struct Call {
    path: *const u8,
    argv: *const *const c_char,
    environment: *const *const c_char,
    pipe: usize,
    failed: AtomicI32,
}

/// Asks heaptape; what it writes into the pipe goes to `room`. Whether it was content.
///
/// # Safety
/// `environment` is a null-terminated array of C strings.
unsafe fn ask(
    path: &Text,
    environment: *const *const c_char,
    room: &mut [u8],
) -> Result<bool, Why> {
    let mut scratch = Scratch::new();
    let session = [SESSION_VARIABLE.as_bytes(), b"=", NOWHERE, b"\0"];
    let mut own_session = Text::new();
    session.into_iter().for_each(|part| own_session.push(part));
    // SAFETY: as promised.
    unsafe { without_preloads(environment, &mut scratch, own_session.start())? };
    let [from, to] = pipe()?;
    let (mut number, mut version) = (Text::new(), Text::new());
    number.push_number(to as u64);
    version.push_number(u64::from(VERSION));
    let argv = [
        c"heaptape".as_ptr(),
        c"summoned".as_ptr(),
        number.start(),
        version.start(),
        core::ptr::null(),
    ];
    let call = Call {
        path: path.start().cast(),
        argv: argv.as_ptr(),
        environment: scratch.list(),
        pipe: to,
        failed: AtomicI32::new(0),
    };
    let signals = Signals::hold();
    let child = start(&call);
    signals.hold_deaths();
    close(to);
    let result = match (child, call.failed.load(Ordering::Relaxed)) {
        (child @ 1.., 0) => {
            read(from, room);
            // Where the end of children is ignored nobody is told how they ended.
            Ok(matches!(wait(child as usize), None | Some(0)))
        }
        (child @ 1.., error) => {
            wait(child as usize);
            Err(Why::NotRun(error))
        }
        (error, _) => Err(Why::Call(-error as i32)),
    };
    signals.release();
    close(from);
    result
}

/// The environment for heaptape: that of the program, without what is preloaded into it.
///
/// # Safety
/// `environment` is a null-terminated array of C strings.
unsafe fn without_preloads(
    environment: *const *const c_char,
    scratch: &mut Scratch,
    session: *const c_char,
) -> Result<(), Why> {
    const ENOMEM: i32 = 12;
    const LEFT_OUT: [&[u8]; 3] = [b"LD_PRELOAD=", b"LD_AUDIT=", b"HEAPTAPE_SESSION="];
    // SAFETY: as promised.
    unsafe {
        let count = length(environment);
        if !scratch.reserve(count + 1) {
            return Err(Why::Call(ENOMEM));
        }
        for i in 0..count {
            let entry = *environment.add(i);
            let bytes = CStr::from_ptr(entry).to_bytes();
            if !LEFT_OUT.iter().any(|name| bytes.starts_with(name)) {
                scratch.push(entry);
            }
        }
    }
    scratch.push(session);
    Ok(())
}

/// A pipe whose ends are none of the standard streams, which may be closed: the end to read, the end to write.
fn pipe() -> Result<[usize; 2], Why> {
    const O_CLOEXEC: usize = 0o2000000;
    const F_DUPFD_CLOEXEC: usize = 1030;
    const LOWEST: usize = 3;
    let mut ends = [0i32; 2];
    // SAFETY: writes the two numbers.
    let made =
        unsafe { syscall(arch::SYS_PIPE2, [ends.as_mut_ptr() as usize, O_CLOEXEC, 0, 0, 0, 0]) };
    if made < 0 {
        return Err(Why::Call(-made as i32));
    }
    let mut ends = ends.map(|end| end as usize);
    for i in 0..ends.len() {
        if ends[i] < LOWEST {
            // SAFETY: a descriptor of ours.
            let moved =
                unsafe { syscall(arch::SYS_FCNTL, [ends[i], F_DUPFD_CLOEXEC, LOWEST, 0, 0, 0]) };
            close(ends[i]);
            if moved < 0 {
                close(ends[1 - i]);
                return Err(Why::Call(-moved as i32));
            }
            ends[i] = moved as usize;
        }
    }
    Ok(ends)
}

/// Starts heaptape; its process id, or an error as the kernel has it.
fn start(call: &Call) -> isize {
    let mut stack = MaybeUninit::<[u8; STACK]>::uninit();
    // SAFETY: the stack is the child's alone, and this thread waits until the child has left it.
    unsafe {
        let top = stack.as_mut_ptr().cast::<u8>().add(STACK);
        arch::vfork(top, become_heaptape, core::ptr::from_ref(call).cast())
    }
}

/// The signals that this thread had blocked before, and that were pending.
struct Signals {
    blocked: u64,
    pending: u64,
}

/// The bit of `SIGCHLD`.
const DEATH: u64 = 1 << 16;

impl Signals {
    /// No signal is handled from here on: a handler would run in the child, in our memory.
    fn hold() -> Signals {
        let mut signals = Signals { blocked: 0, pending: 0 };
        set_blocked(u64::MAX, &raw mut signals.blocked);
        let place = &raw mut signals.pending as usize;
        // SAFETY: writes one word.
        unsafe { syscall(arch::SYS_RT_SIGPENDING, [place, 8, 0, 0, 0, 0]) };
        signals
    }

    /// Only that of a child's end is still held.
    fn hold_deaths(&self) {
        set_blocked(self.blocked | DEATH, core::ptr::null_mut());
    }

    /// All is as it was, also what is pending, unless there is another child that has ended.
    fn release(self) {
        if self.pending & DEATH == 0 && !has_dead_child() {
            let (deaths, no_time) = (DEATH, [0u64; 2]);
            let words = [&raw const deaths as usize, 0, no_time.as_ptr() as usize, 8, 0, 0];
            // SAFETY: reads the set and the time.
            unsafe { syscall(arch::SYS_RT_SIGTIMEDWAIT, words) };
        }
        set_blocked(self.blocked, core::ptr::null_mut());
    }
}

fn set_blocked(new: u64, old: *mut u64) {
    const SIG_SETMASK: usize = 2;
    let words = [SIG_SETMASK, &raw const new as usize, old as usize, 8, 0, 0];
    // SAFETY: reads one word, and writes the other one if there is one.
    unsafe { syscall(arch::SYS_RT_SIGPROCMASK, words) };
}

/// Whether the program, as it was before it became this one, has left a child that has ended.
fn has_dead_child() -> bool {
    const P_ALL: usize = 0;
    const WNOHANG_EXITED_NOWAIT: usize = 1 | 4 | 0x0100_0000;
    let mut info = [0u64; 16];
    let place = info.as_mut_ptr() as usize;
    // SAFETY: writes a `siginfo_t`, which is as long as this.
    let answer =
        unsafe { syscall(arch::SYS_WAITID, [P_ALL, 0, place, WNOHANG_EXITED_NOWAIT, 0, 0]) };
    answer == 0 && info[0] != 0
}

/// In the child.
unsafe extern "C" fn become_heaptape(call: *const u8) -> ! {
    const F_SETFD: usize = 2;
    // SAFETY: what `start` was given, which waits; system calls alone are made.
    unsafe {
        let call = &*call.cast::<Call>();
        syscall(arch::SYS_FCNTL, [call.pipe, F_SETFD, 0, 0, 0, 0]);
        let words = [call.path as usize, call.argv as usize, call.environment as usize, 0, 0, 0];
        let error = syscall(arch::SYS_EXECVE, words);
        call.failed.store(-error as i32, Ordering::Relaxed);
        loop {
            syscall(arch::SYS_EXIT, [127, 0, 0, 0, 0, 0]);
        }
    }
}

/// Reads to the end, or as much as there is room for, less one byte.
fn read(from: usize, room: &mut [u8]) {
    const EINTR: isize = -4;
    let mut length = 0;
    while let Some(rest) = room.len().checked_sub(length + 1).filter(|&rest| rest > 0) {
        let place = room[length..].as_mut_ptr() as usize;
        // SAFETY: writes into the rest of the room.
        match unsafe { syscall(arch::SYS_READ, [from, place, rest, 0, 0, 0]) } {
            EINTR => {}
            more @ 1.. => length += more as usize,
            _ => return,
        }
    }
}

/// Waits for the child; its wait status, where the kernel tells.
fn wait(child: usize) -> Option<i32> {
    const EINTR: isize = -4;
    const WALL: usize = 0x4000_0000;
    let mut status = 0i32;
    loop {
        let place = &raw mut status as usize;
        // SAFETY: writes the status.
        match unsafe { syscall(arch::SYS_WAIT4, [child, place, WALL, 0, 0, 0]) } {
            EINTR => {}
            waited => return (waited > 0).then_some(status),
        }
    }
}

fn close(fd: usize) {
    // SAFETY: a descriptor of ours.
    unsafe { syscall(arch::SYS_CLOSE, [fd, 0, 0, 0, 0, 0]) };
}

/// The one sentence.
fn say(path: &Text, why: Why) {
    const STDERR: usize = 2;
    let mut text = Text::new();
    text.push(b"heaptape: HEAPTAPE_LIMIT limits and counts nothing here: ");
    match why {
        Why::NoPath => {
            text.push(b"the library that LD_PRELOAD names is none that heaptape has put there")
        }
        Why::Call(error) => {
            text.push(b"no process can be started (error ");
            text.push_number(error as u64);
            text.push(b")");
        }
        Why::NotRun(error) => {
            text.push(path.bytes());
            text.push(b" can't be run (error ");
            text.push_number(error as u64);
            text.push(b")");
        }
    }
    text.push(b"; set LD_PRELOAD to what heaptape capture-path prints\n");
    let bytes = text.bytes();
    // SAFETY: writes the text.
    unsafe {
        syscall(arch::SYS_WRITE, [STDERR, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]);
    }
}
