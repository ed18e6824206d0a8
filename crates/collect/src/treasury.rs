//! The collector's part in the budget of a counted job: takes over what the dead held, keeps what their
//! heirs share, and gives the rest back.

use heaptape_wire::atomic::Ordering;
use heaptape_wire::budget::{Budget, Machine};
use heaptape_wire::ledger::{Account, Kind, Ledger, SHEETS};
use heaptape_wire::purse::Purse;

/// The budget, seen from here.
pub(crate) struct Treasury {
    ledger: Ledger,
    /// What is charged for processes that are gone.
    kept: Purse,
    /// Somebody died in the middle of a change, and what it had in its hands is still to be found.
    is_torn: bool,
}

/// What the budget asks of the system, for the collector: it never has to reach other threads, since it takes
/// no credit from them.
struct Office<'a> {
    ledger: Ledger,
    taken: usize,
    kept: &'a Purse,
}

impl Machine for Office<'_> {
    fn barrier(&self) -> bool {
        false
    }

    fn wait(&self, round: u32) -> bool {
        /// Threads stand still while the collector waits for those that do not; the next round tries again.
        const ROUNDS: u32 = 200;
        std::thread::yield_now();
        round < ROUNDS
    }

    fn purses(&self) -> impl Iterator<Item = &Purse> {
        // Threads may have come since, and drawn: who adds the purses up must miss none.
        let now = self.ledger.header().sheets_taken.load(Ordering::Acquire) as usize;
        let taken = self.taken.max(now.min(SHEETS));
        (0..taken).map(|sheet| self.ledger.purse(sheet)).chain([self.kept])
    }
}

impl Treasury {
    pub(crate) fn new(ledger: Ledger) -> Treasury {
        Treasury { ledger, kept: Purse::default(), is_torn: false }
    }

    fn budget(&self) -> &'static Budget {
        self.ledger.budget()
    }

    fn office(&self, taken: usize) -> Office<'_> {
        Office { ledger: self.ledger, taken, kept: &self.kept }
    }

    /// Bytes that the threads with these sheets use; less than nothing where they gave back what others had
    /// spent for a shared object.
    fn spent(&self, sheets: &[usize]) -> i64 {
        let purses = sheets.iter().map(|&sheet| self.ledger.purse(sheet));
        let spent = purses.map(|purse| purse.drawn().saturating_sub(purse.credit()));
        spent.fold(0, i64::saturating_add)
    }

    /// Bytes that the process with this account and these sheets uses for itself, without what it has spent
    /// for shared objects.
    pub(crate) fn used(&self, account: &Account, sheets: &[usize]) -> u64 {
        let own = self.spent(sheets).saturating_sub(account.spent_for_objects());
        own.max(0) as u64
    }

    /// Whether the threads with these sheets had no credit: where nothing is drawn ahead they have it within a call only.
    pub(crate) fn is_idle(&self, sheets: &[usize]) -> bool {
        sheets.iter().all(|&sheet| self.ledger.purse(sheet).credit() == 0)
    }

    /// The process with this account and these sheets is gone: takes over what it used, and gives back what it
    /// had not used; the bytes that are kept for itself. `taken`: sheets that were ever taken.
    pub(crate) fn take_over(&mut self, account: &Account, sheets: &[usize], taken: usize) -> u64 {
        let before = self.kept.drawn();
        for &sheet in sheets {
            let purse = self.ledger.purse(sheet);
            let is_torn = self.budget().transfer(purse, &self.kept, &self.office(taken));
            self.is_torn |= is_torn;
        }
        // Threads that release what others made are below nothing, and their process is not.
        let kept = self.kept.drawn().saturating_sub(before);
        kept.saturating_sub(account.spent_for_objects()).max(0) as u64
    }

    /// The process with this slot is gone: what it had mapped of shared objects, and nobody else has, is given
    /// back.
    pub(crate) fn bury(&self, slot: u16, taken: usize) {
        let is_held = self.ledger.header().wanted().mpi_runtime;
        let mut freed = 0;
        self.ledger.bury(u32::from(slot), &self.office(taken), |kind, bytes| {
            freed += if kind == Kind::MpiRuntime && !is_held { 0 } else { bytes };
        });
        self.give_back(freed, taken);
    }

    /// Takes so many bytes of what is left of the limit, or all that is left in whole pages; how many.
    pub(crate) fn take(&self, bytes: u64, taken: usize) -> u64 {
        const PAGE: u64 = 4096;
        if bytes == 0 {
            return 0;
        }
        let (budget, office) = (self.budget(), self.office(taken));
        let left = budget.limit().saturating_sub(budget.granted()) / PAGE * PAGE;
        let takes = |&bytes: &u64| budget.spend_rest(&self.kept, bytes, &office);
        [bytes, left.min(bytes)].into_iter().find(takes).unwrap_or(0)
    }

    /// Notes that so many bytes more, or fewer, are charged to a process in this row.
    pub(crate) fn note(&self, account: &Account, kind: Kind, more: u64) {
        let header = self.ledger.header();
        account.note(kind, more);
        header.note_beside(more);
        header.note_high(self.budget().granted());
    }

    /// Gives back what was kept, or a part of it.
    pub(crate) fn give_back(&self, bytes: u64, taken: usize) {
        if bytes > 0 {
            let office = self.office(taken);
            self.budget().refund(&self.kept, bytes, &office);
            self.budget().close(&self.kept, &office);
        }
    }

    /// Looks for what the dead had in their hands, if that has to be done.
    pub(crate) fn mend(&mut self, taken: usize) {
        if self.is_torn {
            self.is_torn = !self.budget().mend(&self.office(taken));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::in_memory;

    const BATCH: u64 = 1000;

    /// A treasury of a job with this limit; threads ask the system as the collector does.
    fn treasury(limit: u64) -> Treasury {
        let ledger = in_memory();
        ledger.budget().open(limit, BATCH);
        Treasury::new(ledger)
    }

    impl Treasury {
        fn spend(&self, sheet: usize, bytes: u64) -> bool {
            let purse = self.ledger.purse(sheet);
            self.budget().spend(purse, bytes, &self.office(4)).is_ok()
        }

        fn refund(&self, sheet: usize, bytes: u64) {
            self.budget().refund(self.ledger.purse(sheet), bytes, &self.office(4));
        }
    }

    #[test]
    fn what_the_dead_held_is_kept_until_it_is_given_back() {
        let mut treasury = treasury(1 << 20);
        let account = treasury.ledger.account(0);
        assert!(treasury.spend(0, 70_000) && treasury.spend(1, 30_000) && treasury.spend(2, 500));
        // The second thread releases what the first has made.
        treasury.refund(1, 60_000);
        assert_eq!(treasury.used(account, &[0, 1]), 40_000);
        assert_eq!(treasury.take_over(account, &[0, 1], 4), 40_000);
        assert_eq!(treasury.used(account, &[0, 1]), 0);
        // Nothing unused of theirs is left; the third has its own, and what it has drawn ahead.
        assert_eq!(treasury.budget().granted(), 40_000 + 500 + BATCH);
        treasury.give_back(25_000, 4);
        assert_eq!(treasury.budget().granted(), 15_000 + 500 + BATCH);
        treasury.give_back(15_000, 4);
        assert_eq!(treasury.take_over(account, &[2], 4), 500);
        treasury.give_back(500, 4);
        assert_eq!(treasury.budget().granted(), 0);
    }

    /// What a thread has drawn that has just come is in nobody's hands but its own.
    #[test]
    fn a_thread_that_has_come_since_is_not_mended_away() {
        let mut treasury = treasury(100_000);
        assert!(treasury.spend(0, 10_000) && treasury.spend(3, 50_000));
        treasury.ledger.header().sheets_taken.store(4, Ordering::Relaxed);
        treasury.is_torn = true;
        let before = treasury.budget().granted();
        treasury.mend(1);
        assert_eq!((treasury.budget().granted(), treasury.is_torn), (before, false));
    }

    #[test]
    fn purses_that_were_taken_over_serve_the_next_process_in_full() {
        let mut treasury = treasury(100_000);
        let account = treasury.ledger.account(0);
        for _ in 0..1000 {
            assert!(treasury.spend(3, 99_000) && !treasury.spend(2, 99_000));
            let kept = treasury.take_over(account, &[2, 3], 4);
            assert!(!treasury.spend(2, 1001));
            treasury.give_back(kept, 4);
            assert_eq!(treasury.budget().granted(), 0);
        }
        assert_eq!(treasury.budget().peak(), 99_000);
    }
}
