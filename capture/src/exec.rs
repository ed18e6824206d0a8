//! A new program: announce it, and see to it that the library is preloaded there too.
//!
//! A program may clear the environment before it starts another. What is missing is put back in a
//! copy of the array, on the stack where it fits: nothing is allocated, and the program's own
//! environment stays as it is.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

use heaptape_wire::note::NoteKind;
use heaptape_wire::session::{How, SESSION_VARIABLE};

use crate::arch::{self, exec_list, syscall};
use crate::lifecycle::{self, announce, variable};
use crate::next::Late;
use crate::thread;

type Text = *const c_char;
type List = *const Text;

unsafe extern "C" {
    static environ: List;
}

const PRELOAD: &str = "LD_PRELOAD";

/// Where the two variables stood when this program began: they lie in its first environment, which
/// the program may have cut its list of, but whose bytes stay.
struct Own {
    preload: AtomicUsize,
    session: AtomicUsize,
}

static OWN: Own = Own { preload: AtomicUsize::new(0), session: AtomicUsize::new(0) };

/// Bytes kept of each of the two variables.
const KEPT_BYTES: usize = 1024;

#[repr(C)]
struct Kept(core::cell::UnsafeCell<[[u8; KEPT_BYTES]; 2]>);

// SAFETY: written in the constructor, before there are other threads.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(core::cell::UnsafeCell::new([[0; KEPT_BYTES]; 2]));

/// Remembers the library's path and the session from the environment that the program was given.
///
/// # Safety
/// `environment` is a null-terminated array of C strings.
pub unsafe fn remember(environment: List) {
    // SAFETY: as promised.
    unsafe {
        let Some(session) = variable(environment, SESSION_VARIABLE) else { return };
        let Some(preload) = variable(environment, PRELOAD) else { return };
        // Ours stands first, or the user put it elsewhere: the part with our file's name.
        let ours =
            parts(preload.to_bytes()).find(|part| part.windows(FILE.len()).any(|w| w == FILE));
        let Some(ours) = ours else { return };
        keep(0, SESSION_VARIABLE, session.to_bytes(), &OWN.session);
        keep(1, PRELOAD, ours, &OWN.preload);
    }
}

/// What the library's file name contains.
const FILE: &[u8] = b"libheaptape";

/// # Safety
/// Only from the constructor.
unsafe fn keep(row: usize, name: &str, value: &[u8], place: &AtomicUsize) {
    if name.len() + 1 + value.len() + 1 > KEPT_BYTES {
        return;
    }
    // SAFETY: see `Kept`.
    let text = unsafe { &mut (*KEPT.0.get())[row] };
    let bytes = name.bytes().chain([b'=']).chain(value.iter().copied()).chain([0]);
    for (to, from) in text.iter_mut().zip(bytes) {
        *to = from;
    }
    place.store(text.as_ptr() as usize, Ordering::Release);
}

/// Room for an environment or an argument list on the stack, in pointers.
const SHORT: usize = 192;
/// Room for a value of `LD_PRELOAD` with ours put in front.
const LONG_VALUE: usize = 1024;

/// A list of pointers, on the stack while it is short, else in pages of its own.
struct Scratch {
    short: [Text; SHORT],
    pages: Option<(*mut Text, usize)>,
    len: usize,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { short: [core::ptr::null(); SHORT], pages: None, len: 0 }
    }

    /// Makes room for `count` pointers and the null at the end.
    fn reserve(&mut self, count: usize) -> bool {
        if count < SHORT {
            return true;
        }
        let bytes = (count + 1) * size_of::<Text>();
        // SAFETY: a new private mapping.
        let base = unsafe { syscall(arch::SYS_MMAP, [0, bytes, 3, 0x22, usize::MAX, 0]) };
        if (-4095..0).contains(&base) {
            return false;
        }
        self.pages = Some((base as *mut Text, bytes));
        true
    }

    fn push(&mut self, text: Text) {
        match self.pages {
            // SAFETY: `reserve` made room.
            Some((base, _)) => unsafe { base.add(self.len).write(text) },
            None => self.short[self.len.min(SHORT - 1)] = text,
        }
        self.len += 1;
    }

    /// The list, null at its end (the memory was zero).
    fn list(&self) -> List {
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

/// An environment with the library and the session in it.
struct Environment {
    scratch: Scratch,
    value: [u8; LONG_VALUE],
    /// The library's file can't be reached from here, as in another root directory.
    unreachable: bool,
}

impl Environment {
    fn new() -> Environment {
        Environment { scratch: Scratch::new(), value: [0; LONG_VALUE], unreachable: false }
    }

    /// `given` itself where nothing is missing, else a copy with what is.
    ///
    /// # Safety
    /// `given` is null or a null-terminated array of C strings.
    unsafe fn complete(&mut self, given: List) -> List {
        let session = OWN.session.load(Ordering::Acquire) as Text;
        let preload = OWN.preload.load(Ordering::Acquire) as Text;
        if session.is_null() || preload.is_null() || !lifecycle::is_covered() {
            return given;
        }
        let nothing: [Text; 1] = [core::ptr::null()];
        let given = if given.is_null() { nothing.as_ptr() } else { given };
        // SAFETY: as promised; the kept texts are C strings.
        unsafe {
            let own_session = value_of(session, SESSION_VARIABLE);
            let own_preload = value_of(preload, PRELOAD);
            let has_session = variable(given, SESSION_VARIABLE)
                .is_some_and(|value| value.to_bytes() == own_session);
            let present = variable(given, PRELOAD).map(CStr::to_bytes).unwrap_or_default();
            self.unreachable = !is_there(preload.add(PRELOAD.len() + 1));
            let is_first = parts(present).next() == Some(own_preload);
            let is_named = parts(present).any(|part| part == own_preload);
            // The loader would complain about a file that it can't find.
            let is_fine = if self.unreachable { !is_named } else { has_session && is_first };
            if is_fine {
                return given;
            }
            let mut count = 0;
            while !(*given.add(count)).is_null() {
                count += 1;
            }
            if !self.scratch.reserve(count + 2) {
                return given;
            }
            for i in 0..count {
                let entry = *given.add(i);
                if !is_variable(entry, PRELOAD) && !is_variable(entry, SESSION_VARIABLE) {
                    self.scratch.push(entry);
                }
            }
            self.scratch.push(session);
            if !self.join(own_preload, present) {
                return given;
            }
            if self.value[PRELOAD.len() + 1] != 0 {
                self.scratch.push(self.value.as_ptr().cast());
            }
            self.scratch.list()
        }
    }

    /// Writes `LD_PRELOAD=ours:theirs` into the buffer, if it fits; ours only where it can be reached.
    /// Whatever the program put before ours comes behind it: an allocator in front would keep every call
    /// from it.
    fn join(&mut self, ours: &[u8], theirs: &[u8]) -> bool {
        let theirs = parts(theirs).filter(|part| *part != ours);
        let all = (!self.unreachable).then_some(ours).into_iter().chain(theirs).enumerate();
        let words = all.flat_map(|(i, part)| [if i == 0 { &b""[..] } else { b":" }, part]);
        let words = [PRELOAD.as_bytes(), b"="].into_iter().chain(words);
        let mut length = 0;
        for word in words {
            let Some(to) = self.value.get_mut(length..length + word.len()) else { return false };
            to.copy_from_slice(word);
            length += word.len();
        }
        // The buffer was zero, and one byte of it must still be.
        length < LONG_VALUE
    }
}

/// Whether a file can be reached; taken for granted where we may not ask.
///
/// # Safety
/// `file` is a C string.
unsafe fn is_there(file: Text) -> bool {
    // SAFETY: reads the string.
    const EPERM: isize = 1;
    const ENOSYS: isize = 38;
    // SAFETY: as promised.
    let ask = || unsafe { syscall(arch::SYS_ACCESS, [file as usize, 0, 0, 0, 0, 0]) };
    lifecycle::is_sandboxed() || matches!(-ask(), 0 | EPERM | ENOSYS)
}

/// The files that a value of `LD_PRELOAD` names.
fn parts(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b':' || b == b' ').filter(|part| !part.is_empty())
}

/// # Safety
/// `entry` is a C string of the form `name=value`.
unsafe fn value_of<'a>(entry: Text, name: &str) -> &'a [u8] {
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(entry.add(name.len() + 1)) }.to_bytes()
}

/// # Safety
/// `entry` is a C string.
unsafe fn is_variable(entry: Text, name: &str) -> bool {
    // SAFETY: as promised.
    let bytes = unsafe { CStr::from_ptr(entry) }.to_bytes();
    bytes.len() > name.len() && bytes.starts_with(name.as_bytes()) && bytes[name.len()] == b'='
}

/// # Safety
/// `file` is null or a C string.
unsafe fn name_of<'a>(file: Text) -> &'a [u8] {
    if file.is_null() {
        return &[];
    }
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(file) }.to_bytes()
}

/// Calls the next function named so, whose type the argument list gives, in an unsafe block. Its
/// absence is reported as libc reports a call that the kernel lacks.
macro_rules! next_call {
    ($symbol:literal, $($arg:expr => $type:ty),*) => {{
        static NEXT: Late = Late::new($symbol);
        match NEXT.address() {
            0 => { crate::next::set_errno(crate::next::ENOSYS); -1 }
            address => core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> c_int>(address)($($arg),*)
        }
    }};
}

/// Announces that this process becomes `file`, runs `call` with a complete environment, and takes the
/// announcement back when the call returns, which it only does on failure.
///
/// # Safety
/// `file` is null or a C string, `given` null or a null-terminated array of C strings.
unsafe fn become_file(file: Text, given: List, call: impl FnOnce(List) -> c_int) -> c_int {
    let mut environment = Environment::new();
    // SAFETY: as promised.
    let (name, complete) = unsafe { (name_of(file), environment.complete(given)) };
    thread::note(NoteKind::Exec, 0, &[], name);
    let how = How { unreachable: environment.unreachable, ..How::default() };
    let intent = announce(arch::ask(arch::SYS_GETPID), name, how);
    let result = call(complete);
    if let Some(intent) = intent {
        intent.clear();
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(file: Text, argv: List, envp: List) -> c_int {
    // SAFETY: as the program promised libc, here and below.
    unsafe {
        become_file(
            file,
            envp,
            |envp| next_call!(c"execve", file => Text, argv => List, envp => List),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(file: Text, argv: List) -> c_int {
    // SAFETY: see `execve`.
    unsafe { execve(file, argv, environ) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: Text, argv: List, envp: List) -> c_int {
    // SAFETY: see `execve`.
    unsafe {
        become_file(
            file,
            envp,
            |envp| next_call!(c"execvpe", file => Text, argv => List, envp => List),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: Text, argv: List) -> c_int {
    // SAFETY: see `execve`.
    unsafe { execvpe(file, argv, environ) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, argv: List, envp: List) -> c_int {
    // SAFETY: see `execve`.
    unsafe {
        become_file(
            c"(file descriptor)".as_ptr(),
            envp,
            |envp| next_call!(c"fexecve", fd => c_int, argv => List, envp => List),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    fd: c_int,
    file: Text,
    argv: List,
    envp: List,
    flags: c_int,
) -> c_int {
    // SAFETY: see `execve`.
    unsafe {
        become_file(
            file,
            envp,
            |envp| next_call!(c"execveat", fd => c_int, file => Text, argv => List, envp => List, flags => c_int),
        )
    }
}

exec_list!(execl, execl_entry);
exec_list!(execlp, execlp_entry);
exec_list!(execle, execle_entry);

/// Gathers a variadic argument list; returns the word behind its null, where `execle` has the
/// environment.
///
/// # Safety
/// `registers` points to the five arguments behind the first, `stack` to those that follow them, and
/// there is a null among them.
unsafe fn gather(argv: &mut Scratch, registers: *const Text, stack: *const Text) -> Option<Text> {
    let at = |i: usize| {
        // SAFETY: as promised: only read up to the word behind the null.
        unsafe { if i < 5 { *registers.add(i) } else { *stack.add(i - 5) } }
    };
    let count = (0..).take_while(|&i| !at(i).is_null()).count();
    if !argv.reserve(count) {
        return None;
    }
    for i in 0..count {
        argv.push(at(i));
    }
    Some(at(count + 1))
}

unsafe extern "C" fn execl_entry(file: Text, registers: *const Text, stack: *const Text) -> c_int {
    let mut argv = Scratch::new();
    // SAFETY: see `execve` and `gather`.
    unsafe {
        match gather(&mut argv, registers, stack) {
            Some(_) => execve(file, argv.list(), environ),
            None => no_room(),
        }
    }
}

unsafe extern "C" fn execlp_entry(file: Text, registers: *const Text, stack: *const Text) -> c_int {
    let mut argv = Scratch::new();
    // SAFETY: see `execve` and `gather`.
    unsafe {
        match gather(&mut argv, registers, stack) {
            Some(_) => execvpe(file, argv.list(), environ),
            None => no_room(),
        }
    }
}

unsafe extern "C" fn execle_entry(file: Text, registers: *const Text, stack: *const Text) -> c_int {
    let mut argv = Scratch::new();
    // SAFETY: see `execve` and `gather`; the environment follows the null.
    unsafe {
        match gather(&mut argv, registers, stack) {
            Some(envp) => execve(file, argv.list(), envp.cast()),
            None => no_room(),
        }
    }
}

fn no_room() -> c_int {
    crate::next::set_errno(crate::next::ENOMEM);
    -1
}

/// After a spawn: tells the collector which program the new process is to run.
///
/// # Safety
/// `pid` is null or was written by the spawn; `file` is a C string.
unsafe fn spawned(result: c_int, pid: *const c_int, file: Text, unreachable: bool) {
    if result == 0 && !pid.is_null() {
        let how = How { spawned: true, unreachable, ..How::default() };
        // SAFETY: as promised.
        unsafe { announce(*pid as u32, name_of(file), how) };
    }
}

macro_rules! spawn {
    ($name:ident, $symbol:literal) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut c_int,
            file: Text,
            actions: usize,
            attributes: usize,
            argv: List,
            envp: List,
        ) -> c_int {
            let mut environment = Environment::new();
            let mut own: c_int = 0;
            let pid = if pid.is_null() { &raw mut own } else { pid };
            // SAFETY: see `execve`.
            unsafe {
                let envp = environment.complete(envp);
                let result = next_call!($symbol, pid => *mut c_int, file => Text, actions => usize,
                    attributes => usize, argv => List, envp => List);
                spawned(result, pid, file, environment.unreachable);
                result
            }
        }
    };
}

spawn!(posix_spawn, c"posix_spawn");
spawn!(posix_spawnp, c"posix_spawnp");
