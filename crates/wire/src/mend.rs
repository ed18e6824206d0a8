//! The supervisor's part of the budget: giving back what the dead held.
//!
//! A process may be killed between any two instructions. What is granted is raised before a purse's `drawn` and lowered
//! after it, so whatever is left half done, the job has more granted than its purses have drawn, never less: the dead
//! hold a little longer what they had in their hands. A purse tells by its `turn` that its owner died in the middle.
//! Then [`Budget::mend`] lets new changes wait at the door until those under way are finished, and compares the sums at a
//! moment when there was none: what is granted and drawn by nobody was in the hands of the dead.

use crate::arch::light_fence;
use crate::atomic::Ordering::SeqCst;
use crate::budget::{Budget, MENDING, Machine};
use crate::purse::{LOW, Purse, bytes};

impl Budget {
    /// Gives back all that a dead process held: `purses` are those of all its threads, and are empty afterwards. Whether
    /// one of them died in the middle of a change, so that [`Budget::mend`] must follow.
    #[must_use]
    pub fn reclaim<'a>(&self, purses: impl Iterator<Item = &'a Purse>) -> bool {
        let (mut sum, mut midway) = (0u64, false);
        for purse in purses {
            midway |= purse.still().is_none();
            let exempt = purse.is_exempt();
            if exempt {
                purse.empty();
            } else {
                self.take_credit(purse);
                sum = sum.wrapping_add(purse.empty());
            }
        }
        self.granted_word().fetch_sub(bytes(sum) as u64, SeqCst);
        midway
    }

    /// Moves what a dead thread used to `heir`, a purse of the caller's own, and gives back what it had not spent;
    /// returns as [`Budget::reclaim`] does.
    #[must_use]
    pub fn transfer(&self, from: &Purse, heir: &Purse, machine: &impl Machine) -> bool {
        let midway = from.still().is_none();
        self.enter(heir, machine);
        self.take_credit(from);
        let drawn = bytes(from.empty()) as u64;
        heir.receive(drawn, drawn);
        heir.close_window();
        midway
    }

    /// Gives back what the dead had in their hands, after their purses were emptied; `false` if others were in the middle
    /// of a change all the time: then try again later.
    pub fn mend(&self, machine: &impl Machine) -> bool {
        let mut mended = false;
        for round in 0.. {
            self.attention_word().fetch_or(MENDING, SeqCst);
            light_fence();
            mended = self.mend_at_rest(machine);
            if mended || !machine.wait(round) {
                break;
            }
        }
        self.attention_word().fetch_and(!MENDING, SeqCst);
        mended
    }

    fn take_credit(&self, purse: &Purse) {
        while let Some((credit @ 1.., drawn)) = purse.surplus(u32::MAX) {
            if purse.take(credit, drawn) {
                self.granted_word().fetch_sub(credit, SeqCst);
            }
        }
    }

    fn mend_at_rest(&self, machine: &impl Machine) -> bool {
        let Some(before) = at_rest(machine) else { return false };
        let mut over = self.granted() << LOW.count_ones();
        for purse in machine.purses().filter(|p| !p.is_exempt()) {
            over = over.wrapping_sub(purse.drawn_word());
        }
        let thieves = self.thieves();
        if at_rest(machine) != Some(before) {
            return false;
        }
        // Nobody alive adds to either, so what is too much now is too much for ever.
        self.granted_word().fetch_sub(bytes(over) as u64, SeqCst);
        self.attention_word().fetch_sub(thieves, SeqCst);
        true
    }
}

/// The sum of all turns, if no change is under way. Turns only grow: with the same sum twice, none was in between.
fn at_rest(machine: &impl Machine) -> Option<u64> {
    machine.purses().try_fold(0u64, |sum, purse| Some(sum.wrapping_add(purse.still()?)))
}
