//! Figures that are known to lie between two values: peaks of sums whose parts were not seen together.

/// A figure that lies between two values, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// At least this.
    pub lower: u64,
    /// At most this.
    pub upper: u64,
}

impl Bounds {
    /// A figure that is known.
    pub const fn exact(value: u64) -> Bounds {
        Bounds { lower: value, upper: value }
    }

    /// The value, where it is known.
    pub fn known(self) -> Option<u64> {
        (self.lower == self.upper).then_some(self.lower)
    }

    /// A largest value that was at least `value`, too.
    #[inline]
    pub fn raise(&mut self, value: u64) {
        self.lower = self.lower.max(value);
        self.upper = self.upper.max(value);
    }

    /// The same of a figure that is never less than the other.
    pub fn at_least(self, other: Bounds) -> Bounds {
        Bounds { lower: self.lower.max(other.lower), upper: self.upper.max(other.upper) }
    }

    /// The largest value of a sum of two, given those of each: they may have come together, or not.
    pub fn join_peak(&mut self, other: Bounds) {
        self.lower = self.lower.max(other.lower);
        self.upper = self.upper.saturating_add(other.upper);
    }

    /// The sum of two figures of one moment.
    pub fn add(&mut self, other: Bounds) {
        self.lower = self.lower.saturating_add(other.lower);
        self.upper = self.upper.saturating_add(other.upper);
    }
}
