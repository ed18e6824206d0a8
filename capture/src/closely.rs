//! Calls that are not charged in the usual way: blocks of some callers stand in other rows, or blocks are
//! charged by their [usable sizes](crate::usable).

use core::cell::Cell;

use crate::apart::{self, Row};
use crate::counting::{LARGE, is_by_usable};
use crate::doubtful::Doubtful;
use crate::heads::usable_size;
use crate::lane::{Lane, Old};
use crate::next::{ENOMEM, UsableSize, next, set_errno};
use crate::sizes::Known;
use crate::{loading, refusing, spending, usable};

/// An allocation.
#[inline(never)]
pub fn allocate(
    lane: Lane,
    bytes: u64,
    caller: usize,
    ask: UsableSize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    if !loading::goes_on(caller) {
        set_errno(ENOMEM);
        return lane.fail();
    }
    let row = Row::of_caller(caller);
    if is_by_usable() || (bytes >= LARGE && usable::goes_back(ask)) {
        return usable::allocate(lane, row, bytes, caller, ask, make);
    }
    let Some(row) = apart::charge(lane, row, 0, bytes, caller) else {
        return lane.refuse(bytes, caller);
    };
    let block = make();
    if block.is_null() {
        apart::give_up(lane, row, bytes);
        return lane.fail();
    }
    count(lane, row, block, bytes, caller, || usable_size(block, bytes, || ask));
    block
}

/// Counts a block in this row.
pub fn count(
    lane: Lane,
    row: Row,
    block: *mut u8,
    bytes: u64,
    caller: usize,
    usable: impl FnOnce() -> u64,
) {
    match row.module() {
        Some(module) => lane.count_for(module, block, bytes, usable),
        None => lane.count(block, bytes, caller, usable),
    }
}

/// Counts a block that was made before anything was charged for it, and gives it back. One that does not fit goes back to the
/// allocator, and null to the program; but for one that is in the place of an earlier one.
#[cold]
#[inline(never)]
pub fn count_made(
    lane: Lane,
    block: *mut u8,
    bytes: u64,
    caller: usize,
    is_in_place: bool,
) -> *mut u8 {
    let (row, ask) = (Row::of_caller(caller), next().sizes.malloc);
    let held = usable::held(block, bytes, ask);
    let charged = if is_by_usable() { held } else { bytes };
    let row = match apart::charge(lane, row, 0, charged, caller) {
        Some(row) => row,
        None if is_in_place => {
            refusing::refuse(lane, bytes, caller);
            row
        }
        None => {
            usable::give_unseen_back(block, ask);
            return lane.refuse(bytes, caller);
        }
    };
    let told = || if is_by_usable() { held } else { usable_size(block, bytes, || ask) };
    count(lane, row, block, bytes, caller, told);
    block
}

/// Gives a block back by `free`.
#[inline(never)]
pub fn release(lane: Lane, known: Known, block: *mut u8, free: impl FnOnce(*mut u8)) {
    let ask = next().sizes.malloc;
    let charged = if is_by_usable() {
        // Once it is given back it can't be asked.
        let held = usable::held(block, known.size, ask);
        lane.uncount(known, || held);
        held
    } else {
        lane.uncount(known, || usable_size(block, known.size, || ask));
        known.size
    };
    free(block);
    apart::release(lane, known, charged);
}

/// A reallocation: where a block does not stay in the usual row, the new one is charged whole before the old
/// one is given back.
#[inline(never)]
pub fn reallocate(
    lane: Lane,
    old: Old,
    bytes: u64,
    caller: usize,
    make: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let row = Row::of_caller(caller);
    if is_by_usable() {
        return usable::reallocate(lane, row, old, bytes, caller, make);
    }
    let own = old.own();
    let charged = own.map_or(0, |known| known.size);
    let before = if is_usual(own) { charged } else { 0 };
    let doubtful = Cell::new(None);
    let spend = |lane: Lane, bytes: u64| {
        if row != Row::Usual || bytes < LARGE {
            return spending::spend(lane, bytes);
        }
        let spent = Doubtful::spend(lane, bytes);
        let is_spent = spent.is_some();
        doubtful.set(spent);
        is_spent
    };
    let Some(row) = apart::charge_by(spend, lane, row, before, bytes, caller) else {
        return lane.refuse_reallocation(old, bytes, caller);
    };
    let ask = next().sizes.malloc;
    let usable = old.known.map_or(0, |known| usable_size(old.block, known.size, || ask));
    let block = make();
    if block.is_null() && bytes > 0 {
        old.put_back();
        match doubtful.take() {
            Some(doubtful) => doubtful.fail(),
            None => apart::give_up(lane, row, row.due(before, bytes)),
        }
        return lane.fail();
    }
    doubtful.take().into_iter().for_each(Doubtful::confirm);
    lane.uncount_moved(old.known, usable);
    if !block.is_null() {
        count(lane, row, block, bytes, caller, || usable_size(block, bytes, || ask));
    }
    give_old_back(lane, own, charged, row.over(before, bytes));
    block
}

/// Whether a block stands in the usual row.
pub fn is_usual(own: Option<Known>) -> bool {
    own.is_some_and(|known| Row::of_module(known.module()) == Row::Usual)
}

/// Gives back what a reallocation has left over: of the usual row, or all that was charged for the old block
/// in another one.
pub fn give_old_back(lane: Lane, own: Option<Known>, charged: u64, over: u64) {
    match own {
        Some(known) if !is_usual(own) => apart::release(lane, known, charged),
        _ => apart::give_back(lane, Row::Usual, over),
    }
}
