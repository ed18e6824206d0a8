//! A new program: announce it, and see to it that the library is preloaded there too.

use core::ffi::{CStr, c_char, c_int};

use heaptape_wire::note::NoteKind;
use heaptape_wire::session::How;

use crate::announcing::announce;
use crate::arch::{self, exec_list};
use crate::environment::Environment;
use crate::following::following;
use crate::scratch::Scratch;
use crate::thread;

type Text = *const c_char;
type List = *const Text;

unsafe extern "C" {
    static environ: List;
}

/// A name that the program passes to a call; empty for null.
///
/// # Safety
/// `file` is null or a C string.
pub unsafe fn name_of<'a>(file: Text) -> &'a [u8] {
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
        following!(static NEXT = $symbol);
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
