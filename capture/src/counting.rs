//! Counting: what each call of the allocator adds to its thread's sheet of the ledger, and what it takes
//! from the job's budget.
//!
//! The budget is charged before a block is handed out and gets back what a block took after that was
//! given back, so the job never holds more than its budget says. What a block took is known from the
//! [side map](crate::sizes).

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence};

use heaptape_wire::atomic::AtomicU64;
use heaptape_wire::bin::bin_of;
use heaptape_wire::ledger::{Account, Ledger, Sheet, Traffic};
use heaptape_wire::purse::Purse;

use crate::next::{ENOMEM, UsableSize, next, set_errno, usable_size_of};
use crate::sizes::Known;
use crate::slot::ThreadSlot;
use crate::{apart, arch, callers, closely, pages, refusing, sheets, sizes, spending};

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
/// Calls that are charged in the usual way have none of these.
const UNUSUAL: u32 = CLOSELY | BY_USABLE;

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

fn is_detailed() -> bool {
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

/// The process's account; `None` while it has none.
pub fn account() -> Option<&'static Account> {
    is_on().then(|| ledger().account(sheets::own_slot() as usize))
}

/// A thread's part of the ledger.
#[derive(Clone, Copy)]
pub struct Lane {
    /// Its counters.
    pub sheet: &'static Sheet,
    /// Its part of the budget; `None` in a process that is held against no limit.
    pub purse: Option<&'static Purse>,
}

/// The calling thread's lane if it has one already.
#[inline(always)]
fn lane_now() -> Option<Lane> {
    let slot = arch::thread_word() as *const ThreadSlot;
    // SAFETY: a slot, once given to a thread, stays mapped and is only touched by that thread.
    unsafe { slot.as_ref()?.lane() }
}

/// The calling thread's lane; `None` where it is not counted.
#[inline(always)]
pub fn lane() -> Option<Lane> {
    lane_now().or_else(sheets::join)
}

/// Adds to a counter that this thread alone writes.
#[inline(always)]
fn add(counter: &AtomicU64, more: u64) {
    // SAFETY: a valid word.
    unsafe { arch::add_to(counter.as_ptr(), more) };
}

/// Raises a peak to the difference of two counters. (Where this thread has released blocks of others that may
/// be negative.)
#[inline(always)]
fn raise(peak: &AtomicU64, made: &AtomicU64, gone: &AtomicU64) {
    let now = made.load(Ordering::Relaxed).wrapping_sub(gone.load(Ordering::Relaxed));
    if now as i64 > peak.load(Ordering::Relaxed) as i64 {
        peak.store(now, Ordering::Relaxed);
    }
}

/// A class's counters, as their thread adds to them.
struct Class<'a>(&'a Traffic);

impl Class<'_> {
    #[inline(always)]
    fn allocate(&self, size: u64) {
        let traffic = self.0;
        add(&traffic.count, 1);
        add(&traffic.total, size);
        raise(&traffic.peak, &traffic.total, &traffic.freed);
    }

    #[inline(always)]
    fn release(&self, size: u64) {
        add(&self.0.freed, size);
    }
}

impl Lane {
    /// Counts a block that was just handed out, and writes it into the side map; `usable` tells how large it
    /// is.
    #[inline(always)]
    pub fn count(self, block: *mut u8, size: u64, caller: usize, usable: impl FnOnce() -> u64) {
        let is_detailed = is_detailed();
        let module = if is_detailed { callers::module_of(caller) } else { 0 };
        self.count_for(module, block, size, usable);
    }

    /// The same for a block of this module.
    #[inline(always)]
    pub fn count_for(self, module: usize, block: *mut u8, size: u64, usable: impl FnOnce() -> u64) {
        add(&self.sheet.allocations, 1);
        add(&self.sheet.allocated, size);
        raise(&self.sheet.peak, &self.sheet.allocated, &self.sheet.freed);
        if is_detailed() {
            add(&self.sheet.usable[0], usable());
            let [made, gone] = &self.sheet.usable;
            raise(&self.sheet.usable_peak, made, gone);
            Class(&self.sheet.modules[module]).allocate(size);
            Class(&self.sheet.bins[bin_of(size)]).allocate(size);
        }
        compiler_fence(Ordering::SeqCst);
        sizes::set(block, size, module);
    }

    /// Counts a block that goes, or has gone, back; `usable` tells how large it was.
    #[inline(always)]
    pub fn uncount(self, known: Known, usable: impl FnOnce() -> u64) {
        add(&self.sheet.frees, 1);
        if known.is_inherited() {
            return sheets::release_inherited(known, usable);
        }
        add(&self.sheet.freed, known.size);
        if is_detailed() {
            add(&self.sheet.usable[1], usable());
            Class(&self.sheet.modules[known.module()]).release(known.size);
            Class(&self.sheet.bins[bin_of(known.size)]).release(known.size);
        }
    }

    /// Counts what a reallocation gave back; `usable`: how large it was.
    #[inline(always)]
    pub fn uncount_moved(self, known: Option<Known>, usable: u64) {
        match known {
            Some(known) => self.uncount(known, || usable),
            None => add(&self.sheet.unknown, 1),
        }
    }

    /// A request that does not fit; gives null back.
    #[cold]
    pub fn refuse(self, bytes: u64, caller: usize) -> *mut u8 {
        refusing::refuse(self, bytes, caller);
        set_errno(ENOMEM);
        self.fail()
    }

    /// A reallocation that does not fit: the old block stays.
    #[cold]
    pub fn refuse_reallocation(self, old: Old, bytes: u64, caller: usize) -> *mut u8 {
        old.put_back();
        self.refuse(bytes, caller)
    }

    /// Counts an allocation that failed; gives null back.
    #[cold]
    pub fn fail(self) -> *mut u8 {
        add(&self.sheet.failed, 1);
        core::ptr::null_mut()
    }
}

/// A block that is about to be reallocated: taken out of the side map, which keeps it if that fails.
#[derive(Clone, Copy)]
pub struct Old {
    /// Where it is.
    pub block: *mut u8,
    /// What the side map knew.
    pub known: Option<Known>,
}

impl Old {
    /// What is known if it is the process's own.
    #[inline(always)]
    pub fn own(self) -> Option<Known> {
        self.known.filter(|known| !known.is_inherited())
    }

    /// The block stays.
    #[cold]
    pub fn put_back(self) {
        if let Some(known) = self.known {
            sizes::put_back(self.block, known);
        }
    }
}

/// How large a live block of the library that is asked is.
#[inline(always)]
pub fn usable_size(block: *mut u8, ask: UsableSize) -> u64 {
    // SAFETY: as promised.
    unsafe { usable_size_of(block, ask) as u64 }
}

/// An allocation of `size` bytes that `make` makes, if the budget has them.
#[inline(always)]
pub fn allocate(
    size: usize,
    caller: usize,
    ask: UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let Some(lane) = lane() else { return make() };
    let bytes = size as u64;
    if LEVEL.load(Ordering::Relaxed) & UNUSUAL != 0 {
        return closely::allocate(lane, bytes, caller, ask, make);
    }
    if !spending::spend(lane, bytes) {
        return lane.refuse(bytes, caller);
    }
    let block = make();
    if block.is_null() {
        spending::refund(lane, bytes);
        return lane.fail();
    }
    lane.count(block, bytes, caller, || usable_size(block, ask));
    block
}

/// Counts a block that was handed out before it was known that calls are counted; gives it back. (The
/// budget has it, or it was the first thing of all to be too much.)
pub fn count_made(block: *mut u8, size: usize, caller: usize) -> *mut u8 {
    if let Some(lane) = lane().filter(|_| !block.is_null()) {
        closely::count_made(lane, block, size as u64, caller);
    }
    block
}

/// Counts a call that fails for its arguments; gives null back.
pub fn fail() -> *mut u8 {
    lane().map_or(core::ptr::null_mut(), Lane::fail)
}

/// Gives a block back by `free`.
#[inline(always)]
pub fn release(block: *mut u8, free: impl FnOnce(*mut u8)) {
    let Some(lane) = lane() else { return free(block) };
    let Some(known) = sizes::take(block) else {
        add(&lane.sheet.unknown, 1);
        return free(block);
    };
    // (Before any block stood apart from others, this was said.)
    if LEVEL.load(Ordering::Relaxed) & UNUSUAL != 0 {
        return closely::release(lane, known, block, free);
    }
    lane.uncount(known, || usable_size(block, next().sizes.malloc));
    free(block);
    if !known.is_inherited() {
        spending::refund(lane, known.size);
    }
}

/// A reallocation of a block, or an allocation where `old` is null.
pub fn reallocate(old: *mut u8, size: usize, caller: usize) -> *mut u8 {
    // SAFETY: forwarded as the program asked.
    let make = || unsafe { (next().realloc)(old, size) };
    let ask = next().sizes.malloc;
    if old.is_null() {
        return allocate(size, caller, ask, make);
    }
    let Some(lane) = lane() else { return make() };
    // Once the block is given back its address may be another thread's.
    let old = Old { block: old, known: sizes::take(old) };
    let (bytes, own) = (size as u64, old.own());
    if LEVEL.load(Ordering::Relaxed) & UNUSUAL != 0 {
        return closely::reallocate(lane, old, bytes, caller, make);
    }
    let before = own.map_or(0, |known| known.size);
    let more = bytes.saturating_sub(before);
    if !spending::spend(lane, more) {
        return lane.refuse_reallocation(old, bytes, caller);
    }
    // What the old block had can only be asked before.
    let usable = old.known.map_or(0, |_| usable_size(old.block, ask));
    let block = make();
    if block.is_null() && bytes > 0 {
        old.put_back();
        spending::refund(lane, more);
        return lane.fail();
    }
    lane.uncount_moved(old.known, usable);
    if !block.is_null() {
        lane.count(block, bytes, caller, || usable_size(block, ask));
    }
    spending::refund(lane, before.saturating_sub(bytes));
    block
}
