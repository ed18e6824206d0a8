//! The arena: one file, mapped by the collector and by every covered process.
//!
//! ```text
//! page 0     the session header
//! …          announcements of execs
//! …          owner words of the large chunks, then of the small ones
//! …          the process slots
//! …          the extents: 64 KiB each, one large chunk or sixteen small ones
//! ```
//!
//! The file is sparse and 64 MiB long, which is also the address space it takes in a process. The
//! collector allocates a page before it offers what lies in it, so that a full file system never
//! becomes a SIGBUS in the program.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::chunk::{LARGE_BYTES, SMALL_PER_EXTENT};
use crate::process::{SLOT_BYTES, SLOTS};

/// Bytes of the whole arena.
pub const ARENA_BYTES: usize = 64 << 20;
/// The first word of an arena.
pub const MAGIC: u64 = u64::from_le_bytes(*b"heaptape");
/// The version of this layout; a library only joins a session of its own version.
pub const VERSION: u32 = 12;
/// The environment variable that names the arena's path.
pub const SESSION_VARIABLE: &str = "HEAPTAPE_SESSION";
/// The environment variable by which a program that no heaptape has started is to be counted: a limit, with
/// options.
pub const LIMIT_VARIABLE: &str = "HEAPTAPE_LIMIT";
/// Bytes of a session's path at the most, where it is told by a pipe.
pub const SESSION_BYTES: usize = 512;

/// Announcements of execs that can be open at the same time.
pub const INTENTS: usize = 128;
/// Bytes of the page that the header takes.
pub const HEADER_BYTES: usize = 4096;
/// Refusals that can be kept at the same time.
pub const REFUSALS: usize = 32;
/// Where they begin, in the header's page.
pub const REFUSALS_AT: usize = 2048;
/// Where the announcements of execs begin.
pub const INTENTS_AT: usize = HEADER_BYTES;
const INTENT_BYTES: usize = 256;
/// Where the owner words of the large chunks begin.
pub const LARGE_OWNERS_AT: usize = INTENTS_AT + INTENTS * INTENT_BYTES;
/// Extents in the arena.
pub const EXTENTS: usize = 880;
/// Where the owner words of the small chunks begin.
pub const SMALL_OWNERS_AT: usize = LARGE_OWNERS_AT + EXTENTS * 8;
/// Small chunks in the arena, were all extents cut.
pub const SMALLS: usize = EXTENTS * SMALL_PER_EXTENT;
/// Where the process slots begin.
pub const SLOTS_AT: usize = (SMALL_OWNERS_AT + SMALLS * 8).next_multiple_of(SLOT_BYTES);
/// Where the extents begin.
pub const EXTENTS_AT: usize = (SLOTS_AT + SLOTS * SLOT_BYTES).next_multiple_of(LARGE_BYTES);

const _: () = assert!(EXTENTS_AT + EXTENTS * LARGE_BYTES <= ARENA_BYTES);

/// How events of different threads are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stamp {
    /// The processor's time stamp counter, where the kernel trusts it.
    Tsc = 1,
    /// A counter that all threads of a process share.
    Counter = 2,
}

/// The bit that the kernel sets in the guard word when the collector dies (`FUTEX_OWNER_DIED`).
pub const OWNER_DIED: u32 = 0x4000_0000;
/// Bytes set aside for the collector's robust mutex; its first word is the guard word.
pub const GUARD_BYTES: usize = 64;

const STARTING: u32 = 0;
const OPEN: u32 = 1;
const ENDED: u32 = 2;

/// The header of the arena.
#[repr(C, align(64))]
pub struct Session {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    state: AtomicU32,
    stamp: AtomicU32,
    counts: AtomicU32,
    stacks: AtomicU32,
    /// A number that no other session has.
    name: AtomicU64,
    /// Ticks of the time stamp counter in a millisecond.
    pub tsc_per_ms: AtomicU32,
    /// Extents that were ever offered as a large chunk lie before this one.
    pub large_end: AtomicU32,
    /// Small chunks that were ever offered lie from here …
    pub small_start: AtomicU32,
    /// … up to here.
    pub small_end: AtomicU32,
    /// Processes that found no free slot.
    pub turned_away: AtomicU32,
    /// Threads that wait for a chunk, or for a slot for their process.
    pub waiting: AtomicU32,
    /// Those of them that can't sleep meanwhile, since a sandbox may forbid it.
    pub spinning: AtomicU32,
    /// Process slots whose memory is there.
    pub slots_ready: AtomicU32,
    /// Registrations so far, which puts them in order.
    pub registered: AtomicU32,
    /// Changes whenever a chunk is offered: who has found none need not look again before.
    offers: AtomicU32,
    /// A robust process-shared mutex that the collector holds as long as it lives.
    pub guard: Guard,
    clock: ClockLine,
    beat: ClockLine,
}

/// Room for a robust mutex, whose first word the kernel marks when its holder dies.
#[repr(C, align(64))]
pub struct Guard {
    word: AtomicU32,
    _rest: [AtomicU32; GUARD_BYTES / 4 - 1],
}

#[repr(C, align(64))]
struct ClockLine(AtomicU32);

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Session>() <= REFUSALS_AT);

impl Session {
    /// Where in the session's file stands whether calls are counted: a word, 0 for no.
    #[cfg(not(loom))]
    pub const COUNTS_AT: usize = core::mem::offset_of!(Session, counts);
    /// Where in it stands how many frames of each stack are wanted: a word, 0 for no stacks.
    #[cfg(not(loom))]
    pub const STACKS_AT: usize = core::mem::offset_of!(Session, stacks);

    /// Collector: opens the session, under a `name` that no other has.
    pub fn open(&self, name: u64, stamp: Stamp, tsc_per_ms: u32) {
        self.name.store(name, Ordering::Relaxed);
        self.version.store(VERSION, Ordering::Relaxed);
        self.stamp.store(stamp as u32, Ordering::Relaxed);
        self.tsc_per_ms.store(tsc_per_ms.max(1), Ordering::Relaxed);
        self.state.store(OPEN, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Collector: heap calls are counted in the [ledger](crate::ledger) that lies behind the arena, and not
    /// recorded. Before the session is opened.
    pub fn set_counting(&self) {
        self.counts.store(1, Ordering::Relaxed);
    }

    /// Whether heap calls are counted and not recorded.
    pub fn is_counting(&self) -> bool {
        self.counts.load(Ordering::Relaxed) != 0
    }

    /// Collector: each allocation is recorded with its call stack, of so many frames at the most. Before the session
    /// is opened.
    pub fn set_stacks(&self, depth: u32) {
        self.stacks.store(depth, Ordering::Relaxed);
    }

    /// How many frames of each stack are wanted; 0 for no stacks.
    pub fn stacks(&self) -> u32 {
        self.stacks.load(Ordering::Relaxed)
    }

    /// Whether the header is one that this version can join.
    pub fn is_joinable(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
            && self.version.load(Ordering::Relaxed) == VERSION
            && self.state.load(Ordering::Relaxed) == OPEN
    }

    /// Whether recording goes on.
    pub fn is_open(&self) -> bool {
        !matches!(self.state.load(Ordering::Acquire), STARTING | ENDED)
    }

    /// Collector: recording is over; every process passes its calls through from its next chunk on.
    pub fn end(&self) {
        self.state.store(ENDED, Ordering::Release);
    }

    /// The number that no other session has.
    pub fn name(&self) -> u64 {
        self.name.load(Ordering::Relaxed)
    }

    /// How events are stamped.
    pub fn stamp(&self) -> Stamp {
        if self.stamp.load(Ordering::Relaxed) == Stamp::Tsc as u32 {
            Stamp::Tsc
        } else {
            Stamp::Counter
        }
    }

    /// How many chunks have been offered so far, to be compared only.
    pub fn offers(&self) -> u32 {
        self.offers.load(Ordering::Acquire)
    }

    /// Collector: a chunk has just been offered.
    pub fn count_offer(&self) {
        self.offers.fetch_add(1, Ordering::Release);
    }

    /// Whether the collector's end has been noticed by the kernel.
    pub fn is_orphaned(&self) -> bool {
        self.guard.word.load(Ordering::Acquire) & OWNER_DIED != 0
    }

    /// Milliseconds since the session began; a few behind at the most.
    #[inline(always)]
    pub fn clock(&self) -> u32 {
        self.clock.0.load(Ordering::Relaxed)
    }

    /// Collector: moves the clock.
    pub fn set_clock(&self, ms: u32) {
        self.clock.0.store(ms, Ordering::Relaxed);
    }

    /// A word that changes as long as the collector works.
    pub fn heartbeat(&self) -> u32 {
        self.beat.0.load(Ordering::Relaxed)
    }

    /// Collector: it still works.
    pub fn beat(&self) {
        self.beat.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bytes of a file name in an announcement.
pub const INTENT_TEXT: usize = 224;

/// How a process gets its new program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// The pid namespace of the process id; 0 when it is not known.
    pub namespace: u64,
    /// The process slot of the one that announces, which may be the process itself or a parent of it.
    pub slot: u32,
    /// The generation of that slot.
    pub generation: u32,
    /// It was spawned with the file, and did not announce it itself.
    pub spawned: bool,
    /// The library's file can't be reached from where the program starts.
    pub unreachable: bool,
    /// A sandbox was entered before.
    pub sandboxed: bool,
    /// Registrations of the session before: the program's own, if it comes, is none of these.
    pub order: u32,
}

/// The announcement that a process is about to become another program.
///
/// A process that announced one and did not register again runs a program that can't be covered.
#[repr(C)]
pub struct Intent {
    /// 0 free, otherwise the process id.
    pid: AtomicU32,
    len: AtomicU32,
    flags: AtomicU32,
    order: AtomicU32,
    namespace: AtomicU64,
    slot: AtomicU32,
    generation: AtomicU32,
    text: [AtomicU64; INTENT_TEXT / 8],
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Intent>() <= INTENT_BYTES);

impl Intent {
    /// Process: takes the announcement if it is free.
    pub fn claim(&self, pid: u32) -> bool {
        self.pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Process: names the file it is about to run, or that a new process already runs.
    pub fn announce(&self, file: impl Iterator<Item = u8>, how: How) {
        self.namespace.store(how.namespace, Ordering::Relaxed);
        self.slot.store(how.slot, Ordering::Relaxed);
        self.generation.store(how.generation, Ordering::Relaxed);
        let flags = u32::from(how.spawned)
            | u32::from(how.unreachable) << 1
            | u32::from(how.sandboxed) << 2;
        self.flags.store(flags, Ordering::Relaxed);
        self.order.store(how.order, Ordering::Relaxed);
        let mut len = 0;
        let mut word = 0u64;
        for byte in file.take(INTENT_TEXT) {
            word |= u64::from(byte) << (8 * (len % 8));
            self.text[len / 8].store(word, Ordering::Relaxed);
            len += 1;
            if len.is_multiple_of(8) {
                word = 0;
            }
        }
        self.len.store(len as u32 + 1, Ordering::Release);
    }

    /// Either side: the announcement is over.
    pub fn clear(&self) {
        self.len.store(0, Ordering::Relaxed);
        self.pid.store(0, Ordering::Release);
    }

    /// Collector: who announced, once the name is whole.
    pub fn pid(&self) -> Option<u32> {
        let pid = self.pid.load(Ordering::Acquire);
        (pid != 0 && self.len.load(Ordering::Acquire) != 0).then_some(pid)
    }

    /// Collector: all but the file's name.
    pub fn how(&self) -> How {
        let flags = self.flags.load(Ordering::Relaxed);
        How {
            namespace: self.namespace.load(Ordering::Relaxed),
            slot: self.slot.load(Ordering::Relaxed),
            generation: self.generation.load(Ordering::Relaxed),
            spawned: flags & 1 != 0,
            unreachable: flags & 2 != 0,
            sandboxed: flags & 4 != 0,
            order: self.order.load(Ordering::Relaxed),
        }
    }

    /// Collector: the file's name.
    pub fn file(&self) -> impl Iterator<Item = u8> + '_ {
        let len = self.len.load(Ordering::Acquire).saturating_sub(1) as usize;
        (0..len.min(INTENT_TEXT))
            .map(|i| (self.text[i / 8].load(Ordering::Relaxed) >> (8 * (i % 8))) as u8)
    }
}

/// Why a program that has the library is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A limit leaves no room for what the library maps.
    Limit {
        /// On the data segment, or else on all of the address space.
        is_data: bool,
        /// The limit.
        bytes: u64,
        /// What the library takes.
        ours: u64,
        /// A limit from which on there is room for both.
        roomy: u64,
    },
    /// A system call failed that the library can't do without.
    Call {
        /// Its number.
        number: u32,
        /// The error's number.
        error: u32,
    },
}

/// What a process has left that could not map the arena: written into its file, at a place by the process's
/// number.
#[repr(C)]
pub struct Refusal([AtomicU64; Refusal::WORDS]);

const _: () = assert!(REFUSALS_AT + REFUSALS * Refusal::BYTES <= HEADER_BYTES);

impl Refusal {
    const WORDS: usize = 6;
    /// Bytes of it.
    pub const BYTES: usize = Self::WORDS * 8;
    const LIMIT: u64 = 1;
    const LIMIT_ON_DATA: u64 = 2;
    const CALL: u64 = 3;

    /// Process: where to write, and what.
    pub fn bytes(pid: u32, namespace: u64, why: Why) -> (usize, [u8; Self::BYTES]) {
        let (kind, [first, second, third]) = match why {
            Why::Limit { is_data: false, bytes, ours, roomy } => {
                (Self::LIMIT, [bytes, ours, roomy])
            }
            Why::Limit { is_data: true, bytes, ours, roomy } => {
                (Self::LIMIT_ON_DATA, [bytes, ours, roomy])
            }
            Why::Call { number, error } => (Self::CALL, [number.into(), error.into(), 0]),
        };
        let mut bytes = [0; Self::BYTES];
        let words = [pid.into(), namespace, kind, first, second, third];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        (REFUSALS_AT + pid as usize % REFUSALS * Self::BYTES, bytes)
    }

    /// Collector: who has refused, as process id and namespace, and why.
    pub fn read(&self) -> Option<((u32, u64), Why)> {
        let [pid, namespace, kind, first, second, third] =
            self.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        let is_data = kind == Self::LIMIT_ON_DATA;
        let why = match kind {
            Self::LIMIT | Self::LIMIT_ON_DATA => {
                Why::Limit { is_data, bytes: first, ours: second, roomy: third }
            }
            Self::CALL => Why::Call { number: first as u32, error: second as u32 },
            _ => return None,
        };
        Some(((pid as u32, namespace), why))
    }
}

/// The arena as it is mapped: turns its base address into the tables that lie in it.
#[cfg(not(loom))]
#[derive(Clone, Copy)]
pub struct Arena(*mut u8);

#[cfg(not(loom))]
// SAFETY: an arena is shared memory; all that is reached through it is atomic, and the bytes of a
// chunk are handed over by its published length.
unsafe impl Send for Arena {}
#[cfg(not(loom))]
// SAFETY: as above.
unsafe impl Sync for Arena {}

#[cfg(not(loom))]
impl Arena {
    /// # Safety
    /// `base` is page-aligned and points to [`ARENA_BYTES`] of readable and writable shared memory
    /// that stays mapped for `'static`.
    pub const unsafe fn new(base: *mut u8) -> Arena {
        Arena(base)
    }

    /// Where it is mapped.
    pub const fn base(self) -> *mut u8 {
        self.0
    }

    fn at<T>(self, offset: usize) -> &'static T {
        // SAFETY: every offset used below lies in the arena and is aligned for what lies there; the
        // types consist of atomics, for which any bytes are valid.
        unsafe { &*self.0.add(offset).cast::<T>() }
    }

    fn table<T>(self, offset: usize, len: usize) -> &'static [T] {
        // SAFETY: as in `at`.
        unsafe { core::slice::from_raw_parts(self.0.add(offset).cast::<T>(), len) }
    }

    /// The header.
    pub fn session(self) -> &'static Session {
        self.at(0)
    }

    /// Where a process with this number leaves why it is not recorded.
    pub fn refusal(self, pid: u32) -> &'static Refusal {
        self.at(REFUSALS_AT + pid as usize % REFUSALS * Refusal::BYTES)
    }

    /// The announcement with this number.
    pub fn intent(self, index: usize) -> &'static Intent {
        self.at(INTENTS_AT + index % INTENTS * INTENT_BYTES)
    }

    /// The owner words of the large chunks, by extent.
    pub fn large_owners(self) -> &'static [AtomicU64] {
        self.table(LARGE_OWNERS_AT, EXTENTS)
    }

    /// The owner words of the small chunks, sixteen an extent.
    pub fn small_owners(self) -> &'static [AtomicU64] {
        self.table(SMALL_OWNERS_AT, SMALLS)
    }

    /// A process slot.
    pub fn slot(self, index: usize) -> &'static crate::process::ProcessSlot {
        self.at(SLOTS_AT + index % SLOTS * SLOT_BYTES)
    }

    /// The start of a large chunk.
    pub fn large(self, index: usize) -> *mut u8 {
        // SAFETY: the extent lies in the arena.
        unsafe { self.0.add(EXTENTS_AT + index % EXTENTS * LARGE_BYTES) }
    }

    /// The start of a small chunk.
    pub fn small(self, index: usize) -> *mut u8 {
        // SAFETY: the chunk lies in the arena.
        unsafe { self.0.add(EXTENTS_AT + index % SMALLS * crate::chunk::SMALL_BYTES) }
    }
}
