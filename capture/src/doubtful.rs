//! Charging ahead for calls that the kernel may refuse. (What large blocks and mappings take is mostly charged once they are
//! made; but what is resized may lose its old place, so what it needs more is charged before.)

use core::cell::Cell;

use crate::counting::{self, ledger};
use crate::lane::Lane;
use crate::spending::{System, insist, note_blocks, refund_beside};

/// Bytes that are charged for a call which the kernel may refuse, as it may all that is large: as long as it is not known
/// they do not stand in the peak.
pub struct Doubtful {
    lane: Lane,
    bytes: u64,
    /// What of it is in doubt.
    doubt: u64,
    /// The peak before.
    peak: u64,
}

impl Doubtful {
    /// Charges the bytes; `None` where they do not fit.
    #[cold]
    #[inline(never)]
    pub fn spend(lane: Lane, bytes: u64) -> Option<Doubtful> {
        let budget = ledger().budget();
        let (peak, doubt) = (budget.peak(), Cell::new(0));
        if let Some(purse) = lane.purse {
            let spends = || {
                let spent = budget.spend_in_doubt(purse, bytes, &System);
                spent.map(|bytes| doubt.set(bytes)).is_ok()
            };
            // Before it is in the budget: who ends in between is known to be in doubt.
            note_doubt(bytes);
            if !insist(bytes, spends) {
                note_doubt(bytes.wrapping_neg());
                return None;
            }
        }
        Some(Doubtful { lane, bytes, doubt: doubt.get(), peak })
    }

    /// The call has succeeded.
    pub fn confirm(self) {
        if self.lane.purse.is_some() {
            ledger().budget().confirm(self.doubt);
            note_blocks(self.lane, self.bytes as i64);
            note_doubt(self.bytes.wrapping_neg());
            ledger().header().note_high(ledger().budget().granted());
        }
    }

    /// It has failed: gives the bytes back.
    pub fn fail(self) {
        if self.lane.purse.is_none() {
            return;
        }
        let budget = ledger().budget();
        budget.doubt_no_more(self.doubt);
        refund_beside(self.lane, self.bytes);
        note_doubt(self.bytes.wrapping_neg());
        // Others may have drawn between two steps of this, and taken it for certain.
        if budget.peak() != self.peak {
            ledger().header().blur();
        }
    }
}

/// In the account, for the collector, should the call never come back.
fn note_doubt(more: u64) {
    if let Some(account) = counting::account() {
        account.note_doubt(more);
    }
}
