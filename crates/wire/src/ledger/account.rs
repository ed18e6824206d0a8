//! An account: what one process holds beside its threads' blocks, and the modules that its callers lie in.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::heaps::Heaps;

use super::whole::WholeStacks;
use super::{MODULE_TEXT, MODULES};

/// What is charged beside heap blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Kind {
    /// Writable private mappings that the program made itself.
    Mappings = 0,
    /// Memory shared with other processes, for the process that brought it into the job.
    Shared = 1,
    /// Writable data of the executable and of libraries.
    Data = 2,
    /// Stacks.
    Stacks = 3,
    /// What the MPI runtime took while it started.
    MpiRuntime = 4,
    /// What was set aside for libraries after a refusal.
    Reserve = 5,
}

impl Kind {
    /// All.
    pub const ALL: [Kind; 6] =
        [Kind::Mappings, Kind::Shared, Kind::Data, Kind::Stacks, Kind::MpiRuntime, Kind::Reserve];
}

/// A module's name in an account.
#[repr(C)]
pub struct ModuleName {
    /// Where the module is mapped; 0 for a place that is not taken.
    start: AtomicU64,
    /// Bytes of the path, plus one; 0 while it is being written.
    len: AtomicU64,
    text: [AtomicU64; MODULE_TEXT / 8],
}

impl ModuleName {
    /// Process: takes the place for the module that is mapped at `start`, if nobody has it.
    pub fn take(&self, start: u64) -> bool {
        self.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Where the module is mapped; 0 for a place that is not taken.
    pub fn start(&self) -> u64 {
        self.start.load(Ordering::Acquire)
    }

    /// Process: writes the path, of which the end counts where it is too long.
    pub fn set_path(&self, path: &[u8]) {
        let path = &path[path.len().saturating_sub(MODULE_TEXT)..];
        for (word, bytes) in self.text.iter().zip(path.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
        self.len.store(path.len() as u64 + 1, Ordering::Release);
    }

    /// The path's bytes, once it is written; empty for the executable.
    pub fn path(&self) -> Option<impl Iterator<Item = u8> + '_> {
        let len = self.len.load(Ordering::Acquire).checked_sub(1)? as usize;
        let bytes = self.text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        Some(bytes.take(len.min(MODULE_TEXT)))
    }

    /// Whether this may be the module's path: it is, or it is still to be written.
    pub fn has_path(&self, path: &[u8]) -> bool {
        let end = &path[path.len().saturating_sub(MODULE_TEXT)..];
        self.path().is_none_or(|known| known.eq(end.iter().copied()))
    }

    fn clear(&self) {
        self.len.store(0, Ordering::Relaxed);
        self.start.store(0, Ordering::Relaxed);
    }
}

/// A process's part of the ledger; it has the number of its process slot.
#[repr(C, align(64))]
pub struct Account {
    /// The generation of the process slot that it is for.
    generation: AtomicU32,
    /// 1 for a process that launches others and is held against no limit.
    exempt: AtomicU32,
    /// Bytes charged beside heap blocks, shared objects that it spent for among them.
    beside: AtomicU64,
    /// The highest that this was.
    beside_peak: AtomicU64,
    /// Bytes charged beside heap blocks, by [`Kind`].
    pub charged: [AtomicU64; Kind::ALL.len()],
    /// Charged bytes of what a fork brought along and it has not released.
    inherited: AtomicU64,
    /// Bytes of the blocks that stand with the MPI runtime, as they are charged.
    apart: AtomicU64,
    /// Bytes of the blocks of exempt modules, as they would be charged.
    uncharged: AtomicU64,
    /// What it has charged ahead for blocks that are being resized.
    ahead: AtomicU64,
    /// What it was granted for calls which may still fail.
    in_doubt: AtomicU64,
    /// Bytes of large blocks that are being moved, at their old and at their new places.
    moving: AtomicU64,
    /// Bytes that it has spent for shared objects and not refunded.
    pub(crate) for_objects: AtomicU64,
    /// Threads that it has made …
    threads: AtomicU64,
    /// … and the most that lived at one time when one was made, where libc tells.
    threads_most: AtomicU64,
    /// 1 where blocks come from glibc, which keeps them where the kernel's list of mappings shows it.
    is_plain_heap: AtomicU32,
    /// Where glibc keeps the word that says how far its data goes, by `brk`; 0 where that is not known.
    break_at: AtomicU64,
    /// What another allocator has mapped for blocks.
    pub heaps: Heaps,
    /// The stacks of its threads that are charged whole.
    pub stacks: WholeStacks,
    /// The modules whose calls are told apart, by number.
    pub modules: [ModuleName; MODULES],
}

impl Account {
    /// Collector: it is for a new process. (The one before has been [buried](super::Ledger::bury).)
    pub fn open(&self, generation: u32) {
        let beside = [&self.beside, &self.beside_peak, &self.for_objects];
        let blocks = [&self.inherited, &self.apart, &self.uncharged, &self.ahead, &self.moving];
        let threads = [&self.threads, &self.threads_most, &self.in_doubt];
        let all = beside.into_iter().chain(blocks).chain(threads).chain(&self.charged);
        all.for_each(|word| word.store(0, Ordering::Relaxed));
        self.exempt.store(0, Ordering::Relaxed);
        self.is_plain_heap.store(0, Ordering::Relaxed);
        self.break_at.store(0, Ordering::Relaxed);
        self.heaps.clear();
        self.stacks.clear();
        self.modules.iter().for_each(ModuleName::clear);
        self.generation.store(generation, Ordering::Release);
    }

    /// The generation of the process slot that it is for.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Process: so many bytes more stand in this row.
    pub fn note(&self, kind: Kind, more: u64) {
        self.charged[kind as usize].fetch_add(more, Ordering::Relaxed);
        self.note_beside(more);
    }

    /// Process: so many bytes more are charged beside heap blocks.
    pub(crate) fn note_beside(&self, more: u64) {
        let now = self.beside.fetch_add(more, Ordering::Relaxed).wrapping_add(more);
        // One that gave back what others had spent has less than nothing.
        if more as i64 > 0 && now as i64 > 0 {
            self.beside_peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// Collector: so many bytes of this row, which it has paid, are given back for it. (Its purses still have them,
    /// as those of one that has paid for what others gave back.)
    pub fn give_back_for(&self, kind: Kind, bytes: u64) {
        self.for_objects.fetch_add(bytes, Ordering::Relaxed);
        self.note(kind, bytes.wrapping_neg());
    }

    /// Bytes charged beside heap blocks; less than nothing for one that gave back what others had spent.
    pub fn beside(&self) -> i64 {
        self.beside.load(Ordering::Relaxed) as i64
    }

    /// The most that was charged to it beside heap blocks at one instant.
    pub fn beside_peak(&self) -> u64 {
        self.beside_peak.load(Ordering::Relaxed)
    }

    /// Process: so many charged bytes came with the fork that made it.
    pub fn inherit(&self, bytes: u64) {
        self.inherited.store(bytes, Ordering::Relaxed);
    }

    /// Process: it has released some of them.
    pub fn release_inherited(&self, bytes: u64) {
        let less = |held: u64| Some(held.saturating_sub(bytes));
        let _ = self.inherited.fetch_update(Ordering::SeqCst, Ordering::Relaxed, less);
    }

    /// Charged bytes of those that it has still.
    pub fn inherited(&self) -> u64 {
        self.inherited.load(Ordering::SeqCst)
    }

    /// Process: of its blocks so many bytes more, or fewer, stand with the MPI runtime.
    pub fn set_apart(&self, more: u64) {
        self.apart.fetch_add(more, Ordering::Relaxed);
        self.charged[Kind::MpiRuntime as usize].fetch_add(more, Ordering::Relaxed);
    }

    /// Bytes of its blocks that stand in the row of the MPI runtime.
    pub fn apart(&self) -> u64 {
        self.apart.load(Ordering::Relaxed)
    }

    /// Process: of its blocks so many bytes more, or fewer, are of exempt modules.
    pub fn set_uncharged(&self, more: u64) {
        self.uncharged.fetch_add(more, Ordering::Relaxed);
    }

    /// Bytes of its blocks that are of exempt modules.
    pub fn uncharged(&self) -> u64 {
        self.uncharged.load(Ordering::Relaxed)
    }

    /// Process: so many bytes more, or fewer, are charged ahead.
    pub fn charge_ahead(&self, more: u64) {
        self.ahead.fetch_add(more, Ordering::Relaxed);
    }

    /// What it has charged ahead.
    pub fn ahead(&self) -> u64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Process: so many bytes more, or fewer, are granted for calls which may still fail.
    pub fn note_doubt(&self, more: u64) {
        self.in_doubt.fetch_add(more, Ordering::SeqCst);
    }

    /// Whether it is in such a call.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::SeqCst) != 0
    }

    /// Process: so many bytes more, or fewer, of large blocks are being moved.
    pub fn note_moving(&self, more: u64) {
        self.moving.fetch_add(more, Ordering::AcqRel);
    }

    /// Bytes of large blocks that are being moved: while one is copied it is resident twice, and counted once at the
    /// most.
    pub fn moving(&self) -> u64 {
        self.moving.load(Ordering::Acquire)
    }

    /// Process: it has made a thread, and so many lived then, at least.
    pub fn note_thread(&self, living: u64) {
        self.threads.fetch_add(1, Ordering::Relaxed);
        self.threads_most.fetch_max(living, Ordering::Relaxed);
    }

    /// Threads that it has made, beside its first.
    pub fn threads(&self) -> u64 {
        self.threads.load(Ordering::Relaxed)
    }

    /// The most threads that lived at one time when one was made; 0 where none was.
    pub fn threads_most(&self) -> u64 {
        self.threads_most.load(Ordering::Relaxed)
    }

    /// Process: it only launches others.
    pub fn exempt(&self) {
        self.exempt.store(1, Ordering::Relaxed);
    }

    /// Whether it is held against no limit.
    pub fn is_exempt(&self) -> bool {
        self.exempt.load(Ordering::Relaxed) != 0
    }

    /// Process: its blocks come from glibc, which keeps the end of its data in the word at this address.
    pub fn set_plain_heap(&self, break_at: u64) {
        self.break_at.store(break_at, Ordering::Relaxed);
        self.is_plain_heap.store(1, Ordering::Relaxed);
    }

    /// Where glibc keeps the end of its data, where blocks come from glibc.
    pub fn break_at(&self) -> Option<u64> {
        Some(self.break_at.load(Ordering::Relaxed)).filter(|&at| at != 0)
    }

    /// Whether it is known where its blocks are.
    pub fn has_known_heap(&self) -> bool {
        self.is_plain_heap.load(Ordering::Relaxed) != 0 || !self.heaps.is_empty()
    }
}
