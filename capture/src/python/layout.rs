//! Where in the interpreter's structures what is, by version.
//!
//! 3.11 and 3.12 are as their headers have them (`pycore_frame.h`, `cpython/code.h`, `cpython/pystate.h`); 3.13 says it
//! itself, in a table at the begin of `_PyRuntime` (`pycore_debug_offsets.h`), of which the places are that version's.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::next::global;

/// How the calls of the interpreter's loop are found.
#[derive(Clone, Copy)]
pub enum Calls {
    /// They are a list of their own, which the thread's state leads to.
    Listed,
    /// They are frames between the others.
    Between {
        /// Whether the thread's state leads to the first frame itself, and not to what leads there.
        state_leads: bool,
    },
}

/// Offsets in bytes.
#[derive(Clone, Copy)]
pub struct Layout {
    pub calls: Calls,
    /// In the thread's state: what leads to its frames.
    pub current: usize,
    /// In a frame.
    pub code: usize,
    pub previous: usize,
    pub instruction: usize,
    pub owner: usize,
    /// In a code object.
    pub file: usize,
    pub name: usize,
    pub lines: usize,
    pub first_line: usize,
    pub instructions: usize,
    /// In a text: the characters of one in ASCII, and of others.
    pub ascii: usize,
    pub others: usize,
    /// The type that all code objects have.
    pub code_type: usize,
}

const V3_11: Layout = Layout {
    calls: Calls::Listed,
    current: 56,
    code: 32,
    previous: 48,
    instruction: 56,
    owner: 69,
    file: 112,
    name: 128,
    lines: 136,
    first_line: 72,
    instructions: 184,
    ascii: 48,
    others: 72,
    code_type: 0,
};

const V3_12: Layout = Layout {
    calls: Calls::Between { state_leads: false },
    current: 56,
    code: 0,
    previous: 8,
    instruction: 56,
    owner: 70,
    first_line: 68,
    instructions: 192,
    ascii: 40,
    others: 56,
    ..V3_11
};

/// The layout of the interpreter that was found.
pub struct Known {
    is_known: AtomicBool,
    layout: UnsafeCell<Layout>,
}

// SAFETY: written once, before it is known, under the loader's lock or before there are threads.
unsafe impl Sync for Known {}

impl Known {
    pub const fn new() -> Known {
        Known { is_known: AtomicBool::new(false), layout: UnsafeCell::new(V3_11) }
    }

    /// The layout. Only once it is known.
    #[inline(always)]
    pub fn get(&self) -> &Layout {
        // SAFETY: nobody writes it any more.
        unsafe { &*self.layout.get() }
    }

    /// Finds out which interpreter it is; whether its layout is known.
    pub fn find(&self) -> bool {
        if self.is_known.load(Ordering::Acquire) {
            return true;
        }
        let (version, code_type) = (global(c"Py_Version"), global(c"PyCode_Type"));
        if version == 0 || code_type == 0 {
            return false;
        }
        // SAFETY: the interpreter's variable.
        let found = match unsafe { super::word(version) } >> 16 {
            0x30b => Some(V3_11),
            0x30c => Some(V3_12),
            0x30d => told(),
            _ => None,
        };
        let Some(found) = found else { return false };
        // SAFETY: see `Sync`.
        unsafe { *self.layout.get() = Layout { code_type, ..found } };
        self.is_known.store(true, Ordering::Release);
        true
    }
}

/// What the interpreter tells of itself, where that makes sense.
fn told() -> Option<Layout> {
    const COOKIE: usize = usize::from_le_bytes(*b"xdebugpy");
    const IS_FREE_THREADED: usize = 2;
    let table = global(c"_PyRuntime");
    if table == 0 {
        return None;
    }
    // SAFETY: the interpreter's table, which is longer than that.
    let entry = |number: usize| unsafe { super::word(table + 8 * number) };
    if entry(0) != COOKIE || entry(IS_FREE_THREADED) != 0 {
        return None;
    }
    let layout = Layout {
        calls: Calls::Between { state_leads: true },
        current: entry(23),
        previous: entry(29),
        code: entry(30),
        instruction: entry(31),
        owner: entry(33),
        file: entry(35),
        name: entry(37),
        lines: entry(38),
        first_line: entry(39),
        instructions: entry(43),
        ..V3_12
    };
    const SENSIBLE: usize = 1024;
    let offsets = [layout.current, layout.previous, layout.code, layout.instruction, layout.owner];
    let code = [layout.file, layout.name, layout.lines, layout.first_line, layout.instructions];
    offsets.iter().chain(&code).all(|&offset| offset < SENSIBLE).then_some(layout)
}
