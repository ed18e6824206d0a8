//! Chunks into lanes: what each thread has published, in order.
//!
//! A look only finds out how far each thread has come. Its words are copied out of shared memory a chunk
//! at a time, when the merge asks for them: they are then still in the processor's caches when they are
//! read. A sealed chunk is given back as soon as it is copied. Positions are dense in each thread's
//! stream, so a gap would show, and counts as lost.

use std::collections::VecDeque;

use crate::arena::{Chunk, SharedArena};
use crate::process::BYTES_PER_EVENT;

/// A chunk that a lane is reading.
#[derive(Clone, Debug)]
struct Reading {
    chunk: Chunk,
    /// Where the chunk begins in the thread's stream, in bytes.
    first: u64,
    /// Bytes that the thread had published at the last look.
    published: usize,
    /// Whether the thread had gone on to another chunk.
    sealed: bool,
    /// Bytes already copied.
    copied: usize,
}

impl Reading {
    fn end(&self) -> u64 {
        self.first + self.published as u64
    }
}

/// Chunks that are given back together. A thread that waited for one then finds a stretch of work, and
/// does not wait again for each of them.
const TOGETHER: usize = 32;

/// Where words come from, and where the chunks go that are done with: back to the arena, at the latest
/// when this is dropped.
pub(crate) struct Source<'a> {
    arena: &'a SharedArena,
    done: &'a mut Vec<Chunk>,
    /// How many of `done` have been given back.
    given: usize,
}

impl<'a> Source<'a> {
    /// A source that adds the chunks it gives back to `done`.
    pub(crate) fn new(arena: &'a SharedArena, done: &'a mut Vec<Chunk>) -> Source<'a> {
        let given = done.len();
        Source { arena, done, given }
    }

    fn is_done_with(&mut self, chunk: Chunk) {
        self.done.push(chunk);
        if self.done.len() - self.given >= TOGETHER {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        self.done[self.given..].iter().for_each(|&chunk| self.arena.release(chunk));
        self.given = self.done.len();
    }
}

impl Drop for Source<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// One thread's stream. Positions in it are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// The thread's number on the tape.
    pub(crate) number: u32,
    /// The thread's number in the library, which is used again after its end.
    pub(crate) slot: u16,
    /// The kernel's number.
    pub(crate) tid: u32,
    /// 0 for the thread's own stream; else this is what its signal handlers did while a record of the
    /// stream around this one was being written.
    pub(crate) depth: u32,
    chunks: VecDeque<Reading>,
    /// Up to where the stream is known to be published.
    visible: u64,
    /// Up to where it had been published when the first look of this round began.
    settled: u64,
    /// Up to where it is copied: the end of `words`.
    position: u64,
    words: Vec<u64>,
    /// Words of `words` that have been merged.
    pub(crate) merged: usize,
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
    /// The thread is gone, and so are its chunks.
    closed: bool,
}

impl Lane {
    pub(crate) fn new(number: u32, slot: u16, tid: u32) -> Lane {
        Lane {
            number,
            slot,
            tid,
            depth: 0,
            chunks: VecDeque::new(),
            visible: 0,
            settled: 0,
            position: 0,
            words: Vec::new(),
            merged: 0,
            stamp: 0,
            time: 0,
            free_null: 0,
            dropped: 0,
            missing: 0,
            broken: false,
            closed: false,
        }
    }

    /// A chunk of this thread was found.
    pub(crate) fn attach(&mut self, chunk: Chunk, first: u64) {
        let at = self.chunks.partition_point(|other| other.first < first);
        self.chunks.insert(at, Reading { chunk, first, published: 0, sealed: false, copied: 0 });
    }

    /// Looks how far the thread has come; the bytes that it has written since the last look.
    pub(crate) fn look(&mut self, source: &mut Source<'_>) -> u64 {
        let before = self.visible;
        let mut at = self.position;
        for reading in &mut self.chunks {
            // A chunk further on may be found before the one between.
            if reading.first + reading.copied as u64 != at {
                break;
            }
            let capacity = SharedArena::capacity(reading.chunk);
            let Some(view) = source.arena.header(reading.chunk).view(capacity) else { break };
            reading.published = reading.published.max(view.published);
            reading.sealed = view.sealed;
            at = reading.end();
            if !reading.sealed {
                break;
            }
        }
        self.visible = self.visible.max(at);
        self.release_copied(source);
        self.visible - before
    }

    /// Copies the next words that the last look has seen, after all before are merged; false if there
    /// are none.
    pub(crate) fn pull(&mut self, source: &mut Source<'_>) -> bool {
        self.words.clear();
        self.merged = 0;
        if self.position >= self.visible {
            return false;
        }
        self.release_copied(source);
        let Some(reading) = self.chunks.front_mut() else { return false };
        source.arena.copy(reading.chunk, reading.copied, reading.published, &mut self.words);
        reading.copied = reading.published;
        self.position = reading.end();
        self.release_copied(source);
        true
    }

    /// Gives back the chunks that are sealed and copied.
    fn release_copied(&mut self, source: &mut Source<'_>) {
        while let Some(reading) = self.chunks.front()
            && reading.sealed
            && reading.copied == reading.published
            && reading.end() == self.position
        {
            self.release_front(source);
        }
    }

    fn release_front(&mut self, source: &mut Source<'_>) {
        let Some(reading) = self.chunks.pop_front() else { return };
        if let Some(view) = source.arena.header(reading.chunk).view(0) {
            self.free_null += view.free_null;
            self.dropped += view.dropped;
        }
        source.is_done_with(reading.chunk);
    }

    /// The thread is gone: gives all its chunks back. What lies behind a gap is counted as missing.
    pub(crate) fn close(&mut self, source: &mut Source<'_>) {
        self.closed = true;
        while let Some(reading) = self.chunks.front() {
            if reading.first + reading.copied as u64 != self.position {
                let published = source.arena.header(reading.chunk).view(usize::MAX);
                self.missing += published.map_or(0, |v| v.published as u64).max(8);
            }
            self.release_front(source);
        }
    }

    /// Copied words from `at` on.
    pub(crate) fn words_from(&self, at: usize) -> &[u64] {
        self.words.get(at..).unwrap_or_default()
    }

    /// Whether the words up to `at` are all that had to be merged this round.
    pub(crate) fn is_settled_at(&self, at: usize) -> bool {
        self.position - 8 * self.words.len().saturating_sub(at) as u64 >= self.settled
    }

    /// The first of the copied words that need not be merged this round.
    pub(crate) fn settled_word(&self) -> usize {
        let later = self.position.saturating_sub(self.settled) / 8;
        self.words.len().saturating_sub(usize::try_from(later).unwrap_or(usize::MAX))
    }

    /// Words as if they had been copied from a chunk.
    #[cfg(test)]
    pub(crate) fn feed(&mut self, words: &[u64]) {
        self.words.extend_from_slice(words);
        self.position += 8 * words.len() as u64;
        self.visible = self.position;
    }

    /// Bytes as if they had been seen in a chunk, which is gone.
    #[cfg(test)]
    pub(crate) fn expect(&mut self, bytes: u64) {
        self.visible += bytes;
        self.settle();
    }

    /// Marks the end of what was published when this round's first look began.
    pub(crate) fn settle(&mut self) {
        self.settled = self.visible;
    }

    /// Whether all that had to be merged this round is.
    pub(crate) fn is_settled(&self) -> bool {
        self.broken || self.is_settled_at(self.merged)
    }

    /// Whether nothing is left to merge or to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.broken || (self.merged >= self.words.len() && self.position >= self.visible)
    }

    /// Whether nothing more will come. A thread that has just sealed a chunk may hold another one that
    /// has not been found yet.
    pub(crate) fn is_finished(&self) -> bool {
        self.closed && self.is_empty()
    }

    /// Whether the thread still holds a chunk.
    pub(crate) fn holds_chunks(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Whether a chunk has still to be found that comes before those which the lane holds: a thread may have
    /// gone on twice while all chunks were looked through.
    pub(crate) fn has_gap(&self) -> bool {
        let begins = |reading: &Reading| reading.first + reading.copied as u64;
        self.chunks.front().is_some_and(|reading| begins(reading) != self.position)
    }

    /// Calls of `free(NULL)` in the chunks that were given back.
    pub(crate) fn free_null(&self) -> u64 {
        self.free_null
    }

    /// Events that happened and will never be read, at least.
    pub(crate) fn lost(&self) -> u64 {
        self.dropped + self.missing.div_ceil(BYTES_PER_EVENT) + u64::from(self.broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_whose_next_chunk_is_not_found_yet_has_a_gap() {
        let mut lane = Lane::new(0, 0, 100);
        lane.feed(&[1, 2]);
        lane.merged = 2;
        assert!(!lane.has_gap());
        lane.attach(Chunk::Large(2), 48);
        assert!(lane.is_empty() && lane.holds_chunks() && lane.has_gap());
        lane.attach(Chunk::Large(1), 16);
        assert!(!lane.has_gap());
    }

    #[test]
    fn a_thread_between_two_chunks_has_not_ended() {
        let mut lane = Lane::new(0, 0, 100);
        lane.feed(&[1, 2]);
        lane.merged = 2;
        assert!(lane.is_empty() && !lane.holds_chunks() && !lane.is_finished());
        let (arena, mut done) = (SharedArena::create(0).unwrap(), Vec::new());
        lane.close(&mut Source::new(&arena, &mut done));
        assert!(lane.is_finished());
    }
}
