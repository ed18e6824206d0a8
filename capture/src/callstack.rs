//! Call stacks: each allocating call's, as the number of a site.
//!
//! The stubs of the allocating functions come here while stacks are wanted, before anything else happens: the
//! frame pointer and the stack are still the caller's. What they get stands in the place of the caller's
//! address from then on (`wire::site`). On any doubt that is the address itself.
//!
//! ```text
//! stub ──frame pointer, place of the return address──▶ walker ──frames──▶ sites ──number──▶ record
//!                                                       │  ▲
//!                                          rules, reach ┘  └ the thread's stack of the call before
//! ```
//!
//! All that is kept lies in a mapping of its own that the kernel wipes in a forked child, whose sites are its own.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::arena::arena;
use crate::rules::Rules;
use crate::sites::Sites;
use crate::slot::ThreadSlot;
use crate::walker::Walker;
use crate::{arch, callers, lifecycle, reach, slot, whole, zeros};

/// How many frames of a stack are wanted; 0 where no stacks are.
pub static DEPTH: AtomicU32 = AtomicU32::new(0);

/// Changes when modules are unloaded: other code may come to the same addresses.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// Changes then, and when the program unmaps memory: what is known of stacks may be no longer true.
static EPOCH: AtomicU32 = AtomicU32::new(1);

/// Threads with a place for their last stack; others are walked from the first frame to the last each time.
const WALKERS: usize = 1024;
/// Places for those, and for signal handlers that come while a thread's own is in use.
const SPARE: usize = 64;

/// Everything that is kept for stacks.
#[repr(C, align(4096))]
pub struct Region {
    // The first: see `forgettable`.
    /// Call stacks, and code objects of Python, which have numbers out of the same row.
    pub sites: Sites,
    pub rules: Rules,
    spare: [Walker; SPARE],
    walkers: [Walker; WALKERS],
}

/// Bytes of address space that stacks take.
pub const REGION_BYTES: usize = size_of::<Region>();

static REGION: AtomicPtr<Region> = AtomicPtr::new(core::ptr::null_mut());

/// Where it is mapped, as start and length; of no length while it is not.
pub fn mapped() -> (usize, usize) {
    let start = REGION.load(Ordering::Relaxed) as usize;
    (start, if start == 0 { 0 } else { REGION_BYTES })
}

/// The part of that which may be wiped at any time: what is in there is found again, or told again.
pub fn forgettable() -> (usize, usize) {
    let (start, length) = mapped();
    (start + Sites::TABLE_AT, length.saturating_sub(Sites::TABLE_AT))
}

/// What is kept. Only while stacks are wanted.
#[inline(always)]
pub fn region() -> &'static Region {
    // SAFETY: mapped before the depth was set, and never unmapped; all of it is atomic, or claimed.
    unsafe { &*REGION.load(Ordering::Relaxed) }
}

/// The process has joined: gets ready for stacks if the session wants them and they can be had.
pub fn begin() {
    let depth = arena().session().stacks();
    if depth == 0 || !callers::can_find() {
        return;
    }
    reach::begin();
    if let Ok(base) = zeros::map_wiped(REGION_BYTES) {
        REGION.store(base.cast(), Ordering::Release);
        DEPTH.store(depth, Ordering::Release);
    }
}

/// The process records no more.
pub fn end() {
    DEPTH.store(0, Ordering::Relaxed);
}

/// Modules were unloaded.
pub fn modules_gone() {
    if DEPTH.load(Ordering::Relaxed) != 0 {
        region().rules.forget();
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// The program has unmapped memory, which may have been a stack.
pub fn unmapped() {
    if DEPTH.load(Ordering::Relaxed) != 0 {
        EPOCH.fetch_add(1, Ordering::Relaxed);
    }
}

/// See [`GENERATION`].
#[inline(always)]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// See [`EPOCH`].
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// The site of a call whose return address lies at `place`, as a word in the place of the caller's address; `bp` is
/// the frame pointer's register there.
///
/// # Safety
/// For the stubs alone: the frame at `place` is that of their caller.
pub unsafe extern "C" fn site(bp: usize, place: *const usize) -> usize {
    // SAFETY: the stub's return address.
    let caller = unsafe { *place };
    match claim(place as usize) {
        Some(walker) => {
            let depth = DEPTH.load(Ordering::Relaxed) as usize;
            let word = walker.site(caller, place as usize + 8, bp, depth);
            walker.leave();
            word.unwrap_or(caller)
        }
        None => caller,
    }
}

/// A place for this thread's stack, on which it stands at `sp`, claimed.
#[inline(always)]
fn claim(sp: usize) -> Option<&'static Walker> {
    let slot = arch::thread_word() as *const ThreadSlot;
    // SAFETY: the thread's own slot, which stays mapped.
    let slot = match unsafe { slot.as_ref() } {
        Some(slot) if slot.identity().1 != 0 => slot,
        _ => begin_thread()?,
    };
    if slot.short.is_any() {
        // The call may be one that the real `operator new` makes for its caller.
        return None;
    }
    let (number, tid) = slot.identity();
    let walker = match region().walkers.get(number as usize) {
        Some(walker) if walker.try_claim(tid) => walker,
        _ => spare(tid)?,
    };
    walker.belong_to(tid, sp);
    Some(walker)
}

/// The first call of a thread, or of a forked child.
#[cold]
#[inline(never)]
fn begin_thread() -> Option<&'static ThreadSlot> {
    if !lifecycle::is_recording() {
        return None;
    }
    slot::own().map(|slot| &*slot)
}

/// A spare place: the one that this thread had last, or any, or that of a thread which has ended in the midst of it.
#[cold]
#[inline(never)]
fn spare(tid: u32) -> Option<&'static Walker> {
    let is_gone = |holder| lifecycle::is_thread_noted() && !whole::lives(holder);
    let mut all = region().spare.iter();
    all.clone()
        .find(|walker| walker.last_tid() == tid && walker.try_take(tid))
        .or_else(|| all.clone().find(|walker| walker.try_take(tid)))
        .or_else(|| all.find(|walker| walker.take_over(tid, is_gone)))
}
