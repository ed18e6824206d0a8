//! What happens before a request is refused: all that was drawn ahead is taken back.
//!
//! The thief raises `attention`, makes every processor pass a fence, and waits for each spend that was not decided
//! then. From here on no purse has credit but what it finds there: whoever spends now sees the attention, takes from the
//! job just what it needs, and gives back all it can. What the thief finds it takes. Then it waits for each change that
//! was under way, which may be another thief with bytes in its hands. What is granted now is what is used, and a
//! request that does not fit is refused.
//!
//! Each wait is bounded. A thread that was stopped or killed between two instructions, or left them by a long jump, is
//! called stuck and is not waited for again until it has moved. Nothing is admitted over the limit for that; but what it
//! had in its hands counts as used, until it goes on or the supervisor mends.

use core::cell::Cell;

use crate::arch::light_fence;
use crate::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use crate::budget::{Budget, FENCED, Machine, Refused};
use crate::purse::Purse;

/// Rounds of a wait that no store outlasts, and that even a stuck thread is waited for: it may be stuck no longer.
const PATIENCE: u32 = 4;
/// Waits that may be in vain in one theft. So many threads are never stuck at once, unless somebody has written over the
/// purses; then all waits together would last for hours.
const IN_VAIN: u32 = 8;

impl Budget {
    /// Spends by taking back what others have drawn ahead, or refuses.
    #[cold]
    pub(crate) fn steal(
        &self,
        purse: &Purse,
        bytes: (u64, u64),
        machine: &impl Machine,
    ) -> Result<u64, Refused> {
        purse.begin_theft();
        self.attention_word().fetch_add(1, SeqCst);
        light_fence();
        self.fence_others(machine);
        let wait = Wait { machine, in_vain: Cell::new(0) };
        self.sweep(purse, &wait);
        let drawn = self.draw_in_window(purse, bytes).or_else(|_| {
            await_changes(purse, &wait);
            self.draw_in_window(purse, bytes)
        });
        self.attention_word().fetch_sub(1, SeqCst);
        purse.end_theft();
        drawn
    }

    fn draw_in_window(&self, purse: &Purse, bytes: (u64, u64)) -> Result<u64, Refused> {
        purse.open_window();
        let drawn = self.draw(purse, bytes);
        purse.close_window();
        drawn
    }

    fn fence_others(&self, machine: &impl Machine) {
        if self.attention() & FENCED == 0 && !machine.barrier() {
            self.fence_for_ever();
            // This once there is no fence to rely on; a store reaches memory long before these waits are over.
            for round in 0..PATIENCE {
                machine.wait(round);
            }
        }
    }

    /// Takes the credit of all purses back.
    fn sweep(&self, purse: &Purse, wait: &Wait<'_, impl Machine>) {
        for victim in wait.machine.purses().filter(|p| !p.is_exempt()) {
            while !self.rob(purse, victim, wait) {}
        }
    }

    /// Takes the credit of one purse back; whether it was all.
    fn rob(&self, purse: &Purse, victim: &Purse, wait: &Wait<'_, impl Machine>) -> bool {
        let own = core::ptr::eq(victim, purse);
        let undecided = if own { u32::MAX } else { await_decision(victim, wait) };
        let Some((credit, drawn)) = victim.surplus(undecided) else { return false };
        if credit == 0 {
            return true;
        }
        purse.open_window();
        let taken = victim.take(credit, drawn);
        if taken {
            self.granted_word().fetch_sub(credit, SeqCst);
        }
        purse.close_window();
        taken
    }
}

/// Waits until no spend of the purse is undecided; how many are all the same.
fn await_decision(victim: &Purse, wait: &Wait<'_, impl Machine>) -> u32 {
    wait.for_none(victim.stuck_spends(), || victim.undecided())
}

/// Waits until each change of another purse that was under way is finished.
fn await_changes(purse: &Purse, wait: &Wait<'_, impl Machine>) {
    for other in wait.machine.purses().filter(|p| !core::ptr::eq(*p, purse)) {
        let (_, finished) = other.progress();
        wait.for_none(other.stuck_windows(), || match other.progress() {
            (windows, now) if now == finished => windows,
            _ => 0,
        });
    }
}

/// The waits of one theft.
struct Wait<'a, M> {
    machine: &'a M,
    /// How many were in vain.
    in_vain: Cell<u32>,
}

impl<M: Machine> Wait<'_, M> {
    /// Waits until there is none, or no more than are known to be stuck; what was waited for in vain is noted as
    /// stuck. How many are left.
    fn for_none(&self, stuck: &AtomicU32, count: impl Fn() -> u32) -> u32 {
        let mut round = 0;
        loop {
            let left = count();
            if left == 0 {
                if stuck.load(Relaxed) != 0 {
                    stuck.store(0, Relaxed);
                }
                return 0;
            }
            if round >= PATIENCE && left <= stuck.load(Relaxed) {
                return left;
            }
            let is_hopeless = round >= PATIENCE && self.in_vain.get() >= IN_VAIN;
            if is_hopeless || !self.machine.wait(round) {
                self.in_vain.set(self.in_vain.get() + 1);
                stuck.store(left, Relaxed);
                return left;
            }
            round += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PURSES: usize = 3000;

    /// A machine whose waits are counted; each is in vain after so many rounds.
    struct Counted {
        purses: [Purse; PURSES],
        rounds: Cell<u32>,
    }

    impl Machine for Counted {
        fn barrier(&self) -> bool {
            true
        }

        fn wait(&self, round: u32) -> bool {
            self.rounds.set(self.rounds.get() + 1);
            round < 1000
        }

        fn purses(&self) -> impl Iterator<Item = &Purse> {
            self.purses.iter()
        }
    }

    #[test]
    fn purses_that_somebody_has_written_over_hold_no_theft_up_for_hours() {
        let purses = core::array::from_fn(|_| Purse::default());
        let machine = Counted { purses, rounds: Cell::new(0) };
        let budget = Budget::default();
        budget.open(4096, 0);
        for purse in &machine.purses[1..] {
            // As if each was in the middle of a spend, and of a change.
            purse.reserve(16);
            purse.open_window();
        }
        let own = &machine.purses[0];
        assert!(budget.spend(own, 1000, &machine).is_ok());
        for theft in 0..3 {
            machine.rounds.set(0);
            assert!(budget.spend(own, 4000, &machine).is_err(), "no byte is admitted over it");
            let in_vain = if theft == 0 { 2 * IN_VAIN * 1001 } else { 0 };
            let rounds = machine.rounds.get();
            assert!(
                rounds <= in_vain + 2 * PURSES as u32 * (PATIENCE + 1),
                "{rounds} in theft {theft}"
            );
        }
    }
}
