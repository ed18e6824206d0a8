//! Spare blocks: the memory of packed ones goes back to the writer, which then need not get it
//! page by page from the kernel for each block.

use crate::block::{BLOCK_ITEMS, RawBlock};
use crate::tally::Tally;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

/// Spare blocks that are kept.
const SPARES: usize = 3;

/// Spare blocks, shared by the writer and the frames that it sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    spares: Arc<Mutex<Vec<RawBlock>>>,
}

impl Pool {
    /// The first block of a process.
    pub(crate) fn first(&self, start: Tally) -> Pooled {
        Pooled { block: RawBlock::new(start), pool: self.clone() }
    }

    /// The block after `before`: a spare one if that was about full.
    pub(crate) fn follower(&self, before: &RawBlock, start: Tally) -> Pooled {
        let full = before.items() > BLOCK_ITEMS / 2;
        let spare = if full { self.spares.lock().ok().and_then(|mut all| all.pop()) } else { None };
        let mut block = spare.unwrap_or_else(|| before.follower(start));
        block.begin(start);
        Pooled { block, pool: self.clone() }
    }

    fn put(&self, block: RawBlock) {
        if block.items() > BLOCK_ITEMS / 2
            && let Ok(mut spares) = self.spares.lock()
            && spares.len() < SPARES
        {
            spares.push(block);
        }
    }
}

/// A block whose memory goes back to the pool.
#[derive(Debug)]
pub(crate) struct Pooled {
    block: RawBlock,
    pool: Pool,
}

impl Deref for Pooled {
    type Target = RawBlock;

    #[inline]
    fn deref(&self) -> &RawBlock {
        &self.block
    }
}

impl DerefMut for Pooled {
    #[inline]
    fn deref_mut(&mut self) -> &mut RawBlock {
        &mut self.block
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.block));
    }
}
