//! A chunk: a stretch of the arena that one thread fills and the collector drains.
//!
//! The life of a chunk is a word in the owner table and a header at its start:
//!
//! ```text
//! NONE ──collector offers──▶ FREE ──thread claims──▶ owned ──thread moves on──▶ sealed
//!   ▲                          ▲                       │ drained, thread dead    │ drained
//!   └──────── withdrawn ───────┴───────────────────────┴─────────────────────────┘
//! ```
//!
//! Claiming is one compare-and-swap that also names the owner, so a thread killed at any instant
//! leaves no chunk without one. What a thread has published stays readable whatever becomes of it.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// The owner word of a chunk that is not offered.
pub const NONE: u64 = 0;
/// The owner word of a chunk that any thread may claim.
pub const FREE: u64 = 1;

/// Bytes of a small chunk, a thread's first.
pub const SMALL_BYTES: usize = 4 << 10;
/// Bytes of a large chunk; also the extent that is cut into small ones.
pub const LARGE_BYTES: usize = 64 << 10;
/// Small chunks in an extent.
pub const SMALL_PER_EXTENT: usize = LARGE_BYTES / SMALL_BYTES;
/// Bytes of the header at the start of a chunk.
pub const HEADER_BYTES: usize = 64;

/// The number of a thread that can't tell its own, as in a sandbox.
pub const UNKNOWN_TID: u32 = u32::MAX;

/// Who owns a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The process slot.
    pub slot: u16,
    /// The generation of the slot, which tells its successive processes apart.
    pub generation: u32,
    /// The thread's number in its process.
    pub thread: u16,
}

const OWNED: u64 = 1 << 63;
const GENERATION_MASK: u64 = 0x7fff_ffff;

impl Owner {
    /// The owner word.
    pub const fn to_word(self) -> u64 {
        OWNED
            | (self.generation as u64 & GENERATION_MASK) << 32
            | (self.slot as u64) << 16
            | self.thread as u64
    }

    /// The owner in a word, if it holds one.
    pub const fn from_word(word: u64) -> Option<Owner> {
        if word & OWNED == 0 {
            return None;
        }
        Some(Owner {
            slot: (word >> 16) as u16,
            generation: (word >> 32 & GENERATION_MASK) as u32,
            thread: word as u16,
        })
    }
}

/// Claims the first free chunk of `owners` for `owner`; `None` when there is none.
pub fn claim(owners: &[AtomicU64], owner: Owner) -> Option<usize> {
    owners.iter().position(|word| take(word, owner))
}

/// Claims a free chunk, looking from `start` on round to the beginning: threads that wait all start
/// elsewhere, and so do not all try for the same one.
pub fn claim_from(owners: &[AtomicU64], owner: Owner, start: usize) -> Option<usize> {
    let (before, behind) = owners.split_at_checked(start)?;
    claim(behind, owner).map(|index| start + index).or_else(|| claim(before, owner))
}

fn take(word: &AtomicU64, owner: Owner) -> bool {
    word.load(Ordering::Relaxed) == FREE
        && word.compare_exchange(FREE, owner.to_word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The header of a chunk. Only the owner writes it while it owns the chunk.
#[repr(C, align(64))]
pub struct ChunkHeader {
    /// Bytes of whole records behind the header that may be read.
    published: AtomicU32,
    /// 1 when the header is filled in, 2 when the thread has also moved on to another chunk.
    stage: AtomicU32,
    tid: AtomicU32,
    depth: AtomicU32,
    first: AtomicU64,
    free_null: AtomicU64,
    dropped: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<ChunkHeader>() == HEADER_BYTES);

const BLANK: u32 = 0;
const OPEN: u32 = 1;
const SEALED: u32 = 2;

/// What a reader sees of an open or sealed chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkView {
    /// The kernel's number of the thread.
    pub tid: u32,
    /// 0 in the thread's own stream; else this one is of its signal handlers, so many deep in others.
    pub depth: u32,
    /// Bytes the stream had before this chunk.
    pub first: u64,
    /// Bytes that may be read.
    pub published: usize,
    /// Whether nothing more will come.
    pub sealed: bool,
    /// Calls of `free(NULL)` so far.
    pub free_null: u64,
    /// Events of signal handlers that could not be written, because there was no stream left for them.
    pub dropped: u64,
}

impl Default for ChunkHeader {
    fn default() -> Self {
        ChunkHeader {
            published: AtomicU32::new(0),
            stage: AtomicU32::new(BLANK),
            tid: AtomicU32::new(0),
            depth: AtomicU32::new(0),
            first: AtomicU64::new(0),
            free_null: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }
}

impl ChunkHeader {
    /// Collector, before it offers the chunk: nothing of an earlier owner may show.
    pub fn reset(&self) {
        self.stage.store(BLANK, Ordering::Relaxed);
        self.published.store(0, Ordering::Relaxed);
        self.free_null.store(0, Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
    }

    /// Owner, right after claiming: says which thread writes here, in which of its streams and from
    /// which position on.
    pub fn open(&self, tid: u32, depth: u32, first: u64) {
        self.tid.store(tid, Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
        self.first.store(first, Ordering::Relaxed);
        self.stage.store(OPEN, Ordering::Release);
    }

    /// Owner: everything up to `bytes` behind the header is whole and may be read.
    #[inline(always)]
    pub fn publish(&self, bytes: usize) {
        self.published.store(bytes as u32, Ordering::Release);
    }

    /// Owner: nothing more will come.
    pub fn seal(&self) {
        self.stage.store(SEALED, Ordering::Release);
    }

    /// Owner: one more `free(NULL)`.
    #[inline(always)]
    pub fn count_free_null(&self) {
        // Only the owner writes, so a load and a store lose nothing and cost no locked instruction.
        self.free_null.store(self.free_null.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Owner: one more event that could not be written.
    pub fn count_dropped(&self) {
        self.dropped.store(self.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Collector: what may be read; `None` while the owner has not opened it. A length that can't
    /// be is cut to the chunk's capacity.
    pub fn view(&self, capacity: usize) -> Option<ChunkView> {
        let stage = self.stage.load(Ordering::Acquire);
        if stage != OPEN && stage != SEALED {
            return None;
        }
        let published = self.published.load(Ordering::Acquire) as usize;
        Some(ChunkView {
            tid: self.tid.load(Ordering::Relaxed),
            depth: self.depth.load(Ordering::Relaxed),
            first: self.first.load(Ordering::Relaxed),
            published: published.min(capacity) & !7,
            sealed: stage == SEALED,
            free_null: self.free_null.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn owner_words_read_back() {
        for owner in [
            Owner { slot: 0, generation: 0, thread: 0 },
            Owner { slot: 1023, generation: 0x7fff_ffff, thread: 16383 },
        ] {
            assert_eq!(Owner::from_word(owner.to_word()), Some(owner));
        }
        assert_eq!(Owner::from_word(NONE), None);
        assert_eq!(Owner::from_word(FREE), None);
    }

    #[test]
    fn a_length_beyond_the_chunk_is_cut() {
        let header = ChunkHeader::default();
        assert_eq!(header.view(100), None);
        header.open(1, 0, 0);
        header.publish(4000);
        assert_eq!(header.view(64).unwrap().published, 64);
        assert_eq!(header.view(71).unwrap().published, 64);
    }
}
