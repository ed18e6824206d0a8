//! The collector's part in the budget of a counted job: takes over what the dead held, keeps what their
//! heirs share, and gives the rest back.

use heaptape_wire::budget::{Budget, Machine};
use heaptape_wire::ledger::Ledger;
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
        (0..self.taken).map(|sheet| self.ledger.purse(sheet)).chain([self.kept])
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

    /// Bytes that the threads with these sheets use.
    pub(crate) fn used(&self, sheets: &[usize]) -> u64 {
        let purses = sheets.iter().map(|&sheet| self.ledger.purse(sheet));
        let used = purses.map(|purse| purse.drawn().saturating_sub(purse.credit()));
        used.fold(0i64, i64::saturating_add).max(0) as u64
    }

    /// The threads with these sheets are gone: takes their purses over, gives back what they had not used,
    /// and keeps the rest; its bytes. `taken`: sheets that were ever taken.
    pub(crate) fn take_over(&mut self, sheets: &[usize], taken: usize) -> u64 {
        let used = self.used(sheets);
        let mut drawn = 0i64;
        for &sheet in sheets {
            let purse = self.ledger.purse(sheet);
            drawn = drawn.saturating_add(purse.drawn());
            let is_torn = self.budget().transfer(purse, &self.kept, &self.office(taken));
            self.is_torn |= is_torn;
        }
        let unused = drawn.saturating_sub_unsigned(used).max(0) as u64;
        self.give_back(unused, taken);
        // One that died half-way may have used what was not drawn; nobody else has that.
        used.min(drawn.max(0) as u64)
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
