//! What the threads of a process counted, added up.

use heaptape_wire::atomic::{AtomicU64, Ordering};
use heaptape_wire::bin::BINS;
use heaptape_wire::ledger::{self, MODULES, Sheet};

use crate::Bounds;

/// What went in and out of one class. Sizes are requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Successful allocations, reallocs among them.
    pub count: u64,
    /// Their sizes; a realloc adds its new size.
    pub total: u64,
    /// Sizes of released blocks; a realloc adds its old size.
    pub freed: u64,
    /// The largest that [`current`](Traffic::current) was.
    pub peak: Bounds,
}

impl Traffic {
    /// Sizes of the blocks that live.
    pub fn current(&self) -> u64 {
        self.total.saturating_sub(self.freed)
    }

    /// Whether anything came or went.
    pub fn is_used(&self) -> bool {
        self.count > 0 || self.freed > 0
    }

    /// Adds what another process counted.
    pub fn join(&mut self, other: &Traffic) {
        let peak = (self.peak, other.peak);
        self.add(other);
        self.peak = peak.0;
        self.peak.join_peak(peak.1);
    }

    /// Adds what another thread of the same process counted. Each may have released blocks that the other
    /// made: when one stood at its peak, the other may have stood as far below nothing as it has ever
    /// released.
    fn join_thread(&mut self, other: &Traffic) {
        let peak = together((self.peak, self.freed), (other.peak, other.freed));
        self.add(other);
        self.peak = peak;
        self.peak.lower = peak.lower.max(self.current()).min(peak.upper);
    }

    fn add(&mut self, other: &Traffic) {
        self.count = self.count.saturating_add(other.count);
        self.total = self.total.saturating_add(other.total);
        self.freed = self.freed.saturating_add(other.freed);
    }

    fn read(words: &ledger::Traffic) -> Traffic {
        let [count, total, freed, peak] =
            [&words.count, &words.total, &words.freed, &words.peak].map(load);
        Traffic { count, total, freed, peak: Bounds::exact(peak) }
    }
}

/// The peak of what two threads of a process made and released, each told with all that it ever released.
fn together((mine, my_freed): (Bounds, u64), (its, its_freed): (Bounds, u64)) -> Bounds {
    let mine_alone = mine.lower.saturating_sub(its_freed);
    let its_alone = its.lower.saturating_sub(my_freed);
    let upper = mine.upper.saturating_add(its.upper);
    Bounds { lower: mine_alone.max(its_alone), upper }
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// What threads counted, added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Successful allocations, reallocs among them.
    pub allocations: u64,
    /// Blocks released, reallocs among them.
    pub frees: u64,
    /// Allocations that failed, refused ones among them.
    pub failed: u64,
    /// Releases of blocks whose size was not known.
    pub unknown: u64,
    /// Requested bytes that were allocated, and released.
    pub requested: [u64; 2],
    /// The most of them that lived.
    pub peak: Bounds,
    /// Usable bytes that were allocated, and released.
    pub usable: [u64; 2],
    /// The most of them that lived.
    pub usable_peak: Bounds,
    /// By the caller's module, by its number in the process. The last ones may be left out if nothing came
    /// from them.
    pub modules: Vec<Traffic>,
    /// By size class: see [`heaptape_wire::bin`]. As with the modules.
    pub bins: Vec<Traffic>,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            allocations: 0,
            frees: 0,
            failed: 0,
            unknown: 0,
            requested: [0; 2],
            peak: Bounds::default(),
            usable: [0; 2],
            usable_peak: Bounds::default(),
            modules: vec![Traffic::default(); MODULES],
            bins: vec![Traffic::default(); BINS],
        }
    }
}

impl Sums {
    /// What one thread has counted by now.
    pub fn read(sheet: &Sheet) -> Sums {
        Sums {
            allocations: load(&sheet.allocations),
            frees: load(&sheet.frees),
            failed: load(&sheet.failed),
            unknown: load(&sheet.unknown),
            requested: [load(&sheet.allocated), load(&sheet.freed)],
            peak: Bounds::exact(load(&sheet.peak)),
            usable: sheet.usable.each_ref().map(load),
            usable_peak: Bounds::exact(load(&sheet.usable_peak)),
            modules: sheet.modules.iter().map(Traffic::read).collect(),
            bins: sheet.bins.iter().map(Traffic::read).collect(),
        }
    }

    /// What the threads of one process have counted.
    pub fn of_threads<'a>(sheets: impl IntoIterator<Item = &'a Sheet>) -> Sums {
        let mut sheets = sheets.into_iter();
        let mut sums = sheets.next().map(Sums::read).unwrap_or_default();
        for sheet in sheets {
            let other = Sums::read(sheet);
            let peak = together((sums.peak, sums.requested[1]), (other.peak, other.requested[1]));
            let usable_peak =
                together((sums.usable_peak, sums.usable[1]), (other.usable_peak, other.usable[1]));
            sums.join_with(&other, Traffic::join_thread);
            (sums.peak, sums.usable_peak) = (peak, usable_peak);
        }
        sums.peak.lower = sums.peak.lower.max(sums.live()).min(sums.peak.upper);
        let usable = &mut sums.usable_peak;
        usable.lower = usable.lower.max(sums.usable[0].saturating_sub(sums.usable[1]));
        usable.lower = usable.lower.min(usable.upper);
        sums
    }

    /// Leaves the last classes and modules out from which nothing came: there may be very many processes.
    pub fn trim(&mut self) {
        for all in [&mut self.modules, &mut self.bins] {
            let used = all.iter().rposition(Traffic::is_used).map_or(0, |last| last + 1);
            all.truncate(used);
            all.shrink_to_fit();
        }
    }

    /// Adds what another process has counted.
    pub fn join(&mut self, other: &Sums) {
        self.join_with(other, Traffic::join);
        self.peak.join_peak(other.peak);
        self.usable_peak.join_peak(other.usable_peak);
    }

    fn join_with(&mut self, other: &Sums, join: impl Fn(&mut Traffic, &Traffic)) {
        let pairs = [
            (&mut self.allocations, other.allocations),
            (&mut self.frees, other.frees),
            (&mut self.failed, other.failed),
            (&mut self.unknown, other.unknown),
        ];
        let bytes = self.requested.iter_mut().zip(other.requested);
        let usable = self.usable.iter_mut().zip(other.usable);
        for (sum, more) in pairs.into_iter().chain(bytes).chain(usable) {
            *sum = sum.saturating_add(more);
        }
        for (all, others) in [(&mut self.modules, &other.modules), (&mut self.bins, &other.bins)] {
            all.resize(all.len().max(others.len()), Traffic::default());
        }
        let modules = self.modules.iter_mut().zip(&other.modules);
        let bins = self.bins.iter_mut().zip(&other.bins);
        modules.chain(bins).for_each(|(sum, more)| join(sum, more));
    }

    /// Requested bytes of the blocks that live, those that a fork brought along not counted. (A block
    /// that one thread made and another released is in the sums of both.)
    pub fn live(&self) -> u64 {
        self.requested[0].saturating_sub(self.requested[1])
    }

    /// Usable bytes of them.
    pub fn live_usable(&self) -> u64 {
        self.usable[0].saturating_sub(self.usable[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(total: u64, freed: u64, peak: u64) -> Traffic {
        Traffic { count: 1, total, freed, peak: Bounds::exact(peak) }
    }

    #[test]
    fn the_peak_of_threads_that_free_for_each_other_is_no_more_than_was_there() {
        // One makes a thousand blocks of a mebibyte, the other releases each at once.
        let mut sum = traffic(1000 << 20, 0, 1000 << 20);
        sum.join_thread(&traffic(0, 1000 << 20, 0));
        assert_eq!(sum.peak, Bounds { lower: 0, upper: 1000 << 20 });
        assert_eq!(sum.current(), 0);
        // What one holds alone, it holds whatever the other does.
        let mut sum = traffic(96, 0, 96);
        sum.join_thread(&traffic(10, 10, 10));
        assert_eq!(sum.peak, Bounds { lower: 96, upper: 106 });
    }

    #[test]
    fn threads_are_joined_in_any_order() {
        let threads = [traffic(100, 10, 95), traffic(40, 60, 20), traffic(7, 0, 7)];
        let joined = |order: [usize; 3]| {
            let mut sum = threads[order[0]];
            order[1..].iter().for_each(|&n| sum.join_thread(&threads[n]));
            sum
        };
        let first = joined([0, 1, 2]);
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(joined(order), first, "{order:?}");
        }
    }

    #[test]
    fn what_is_left_out_is_nothing() {
        let mut some = Sums::default();
        some.bins[7] = traffic(100, 50, 100);
        some.modules[2] = traffic(100, 50, 100);
        let whole = some.clone();
        some.trim();
        assert_eq!((some.bins.len(), some.modules.len()), (8, 3));
        let mut sums = Sums::default();
        sums.trim();
        sums.join(&some);
        assert_eq!(sums, some);
        let mut sums = Sums::default();
        sums.join(&some);
        assert_eq!(sums, whole);
    }

    #[test]
    fn processes_hold_their_own() {
        let mut sum = traffic(96, 96, 96);
        sum.join(&traffic(50, 50, 40));
        assert_eq!((sum.peak, sum.count), (Bounds { lower: 96, upper: 136 }, 2));
    }
}
