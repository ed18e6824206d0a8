//! Blocks that stand apart from the others: those of the MPI runtime's start, those that were served from the
//! reserve, and those of exempt modules. In the [side map](crate::sizes) they have modules of their own.

use core::sync::atomic::{AtomicUsize, Ordering};

use heaptape_wire::ledger::{Kind, RESERVED_MODULES, STARTING_MODULES};

use crate::counting::{self, ledger};
use crate::lane::Lane;
use crate::sizes::Known;
use crate::{callers, charges, reserve, spending, starting};

/// The first of the modules that stand for exempt ones, up to that of the reserve.
static FIRST: AtomicUsize = AtomicUsize::new(RESERVED_MODULES);

/// Begins to count; whether there are exempt modules.
pub fn begin() -> bool {
    let first = ledger().header().exempt.first();
    FIRST.store(first, Ordering::Relaxed);
    first < RESERVED_MODULES
}

/// Where a block is charged.
#[derive(Clone, Copy, PartialEq)]
pub enum Row {
    /// With all other blocks.
    Usual,
    /// With the start of the MPI runtime.
    Starting,
    /// Not at all: the reserve was.
    Reserve,
    /// Not at all: it is for an exempt module, with this number.
    Exempt(usize),
}

impl Row {
    /// That of a block which this caller asks for, if it fits.
    pub fn of_caller(caller: usize) -> Row {
        if FIRST.load(Ordering::Relaxed) < RESERVED_MODULES
            && let number = callers::module_of(caller)
            && is_exempt(number)
        {
            Row::Exempt(number)
        } else if starting::is_its(caller) {
            Row::Starting
        } else {
            Row::Usual
        }
    }

    /// That of a block which stands with this module in the side map.
    pub fn of_module(module: usize) -> Row {
        match module {
            STARTING_MODULES => Row::Starting,
            RESERVED_MODULES => Row::Reserve,
            number if is_exempt(number) => Row::Exempt(number),
            _ => Row::Usual,
        }
    }

    /// The module of blocks in this row; `None` for the caller's.
    pub fn module(self) -> Option<usize> {
        match self {
            Row::Usual => None,
            Row::Starting => Some(STARTING_MODULES),
            Row::Reserve => Some(RESERVED_MODULES),
            Row::Exempt(number) => Some(number),
        }
    }

    /// Whether blocks in this row are held against the limit.
    pub fn is_held(self) -> bool {
        match self {
            Row::Usual | Row::Reserve => true,
            Row::Starting => charges::is_held(Kind::MpiRuntime),
            Row::Exempt(_) => false,
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

/// Whether a module is exempt.
pub fn is_exempt(module: usize) -> bool {
    (FIRST.load(Ordering::Relaxed)..RESERVED_MODULES).contains(&module)
}

/// Charges a block of so many bytes in this row, or what it is more than `before`; the row that it is in then,
/// or `None` when it does not fit.
pub fn charge(lane: Lane, row: Row, before: u64, bytes: u64, caller: usize) -> Option<Row> {
    charge_by(spending::spend, lane, row, before, bytes, caller)
}

/// The same by this way to the budget.
pub fn charge_by(
    spend: impl Fn(Lane, u64) -> bool,
    lane: Lane,
    row: Row,
    before: u64,
    bytes: u64,
    caller: usize,
) -> Option<Row> {
    if charge_row(spend, lane, row, row.due(before, bytes)) {
        return Some(row);
    }
    let may_be_served = row == Row::Usual && reserve::take(bytes, caller);
    may_be_served.then_some(Row::Reserve)
}

/// Charges bytes in this row which may be too many; false is no refusal.
pub fn charge_ahead(lane: Lane, row: Row, bytes: u64) -> bool {
    charge_row(spending::spend_ahead, lane, row, bytes)
}

fn charge_row(spend: impl Fn(Lane, u64) -> bool, lane: Lane, row: Row, bytes: u64) -> bool {
    match row {
        Row::Usual => spend(lane, bytes),
        Row::Starting => charges::charge_block(lane, bytes, spend),
        Row::Reserve => false,
        Row::Exempt(_) => {
            note_exempt(bytes);
            true
        }
    }
}

/// Gives bytes back that were charged in this row for a call which has failed.
pub fn give_up(lane: Lane, row: Row, bytes: u64) {
    match row {
        Row::Usual => spending::unspend(lane, bytes),
        _ => {
            // (What stands in the peak may never have been held.)
            if row == Row::Starting && row.is_held() && bytes > 0 {
                ledger().header().blur();
            }
            give_back(lane, row, bytes);
        }
    }
}

/// Gives back what was charged for a block in this row.
pub fn give_back(lane: Lane, row: Row, bytes: u64) {
    match row {
        Row::Usual => spending::refund(lane, bytes),
        Row::Starting => charges::give_block_back(lane, bytes),
        Row::Reserve => reserve::put_back(bytes),
        Row::Exempt(_) => note_exempt(bytes.wrapping_neg()),
    }
}

fn note_exempt(more: u64) {
    if let Some(account) = counting::account() {
        account.set_uncharged(more);
    }
}

/// A block was given back, for which so much was charged where it stood.
pub fn release(lane: Lane, known: Known, charged: u64) {
    if !known.is_inherited() {
        give_back(lane, Row::of_module(known.module()), charged);
    }
}
