//! Bins: the size classes of the reports, by requested size.
//!
//! There are eight per power of two from 16 bytes up, each named by its `unit`, the upper edge, which
//! belongs to it; 0 to 16 bytes is one bin. [`Histogram`] counts what goes in and out of each. Its
//! figures come from the allocations and releases that it is told of; it looks at nothing else.

use heaptape_ledger::Bounds;
pub use heaptape_ledger::bins::Group;
use heaptape_ledger::bins::{self, BINS};
use heaptape_tape::Resolved;

use crate::filter::Filter;

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bin(u16);

impl Bin {
    /// The bin that a block of `size` requested bytes falls into.
    pub const fn of_bytes(size: u64) -> Bin {
        Bin(bins::bin_of(size) as u16)
    }

    /// The upper edge in bytes; of the last bin 2^64 − 1.
    pub const fn unit(self) -> u64 {
        bins::upper_edge(self.0 as usize)
    }

    /// The group it belongs to.
    pub const fn group(self) -> Group {
        Group::of_bytes(self.unit())
    }
}

/// What went in and out of one class. Sizes are requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The largest that `current` was; of several processes it may lie between two values.
    pub peak: Bounds,
    /// Sizes of all successful allocations; a realloc adds its new size.
    pub total: u64,
    /// Sizes of all released blocks; a realloc adds its old size.
    pub freed: u64,
    /// Sizes of the blocks that live now.
    pub current: u64,
    /// Successful allocations, reallocs among them.
    pub count: u64,
}

impl Traffic {
    fn begin(&mut self, size: u64) {
        self.current = self.current.saturating_add(size);
        self.peak.raise(self.current);
    }

    fn allocate(&mut self, size: u64) {
        self.total = self.total.saturating_add(size);
        self.count += 1;
        self.begin(size);
    }

    fn join(&mut self, other: &Traffic) {
        self.peak.join_peak(other.peak);
        self.total = self.total.saturating_add(other.total);
        self.freed = self.freed.saturating_add(other.freed);
        self.current = self.current.saturating_add(other.current);
        self.count += other.count;
    }

    fn release(&mut self, size: u64) {
        self.freed = self.freed.saturating_add(size);
        self.current = self.current.saturating_sub(size);
    }
}

/// The traffic of every bin, of every group and of all together.
///
/// ```
/// use heaptape_analyze::bins::{Bin, Histogram};
/// let mut h = Histogram::new();
/// h.allocate(17);
/// h.allocate(18);
/// h.release(17);
/// let (bin, traffic) = h.bins().next().unwrap();
/// assert_eq!((bin.unit(), traffic.peak.known()), (18, Some(35)));
/// assert_eq!((traffic.current, traffic.count), (18, 2));
/// ```
#[derive(Clone, Debug)]
pub struct Histogram {
    bins: Vec<Traffic>,
    groups: [Traffic; 4],
    all: Traffic,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl Histogram {
    /// One with nothing in it.
    pub fn new() -> Histogram {
        Histogram {
            bins: vec![Traffic::default(); BINS],
            groups: Default::default(),
            all: Traffic::default(),
        }
    }

    /// A block of `size` bytes lives already as the counting begins.
    pub fn begin(&mut self, size: u64) {
        self.each(size, |t| t.begin(size));
    }

    /// A block of `size` bytes was made.
    pub fn allocate(&mut self, size: u64) {
        self.each(size, |t| t.allocate(size));
    }

    /// A block of `size` bytes died.
    pub fn release(&mut self, size: u64) {
        self.each(size, |t| t.release(size));
    }

    /// Takes in what a call made and ended, as far as the filter wants it: of a realloc it may be
    /// one size and not the other.
    pub fn call(&mut self, resolved: &Resolved, filter: &Filter) {
        if !filter.admits_call(resolved) {
            return;
        }
        for block in resolved.ended().filter(|b| filter.admits_size(b.size)) {
            self.release(block.size);
        }
        // Not by the address: a pass for sizes alone does not read that column.
        let size = resolved.event.size;
        if resolved.ordinal.is_some() && filter.admits_size(size) {
            self.allocate(size);
        }
    }

    fn each(&mut self, size: u64, act: impl Fn(&mut Traffic)) {
        let bin = Bin::of_bytes(size);
        if let Some(traffic) = self.bins.get_mut(usize::from(bin.0)) {
            act(traffic);
        }
        act(&mut self.groups[bin.group() as usize]);
        act(&mut self.all);
    }

    /// Sets the peak of all sizes together, where more is known of it than the processes' own peaks tell.
    pub(crate) fn set_peak(&mut self, peak: Bounds) {
        self.all.peak = peak;
    }

    /// Takes in that of another process.
    pub fn join(&mut self, other: &Histogram) {
        self.bins.iter_mut().zip(&other.bins).for_each(|(t, o)| t.join(o));
        self.groups.iter_mut().zip(&other.groups).for_each(|(t, o)| t.join(o));
        self.all.join(&other.all);
    }

    /// The bins in which anything ever was, from small to large.
    pub fn bins(&self) -> impl Iterator<Item = (Bin, &Traffic)> {
        self.bins
            .iter()
            .enumerate()
            .filter(|(_, t)| **t != Traffic::default())
            .map(|(i, t)| (Bin(i as u16), t))
    }

    /// The four groups.
    pub fn groups(&self) -> impl Iterator<Item = (Group, &Traffic)> {
        Group::ALL.into_iter().zip(&self.groups)
    }

    /// All sizes together. The peak is that of the sum at one instant.
    pub fn all(&self) -> &Traffic {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::tests::resolved;
    use heaptape_tape::Call;

    #[test]
    fn edges_are_closed_above() {
        for (size, unit) in [
            (0, 16),
            (16, 16),
            (17, 18),
            (18, 18),
            (19, 20),
            (32, 32),
            (33, 36),
            (64, 64),
            (65, 72),
            (1024, 1024),
            (1025, 1152),
            (1 << 63, 1 << 63),
            ((1 << 63) + 1, (1 << 63) + (1 << 60)),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(Bin::of_bytes(size).unit(), unit, "{size}");
        }
    }

    #[test]
    fn units_rise_and_hold_themselves() {
        let mut last = 0;
        for i in 0..BINS {
            let bin = Bin(i as u16);
            assert!(bin.unit() > last);
            assert_eq!(Bin::of_bytes(bin.unit()), bin);
            assert_eq!(Bin::of_bytes(last + u64::from(i > 0)), bin);
            last = bin.unit();
        }
        assert_eq!(last, u64::MAX);
    }

    #[test]
    fn groups_end_where_bins_end() {
        for (size, group) in [
            (0, Group::Small),
            (1 << 10, Group::Small),
            ((1 << 10) + 1, Group::Medium),
            (1 << 17, Group::Medium),
            ((1 << 17) + 1, Group::Large),
            (32 << 20, Group::Large),
            ((32 << 20) + 1, Group::Huge),
            (u64::MAX, Group::Huge),
        ] {
            assert_eq!(Bin::of_bytes(size).group(), group, "{size}");
        }
    }

    #[test]
    fn a_peak_is_of_one_instant() {
        let mut h = Histogram::new();
        h.begin(100);
        h.release(100);
        h.allocate(2000);
        h.release(2000);
        h.allocate(0);
        let all = h.all();
        assert_eq!((all.peak, all.total, all.freed), (Bounds::exact(2000), 2000, 2100));
        assert_eq!((all.current, all.count), (0, 2));
        assert_eq!(h.bins().count(), 3);
        let groups: Vec<u64> = h.groups().map(|(_, t)| t.peak.upper).collect();
        assert_eq!(groups, [100, 2000, 0, 0]);
    }

    #[test]
    fn a_failed_realloc_ends_no_block() {
        let mut h = Histogram::new();
        h.begin(24);
        h.call(&resolved(Call::Realloc, 100, 0, 0x100, 24), &Filter::default());
        assert_eq!((h.all().freed, h.all().current, h.all().count), (0, 24, 0));
    }

    #[test]
    fn a_realloc_frees_its_old_size() {
        let moved = resolved(Call::Realloc, 100, 0x200, 0x100, 24);
        let failed = resolved(Call::Realloc, 100, 0, 0x100, 0);
        let mut h = Histogram::new();
        h.begin(24);
        h.call(&moved, &Filter::default());
        h.call(&failed, &Filter::default());
        let all = *h.all();
        assert_eq!((all.total, all.freed, all.current, all.count), (100, 24, 100, 1));
        let small = Filter { sizes: Some(0..=50), ..Filter::default() };
        let mut h = Histogram::new();
        h.begin(24);
        h.call(&moved, &small);
        assert_eq!((h.all().total, h.all().freed), (0, 24));
    }

    #[test]
    fn nonsense_does_not_overflow() {
        let mut h = Histogram::new();
        h.allocate(u64::MAX);
        h.allocate(u64::MAX);
        h.release(u64::MAX);
        h.release(u64::MAX);
        assert_eq!(h.all().current, 0);
    }
}
