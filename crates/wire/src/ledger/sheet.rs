//! A sheet: the counters of one thread, by size class and module.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::bin::BINS;

use super::MODULES;

/// What went in and out of one size class, or came from one module. Sizes are requested bytes.
#[repr(C)]
pub struct Traffic {
    /// Successful allocations, reallocs among them.
    pub count: AtomicU64,
    /// Their sizes.
    pub total: AtomicU64,
    /// Sizes of released blocks; a realloc adds its old size.
    pub freed: AtomicU64,
    /// The highest that `total - freed` was in this thread. Blocks that another thread has released for it
    /// count on in here: the peaks of all threads add up to at least what their process had.
    pub peak: AtomicU64,
}

/// A thread's counters. Each has one writer, and is added to with one instruction, so that a signal
/// handler's changes are not lost.
#[repr(C, align(64))]
pub struct Sheet {
    /// The kernel's number of its thread.
    pub thread: AtomicU32,
    /// The number of the thread in its process.
    pub number: AtomicU32,
    /// The process slot plus one; 0 for a sheet that nobody has, [`Sheet::CLAIMED`] beside it until it is open.
    slot: AtomicU32,
    generation: AtomicU32,
    /// 1 when the thread is gone and nobody has taken the sheet over.
    pub idle: AtomicU32,
    /// An address in the highest pages of the thread's stack; 0 where it is the first thread's, or lies in memory
    /// that is charged as something else.
    pub stack: AtomicU64,
    /// Successful allocations, reallocs among them.
    pub allocations: AtomicU64,
    /// Blocks released, reallocs among them.
    pub frees: AtomicU64,
    /// Allocations that failed, refused ones among them.
    pub failed: AtomicU64,
    /// Releases of blocks whose size was not known.
    pub unknown: AtomicU64,
    /// Requested bytes of all allocations; a realloc adds its new size …
    pub allocated: AtomicU64,
    /// … and its old size here.
    pub freed: AtomicU64,
    /// The highest that `allocated - freed` was in this thread: see [`Traffic::peak`].
    pub peak: AtomicU64,
    /// Usable bytes of all allocations, and of all releases.
    pub usable: [AtomicU64; 2],
    /// The highest that their difference was in this thread.
    pub usable_peak: AtomicU64,
    /// By the caller's module.
    pub modules: [Traffic; MODULES],
    /// By size class.
    pub bins: [Traffic; BINS],
}

impl Sheet {
    /// Beside the slot of a process that is about to open the sheet.
    const CLAIMED: u32 = 1 << 31;

    /// Process: takes a sheet that nobody has, for a thread of the process with this slot.
    pub fn claim(&self, slot: u32) -> bool {
        let claimed = Self::CLAIMED | (slot + 1);
        self.slot.compare_exchange(0, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Collector: the process with this slot is gone; a sheet that it had claimed and not opened is nobody's again.
    pub fn let_go(&self, slot: u32) {
        let claimed = Self::CLAIMED | (slot + 1);
        let _ = self.slot.compare_exchange(claimed, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Process: the sheet that it has claimed is for a thread of the process with this slot.
    pub fn open(&self, slot: u32, generation: u32, number: u32, thread: u32) {
        self.generation.store(generation, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
        self.thread.store(thread, Ordering::Relaxed);
        self.stack.store(0, Ordering::Relaxed);
        self.idle.store(0, Ordering::Relaxed);
        self.slot.store(slot + 1, Ordering::Release);
    }

    /// Process: a later thread with the same number goes on with it.
    pub fn take_over(&self, thread: u32, stack: u64) {
        self.thread.store(thread, Ordering::Relaxed);
        self.stack.store(stack, Ordering::Relaxed);
        self.idle.store(0, Ordering::Release);
    }

    /// The slot of its process and that slot's generation.
    pub fn owner(&self) -> Option<(u32, u32)> {
        let slot = self.slot.load(Ordering::Acquire);
        let is_open = slot != 0 && slot & Self::CLAIMED == 0;
        is_open.then(|| (slot - 1, self.generation.load(Ordering::Relaxed)))
    }

    /// Collector: what was counted is of a process that is gone and has been added up; the sheet is
    /// blank again.
    pub fn clear(&self) {
        let own = [&self.allocations, &self.frees, &self.failed, &self.unknown];
        let bytes = [&self.allocated, &self.freed, &self.peak, &self.usable_peak];
        let traffic = self.modules.iter().chain(&self.bins);
        let traffic = traffic.flat_map(|t| [&t.count, &t.total, &t.freed, &t.peak]);
        let all = own.into_iter().chain(bytes).chain(&self.usable).chain(traffic);
        all.for_each(|word| word.store(0, Ordering::Relaxed));
        self.slot.store(0, Ordering::Release);
    }
}
