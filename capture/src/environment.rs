//! The environment that the program was started with, and those that it hands to other programs, with
//! the library and the session in them.
//!
//! A program may clear the environment before it starts another. What is missing is put back in a copy
//! of the array, on the stack where it fits: nothing is allocated, and the program's own environment
//! stays as it is.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

use heaptape_wire::session::SESSION_VARIABLE;

use crate::arch::{self, syscall};
use crate::scratch::Scratch;
use crate::{lifecycle, next, summon};

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

/// The session of those who join none, and are to look for none.
pub const NOWHERE: &[u8] = b"-";

/// Remembers the library's path, from the environment that the program was given, and the session.
///
/// # Safety
/// `environment` is a null-terminated array of C strings.
pub unsafe fn remember(environment: List, session: &[u8]) {
    // SAFETY: as promised.
    unsafe {
        keep(0, SESSION_VARIABLE, session, &OWN.session);
        let Some(preload) = variable(environment, PRELOAD) else { return };
        // Ours stands first, or the user put it elsewhere: the part with our file's name.
        let ours =
            parts(preload.to_bytes()).find(|part| part.windows(FILE.len()).any(|w| w == FILE));
        let Some(ours) = ours else { return };
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

/// Room for a value of `LD_PRELOAD` with ours put in front.
const LONG_VALUE: usize = 1024;

/// The environment that the program was started with. The loader knows where it lies before libc
/// has set `environ`, and it stays there when the program clears that.
pub fn first_environment() -> *const *const c_char {
    let stack_end = next::global(c"__libc_stack_end") as *const *const usize;
    // SAFETY: the loader's pointer to the initial stack: the number of arguments, the arguments, a
    // null, the environment.
    unsafe {
        if stack_end.is_null() || (*stack_end).is_null() {
            return environ;
        }
        (*stack_end).add(1 + **stack_end + 1).cast()
    }
}

/// The value of a variable in an environment.
///
/// # Safety
/// `environment` is a null-terminated array of C strings that outlive the result.
pub unsafe fn variable<'a>(environment: *const *const c_char, name: &str) -> Option<&'a CStr> {
    let mut at = environment;
    // SAFETY: as promised; no byte behind the end of an entry is read.
    unsafe {
        while !(*at).is_null() {
            let entry = (*at).cast::<u8>();
            let mut name_bytes = name.bytes().chain([b'=']).enumerate();
            if name_bytes.all(|(i, byte)| *entry.add(i) == byte) {
                return Some(CStr::from_ptr((*at).add(name.len() + 1)));
            }
            at = at.add(1);
        }
    }
    None
}

/// How many entries an environment has.
///
/// # Safety
/// `environment` is a null-terminated array.
pub unsafe fn length(environment: List) -> usize {
    let mut count = 0;
    // SAFETY: as promised.
    while unsafe { !(*environment.add(count)).is_null() } {
        count += 1;
    }
    count
}

/// An environment with the library and the session in it.
pub struct Environment {
    scratch: Scratch,
    value: [u8; LONG_VALUE],
    /// The library's file can't be reached from here, as in another root directory.
    pub unreachable: bool,
}

impl Environment {
    /// Nothing yet.
    pub fn new() -> Environment {
        Environment { scratch: Scratch::new(), value: [0; LONG_VALUE], unreachable: false }
    }

    /// `given` itself where nothing is missing, else a copy with what is.
    ///
    /// # Safety
    /// `given` is null or a null-terminated array of C strings.
    pub unsafe fn complete(&mut self, given: List) -> List {
        let session = OWN.session.load(Ordering::Acquire) as Text;
        let preload = OWN.preload.load(Ordering::Acquire) as Text;
        if summon::is_declined() && !session.is_null() && !given.is_null() {
            // SAFETY: as promised.
            return unsafe { self.with(session, given) };
        }
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
            let count = length(given);
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

    /// `given` with the session in it and nothing else changed.
    ///
    /// # Safety
    /// `given` is a null-terminated array of C strings.
    unsafe fn with(&mut self, session: Text, given: List) -> List {
        // SAFETY: as promised.
        unsafe {
            let count = length(given);
            if variable(given, SESSION_VARIABLE).is_some() || !self.scratch.reserve(count + 1) {
                return given;
            }
            (0..count).for_each(|i| self.scratch.push(*given.add(i)));
        }
        self.scratch.push(session);
        self.scratch.list()
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
    const EPERM: isize = 1;
    const ENOSYS: isize = 38;
    // SAFETY: reads the string.
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
