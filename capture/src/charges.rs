//! Charges beside heap blocks: what a row of the process's account gets, and the job's budget with it.

use heaptape_wire::ledger::Kind;

use crate::counting::{self, ledger};
use crate::lane::Lane;
use crate::next::{ENOMEM, set_errno};
use crate::{refusing, spending, starting};

/// Whether what stands in this row is held against the limit.
pub fn is_held(kind: Kind) -> bool {
    kind != Kind::MpiRuntime || starting::is_held()
}

/// Charges bytes that are about to be had; false when they do not fit.
pub fn charge(lane: Lane, kind: Kind, bytes: u64) -> bool {
    let fits = !is_held(kind) || spending::spend_beside(lane, bytes);
    if fits {
        note(kind, bytes);
    }
    fits
}

/// The same for a call that asked for `wanted` bytes in all: if it is not to go on, that is a refusal.
pub fn charge_call(lane: Lane, kind: Kind, bytes: u64, wanted: u64, caller: usize) -> bool {
    let fits = charge(lane, kind, bytes);
    if !fits {
        refuse_call(lane, wanted, caller);
    }
    fits
}

/// A call that asked for so many bytes is not to go on; gives what a mapping that failed returns.
pub fn refuse_call(lane: Lane, wanted: u64, caller: usize) -> usize {
    refusing::refuse(lane, wanted, caller);
    set_errno(ENOMEM);
    usize::MAX
}

/// More than the whole limit can't fit.
pub fn is_hopeless(lane: Lane, kind: Kind, bytes: u64) -> bool {
    lane.purse.is_some() && is_held(kind) && bytes > ledger().budget().limit()
}

/// Gives back what was charged.
pub fn give_back(lane: Lane, kind: Kind, bytes: u64) {
    if bytes == 0 {
        return;
    }
    if is_held(kind) {
        spending::refund_beside(lane, bytes);
    }
    note(kind, bytes.wrapping_neg());
}

/// So many bytes were charged in advance, and so many should have been.
pub fn settle(lane: Lane, kind: Kind, charged: u64, due: i64) {
    match u64::try_from((charged as i64).saturating_sub(due)) {
        Ok(over) => give_back(lane, kind, over),
        // Only where threads have mapped and unmapped the same pages at once.
        Err(_) => {
            charge(lane, kind, due.saturating_sub(charged as i64) as u64);
        }
    }
}

/// So many bytes more stand in this row.
pub fn note(kind: Kind, more: u64) {
    let Some(account) = counting::account() else { return };
    account.note(kind, more);
    if !account.is_exempt() && is_held(kind) {
        note_beside(more);
    }
}

/// So many bytes more are charged in the job beside heap blocks.
pub fn note_beside(more: u64) {
    ledger().header().note_beside(more);
    ledger().header().note_high(ledger().budget().granted());
}

/// Charges a block of the MPI runtime's, by this way to the budget; false when it does not fit.
pub fn charge_block(lane: Lane, bytes: u64, spend: impl Fn(Lane, u64) -> bool) -> bool {
    let fits = !is_held(Kind::MpiRuntime) || spend(lane, bytes);
    if fits && let Some(account) = counting::account() {
        account.set_apart(bytes);
    }
    fits
}

/// Gives back what was charged for one.
pub fn give_block_back(lane: Lane, bytes: u64) {
    if is_held(Kind::MpiRuntime) {
        spending::refund(lane, bytes);
    }
    if let Some(account) = counting::account() {
        account.set_apart(bytes.wrapping_neg());
    }
}
