//! Charges that nobody would ever give back: for calls that were left by a jump, and for stacks of threads that have
//! ended.

use std::time::{Duration, Instant};

use heaptape_wire::ledger::{Account, Kind};

use super::Counter;
use crate::process::Process;

impl Counter {
    /// Gives back what was spent for calls that have been away for so long. (Should one come back after all, it
    /// spends once more, or fails.)
    pub(super) fn find_away(&mut self, taken: usize, patience: Duration) {
        let (ledger, now) = (self.ledger, Instant::now());
        for sheet in 0..taken {
            let purse = ledger.purse(sheet);
            if purse.away() == 0 {
                if !self.away.is_empty() {
                    self.away.remove(&sheet);
                }
                continue;
            }
            let since = *self.away.entry(sheet).or_insert(now);
            let owner = ledger.sheet(sheet).owner();
            if let Some((slot, _)) = owner
                && now > since
                && now - since >= patience
            {
                self.away.remove(&sheet);
                let account = ledger.account(slot as usize);
                self.give_back_for(account, Kind::Mappings, purse.take_away(), taken);
            }
        }
    }

    /// Gives back the stacks of threads that have ended, of those that are charged whole.
    pub(crate) fn find_stacks(
        &mut self,
        process: &Process,
        taken: usize,
        lives: impl Fn(u32) -> bool,
    ) {
        let account = self.ledger.account(process.slot as usize);
        if account.generation() == process.generation {
            self.give_back_for(account, Kind::Stacks, account.stacks.take_gone(lives), taken);
        }
    }

    /// Somebody is about to be refused: what has been away since the last look at least is given back.
    pub(crate) fn find_at_once(&mut self, taken: usize) {
        self.find_away(taken, Duration::ZERO);
    }

    fn give_back_for(&self, account: &Account, kind: Kind, bytes: u64, taken: usize) {
        if bytes > 0 {
            account.give_back_for(kind, bytes);
            self.ledger.header().note_beside(bytes.wrapping_neg());
            self.treasury.give_back(bytes, taken);
        }
    }
}
