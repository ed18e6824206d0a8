//! A lane: a thread's part of the ledger, its counters and its purse, and how a block is counted there.

use core::sync::atomic::{Ordering, compiler_fence};

use heaptape_wire::atomic::AtomicU64;
use heaptape_wire::bin::bin_of;
use heaptape_wire::ledger::{Sheet, Traffic};
use heaptape_wire::purse::Purse;

use crate::next::{ENOMEM, set_errno};
use crate::sizes::Known;
use crate::slot::ThreadSlot;
use crate::{arch, callers, counting, refusing, sheets, sizes, spending};

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
pub fn now() -> Option<Lane> {
    let slot = arch::thread_word() as *const ThreadSlot;
    // SAFETY: a slot, once given to a thread, stays mapped and is only touched by that thread.
    unsafe { slot.as_ref()?.lane() }
}

/// The calling thread's lane; `None` where it is not counted.
#[inline(always)]
pub fn own() -> Option<Lane> {
    match now() {
        Some(lane) => Some(lane),
        None => sheets::join(),
    }
}

/// Adds to a counter that this thread alone writes.
#[inline(always)]
pub fn add(counter: &AtomicU64, more: u64) {
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
    pub fn count(self, block: *mut u8, size: u64, caller: usize, usable: impl FnOnce() -> u64) {
        let module = if counting::is_detailed() { callers::module_of(caller) } else { 0 };
        self.count_for(module, block, size, usable);
    }

    /// The same for a block of this module.
    pub fn count_for(self, module: usize, block: *mut u8, size: u64, usable: impl FnOnce() -> u64) {
        if counting::is_detailed() {
            self.count_in_detail(module, size, usable());
        } else {
            self.count_in_brief(size);
        }
        sizes::set(block, size, module);
    }

    /// Counts requested bytes and the call.
    #[inline(always)]
    pub fn count_in_brief(self, size: u64) {
        add(&self.sheet.allocations, 1);
        add(&self.sheet.allocated, size);
        raise(&self.sheet.peak, &self.sheet.allocated, &self.sheet.freed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Usable bytes, the module and the size class as well.
    #[inline(always)]
    pub fn count_in_detail(self, module: usize, size: u64, usable: u64) {
        let [made, gone] = &self.sheet.usable;
        add(made, usable);
        raise(&self.sheet.usable_peak, made, gone);
        Class(&self.sheet.modules[module]).allocate(size);
        Class(&self.sheet.bins[bin_of(size)]).allocate(size);
        self.count_in_brief(size);
    }

    /// Counts a block that goes, or has gone, back; `usable` tells how large it was.
    pub fn uncount(self, known: Known, usable: impl FnOnce() -> u64) {
        if known.is_inherited() {
            add(&self.sheet.frees, 1);
            sheets::release_inherited(known, usable);
        } else if counting::is_detailed() {
            self.uncount_in_detail(known, usable());
        } else {
            self.uncount_in_brief(known);
        }
    }

    /// Counts the release of a block of the process's own.
    #[inline(always)]
    pub fn uncount_in_brief(self, known: Known) {
        add(&self.sheet.frees, 1);
        add(&self.sheet.freed, known.size);
    }

    /// The same with what [`Lane::count_in_detail`] counts.
    #[inline(always)]
    pub fn uncount_in_detail(self, known: Known, usable: u64) {
        self.uncount_in_brief(known);
        add(&self.sheet.usable[1], usable);
        Class(&self.sheet.modules[known.module()]).release(known.size);
        Class(&self.sheet.bins[bin_of(known.size)]).release(known.size);
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

    /// An allocation that was charged has failed; gives null back.
    #[cold]
    pub fn give_up(self, bytes: u64) -> *mut u8 {
        spending::unspend(self, bytes);
        self.fail()
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
