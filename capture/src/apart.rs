//! Blocks that stand apart from the others: those of the MPI runtime's start, and those that were served
//! from the reserve. In the [side map](crate::sizes) they have a module of their own.

use heaptape_wire::ledger::{RESERVED_MODULES, STARTING_MODULES};

use crate::counting::Lane;
use crate::sizes::Known;
use crate::{charges, reserve, spending, starting};

/// Where a block is charged.
#[derive(Clone, Copy, PartialEq)]
pub enum Row {
    /// With all other blocks.
    Usual,
    /// With the start of the MPI runtime.
    Starting,
    /// Not at all: the reserve was.
    Reserve,
}

impl Row {
    /// The module of blocks in this row; `None` for the caller's.
    pub fn module(self) -> Option<usize> {
        match self {
            Row::Usual => None,
            Row::Starting => Some(STARTING_MODULES),
            Row::Reserve => Some(RESERVED_MODULES),
        }
    }

    /// What a reallocation of a block for which `before` bytes are charged in the usual row has to charge.
    pub fn due(self, before: u64, bytes: u64) -> u64 {
        if self == Row::Usual { bytes.saturating_sub(before) } else { bytes }
    }

    /// What it gives back then.
    pub fn over(self, before: u64, bytes: u64) -> u64 {
        if self == Row::Usual { before.saturating_sub(bytes) } else { before }
    }
}

/// Whether blocks of this module stand apart.
#[inline(always)]
pub fn is_module(module: usize) -> bool {
    module == STARTING_MODULES || module == RESERVED_MODULES
}

/// Charges a block of so many bytes, or what it is more than `before`; its row, or `None` when it does not fit.
pub fn charge(lane: Lane, before: u64, bytes: u64, caller: usize) -> Option<Row> {
    if starting::is_its(caller) {
        return charges::charge_block(lane, bytes).then_some(Row::Starting);
    }
    if spending::spend(lane, Row::Usual.due(before, bytes)) {
        return Some(Row::Usual);
    }
    reserve::take(bytes, caller).then_some(Row::Reserve)
}

/// Gives back what was charged for a block in this row.
pub fn give_back(lane: Lane, row: Row, bytes: u64) {
    match row {
        Row::Usual => spending::refund(lane, bytes),
        Row::Starting => charges::give_block_back(lane, bytes),
        Row::Reserve => reserve::put_back(bytes),
    }
}

/// A block that stood apart was given back.
#[cold]
#[inline(never)]
pub fn release(lane: Lane, known: Known) {
    let is_reserved = known.module() == RESERVED_MODULES;
    if !known.is_inherited() {
        give_back(lane, if is_reserved { Row::Reserve } else { Row::Starting }, known.size);
    }
}
