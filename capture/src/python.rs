//! Frames of Python code, as the interpreter keeps them for itself.
//!
//! A thread's frames are a list in the interpreter's memory, which only that thread changes while the interpreter lives: so it
//! can be read in the midst of any call of the thread, with the interpreter's lock or without. When the interpreter ends it
//! takes the lists of the others away, and nothing is read any more. A run of frames belongs to one call of the
//! interpreter's loop, which has something of its own on the C stack that the list leads to; by that the runs find their
//! place among the frames of C code ([`Line::mark`]).
//!
//! How things are laid out differs from version to version ([`layout`]); of one that is not known nothing is read.

mod layout;
mod lines;
mod text;

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};

use heaptape_wire::note::{MAX_TEXT, NoteKind};
use heaptape_wire::site::interpreted;

use crate::callers;
use crate::callstack::region;
use crate::pages::PAGE;
use crate::thread;
use layout::{Calls, Layout};

/// The interpreter's function that gives the thread's own state; 0 where there is no interpreter that is known.
static STATE_OF_THREAD: AtomicUsize = AtomicUsize::new(0);
/// The one that tells whether it is ending; 0 where there is none.
static IS_ENDING: AtomicUsize = AtomicUsize::new(0);
/// Where modules begin that were met already.
static MET: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// A frame: where in which code.
#[derive(Clone, Copy)]
pub struct Line {
    code: usize,
    /// What else the code is known by: others may come to its place.
    name: u64,
    /// Where in the code, in bytes.
    at: u32,
    /// A place on the C stack, in the frame of the interpreter's loop that runs it; the highest of all where that is not known.
    pub mark: usize,
}

impl Line {
    /// What tells it from others.
    #[inline(always)]
    pub fn hash(&self) -> u64 {
        mixed(mixed(self.name, self.code as u64), u64::from(self.at))
    }

    /// The frame as the tape has it. The collector is told of code that is new.
    pub fn frame(&self) -> u64 {
        let layout = layout::known();
        let name = mixed(self.name, self.code as u64);
        let number = region().sites.number(name, |number| self.define(layout, number));
        // SAFETY: the code of a frame, which has it.
        let line = unsafe { lines::line(layout, self.code, self.at) };
        interpreted(number, line)
    }

    #[cold]
    fn define(&self, layout: &Layout, number: u32) {
        let mut text = [0u8; MAX_TEXT];
        // SAFETY: as above.
        let (length, first) = unsafe {
            let of = |place: usize| word(self.code + place);
            let file = text::copy(layout, of(layout.file), &mut text[..MAX_TEXT / 2]);
            let name = text::copy(layout, of(layout.name), &mut text[file + 1..]);
            (file + 1 + name, lines::first(layout, self.code))
        };
        let args = [u64::from(number), u64::from(first)];
        thread::note(NoteKind::Code, 0, &args, &text[..length]);
    }
}

/// One word more in a hash.
#[inline(always)]
fn mixed(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// A module has code on a stack: it may be an interpreter.
pub fn meet(found: &callers::Found) {
    let met = &MET[found.start / PAGE % MET.len()];
    if is_there() || met.load(Ordering::Relaxed) == found.start {
        return;
    }
    met.store(found.start, Ordering::Relaxed);
    // SAFETY: a module stays while code of it is on a stack.
    let Some(exported) = (unsafe { found.exported() }) else { return };
    let function = exported.address(c"PyGILState_GetThisThreadState");
    if function != 0 && layout::find(&exported) {
        let ending = [c"Py_IsFinalizing", c"_Py_IsFinalizing"].map(|name| exported.address(name));
        let ending = ending.into_iter().find(|&found| found != 0).unwrap_or(0);
        IS_ENDING.store(ending, Ordering::Release);
        STATE_OF_THREAD.store(function, Ordering::Release);
    }
}

/// A library is about to be unloaded, which may be the interpreter. Where that was; 0 for nowhere.
pub fn forget() -> usize {
    MET.iter().for_each(|met| met.store(0, Ordering::Relaxed));
    STATE_OF_THREAD.swap(0, Ordering::AcqRel)
}

/// It was unloaded, or was not: what was forgotten may be there still.
pub fn remember(place: usize) {
    if place != 0
        && let Some(found) = callers::find(place)
    {
        meet(&found);
    }
}

/// Whether there is one.
#[inline(always)]
pub fn is_there() -> bool {
    STATE_OF_THREAD.load(Ordering::Relaxed) != 0
}

/// Reads a word of the interpreter's memory.
///
/// # Safety
/// It is there.
#[inline(always)]
unsafe fn word(address: usize) -> usize {
    // SAFETY: as promised.
    unsafe { (address as *const usize).read_volatile() }
}

/// # Safety
/// As for [`word`].
#[inline(always)]
unsafe fn byte(address: usize) -> u8 {
    // SAFETY: as promised.
    unsafe { (address as *const u8).read_volatile() }
}

/// Whether a word can be a pointer to one of the interpreter's structures.
#[inline(always)]
fn is_pointer(word: usize) -> bool {
    (1 << 16..1 << 47).contains(&word) && word.is_multiple_of(8)
}

/// The thread's frames, the innermost first, as many as there is room for. How many there are, and whether that is all.
pub fn frames(room: &[Cell<Line>]) -> (usize, bool) {
    type Ask = unsafe extern "C" fn() -> usize;
    let function = STATE_OF_THREAD.load(Ordering::Acquire);
    if function == 0 || is_ending() {
        return (0, true);
    }
    // SAFETY: the type of this function of the interpreter's, which looks into the thread's own storage.
    let state = unsafe { core::mem::transmute::<usize, Ask>(function)() };
    if !is_pointer(state) {
        return (0, true);
    }
    let mut found = Found { layout: layout::known(), room, count: 0, run: 0, left: MOST };
    // SAFETY: the thread's own list of frames.
    let is_all = unsafe {
        match found.layout.calls {
            Calls::Listed => found.listed(state),
            Calls::Between { state_leads } => found.between(state, state_leads),
        }
    };
    (found.count, is_all)
}

fn is_ending() -> bool {
    type Ask = unsafe extern "C" fn() -> i32;
    match IS_ENDING.load(Ordering::Acquire) {
        0 => false,
        // SAFETY: the type of this function, which reads a word of the interpreter's.
        function => unsafe { core::mem::transmute::<usize, Ask>(function)() != 0 },
    }
}

/// Frames that are looked at, with a line or without: a list that goes round has an end, too.
const MOST: usize = 100_000;

/// The frames found so far.
struct Found<'a> {
    layout: &'a Layout,
    room: &'a [Cell<Line>],
    count: usize,
    /// Those from here on are of one call of the loop, whose place on the C stack is not known yet.
    run: usize,
    left: usize,
}

impl Found<'_> {
    /// Whether there may be one more.
    fn goes_on(&mut self, frame: usize) -> bool {
        self.left = self.left.saturating_sub(1);
        is_pointer(frame) && self.left > 0
    }

    /// Puts a frame's line into the room; false where that is full.
    ///
    /// # Safety
    /// `frame` is one of the thread's.
    unsafe fn put(&mut self, frame: usize, mark: usize) -> bool {
        // SAFETY: as promised.
        let Some(line) = (unsafe { line(self.layout, frame, mark) }) else { return true };
        let Some(place) = self.room.get(self.count) else { return false };
        place.set(line);
        self.count += 1;
        true
    }

    /// Of 3.11: each call of the loop has a structure on the C stack, and these are a list of their own. Whether that was all.
    ///
    /// # Safety
    /// `state` is that of the thread.
    unsafe fn listed(&mut self, state: usize) -> bool {
        const CURRENT: usize = 8;
        const PREVIOUS: usize = 16;
        const IS_ENTRY: usize = 68;
        // SAFETY: as promised.
        unsafe {
            let mut call = word(state + self.layout.current);
            if !is_pointer(call) {
                return true;
            }
            let mut frame = word(call + CURRENT);
            while self.goes_on(frame) {
                if !self.put(frame, call) {
                    return false;
                }
                if byte(frame + IS_ENTRY) != 0 && is_pointer(call) {
                    call = word(call + PREVIOUS);
                }
                frame = word(frame + self.layout.previous);
            }
        }
        true
    }

    /// Since 3.12: each call of the loop has a frame of its own on the C stack, which stands behind its run in the list. Whether
    /// that was all.
    ///
    /// # Safety
    /// As for [`Found::listed`].
    unsafe fn between(&mut self, state: usize, state_leads: bool) -> bool {
        const OF_C_STACK: u8 = 3;
        let mut is_full = false;
        // SAFETY: as promised.
        unsafe {
            let mut frame = word(state + self.layout.current);
            if !state_leads {
                if !is_pointer(frame) {
                    return true;
                }
                frame = word(frame);
            }
            while self.goes_on(frame) {
                if byte(frame + self.layout.owner) == OF_C_STACK {
                    self.end_run(frame);
                    if is_full {
                        break;
                    }
                } else if !is_full {
                    // (The place of the last run is further on even where there is no room for more of it.)
                    is_full = !self.put(frame, usize::MAX);
                }
                frame = word(frame + self.layout.previous);
            }
        }
        if self.left == 0 {
            // Where on the C stack the last run stands is not known: it stands nowhere then.
            self.count = self.run;
        }
        !is_full && self.left > 0
    }

    /// The frames of the last run are of the call of the loop that has this place on the C stack.
    fn end_run(&mut self, mark: usize) {
        let lines = self.room.get(self.run..self.count).unwrap_or_default();
        lines.iter().for_each(|line| line.set(Line { mark, ..line.get() }));
        self.run = self.count;
    }
}

/// A frame's line; `None` for one that has no code.
///
/// # Safety
/// `frame` is one of the thread's.
#[inline(always)]
unsafe fn line(layout: &Layout, frame: usize, mark: usize) -> Option<Line> {
    // SAFETY: as promised.
    unsafe {
        let code = word(frame + layout.code) & !3;
        if !is_pointer(code) || word(code + 8) != layout::code_type() {
            return None;
        }
        let at = word(frame + layout.instruction).wrapping_sub(code + layout.instructions);
        let (of, file) = (|place| word(code + place) as u64, word(code + layout.file));
        // By the places of its texts and tables, and by what its file is called: code that is made anew for each cell or template
        // comes to the same places again.
        let hash = if is_pointer(file) { word(file + layout::TEXT_HASH) as u64 } else { 0 };
        let parts = [of(layout.name), of(layout.file), of(layout.lines), hash];
        let name = parts.into_iter().fold(u64::from(lines::first(layout, code)), mixed);
        Some(Line { code, name, at: u32::try_from(at).unwrap_or(0), mark })
    }
}
