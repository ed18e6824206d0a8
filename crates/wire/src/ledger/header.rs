//! The header of the ledger: what a job is counted for, the first request that was refused, and the questions of
//! processes that wait for what the dead held.

use crate::ahead::Ahead;
use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::blocks::Blocks;
use crate::exempt::Exempt;
use crate::legacy::Legacy;

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
    /// Ends of processes after which the collector has given back what they held.
    ends: AtomicU32,
    /// Bytes that are charged in the whole job beside heap blocks.
    beside: AtomicU64,
    /// The most that was granted when somebody last looked …
    high: AtomicU64,
    /// … and what of it was beside heap blocks.
    beside_at_high: AtomicU64,
    /// 1 when more may have been granted than was held at one time.
    is_blurred: AtomicU32,
    /// What is charged ahead for blocks that are being resized.
    pub ahead: Ahead,
    /// What heirs have released of what is charged for processes that are gone.
    pub legacy: Legacy,
    /// What lives in blocks, where nothing is drawn ahead.
    pub blocks: Blocks,
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

    /// Collector: the job was stopped; from now on requests beyond the limit fail.
    pub fn fail_from_now_on(&self) {
        self.on_limit.store(OnLimit::Fail as u32, Ordering::Release);
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

    /// The most that was granted may be more than was held at one time: some of it was still that of the dead, or for a
    /// call that failed.
    pub fn blur(&self) {
        self.is_blurred.store(1, Ordering::Relaxed);
    }

    /// Whether that was so.
    pub fn is_blurred(&self) -> bool {
        self.is_blurred.load(Ordering::Relaxed) != 0
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

    /// Collector: what a process held that is gone has been given back.
    pub fn note_end(&self) {
        self.ends.fetch_add(1, Ordering::SeqCst);
    }

    /// How often [`Header::note_end`] was called.
    pub fn ends(&self) -> u32 {
        self.ends.load(Ordering::SeqCst)
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
