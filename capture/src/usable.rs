//! Blocks that are made before they are charged: those that are charged by their usable sizes, as the allocator tells
//! them, and large ones that are looked at closely.
//!
//! How large a block is shows when it was made. So it is made first, asked, and charged to the byte; what does
//! not fit is given back to the allocator, and the program never has it. Nothing is charged that is not held
//! then, and nobody else is refused for it.
//!
//! A block that is resized may lose its old place. So what it can be at the most is charged before, and the
//! rest given back at once, which others [wait](crate::spending) for before they are refused. Where there
//! is no room for that, a new block is made like any other, and what was in the old one is copied.

use core::ptr::copy_nonoverlapping;

use crate::apart::{self, Row};
use crate::closely::{count, give_old_back, is_usual};
use crate::counting::{self, is_by_usable, ledger};
use crate::heads::usable_size;
use crate::lane::{Lane, Old};
use crate::next::{UsableSize, next};

/// What is charged for a block: no less than was asked for, where its allocator can't be asked.
pub fn held(block: *mut u8, bytes: u64, ask: UsableSize) -> u64 {
    usable_size(block, bytes, || ask)
}

/// No request beyond the whole limit can fit: nothing is made for it.
pub fn is_hopeless(lane: Lane, row: Row, bytes: u64) -> bool {
    lane.purse.is_some() && row.is_held() && bytes > ledger().budget().limit()
}

/// An allocation in this row.
pub fn allocate(
    lane: Lane,
    row: Row,
    bytes: u64,
    caller: usize,
    ask: UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    match make_charged(lane, row, 0, bytes, caller, ask, make) {
        Made::Block(block, row, held) => {
            let usable = || if is_by_usable() { held } else { usable_size(block, bytes, || ask) };
            count(lane, row, block, bytes, caller, usable);
            block
        }
        Made::Failed => lane.fail(),
        Made::Refused => lane.refuse(bytes, caller),
    }
}

/// What came of making a block.
enum Made {
    /// It is charged, so much, in this row.
    Block(*mut u8, Row, u64),
    /// There is no memory, or the arguments are wrong.
    Failed,
    /// It does not fit.
    Refused,
}

/// Makes a block and charges it, or what it is more than `before`.
fn make_charged(
    lane: Lane,
    row: Row,
    before: u64,
    bytes: u64,
    caller: usize,
    ask: UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> Made {
    if is_hopeless(lane, row, bytes) {
        return Made::Refused;
    }
    let block = make();
    if block.is_null() {
        return Made::Failed;
    }
    let held = if is_by_usable() { held(block, bytes, ask) } else { bytes };
    match apart::charge(lane, row, before, held, caller) {
        Some(row) => Made::Block(block, row, held),
        None => {
            give_unseen_back(block, ask);
            Made::Refused
        }
    }
}

/// Whether a block can be given back that was made by the function which this belongs to: not one that libc has made because
/// the allocator lacks the function.
pub fn goes_back(ask: UsableSize) -> bool {
    core::ptr::fn_addr_eq(ask, next().sizes.malloc)
}

/// Gives a block back that the program has not seen, if it [goes back](goes_back); else it is lost.
pub fn give_unseen_back(block: *mut u8, ask: UsableSize) {
    if goes_back(ask) {
        // SAFETY: a block of the allocator's that nobody else has.
        unsafe { (next().free)(block) };
    }
}

/// A reallocation to this row.
pub fn reallocate(
    lane: Lane,
    row: Row,
    old: Old,
    bytes: u64,
    caller: usize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let asked_for = old.known.map_or(0, |known| known.size);
    let sizes = Sizes { held: held(old.block, asked_for, next().sizes.malloc), bytes };
    resize_ahead(lane, row, old, sizes, caller, make)
        .unwrap_or_else(|| copy(lane, row, old, sizes, caller))
}

/// The sizes of a reallocation.
#[derive(Clone, Copy)]
struct Sizes {
    /// What the old block is charged with, or would be if it were the process's own.
    held: u64,
    /// What is asked for.
    bytes: u64,
}

impl Sizes {
    /// What is charged for the old block, if it stands in the usual row.
    fn before(self, old: Old) -> u64 {
        if is_usual(old.own()) { self.held } else { 0 }
    }

    /// What the new block is at the most: allocators round up by a quarter, or to pages of 64 KiB, and none makes
    /// a block larger when it is to be smaller.
    fn bound(self) -> u64 {
        const PAGE: u64 = 64 << 10;
        if self.bytes <= self.held {
            return self.held;
        }
        self.bytes.saturating_add(self.bytes / 4).saturating_add(PAGE)
    }
}

/// Charges ahead, and lets the allocator resize the block; `None` where that does not fit.
fn resize_ahead(
    lane: Lane,
    row: Row,
    old: Old,
    sizes: Sizes,
    caller: usize,
    make: impl FnOnce() -> *mut u8,
) -> Option<*mut u8> {
    let (before, bound, bytes) = (sizes.before(old), sizes.bound(), sizes.bytes);
    let due = row.due(before, bound);
    let ahead = Ahead::begin(due);
    if !apart::charge_ahead(lane, row, due) {
        return None;
    }
    let block = make();
    if block.is_null() && bytes > 0 {
        old.put_back();
        apart::give_back(lane, row, due);
        return Some(lane.fail());
    }
    lane.uncount_moved(old.known, sizes.held);
    let held = if block.is_null() { 0 } else { held(block, bytes, next().sizes.malloc) };
    if !block.is_null() {
        count(lane, row, block, bytes, caller, || held);
    }
    let charged = if row == Row::Usual { before.max(bound) } else { bound };
    apart::give_back(lane, row, charged.saturating_sub(held));
    drop(ahead);
    let over = if row == Row::Usual { 0 } else { before };
    give_old_back(lane, old.own(), sizes.held, over);
    // Should an allocator have made more of it than any that is known.
    if let Some(more @ 1..) = held.checked_sub(charged) {
        apart::charge(lane, row, 0, more, caller);
    }
    Some(block)
}

/// Makes a new block, copies what was in the old one, and gives that back.
fn copy(lane: Lane, row: Row, old: Old, sizes: Sizes, caller: usize) -> *mut u8 {
    let (ask, before, bytes) = (next().sizes.malloc, sizes.before(old), sizes.bytes);
    // How long a block is that nobody knows, nobody can copy.
    if sizes.held == 0 {
        return lane.refuse_reallocation(old, bytes, caller);
    }
    // SAFETY: an allocation like any other.
    let make = || unsafe { (next().malloc)(bytes as usize) };
    let (block, row, held) = match make_charged(lane, row, before, bytes, caller, ask, make) {
        Made::Block(block, row, held) => (block, row, held),
        Made::Failed => {
            old.put_back();
            return lane.fail();
        }
        Made::Refused => return lane.refuse_reallocation(old, bytes, caller),
    };
    lane.uncount_moved(old.known, sizes.held);
    // SAFETY: both blocks are at least that long, and distinct; the old one is given back as the program asked.
    unsafe {
        copy_nonoverlapping(old.block, block, sizes.held.min(bytes) as usize);
        (next().free)(old.block);
    }
    count(lane, row, block, bytes, caller, || held);
    give_old_back(lane, old.own(), sizes.held, row.over(before, held));
    block
}

/// Bytes that are charged ahead, as long as this lives.
struct Ahead(u64);

impl Ahead {
    fn begin(bytes: u64) -> Ahead {
        if bytes > 0 {
            note(bytes);
            ledger().header().ahead.begin(bytes);
        }
        Ahead(bytes)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.0 > 0 {
            ledger().header().ahead.end(self.0);
            note(self.0.wrapping_neg());
        }
    }
}

/// In the account, so that what a process that dies meanwhile has begun is ended for it.
fn note(more: u64) {
    if let Some(account) = counting::account() {
        account.charge_ahead(more);
    }
}
