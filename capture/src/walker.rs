//! A thread's call stack, from the frame that has just called to the outermost one.
//!
//! What a step outwards gives depends on the frame's address, on two registers, and on the few words of the stack
//! that it reads, and on nothing else. So the thread keeps the frames of its last stack with those words. A new stack
//! is walked frame by frame until one is as it was; if the words that the frames further out were made of
//! are as they were too, so are those frames, and nothing of them need be worked out again. The frame pointer's register
//! counts only where a frame further out is found by it.
//!
//! A signal handler may come at any instruction, and take a stack itself: a walker is claimed, and who finds the
//! thread's own in use takes a spare one, and goes on with that where the claim is never ended. A handler that forks and goes on
//! in the child finds a walker that the kernel has wiped: it has no claim then, and what comes out of it counts for nothing.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use heaptape_unwind::{Bp, Cfa, Rule};
use heaptape_wire::note::NoteKind;
use heaptape_wire::site::{MAX_DEPTH, SiteEnd, site_word};

use crate::callstack::{epoch, generation, region};
use crate::python::Line;
use crate::reach::Reach;
use crate::{owner, python, sites, thread};

/// Frames that are walked beyond those wanted, so that a stack that gets shorter by a few has them.
const BEYOND: usize = 32;
/// Frames that are kept.
const KEPT: usize = MAX_DEPTH + 2 * BEYOND;

/// Sites that a thread finds again by itself.
const MET: usize = 1024;

/// A frame, as its callee left it: with the return address in place.
#[derive(Clone, Copy)]
#[repr(C)]
struct Frame {
    /// The address behind the call.
    address: usize,
    /// The stack pointer when the callee has returned; the return address was right below it.
    sp: usize,
    /// The frame pointer's register then.
    bp: usize,
    /// Where that was read, if a frame further out is found by it; 0 otherwise.
    bp_place: usize,
    /// Where a word was read that the stack pointer was made of, and the word; 0 for none.
    sp_place: usize,
    sp_word: usize,
    /// A hash of this frame and all further out.
    hash: u64,
    /// How many frames that is, without our own.
    count: u32,
    /// Whether a frame from here outwards is found by the register.
    needs_bp: bool,
    /// Whether the step outwards reads the register from the stack.
    restores_bp: bool,
}

impl Frame {
    const NONE: Frame = Frame {
        address: 0,
        sp: 0,
        bp: 0,
        bp_place: 0,
        sp_place: 0,
        sp_word: 0,
        hash: 0,
        count: 0,
        needs_bp: false,
        restores_bp: false,
    };

    /// Whether a new stack that has come to `other` is this one from here outwards, if the stack's words are.
    #[inline(always)]
    fn is(&self, other: &Frame) -> bool {
        self.address == other.address
            && self.sp == other.sp
            && (!self.needs_bp || self.bp == other.bp)
    }

    /// The same, whose register is of no account where no frame is found by it.
    #[inline(always)]
    fn settled(self) -> Frame {
        Frame { bp_place: if self.needs_bp { self.bp_place } else { 0 }, ..self }
    }

    /// Whether the words that this frame was made of are as they were.
    ///
    /// # Safety
    /// The frame's words lie on the stack that the thread stands on, further out.
    #[inline(always)]
    unsafe fn is_unchanged(&self) -> bool {
        // SAFETY: as promised.
        let is = |place: usize, word| unsafe { (place as *const usize).read_volatile() } == word;
        // (One that the kernel has wiped lies nowhere.)
        self.sp != 0
            && is(self.sp.wrapping_sub(8), self.address)
            && (self.bp_place == 0 || is(self.bp_place, self.bp))
            && (self.sp_place == 0 || is(self.sp_place, self.sp_word))
    }
}

/// What a step outwards came to.
enum Step {
    To(Frame),
    /// To a frame that a signal has interrupted.
    Interrupted(Frame),
    End(SiteEnd),
    /// To the outermost frame, by a return address of 0 at this place.
    EndAt(usize),
}

/// A thread's last stack.
#[repr(C, align(64))]
pub struct Walker {
    claimed: AtomicU32,
    /// Whose it is.
    tid: Cell<u32>,
    epoch: Cell<u32>,
    /// The place of the innermost frame: they stand at the end of the row, the outermost last.
    first: Cell<u32>,
    /// How the stack ends behind the last one, and where the word 0 stands by which it does; 0 for nowhere.
    end: Cell<SiteEnd>,
    end_place: Cell<usize>,
    /// The hash and the count of what was further out than the last one, and is not kept.
    base: Cell<(u64, u32)>,
    /// Sites that were met lately, and their numbers, by a part of their names.
    met: [Cell<u64>; MET],
    reach: Reach,
    frames: [Cell<Frame>; KEPT],
    /// Frames that are new, innermost first.
    fresh: [Cell<Frame>; KEPT],
    /// Frames of Python code, how many there are, whether that is all, and a hash of them.
    lines: [Cell<Line>; MAX_DEPTH],
    line_count: Cell<u32>,
    has_all_lines: Cell<bool>,
    lines_hash: Cell<u64>,
    text: [Cell<u64>; MAX_DEPTH],
}

impl Walker {
    /// Claims the calling thread's own. A claim of another thread is one that has ended in the midst of it.
    #[inline(always)]
    pub fn try_claim(&self, tid: u32) -> bool {
        if self.claimed.load(Ordering::Relaxed) == tid {
            return false;
        }
        self.claimed.store(tid, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// Claims one that any thread may use.
    pub fn try_take(&self, tid: u32) -> bool {
        self.claimed.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes over the claim of a thread that is gone.
    pub fn take_over(&self, tid: u32, is_gone: impl Fn(u32) -> bool) -> bool {
        let holder = self.claimed.load(Ordering::Relaxed);
        let is_dead = holder != 0 && holder != tid && is_gone(holder);
        let (order, failed) = (Ordering::Acquire, Ordering::Relaxed);
        is_dead && self.claimed.compare_exchange(holder, tid, order, failed).is_ok()
    }

    /// Whose it was last.
    pub fn last_tid(&self) -> u32 {
        self.tid.get()
    }

    /// Ends the claim.
    #[inline(always)]
    pub fn leave(&self) {
        self.claimed.store(0, Ordering::Release);
    }

    /// The caller is this thread, which stands at `sp`: frames of another one, or of what is gone, are forgotten.
    #[inline(always)]
    pub fn belong_to(&self, tid: u32, sp: usize) {
        if self.tid.get() != tid {
            self.reach.forget();
            self.forget(tid);
        } else if self.epoch.get() != epoch() {
            self.reach.keep(sp);
            self.forget(tid);
        }
    }

    /// Forgets all but where the stack can be read.
    #[cold]
    #[inline(never)]
    fn forget(&self, tid: u32) {
        self.epoch.set(epoch());
        self.tid.set(tid);
        self.met.iter().for_each(|met| met.set(0));
        self.line_count.set(0);
        self.has_all_lines.set(true);
        self.lines_hash.set(0);
        self.clear();
    }

    fn clear(&self) {
        self.first.set(KEPT as u32);
        self.end.set(SiteEnd::Outermost);
        self.end_place.set(0);
        self.base.set((0, 0));
    }

    /// The word for the site of a call that returns to `address` with these registers; `None` where there can be none.
    #[inline(always)]
    pub fn site(&self, address: usize, sp: usize, bp: usize, depth: usize) -> Option<usize> {
        let depth = depth.min(MAX_DEPTH);
        let innermost = Frame { address, sp, bp, ..Frame::NONE };
        self.reach.stand_on(sp - 8);
        let keeps = self.walk(innermost, depth);
        if python::is_there() {
            self.take_lines(depth);
        }
        if self.count() == 0 {
            return None;
        }
        let name = self.name(depth);
        if self.claimed.load(Ordering::Relaxed) == 0 {
            // The kernel has wiped it meanwhile.
            return None;
        }
        let met = self.met[name as usize % MET].get();
        let number = sites::number_of(met, name).unwrap_or_else(|| self.find(name, depth));
        if !keeps {
            self.clear();
        }
        Some(site_word(number) as usize)
    }

    /// Takes the frames of Python code.
    #[inline(never)]
    fn take_lines(&self, depth: usize) {
        let (count, is_all) = python::frames(&self.lines[..depth]);
        let lines = self.lines[..count].iter();
        // Which lines one call of the interpreter's loop runs, and so where they stand, is part of it.
        let mut mark = 0;
        let hash = lines.fold(0u64, |sum, line| {
            let line = line.get();
            let begins = u64::from(core::mem::replace(&mut mark, line.mark) != line.mark);
            sum.wrapping_mul(MULTIPLIER).wrapping_add(scatter(line.hash() ^ begins))
        });
        self.line_count.set(count as u32);
        self.has_all_lines.set(is_all);
        self.lines_hash.set(hash);
    }

    #[inline(never)]
    fn find(&self, name: u64, depth: usize) -> u32 {
        let number = region().sites.number(name, |number| self.define(number, depth));
        self.met[name as usize % MET].set(sites::entry(name, number));
        number
    }

    /// Makes the kept frames those of a new stack; whether they can stay for the next one.
    #[inline(always)]
    fn walk(&self, innermost: Frame, depth: usize) -> bool {
        if let Some((fresh, joint)) = self.join(innermost, depth) {
            self.put(fresh, joint);
            let is_short = self.end.get() == SiteEnd::Depth && self.count() < depth;
            if !is_short {
                return true;
            }
        }
        self.walk_all(innermost, depth)
    }

    /// Walks until a frame is one of those kept, and all further out are unchanged: how many are new, and which it is.
    #[inline(always)]
    fn join(&self, innermost: Frame, depth: usize) -> Option<(usize, usize)> {
        let (mut frame, mut fresh, mut kept) = (innermost, 0, self.first.get() as usize);
        loop {
            while kept < KEPT && self.frames[kept].get().sp < frame.sp {
                kept += 1;
            }
            let old = self.frames.get(kept)?.get();
            if old.is(&frame) {
                let mut further = self.frames[kept + 1..].iter();
                // SAFETY: further out on the stack that the thread has come to by walking. (What the program has unmapped
                // since, as far as that is seen, was forgotten.)
                match further.position(|frame| !unsafe { frame.get().is_unchanged() }) {
                    None if self.ends_as_before() => {
                        let Frame { bp_place, sp_place, sp_word, .. } = frame;
                        let joint = Frame { bp_place, sp_place, sp_word, ..old };
                        self.frames[kept].set(joint.settled());
                        return Some((fresh, kept));
                    }
                    None => return None,
                    Some(changed) => kept += 1 + changed,
                }
            }
            let Step::To(outer) = self.step(&mut frame) else { return None };
            if fresh == depth + BEYOND {
                return None;
            }
            self.fresh[fresh].set(frame);
            fresh += 1;
            frame = outer;
        }
    }

    /// Whether the word is still there by which the stack ended.
    #[inline(always)]
    fn ends_as_before(&self) -> bool {
        match self.end_place.get() {
            0 => true,
            place => self.reach.read(place) == Some(0),
        }
    }

    /// Walks to the end, or as far as is wanted.
    #[inline(never)]
    fn walk_all(&self, innermost: Frame, depth: usize) -> bool {
        let (mut frame, mut fresh, mut keeps) = (innermost, 0, true);
        let (end, end_place) = loop {
            let step = self.step(&mut frame);
            self.fresh[fresh].set(frame);
            fresh += 1;
            frame = match step {
                Step::End(end) => break (end, 0),
                Step::EndAt(place) => break (SiteEnd::Outermost, place),
                _ if fresh >= (depth + BEYOND).min(KEPT) => break (SiteEnd::Depth, 0),
                Step::To(outer) => outer,
                Step::Interrupted(outer) => {
                    keeps = false;
                    outer
                }
            };
        };
        self.clear();
        self.end.set(end);
        self.end_place.set(end_place);
        // What can't be read may be there next time.
        keeps &= end != SiteEnd::Unreadable;
        self.put(fresh, KEPT);
        keeps
    }

    /// One step outwards from a frame. (That it restores the register is noted in the frame.)
    #[inline(always)]
    fn step(&self, frame: &mut Frame) -> Step {
        let rule = region().rules.of(frame.address);
        let (cfa, bp) = match rule {
            Rule::Frame { cfa, bp } => (cfa, bp),
            Rule::End => return Step::End(SiteEnd::Outermost),
            Rule::Unknown => return Step::End(SiteEnd::Foreign),
            Rule::Signal => return self.interrupted(frame),
        };
        let needs_bp = matches!(cfa, Cfa::Bp(_) | Cfa::DerefBp(..)) || matches!(bp, Bp::AtBp(_));
        frame.needs_bp = needs_bp;
        let found = self.own_address(frame, cfa).filter(|&(sp, ..)| sp > frame.sp);
        let Some((sp, sp_place, sp_word)) = found else {
            return Step::End(SiteEnd::Unreadable);
        };
        let Some(address) = self.reach.read(sp.wrapping_sub(8)) else {
            return Step::End(SiteEnd::Unreadable);
        };
        if address == 0 {
            // (Of a word that it hangs on besides nothing is kept: such an end is none that compilers make.)
            return if sp_place == 0 {
                Step::EndAt(sp - 8)
            } else {
                Step::End(SiteEnd::Unreadable)
            };
        }
        let outer = Frame { address, sp, bp: frame.bp, sp_place, sp_word, ..Frame::NONE };
        let place = match bp {
            Bp::Same => return Step::To(outer),
            Bp::At(offset) => sp.wrapping_add_signed(offset as isize),
            Bp::AtBp(offset) => frame.bp.wrapping_add_signed(offset as isize),
        };
        let Some(bp) = self.reach.read(place) else { return Step::End(SiteEnd::Unreadable) };
        frame.restores_bp = true;
        Step::To(Frame { bp, bp_place: place, ..outer })
    }

    /// The stack pointer before the call of this frame's function, and the place and value of the word that it was made of, if
    /// of any.
    #[inline(always)]
    fn own_address(&self, frame: &Frame, cfa: Cfa) -> Option<(usize, usize, usize)> {
        let above = |register: usize, offset: i32| register.wrapping_add_signed(offset as isize);
        let read = |place, more: u8| {
            let word = self.reach.read(place)?;
            Some((word.wrapping_add(usize::from(more)), place, word))
        };
        match cfa {
            Cfa::Sp(offset) => Some((above(frame.sp, offset), 0, 0)),
            Cfa::Bp(offset) => Some((above(frame.bp, offset), 0, 0)),
            Cfa::DerefBp(offset, more) => read(above(frame.bp, offset), more),
            Cfa::DerefSp(offset, more) => read(above(frame.sp, offset), more),
            Cfa::Linkage(push) => {
                let is_pushed = frame.address.wrapping_sub(1) & 15 >= usize::from(push);
                Some((frame.sp + 8 + 8 * usize::from(is_pushed), 0, 0))
            }
        }
    }

    /// The frame that the kernel has laid on the stack for a signal handler: all registers are in there.
    #[cold]
    #[inline(never)]
    fn interrupted(&self, frame: &Frame) -> Step {
        /// Where in the `ucontext_t` that the stack pointer points to they are.
        const BP: usize = 120;
        const SP: usize = 160;
        const PC: usize = 168;
        let word = |place| self.reach.read(frame.sp.wrapping_add(place));
        match (word(PC), word(SP), word(BP)) {
            (Some(pc), Some(sp), Some(bp)) => {
                // As if it were behind a call.
                let address = pc.wrapping_add(1);
                Step::Interrupted(Frame { address, sp, bp, ..Frame::NONE })
            }
            _ => Step::End(SiteEnd::Unreadable),
        }
    }

    /// Puts the first `fresh` new frames before the kept one at `joint`.
    #[inline(always)]
    fn put(&self, fresh: usize, joint: usize) {
        let joint = if fresh > joint { self.drop_outermost(fresh - joint, joint) } else { joint };
        let mut outer = self.from(joint);
        for i in 0..fresh {
            let mut frame = self.fresh[fresh - 1 - i].get();
            frame.needs_bp |= outer.needs_bp && !frame.restores_bp;
            let is_ours = owner::is_ours(frame.address);
            frame.count = outer.count.wrapping_add(u32::from(!is_ours));
            frame.hash = if is_ours { outer.hash } else { hash(outer.hash, frame.address) };
            outer = frame.settled();
            self.frames[joint - 1 - i].set(outer);
        }
        self.first.set((joint - fresh) as u32);
    }

    /// The frame at a place, or what was further out than all.
    #[inline(always)]
    fn from(&self, place: usize) -> Frame {
        match self.frames.get(place) {
            Some(frame) => frame.get(),
            None => Frame { hash: self.base.get().0, count: self.base.get().1, ..Frame::NONE },
        }
    }

    /// Makes room for so many more frames before the one at `joint`, and for some to come; where that is now.
    #[cold]
    #[inline(never)]
    fn drop_outermost(&self, more: usize, joint: usize) -> usize {
        let dropped = (more + BEYOND).min(KEPT - joint);
        let base = self.frames[KEPT - dropped].get();
        self.base.set((base.hash, base.count));
        self.end.set(SiteEnd::Depth);
        self.end_place.set(0);
        for place in (joint + dropped..KEPT).rev() {
            self.frames[place].set(self.frames[place - dropped].get());
        }
        joint + dropped
    }

    /// Frames that are kept, without our own.
    fn count(&self) -> usize {
        let innermost = self.from(self.first.get() as usize);
        innermost.count.wrapping_sub(self.base.get().1) as usize
    }

    /// The place of the frame that is further out than the wanted ones, and how many of those there are.
    fn wanted(&self, depth: usize) -> (usize, usize) {
        let (count, first) = (self.count(), self.first.get() as usize);
        if count <= depth {
            return (KEPT, count);
        }
        let beyond = self.from(first).count.wrapping_sub(depth as u32);
        let mut place = first + depth;
        // Our own frames are between them.
        while place < KEPT && self.frames[place].get().count != beyond {
            place += 1;
        }
        (place, depth)
    }

    /// How the wanted part of the stack ends.
    fn wanted_end(&self, depth: usize) -> SiteEnd {
        if self.count() > depth || !self.has_all_lines.get() {
            SiteEnd::Depth
        } else {
            self.end.get()
        }
    }

    /// What tells a stack from all others, as far as it is wanted.
    #[inline(always)]
    fn name(&self, depth: usize) -> u64 {
        let (beyond, count) = self.wanted(depth);
        let outside = self.from(beyond).hash.wrapping_mul(POWERS[count]);
        let hash = self.from(self.first.get() as usize).hash.wrapping_sub(outside);
        let kind =
            count as u64 | (self.wanted_end(depth) as u64) << 8 | u64::from(generation()) << 16;
        scatter(hash ^ scatter(kind ^ MULTIPLIER) ^ self.lines_hash.get()).max(1)
    }

    /// Tells the collector what a new site is.
    #[cold]
    #[inline(never)]
    fn define(&self, number: u32, depth: usize) {
        let (beyond, _) = self.wanted(depth);
        let (mut count, mut is_cut) = (0, false);
        let mut put = |frame: u64| match self.text[..depth].get(count) {
            Some(word) => {
                word.set(frame);
                count += 1;
            }
            None => is_cut = true,
        };
        let mut lines = self.lines[..self.line_count.get() as usize].iter().peekable();
        for place in self.first.get() as usize..beyond {
            let further_out = self.frames.get(place + 1).map_or(usize::MAX, |outer| outer.get().sp);
            while let Some(line) = lines.next_if(|line| line.get().mark < further_out) {
                put(line.get().frame());
            }
            let address = self.frames[place].get().address;
            if !owner::is_ours(address) {
                put(address as u64);
            }
        }
        lines.for_each(|line| put(line.get().frame()));
        let end = if is_cut { SiteEnd::Depth } else { self.wanted_end(depth) } as u64;
        // SAFETY: the words are initialised, and nobody changes them while the walker is claimed.
        let text =
            unsafe { core::slice::from_raw_parts(self.text.as_ptr().cast::<u8>(), 8 * count) };
        thread::note(NoteKind::Site, 0, &[u64::from(number), end], text);
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The powers of what a hash is multiplied by for each frame.
static POWERS: [u64; MAX_DEPTH + 1] = {
    let mut powers = [1u64; MAX_DEPTH + 1];
    let mut i = 1;
    while i <= MAX_DEPTH {
        powers[i] = powers[i - 1].wrapping_mul(MULTIPLIER);
        i += 1;
    }
    powers
};

/// The hash of a frame and all further out. (A polynomial: that of some frames follows from two of these.)
#[inline(always)]
fn hash(outer: u64, address: usize) -> u64 {
    outer.wrapping_mul(MULTIPLIER).wrapping_add(scatter(address as u64))
}

#[inline(always)]
fn scatter(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 32
}
