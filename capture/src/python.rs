//! Frames of Python code, as the interpreter keeps them for itself.
//!
//! A thread's frames are a list in the interpreter's memory, which only that thread changes: so it can be read in the
//! midst of any call of the thread, with the interpreter's lock or without. A run of frames belongs to one call of the
//! interpreter's loop, which has something of its own on the C stack that the list leads to; by that the runs find their
//! place among the frames of C code ([`Line::mark`]).
//!
//! How things are laid out differs from version to version ([`layout`]); of one that is not known nothing is read.

mod layout;
mod lines;
mod text;

use core::sync::atomic::{AtomicUsize, Ordering};

use heaptape_wire::note::{MAX_TEXT, NoteKind};
use heaptape_wire::site::interpreted;

use crate::callstack::region;
use crate::next::global;
use crate::thread;
use layout::Layout;

/// The interpreter's function that gives the thread's own state; 0 where there is no interpreter that is known.
static STATE_OF_THREAD: AtomicUsize = AtomicUsize::new(0);
static LAYOUT: layout::Known = layout::Known::new();

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
        (self.code as u64 ^ u64::from(self.at) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ self.name
    }

    /// The frame as the tape has it. The collector is told of code that is new.
    pub fn frame(&self) -> u64 {
        let layout = LAYOUT.get();
        let name = (self.code as u64).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ self.name;
        let name = name ^ name >> 29;
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

/// Looks for an interpreter among what is loaded. Not for hooks.
pub fn look_around() {
    if STATE_OF_THREAD.load(Ordering::Relaxed) != 0 {
        return;
    }
    let function = global(c"PyGILState_GetThisThreadState");
    if function != 0 && LAYOUT.find() {
        STATE_OF_THREAD.store(function, Ordering::Release);
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
pub fn frames(room: &[core::cell::Cell<Line>]) -> (usize, bool) {
    let function = STATE_OF_THREAD.load(Ordering::Acquire);
    if function == 0 {
        return (0, true);
    }
    // SAFETY: the type of this function of the interpreter's, which looks into the thread's own storage.
    let state =
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> usize>(function)() };
    if !is_pointer(state) {
        return (0, true);
    }
    let layout = LAYOUT.get();
    // SAFETY: the thread's own list of frames.
    unsafe {
        match layout.calls {
            layout::Calls::Listed => listed(layout, state, room),
            layout::Calls::Between { state_leads } => between(layout, state, state_leads, room),
        }
    }
}

/// Of 3.11: each call of the loop has a structure on the C stack, and these are a list of their own.
///
/// # Safety
/// `state` is that of the thread.
unsafe fn listed(layout: &Layout, state: usize, room: &[core::cell::Cell<Line>]) -> (usize, bool) {
    const CURRENT: usize = 8;
    const PREVIOUS: usize = 16;
    const IS_ENTRY: usize = 68;
    // SAFETY: as promised.
    unsafe {
        let mut call = word(state + layout.current);
        if !is_pointer(call) {
            return (0, true);
        }
        let mut frame = word(call + CURRENT);
        let mut count = 0;
        while is_pointer(frame) {
            let Some(place) = room.get(count) else { return (count, false) };
            if let Some(line) = line(layout, frame, call) {
                place.set(line);
                count += 1;
            }
            if byte(frame + IS_ENTRY) != 0 && is_pointer(call) {
                call = word(call + PREVIOUS);
            }
            frame = word(frame + layout.previous);
        }
        (count, true)
    }
}

/// Since 3.12: each call of the loop has a frame of its own on the C stack, which stands behind its run in the list.
///
/// # Safety
/// As for [`listed`].
unsafe fn between(
    layout: &Layout,
    state: usize,
    state_leads: bool,
    room: &[core::cell::Cell<Line>],
) -> (usize, bool) {
    const OF_C_STACK: u8 = 3;
    // SAFETY: as promised.
    unsafe {
        let mut frame = word(state + layout.current);
        if !state_leads {
            if !is_pointer(frame) {
                return (0, true);
            }
            frame = word(frame);
        }
        let (mut count, mut run) = (0, 0);
        while is_pointer(frame) {
            if byte(frame + layout.owner) == OF_C_STACK {
                for line in &room[run..count] {
                    line.set(Line { mark: frame, ..line.get() });
                }
                run = count;
            } else {
                let Some(place) = room.get(count) else { return (count, false) };
                if let Some(line) = line(layout, frame, usize::MAX) {
                    place.set(line);
                    count += 1;
                }
            }
            frame = word(frame + layout.previous);
        }
        (count, true)
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
        if !is_pointer(code) || word(code + 8) != layout.code_type {
            return None;
        }
        let at = word(frame + layout.instruction).wrapping_sub(code + layout.instructions);
        let first = u64::from(lines::first(layout, code));
        let name = word(code + layout.name) as u64 ^ first << 40;
        Some(Line { code, name, at: u32::try_from(at).unwrap_or(0), mark })
    }
}
