//! The ledger: what every process and thread of a counted job holds, in memory that outlives them.
//!
//! ```text
//! page 0     the header: what is wanted, the first refusal
//! page 1     the budget of the job
//! …          the accounts, one a process slot
//! …          the purses, one a sheet
//! …          the objects that processes share
//! …          the sheets: one a thread, its counters by size class and module
//! ```
//!
//! It lies behind the [arena](crate::session) in the same file and is mapped by a counted session only.
//! A thread takes a sheet and a purse when it first allocates and keeps both; a later thread with the
//! same number takes them over, with what is in them, so the sheets of a process add up to all that it
//! ever did. Every counter has one writer, its thread; a process that is killed loses none of them.
//! The collector gives an account or a sheet memory before it offers it.

use crate::ahead::Ahead;
use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::bin::BINS;
use crate::budget::Budget;
use crate::exempt::Exempt;
use crate::heaps::Heaps;
use crate::objects::{Door, OBJECT_BYTES, OBJECTS, Object};
use crate::process::SLOTS;
use crate::purse::Purse;
use crate::session::ARENA_BYTES;

/// Where the ledger begins in the session's file.
pub const LEDGER_AT: usize = ARENA_BYTES;
/// Threads of a job that can be counted at the same time.
pub const SHEETS: usize = 2048;
/// Bytes of a thread's counters.
pub const SHEET_BYTES: usize = 20 << 10;
/// Bytes of a process's account.
pub const ACCOUNT_BYTES: usize = 12 << 10;
/// Modules that are told apart in a process; callers in others count for the last.
pub const MODULES: usize = 64;
/// The module that stands for all others.
pub const OTHER_MODULES: usize = MODULES - 1;
/// What stands for the MPI runtime in its start, whatever module of its calls.
pub const STARTING_MODULES: usize = MODULES - 2;
/// What stands for the libraries that were served from the reserve.
pub const RESERVED_MODULES: usize = MODULES - 3;
/// Stacks are charged in steps of so many bytes, the first one by the process when it begins.
pub const STACK_STEP: u64 = 64 << 10;
/// Bytes of a module's path that an account holds.
pub const MODULE_TEXT: usize = 128;

const BUDGET_AT: usize = 4096;
/// Where the accounts begin, behind the start of the ledger.
pub const ACCOUNTS_AT: usize = 2 * 4096;
/// Where the purses begin.
pub const PURSES_AT: usize = ACCOUNTS_AT + SLOTS * ACCOUNT_BYTES;
const PURSE_BYTES: usize = 64;
/// Where the objects begin that processes share.
const OBJECTS_AT: usize = PURSES_AT + SHEETS * PURSE_BYTES;
const DOOR_AT: usize = OBJECTS_AT + OBJECTS * OBJECT_BYTES;
/// Where the sheets begin.
pub const SHEETS_AT: usize = (DOOR_AT + OBJECT_BYTES).next_multiple_of(SHEET_BYTES);
/// Bytes of the whole ledger.
pub const LEDGER_BYTES: usize = SHEETS_AT + SHEETS * SHEET_BYTES;

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Sheet>() <= SHEET_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Account>() <= ACCOUNT_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Header>() <= BUDGET_AT);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Purse>() <= PURSE_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Object>() <= OBJECT_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Door>() <= OBJECT_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Budget>() <= ACCOUNTS_AT - BUDGET_AT);

/// What happens to a request beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OnLimit {
    /// It fails, as if there were no memory.
    Fail = 0,
    /// The whole job is killed.
    Kill = 1,
    /// The whole job is stopped.
    Stop = 2,
}

/// What a job is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What happens to a request beyond the limit.
    pub on_limit: OnLimit,
    /// Beside requested bytes and counts also usable bytes, size classes and modules.
    pub details: bool,
    /// Processes that only launch others are held against the limit as well.
    pub launchers: bool,
    /// What the MPI runtime takes while it starts is held against the limit, too.
    pub mpi_runtime: bool,
    /// Heap blocks are held against it by usable bytes, and not by requested ones.
    pub usable: bool,
}

/// A request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The slot of its process …
    pub slot: u32,
    /// … and that slot's generation.
    pub generation: u32,
    /// The kernel's number of the thread, as its process sees it.
    pub thread: u32,
    /// The session clock, in milliseconds.
    pub time: u32,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Who asked: an address in the process.
    pub caller: u64,
    /// The module of that address: its number in the process's account.
    pub module: u32,
    /// What the whole job held then, in bytes.
    pub job: u64,
    /// Nobody asked: it is the writable data of modules, `caller` lies in the largest, and the process had to end.
    pub is_data: bool,
}

/// The first page of the ledger.
#[repr(C, align(64))]
pub struct Header {
    on_limit: AtomicU32,
    details: AtomicU32,
    launchers: AtomicU32,
    mpi_runtime: AtomicU32,
    usable: AtomicU32,
    /// Sheets that have memory.
    pub sheets_ready: AtomicU32,
    /// Sheets that were ever taken: the number of the next one.
    pub sheets_taken: AtomicU32,
    /// Threads for which there was no sheet.
    pub uncounted: AtomicU32,
    /// 0 none, 1 being written, 2 whole.
    refusal: AtomicU32,
    slot: AtomicU32,
    generation: AtomicU32,
    thread: AtomicU32,
    time: AtomicU32,
    module: AtomicU32,
    is_data: AtomicU32,
    bytes: AtomicU64,
    caller: AtomicU64,
    job: AtomicU64,
    /// Requests that were refused.
    pub refusals: AtomicU64,
    /// Requests that wait until the collector has looked who is gone.
    asked: AtomicU32,
    /// So many of them it has answered.
    settled: AtomicU32,
    /// Ends of processes that others of the job have waited for.
    deaths: AtomicU32,
    /// Bytes that are charged in the whole job beside heap blocks.
    beside: AtomicU64,
    /// The most that was granted when somebody last looked …
    high: AtomicU64,
    /// … and what of it was beside heap blocks.
    beside_at_high: AtomicU64,
    /// What is charged ahead for blocks that are being resized.
    pub ahead: Ahead,
    /// The modules whose blocks are held against no limit.
    pub exempt: Exempt,
}

impl Header {
    /// Collector: says what is wanted, before anybody can join.
    pub fn want(&self, wanted: Wanted) {
        self.on_limit.store(wanted.on_limit as u32, Ordering::Relaxed);
        self.details.store(u32::from(wanted.details), Ordering::Relaxed);
        self.mpi_runtime.store(u32::from(wanted.mpi_runtime), Ordering::Relaxed);
        self.usable.store(u32::from(wanted.usable), Ordering::Relaxed);
        self.launchers.store(u32::from(wanted.launchers), Ordering::Release);
    }

    /// What is wanted.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            on_limit: match self.on_limit.load(Ordering::Relaxed) {
                1 => OnLimit::Kill,
                2 => OnLimit::Stop,
                _ => OnLimit::Fail,
            },
            details: self.details.load(Ordering::Relaxed) != 0,
            launchers: self.launchers.load(Ordering::Relaxed) != 0,
            mpi_runtime: self.mpi_runtime.load(Ordering::Relaxed) != 0,
            usable: self.usable.load(Ordering::Relaxed) != 0,
        }
    }

    /// So many bytes more are charged beside heap blocks.
    pub fn note_beside(&self, more: u64) {
        self.beside.fetch_add(more, Ordering::Relaxed);
    }

    /// Process: so much is granted now. If that is the most so far, what of it is beside heap blocks is kept.
    /// (Of two processes that draw at once one may keep what the other should have.)
    pub fn note_high(&self, granted: u64) {
        if granted > self.high.load(Ordering::Relaxed)
            && self.high.fetch_max(granted, Ordering::Relaxed) < granted
        {
            let beside = self.beside.load(Ordering::Relaxed);
            self.beside_at_high.store(beside, Ordering::Relaxed);
        }
    }

    /// Collector: what of the most that was granted was beside heap blocks.
    pub fn beside_at_high(&self) -> u64 {
        (self.beside_at_high.load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// Process: asks the collector to give back what the dead held, those that are dead by now; what to
    /// compare with by [`Header::is_settled`].
    pub fn ask(&self) -> u32 {
        self.asked.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Process: a child has ended, as it has just been told.
    pub fn note_death(&self) {
        self.deaths.fetch_add(1, Ordering::AcqRel);
    }

    /// How often [`Header::note_death`] was called.
    pub fn deaths(&self) -> u32 {
        self.deaths.load(Ordering::Acquire)
    }

    /// Process: whether that is done.
    pub fn is_settled(&self, question: u32) -> bool {
        self.settled.load(Ordering::Acquire).wrapping_sub(question) as i32 >= 0
    }

    /// Collector: the last question, before it looks who is gone; `None` where all are answered.
    pub fn question(&self) -> Option<u32> {
        let asked = self.asked.load(Ordering::Acquire);
        (!self.is_settled(asked)).then_some(asked)
    }

    /// Collector: what those held that were gone before this question has been given back.
    pub fn settle(&self, question: u32) {
        self.settled.store(question, Ordering::Release);
    }

    /// Process: counts a refusal; the first one is kept.
    pub fn refuse(&self, refused: &Refused) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let is_first = self.refusal.load(Ordering::Relaxed) == 0
            && self.refusal.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_first {
            self.slot.store(refused.slot, Ordering::Relaxed);
            self.generation.store(refused.generation, Ordering::Relaxed);
            self.thread.store(refused.thread, Ordering::Relaxed);
            self.time.store(refused.time, Ordering::Relaxed);
            self.module.store(refused.module, Ordering::Relaxed);
            self.is_data.store(u32::from(refused.is_data), Ordering::Relaxed);
            self.bytes.store(refused.bytes, Ordering::Relaxed);
            self.caller.store(refused.caller, Ordering::Relaxed);
            self.job.store(refused.job, Ordering::Relaxed);
            self.refusal.store(2, Ordering::Release);
        }
    }

    /// Collector: the first refusal, once it is whole.
    pub fn first_refusal(&self) -> Option<Refused> {
        (self.refusal.load(Ordering::Acquire) == 2).then(|| Refused {
            slot: self.slot.load(Ordering::Relaxed),
            generation: self.generation.load(Ordering::Relaxed),
            thread: self.thread.load(Ordering::Relaxed),
            time: self.time.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            caller: self.caller.load(Ordering::Relaxed),
            module: self.module.load(Ordering::Relaxed),
            job: self.job.load(Ordering::Relaxed),
            is_data: self.is_data.load(Ordering::Relaxed) != 0,
        })
    }
}

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
    /// Bytes that it has spent for shared objects and not refunded.
    pub(crate) for_objects: AtomicU64,
    /// 1 where blocks come from glibc, which keeps them where the kernel's list of mappings shows it.
    is_plain_heap: AtomicU32,
    /// What another allocator has mapped for blocks.
    pub heaps: Heaps,
    /// The modules whose calls are told apart, by number.
    pub modules: [ModuleName; MODULES],
}

impl Account {
    /// Collector: it is for a new process. (The one before has been [buried](Ledger::bury).)
    pub fn open(&self, generation: u32) {
        let beside = [&self.beside, &self.beside_peak, &self.for_objects];
        let blocks = [&self.inherited, &self.apart, &self.uncharged, &self.ahead];
        let all = beside.into_iter().chain(blocks).chain(&self.charged);
        all.for_each(|word| word.store(0, Ordering::Relaxed));
        self.exempt.store(0, Ordering::Relaxed);
        self.is_plain_heap.store(0, Ordering::Relaxed);
        self.heaps.clear();
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
        let _ = self.inherited.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Charged bytes of those that it has still.
    pub fn inherited(&self) -> u64 {
        self.inherited.load(Ordering::Relaxed)
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

    /// Process: it only launches others.
    pub fn exempt(&self) {
        self.exempt.store(1, Ordering::Relaxed);
    }

    /// Whether it is held against no limit.
    pub fn is_exempt(&self) -> bool {
        self.exempt.load(Ordering::Relaxed) != 0
    }

    /// Process: its blocks come from glibc.
    pub fn set_plain_heap(&self) {
        self.is_plain_heap.store(1, Ordering::Relaxed);
    }

    /// Whether it is known where its blocks are.
    pub fn has_known_heap(&self) -> bool {
        self.is_plain_heap.load(Ordering::Relaxed) != 0 || !self.heaps.is_empty()
    }
}

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
    /// The process slot plus one; 0 for a sheet that nobody has.
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
    /// What stands for the slot of a process that is about to open the sheet.
    const CLAIMED: u32 = u32::MAX;

    /// Process: takes a sheet that nobody has.
    pub fn claim(&self) -> bool {
        self.slot.compare_exchange(0, Self::CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
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
        let is_open = slot != 0 && slot != Self::CLAIMED;
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

/// The ledger as it is mapped: turns its base address into the tables that lie in it.
#[cfg(not(loom))]
#[derive(Clone, Copy)]
pub struct Ledger(*mut u8);

#[cfg(not(loom))]
// SAFETY: a ledger is shared memory, and all that is reached through it is atomic.
unsafe impl Send for Ledger {}
#[cfg(not(loom))]
// SAFETY: as above.
unsafe impl Sync for Ledger {}

#[cfg(not(loom))]
impl Ledger {
    /// # Safety
    /// `base` is page-aligned and points to [`LEDGER_BYTES`] of readable and writable shared memory
    /// that stays mapped for `'static`.
    pub const unsafe fn new(base: *mut u8) -> Ledger {
        Ledger(base)
    }

    /// Where it is mapped.
    pub const fn base(self) -> *mut u8 {
        self.0
    }

    fn at<T>(self, offset: usize) -> &'static T {
        // SAFETY: every offset used below lies in the ledger and is aligned for what lies there; the
        // types consist of atomics, for which any bytes are valid.
        unsafe { &*self.0.add(offset).cast::<T>() }
    }

    /// What is wanted, and the first refusal.
    #[inline(always)]
    pub fn header(self) -> &'static Header {
        self.at(0)
    }

    /// The job's budget.
    #[inline(always)]
    pub fn budget(self) -> &'static Budget {
        self.at(BUDGET_AT)
    }

    /// The account of the process in this slot.
    pub fn account(self, slot: usize) -> &'static Account {
        self.at(ACCOUNTS_AT + slot % SLOTS * ACCOUNT_BYTES)
    }

    /// The purse that goes with a sheet.
    #[inline(always)]
    pub fn purse(self, sheet: usize) -> &'static Purse {
        self.at(PURSES_AT + sheet % SHEETS * PURSE_BYTES)
    }

    /// Where objects are added.
    pub(crate) fn door(self) -> &'static Door {
        self.at(DOOR_AT)
    }

    pub(crate) fn object_at(self, index: usize) -> &'static Object {
        self.at(OBJECTS_AT + index * OBJECT_BYTES)
    }

    /// A sheet.
    #[inline(always)]
    pub fn sheet(self, index: usize) -> &'static Sheet {
        self.at(SHEETS_AT + index % SHEETS * SHEET_BYTES)
    }
}
