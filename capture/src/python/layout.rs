//! Where in the interpreter's structures what is, by version.
//!
//! 3.11 and 3.12 are as their headers have them (`pycore_frame.h`, `cpython/code.h`, `cpython/pystate.h`). Since 3.13 an
//! interpreter says it itself, in a table at the begin of `_PyRuntime` (`pycore_debug_offsets.h`), whose entries differ from version
//! to version ([`Entries`]; `bench/pythons.sh` tries the newest).

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::exported::Exported;

/// How the calls of the interpreter's loop are found.
#[derive(Clone, Copy, PartialEq)]
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
#[derive(Clone, Copy, PartialEq)]
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

/// In a text: the hash of it that the interpreter keeps.
pub const TEXT_HASH: usize = 24;

/// Which layout it is.
static KNOWN: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const IS_3_11: u32 = 1;
const IS_3_12: u32 = 2;
const IS_TOLD: u32 = 3;

/// The one that the interpreter told of itself, which is kept once: every interpreter of that version has the same.
struct Told {
    stage: AtomicU32,
    layout: UnsafeCell<Layout>,
}

// SAFETY: written once, by who has claimed it, before it is known.
unsafe impl Sync for Told {}

static TOLD: Told = Told { stage: AtomicU32::new(BLANK), layout: UnsafeCell::new(V3_12) };
const BLANK: u32 = 0;
const CLAIMED: u32 = 1;
const WRITTEN: u32 = 2;

/// The type that all code objects have.
static CODE_TYPE: AtomicUsize = AtomicUsize::new(0);

/// The layout. Only once one is found.
#[inline(always)]
pub fn known() -> &'static Layout {
    match KNOWN.load(Ordering::Acquire) {
        IS_3_12 => &V3_12,
        // SAFETY: it was written before, and nobody writes it any more.
        IS_TOLD => unsafe { &*TOLD.layout.get() },
        _ => &V3_11,
    }
}

/// The type that all code objects have.
#[inline(always)]
pub fn code_type() -> usize {
    CODE_TYPE.load(Ordering::Relaxed)
}

/// Finds out which interpreter it is; whether its layout is known.
pub fn find(exported: &Exported) -> bool {
    let [version, code_type] = [c"Py_Version", c"PyCode_Type"].map(|name| exported.address(name));
    if version == 0 || code_type == 0 {
        return false;
    }
    // SAFETY: the interpreter's variable.
    let found = match unsafe { super::word(version) } >> 16 {
        0x30b => IS_3_11,
        0x30c => IS_3_12,
        version if told(exported, version).is_some_and(keep) => IS_TOLD,
        _ => return false,
    };
    CODE_TYPE.store(code_type, Ordering::Relaxed);
    KNOWN.store(found, Ordering::Release);
    true
}

/// Keeps what an interpreter tells of itself; whether it is the one that is kept.
fn keep(told: Layout) -> bool {
    if TOLD.stage.compare_exchange(BLANK, CLAIMED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        // SAFETY: this is the claim.
        unsafe { *TOLD.layout.get() = told };
        TOLD.stage.store(WRITTEN, Ordering::Release);
    }
    // SAFETY: written, and nobody writes it again.
    TOLD.stage.load(Ordering::Acquire) == WRITTEN && unsafe { *TOLD.layout.get() == told }
}

/// Where the entries about the three structures begin in what an interpreter tells of itself.
struct Entries {
    thread: usize,
    frame: usize,
    code: usize,
}

impl Entries {
    fn of(version: usize) -> Option<Entries> {
        match version {
            0x30d => Some(Entries { thread: 19, frame: 28, code: 34 }),
            0x30e => Some(Entries { thread: 22, frame: 31, code: 39 }),
            0x30f => Some(Entries { thread: 22, frame: 39, code: 47 }),
            _ => None,
        }
    }
}

/// What the interpreter tells of itself, where that makes sense.
fn told(exported: &Exported, version: usize) -> Option<Layout> {
    const COOKIE: usize = usize::from_le_bytes(*b"xdebugpy");
    const IS_FREE_THREADED: usize = 2;
    let Entries { thread, frame, code } = Entries::of(version)?;
    let table = exported.address(c"_PyRuntime");
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
        current: entry(thread + 4),
        previous: entry(frame + 1),
        code: entry(frame + 2),
        instruction: entry(frame + 3),
        owner: entry(frame + 5),
        file: entry(code + 1),
        name: entry(code + 3),
        lines: entry(code + 4),
        first_line: entry(code + 5),
        instructions: entry(code + 9),
        ..V3_12
    };
    const SENSIBLE: usize = 1024;
    let offsets = [layout.current, layout.previous, layout.code, layout.instruction, layout.owner];
    let code = [layout.file, layout.name, layout.lines, layout.first_line, layout.instructions];
    offsets.iter().chain(&code).all(|&offset| offset < SENSIBLE).then_some(layout)
}
