//! Stacks: charged as far as the kernel shows them touched, by the collector and in steps.
//!
//! Nobody can refuse a stack that grows: it has grown when it is seen. What fits is charged, and what does not
//! is never charged later, so that room which a program makes for itself stays its own; it is unaccounted.

use heaptape_wire::ledger::{Account, Kind, STACK_STEP};

use crate::treasury::Treasury;

/// The stacks of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stacks {
    /// What was seen of them at the last look, in whole steps, beyond the first one.
    seen: u64,
    /// What is charged beyond the first step, which the process pays itself.
    paid: u64,
}

impl Stacks {
    /// So many bytes are touched: charges what is new, or gives back what is gone.
    pub(crate) fn touch(
        &mut self,
        bytes: u64,
        account: &Account,
        treasury: &Treasury,
        taken: usize,
    ) {
        let seen = bytes.next_multiple_of(STACK_STEP).saturating_sub(STACK_STEP);
        if let Some(over @ 1..) = self.paid.checked_sub(seen) {
            treasury.give_back(over, taken);
            treasury.note(account, Kind::Stacks, over.wrapping_neg());
            self.paid = seen;
        }
        let paid = treasury.take(seen.saturating_sub(self.seen), taken);
        treasury.note(account, Kind::Stacks, paid);
        self.paid += paid;
        self.seen = seen;
    }

    /// What the collector has charged now.
    pub(crate) fn paid(&self) -> u64 {
        self.paid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::in_memory;
    use heaptape_wire::atomic::Ordering;

    #[test]
    fn what_fits_is_charged_and_the_rest_never_is() {
        let ledger = in_memory();
        ledger.budget().open(10 * STACK_STEP, 0);
        let (treasury, account) = (Treasury::new(ledger), ledger.account(0));
        account.open(1);
        let mut stacks = Stacks::default();
        let mut touch = |bytes: u64| {
            stacks.touch(bytes, account, &treasury, 0);
            let row = account.charged[Kind::Stacks as usize].load(Ordering::Relaxed);
            assert_eq!((row, ledger.budget().granted()), (stacks.paid(), stacks.paid()));
            row / STACK_STEP
        };
        // The first step is the process's.
        assert_eq!((touch(1), touch(STACK_STEP), touch(STACK_STEP + 1)), (0, 0, 1));
        assert_eq!((touch(6 * STACK_STEP), touch(3 * STACK_STEP)), (5, 2));
        assert_eq!((touch(20 * STACK_STEP), touch(20 * STACK_STEP)), (10, 10));
        assert_eq!((touch(5 * STACK_STEP), touch(0)), (4, 0));
        assert_eq!(account.beside_peak(), 10 * STACK_STEP);
    }
}
