//! Chunks into lanes: what each thread has published, copied out of shared memory in order.
//!
//! A sealed chunk is given back as soon as it is copied. Positions are dense in each thread's stream,
//! so a gap would show, and counts as lost.

use std::collections::VecDeque;

use crate::arena::{Chunk, SharedArena};

/// A chunk that a lane is reading.
#[derive(Debug)]
struct Reading {
    chunk: Chunk,
    /// Where the chunk begins in the thread's stream, in bytes.
    first: u64,
    /// Bytes already copied.
    copied: usize,
}

/// One thread's stream.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The thread's number on the tape.
    pub(crate) number: u32,
    /// The thread's number in the library, which is used again after its end.
    pub(crate) slot: u16,
    /// The kernel's number.
    pub(crate) tid: u32,
    chunks: VecDeque<Reading>,
    /// Bytes of the stream copied so far.
    position: u64,
    /// Copied and not yet merged.
    words: Vec<u64>,
    /// Words of `words` that have been merged.
    pub(crate) merged: usize,
    /// Words that had been published when the first look of this round began.
    pub(crate) settled: usize,
    /// The stamp of the last stamped record.
    pub(crate) stamp: u64,
    /// The session clock at the last record.
    pub(crate) time: u64,
    free_null: u64,
    dropped: u64,
    /// Bytes that never came.
    missing: u64,
    /// Nothing more can be read from it.
    pub(crate) broken: bool,
}

impl Lane {
    pub(crate) fn new(number: u32, slot: u16, tid: u32) -> Lane {
        Lane {
            number,
            slot,
            tid,
            chunks: VecDeque::new(),
            position: 0,
            words: Vec::new(),
            merged: 0,
            settled: 0,
            stamp: 0,
            time: 0,
            free_null: 0,
            dropped: 0,
            missing: 0,
            broken: false,
        }
    }

    /// A chunk of this thread was found.
    pub(crate) fn attach(&mut self, chunk: Chunk, first: u64) {
        let at = self.chunks.partition_point(|other| other.first < first);
        self.chunks.insert(at, Reading { chunk, first, copied: 0 });
    }

    /// Copies what is new; gives sealed chunks back (through `done`) when they are copied.
    pub(crate) fn copy(&mut self, arena: &SharedArena, done: &mut Vec<Chunk>) -> bool {
        self.compact();
        let before = self.words.len();
        while let Some(reading) = self.chunks.front_mut() {
            // A chunk further on may be found before the one between.
            if reading.first != self.position - reading.copied as u64 {
                break;
            }
            let capacity = SharedArena::capacity(reading.chunk);
            let Some(view) = arena.header(reading.chunk).view(capacity) else { break };
            if view.published > reading.copied {
                arena.copy(reading.chunk, reading.copied, view.published, &mut self.words);
                self.position += (view.published - reading.copied) as u64;
                reading.copied = view.published;
            }
            if !view.sealed {
                break;
            }
            self.release_front(arena, done);
        }
        self.words.len() > before
    }

    fn release_front(&mut self, arena: &SharedArena, done: &mut Vec<Chunk>) {
        let Some(reading) = self.chunks.pop_front() else { return };
        if let Some(view) = arena.header(reading.chunk).view(0) {
            self.free_null += view.free_null;
            self.dropped += view.dropped;
        }
        arena.release(reading.chunk);
        done.push(reading.chunk);
    }

    /// The thread is gone: gives all its chunks back. What lies behind a gap is counted as missing.
    pub(crate) fn close(&mut self, arena: &SharedArena, done: &mut Vec<Chunk>) {
        while let Some(reading) = self.chunks.front() {
            let copied_to = reading.first + reading.copied as u64;
            if copied_to != self.position {
                let published = arena.header(reading.chunk).view(usize::MAX);
                self.missing += published.map_or(0, |v| v.published as u64).max(8);
            }
            self.release_front(arena, done);
        }
    }

    /// Words that wait to be merged.
    pub(crate) fn pending(&self) -> &[u64] {
        self.words_from(self.merged)
    }

    /// Copied words from `at` on.
    pub(crate) fn words_from(&self, at: usize) -> &[u64] {
        self.words.get(at..).unwrap_or_default()
    }

    /// Words as if they had been copied from a chunk.
    #[cfg(test)]
    pub(crate) fn feed(&mut self, words: &[u64]) {
        self.words.extend_from_slice(words);
    }

    /// Marks the end of what was published when this round's first look began.
    pub(crate) fn settle(&mut self) {
        self.settled = self.words.len();
    }

    /// Whether all that had to be merged this round is.
    pub(crate) fn is_settled(&self) -> bool {
        self.broken || self.merged >= self.settled
    }

    /// Whether nothing is left to merge or to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.broken || self.merged >= self.words.len()
    }

    /// Whether anything of it has been read.
    pub(crate) fn has_begun(&self) -> bool {
        self.position > 0
    }

    /// Whether the thread still holds a chunk.
    pub(crate) fn holds_chunks(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Calls of `free(NULL)` in the chunks that were given back.
    pub(crate) fn free_null(&self) -> u64 {
        self.free_null
    }

    /// Events that happened and will never be read, at least.
    pub(crate) fn lost(&self) -> u64 {
        self.dropped + self.missing.div_ceil(16) + u64::from(self.broken)
    }

    fn compact(&mut self) {
        if self.merged == self.words.len() {
            self.words.clear();
        } else if self.merged > 0 {
            self.words.drain(..self.merged);
        }
        self.settled = self.settled.saturating_sub(self.merged);
        self.merged = 0;
    }
}
