//! Counting: what each call of the allocator adds to its thread's sheet of the ledger, and what it takes
//! from the job's budget.
//!
//! The budget is charged before a block is handed out and gets back what a block took after that was
//! given back, so the job never holds more than its budget says. What a block took is known from the
//! [side map](crate::sizes).

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use heaptape_wire::ledger::{Account, Ledger};

use crate::apart::Row;
use crate::doubtful::Doubtful;
use crate::early::is_early;
use crate::heads::usable_size;
use crate::lane::{self, Lane, Old, add};
use crate::next::{UsableSize, next};
use crate::sizes::Known;
use crate::{apart, callers, closely, pages, sheets, sizes, spending, usable};

/// What this process counts.
static LEVEL: AtomicU32 = AtomicU32::new(OFF);
const OFF: u32 = 0;
/// Requested bytes and calls.
const BRIEF: u32 = 1;
/// Usable bytes, size classes and modules as well.
const DETAILED: u32 = 2;
/// Beside one of these: not every call is charged as usual.
const CLOSELY: u32 = 4;
/// Beside one of these: blocks are charged by their usable sizes.
const BY_USABLE: u32 = 8;
/// Beside one of these: a thread may be loading a library.
const LOADING: u32 = 16;

static LEDGER: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Whether calls are counted, and not recorded.
#[inline(always)]
pub fn is_on() -> bool {
    LEVEL.load(Ordering::Relaxed) != OFF
}

/// The ledger. Only while counting.
#[inline(always)]
pub fn ledger() -> Ledger {
    // SAFETY: only called while counting, when it is mapped; it is never unmapped.
    unsafe { Ledger::new(LEDGER.load(Ordering::Relaxed)) }
}

/// Begins to count into a ledger that is mapped; false where the side map finds no memory.
pub fn begin(ledger: *mut u8) -> bool {
    LEDGER.store(ledger, Ordering::Relaxed);
    if !sizes::begin() || !pages::begin() {
        return false;
    }
    let wanted = self::ledger().header().wanted();
    let mut level = if wanted.details { DETAILED } else { BRIEF };
    if wanted.usable {
        level |= BY_USABLE;
    }
    if apart::begin() {
        level |= CLOSELY;
    }
    LEVEL.store(level, Ordering::Release);
    true
}

/// Whether usable bytes, size classes and modules are counted.
pub fn is_detailed() -> bool {
    LEVEL.load(Ordering::Relaxed) & DETAILED != 0
}

/// Whether blocks are charged by their usable sizes.
pub fn is_by_usable() -> bool {
    LEVEL.load(Ordering::Relaxed) & BY_USABLE != 0
}

/// From here on each call is looked at: the MPI runtime starts, or something was refused.
pub fn look_closely() {
    LEVEL.fetch_or(CLOSELY, Ordering::Relaxed);
}

/// From here on each call is looked at, or no longer for this: threads are loading libraries.
pub fn look_at_loading(is_on: bool) {
    match is_on {
        true => LEVEL.fetch_or(LOADING, Ordering::Relaxed),
        false => LEVEL.fetch_and(!LOADING, Ordering::Relaxed),
    };
}

/// The process's account; `None` while it has none.
pub fn account() -> Option<&'static Account> {
    is_on().then(|| ledger().account(sheets::own_slot() as usize))
}

/// An allocation of `size` bytes that `make` makes, if the budget has them.
///
/// Each of the ways is a function of its own, so that none saves what only another needs.
#[inline(always)]
pub fn allocate(
    size: usize,
    caller: usize,
    ask: impl Fn() -> UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    match LEVEL.load(Ordering::Relaxed) {
        DETAILED => allocate_in_detail(size as u64, caller, ask, make),
        BRIEF => allocate_in_brief(size as u64, caller, ask, make),
        _ => allocate_closely(size as u64, caller, ask, make),
    }
}

#[inline(never)]
fn allocate_in_brief(
    bytes: u64,
    caller: usize,
    ask: impl Fn() -> UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let Some(lane) = lane::own() else { return make() };
    let block = make_charged(lane, bytes, caller, ask, make);
    if block.is_null() {
        return block;
    }
    lane.count_in_brief(bytes);
    sizes::set(block, bytes, 0);
    block
}

#[inline(never)]
fn allocate_in_detail(
    bytes: u64,
    caller: usize,
    ask: impl Fn() -> UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let Some(lane) = lane::own() else { return make() };
    let block = make_charged(lane, bytes, caller, &ask, make);
    if block.is_null() {
        return block;
    }
    let module = callers::module_of(caller);
    lane.count_in_detail(module, bytes, usable_size(block, bytes, ask));
    sizes::set(block, bytes, module);
    block
}

#[cold]
#[inline(never)]
fn allocate_closely(
    bytes: u64,
    caller: usize,
    ask: impl Fn() -> UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    match lane::own() {
        Some(lane) => closely::allocate(lane, bytes, caller, ask(), make),
        None => make(),
    }
}

/// From this size on a block is made before it is charged: where the kernel does not give it, it was never held.
pub const LARGE: u64 = 1 << 20;

/// A block for which the budget has the bytes; null where it has not, or where there is no memory.
#[inline(always)]
fn make_charged(
    lane: Lane,
    bytes: u64,
    caller: usize,
    ask: impl Fn() -> UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    if bytes >= LARGE && usable::goes_back(ask()) {
        return make_large(lane, bytes, caller, ask, make);
    }
    if !spending::spend(lane, bytes) {
        return lane.refuse(bytes, caller);
    }
    let block = make();
    if block.is_null() {
        return lane.give_up(bytes);
    }
    block
}

#[cold]
#[inline(never)]
fn make_large(
    lane: Lane,
    bytes: u64,
    caller: usize,
    ask: impl Fn() -> UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    if usable::is_hopeless(lane, Row::Usual, bytes) {
        return lane.refuse(bytes, caller);
    }
    let block = make();
    if block.is_null() {
        return lane.fail();
    }
    if !spending::spend(lane, bytes) {
        usable::give_unseen_back(block, ask());
        return lane.refuse(bytes, caller);
    }
    block
}

/// Counts a block that was made before it was known that calls are counted; gives back what the program gets. (One of our own
/// region is not counted.)
pub fn count_made(block: *mut u8, size: usize, caller: usize, is_in_place: bool) -> *mut u8 {
    match lane::own().filter(|_| !block.is_null() && !is_early(block)) {
        Some(lane) => closely::count_made(lane, block, size as u64, caller, is_in_place),
        None => block,
    }
}

/// Counts a call that fails for its arguments; gives null back.
pub fn fail() -> *mut u8 {
    lane::own().map_or(core::ptr::null_mut(), Lane::fail)
}

/// Gives a block back by `free`; null is no block.
#[inline(always)]
pub fn release(block: *mut u8, free: impl FnOnce(*mut u8)) {
    match LEVEL.load(Ordering::Relaxed) {
        DETAILED => release_in_detail(block, free),
        BRIEF => release_in_brief(block, free),
        _ => release_closely(block, free),
    }
}

#[inline(never)]
fn release_in_brief(block: *mut u8, free: impl FnOnce(*mut u8)) {
    let Some((lane, known)) = take_now(block) else { return release_closely(block, free) };
    lane.uncount_in_brief(known);
    free(block);
    spending::refund(lane, known.size);
}

#[inline(never)]
fn release_in_detail(block: *mut u8, free: impl FnOnce(*mut u8)) {
    let Some((lane, known)) = take_now(block) else { return release_closely(block, free) };
    lane.uncount_in_detail(known, usable_size(block, known.size, || next().sizes.malloc));
    free(block);
    spending::refund(lane, known.size);
}

/// What is known of a block of the process's own, if the thread has a lane.
#[inline(always)]
fn take_now(block: *mut u8) -> Option<(Lane, Known)> {
    lane::now().and_then(|lane| Some((lane, sizes::take_own(block)?)))
}

/// Null, a block of our own region, the first call of a thread, a block of the parent's, one that stands apart from
/// others, or one that is not known.
#[cold]
#[inline(never)]
fn release_closely(block: *mut u8, free: impl FnOnce(*mut u8)) {
    if block.is_null() || is_early(block) {
        return;
    }
    let Some(lane) = lane::own() else { return free(block) };
    match sizes::take(block) {
        // (Before any block stood apart from others, this was said.)
        Some(known) => closely::release(lane, known, block, free),
        None => {
            add(&lane.sheet.unknown, 1);
            free(block);
        }
    }
}

/// A reallocation of a block, or an allocation where `old` is null.
pub fn reallocate(old: *mut u8, size: usize, caller: usize) -> *mut u8 {
    // SAFETY: forwarded as the program asked.
    let make = || unsafe { (next().realloc)(old, size) };
    let ask = || next().sizes.malloc;
    if old.is_null() {
        return allocate(size, caller, ask, make);
    }
    let Some(lane) = lane::own() else { return make() };
    // Once the block is given back its address may be another thread's.
    let old = Old { block: old, known: sizes::take(old) };
    let (bytes, own) = (size as u64, old.own());
    let _moving = Moving::begin(bytes, old);
    if !matches!(LEVEL.load(Ordering::Relaxed), BRIEF | DETAILED) {
        return closely::reallocate(lane, old, bytes, caller, make);
    }
    let before = own.map_or(0, |known| known.size);
    let more = bytes.saturating_sub(before);
    if more >= LARGE {
        return reallocate_large(lane, old, (bytes, more), caller, make);
    }
    if !spending::spend(lane, more) {
        return lane.refuse_reallocation(old, bytes, caller);
    }
    // What the old block had can only be asked before.
    let usable = old.known.map_or(0, |known| usable_size(old.block, known.size, ask));
    let block = make();
    if block.is_null() && bytes > 0 {
        old.put_back();
        spending::unspend(lane, more);
        return lane.fail();
    }
    lane.uncount_moved(old.known, usable);
    if !block.is_null() {
        lane.count(block, bytes, caller, || usable_size(block, bytes, ask));
    }
    spending::refund(lane, before.saturating_sub(bytes));
    block
}

/// One that needs so much more that the kernel may not give it. (The old block may be lost once it is made, so what it needs
/// is charged before.)
#[cold]
#[inline(never)]
fn reallocate_large(
    lane: Lane,
    old: Old,
    (bytes, more): (u64, u64),
    caller: usize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let ask = || next().sizes.malloc;
    let Some(doubtful) = Doubtful::spend(lane, more) else {
        return lane.refuse_reallocation(old, bytes, caller);
    };
    let usable = old.known.map_or(0, |known| usable_size(old.block, known.size, ask));
    let block = make();
    if block.is_null() {
        old.put_back();
        doubtful.fail();
        return lane.fail();
    }
    doubtful.confirm();
    lane.uncount_moved(old.known, usable);
    lane.count(block, bytes, caller, || usable_size(block, bytes, ask));
    block
}

/// A large block that is being reallocated, as long as this lives: it may be copied, and is resident twice then.
struct Moving(u64);

impl Moving {
    fn begin(bytes: u64, old: Old) -> Moving {
        let both = match old.known {
            Some(known) if bytes >= LARGE => bytes.saturating_add(known.size),
            _ => 0,
        };
        Moving::note(both);
        Moving(both)
    }

    fn note(more: u64) {
        if more != 0
            && let Some(account) = account()
        {
            account.note_moving(more);
        }
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        Moving::note(self.0.wrapping_neg());
    }
}
