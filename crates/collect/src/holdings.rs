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
    /// Bytes of blocks that are charged in another row, or nowhere.
    pub(crate) apart: u64,
    /// What is charged beside blocks, by [`Kind`].
    pub(crate) kinds: [u64; Kind::ALL.len()],
    /// Threads that live, as far as their sheets tell.
    pub(crate) threads: u64,
    /// Whether what the MPI runtime took when it started is held against the limit.
    pub(crate) is_mpi_held: bool,
    /// Whether it is held against no limit.
    pub(crate) is_exempt: bool,
}

impl Held {
    /// What is charged beside blocks.
    pub(crate) fn beside(&self) -> u64 {
        let is_held = |kind: &&Kind| **kind != Kind::MpiRuntime || self.is_mpi_held;
        let kinds = Kind::ALL.iter().filter(is_held).map(|&kind| self.kinds[kind as usize]);
        kinds.fold(0, u64::saturating_add)
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
                    apart: account.apart().wrapping_add(account.uncharged()),
                    kinds: least,
                    is_exempt: account.is_exempt(),
                    is_mpi_held: ledger.header().wanted().mpi_runtime,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::in_memory;
    use heaptape_wire::atomic::AtomicU64;
    use std::sync::atomic::AtomicBool;

    fn add(word: &AtomicU64, bytes: u64) {
        word.fetch_add(bytes, Ordering::Relaxed);
    }

    #[test]
    fn each_process_has_what_its_own_threads_count() {
        let ledger = in_memory();
        let holders = [(7, 3, 1), (9, 4, 2)].map(|(place, slot, generation)| {
            ledger.account(slot as usize).open(generation);
            Holder { place, slot, generation }
        });
        // The last is of a process that had the second one's slot before it.
        let owners = [(3, 1), (4, 2), (3, 1), (4, 1)];
        for (index, (slot, generation)) in owners.into_iter().enumerate() {
            let sheet = ledger.sheet(index);
            sheet.open(slot, generation, 0, 100 + index as u32);
            add(&sheet.allocated, 1000 << index);
            add(&sheet.usable[0], 1001 << index);
        }
        // What the third of them made, the first has released.
        add(&ledger.sheet(0).freed, 4000);
        ledger.sheet(2).idle.store(1, Ordering::Relaxed);
        add(&ledger.account(3).charged[Kind::Data as usize], 50);
        ledger.account(4).inherit(600);
        ledger.account(4).exempt();
        let held = Holdings::default().look(ledger, owners.len(), &holders);
        assert_eq!((held[0].requested, held[0].usable, held[0].threads), (1000, 5005, 1));
        assert_eq!((held[0].beside(), held[0].is_exempt), (50, false));
        assert_eq!((held[1].requested, held[1].threads), (2000, 1));
        assert!(held[1].is_exempt);
        // One that is not taken yet, or not in the list, is nobody's.
        let held = Holdings::default().look(ledger, 1, &holders[1..]);
        assert_eq!(held[0].requested, 0);
    }

    /// Blocks that one thread makes and another releases, one at a time.
    #[test]
    fn what_is_seen_is_never_more_than_what_lived() {
        const MOST: u64 = 100;
        let ledger = in_memory();
        ledger.account(0).open(1);
        let sheets = [0, 1].map(|index| {
            ledger.sheet(index).open(0, 1, index as u32, 1);
            ledger.sheet(index)
        });
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0usize.. {
                    add(&sheets[round % 2].allocated, MOST);
                    add(&sheets[(round + 1) % 2].freed, MOST);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let mut holdings = Holdings::default();
            let holder = [Holder { place: 0, slot: 0, generation: 1 }];
            let looks = (0..100_000).map(|_| holdings.look(ledger, 2, &holder)[0].requested);
            let most = looks.max();
            is_over.store(true, Ordering::Relaxed);
            assert!(most <= Some(MOST), "{most:?}");
        });
    }
}
