//! What the processes of a counted job hold at one moment, at least.
//!
//! The counters of a thread only grow, and it counts a block before it hands it out, and its release before
//! the block goes back or is counted again. So all that was allocated is looked at first, in every
//! process, and all that was released after that: the difference is no more than what lived at
//! the moment between, whatever the threads do meanwhile.

use heaptape_wire::atomic::Ordering;
use heaptape_wire::ledger::{Kind, Ledger};
use heaptape_wire::process::SLOTS;

/// Who has an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its place in the job's list.
    pub(crate) place: usize,
    pub(crate) slot: u16,
    pub(crate) generation: u32,
}

/// What one process holds, at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Requested bytes of blocks that it made itself.
    pub(crate) requested: u64,
    /// Usable bytes of them.
    pub(crate) usable: u64,
    /// Requested bytes of those that came with the fork.
    pub(crate) inherited: u64,
    /// What is charged beside blocks, by [`Kind`].
    pub(crate) kinds: [u64; Kind::ALL.len()],
    /// Threads that live, as far as their sheets tell.
    pub(crate) threads: u64,
    /// Whether it is held against no limit.
    pub(crate) is_exempt: bool,
}

impl Held {
    /// What is charged beside blocks.
    pub(crate) fn beside(&self) -> u64 {
        self.kinds.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// A sheet that is in use: its number, and whose it is.
struct Used {
    sheet: usize,
    holder: usize,
    allocated: [u64; 2],
}

/// Looks at all sheets, and keeps the memory for that.
#[derive(Default)]
pub(crate) struct Holdings {
    used: Vec<Used>,
    by_slot: Vec<u32>,
}

impl Holdings {
    /// What each of the `holders` has now, in their order. `taken`: sheets that were ever taken.
    pub(crate) fn look(&mut self, ledger: Ledger, taken: usize, holders: &[Holder]) -> Vec<Held> {
        let kinds = |holder: &Holder| {
            ledger
                .account(holder.slot as usize)
                .charged
                .each_ref()
                .map(|word| word.load(Ordering::Acquire))
        };
        self.begin(ledger, taken, holders);
        let before: Vec<_> = holders.iter().map(kinds).collect();
        // Here is the moment.
        let mut held: Vec<Held> = holders
            .iter()
            .zip(before)
            .map(|(holder, before)| {
                let account = ledger.account(holder.slot as usize);
                let mut least = kinds(holder);
                least.iter_mut().zip(before).for_each(|(now, before)| *now = before.min(*now));
                Held {
                    inherited: account.inherited(),
                    kinds: least,
                    is_exempt: account.is_exempt(),
                    ..Held::default()
                }
            })
            .collect();
        self.end(ledger, &mut held);
        held
    }

    /// All that was allocated.
    fn begin(&mut self, ledger: Ledger, taken: usize, holders: &[Holder]) {
        self.used.clear();
        self.by_slot.clear();
        self.by_slot.resize(SLOTS, u32::MAX);
        for (at, holder) in holders.iter().enumerate() {
            self.by_slot[holder.slot as usize % SLOTS] = at as u32;
        }
        for index in 0..taken {
            let sheet = ledger.sheet(index);
            let Some((slot, generation)) = sheet.owner() else { continue };
            let at = self.by_slot.get(slot as usize).copied().unwrap_or(u32::MAX) as usize;
            if holders.get(at).is_some_and(|holder| holder.generation == generation) {
                let allocated =
                    [&sheet.allocated, &sheet.usable[0]].map(|word| word.load(Ordering::Acquire));
                self.used.push(Used { sheet: index, holder: at, allocated });
            }
        }
    }

    /// All that was released.
    fn end(&self, ledger: Ledger, held: &mut [Held]) {
        let mut sums = vec![[[0u64; 2]; 2]; held.len()];
        for used in &self.used {
            let sheet = ledger.sheet(used.sheet);
            let freed = [&sheet.freed, &sheet.usable[1]].map(|word| word.load(Ordering::Acquire));
            for (sum, (made, gone)) in
                sums[used.holder].iter_mut().zip(used.allocated.into_iter().zip(freed))
            {
                *sum = [sum[0].wrapping_add(made), sum[1].wrapping_add(gone)];
            }
            held[used.holder].threads += u64::from(sheet.idle.load(Ordering::Relaxed) == 0);
        }
        for (held, [requested, usable]) in held.iter_mut().zip(sums) {
            held.requested = requested[0].saturating_sub(requested[1]);
            held.usable = usable[0].saturating_sub(usable[1]);
        }
    }

    /// The sheets of the last look, with the place among the holders of whom they belong to.
    pub(crate) fn sheets(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.used.iter().map(|used| (used.sheet, used.holder))
    }
}
