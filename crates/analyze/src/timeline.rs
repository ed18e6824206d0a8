//! Timelines: how much was live, over the call index or over time.
//!
//! A [`Timeline`] cuts its axis into steps of equal length and keeps the least and the most of each step,
//! so that no peak between two of its points is lost however long the run was. It is told the levels
//! after each call, and looks at nothing else.

use std::ops::Range;

/// What is live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// Requested bytes.
    pub requested: u64,
    /// Usable bytes.
    pub usable: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Levels {
    /// A block of `size` requested bytes with `slack` more comes to them.
    #[inline]
    pub fn add(&mut self, size: u64, slack: u64) {
        self.requested = self.requested.wrapping_add(size);
        self.usable = self.usable.wrapping_add(size).wrapping_add(slack);
        self.blocks = self.blocks.wrapping_add(1);
    }

    /// Such a block goes.
    #[inline]
    pub fn remove(&mut self, size: u64, slack: u64) {
        self.requested = self.requested.wrapping_sub(size);
        self.usable = self.usable.wrapping_sub(size).wrapping_sub(slack);
        self.blocks = self.blocks.wrapping_sub(1);
    }

    /// What came to it by [`Levels::join`] goes.
    pub(crate) fn part(&mut self, other: &Levels) {
        self.requested = self.requested.saturating_sub(other.requested);
        self.usable = self.usable.saturating_sub(other.usable);
        self.blocks = self.blocks.saturating_sub(other.blocks);
    }

    /// What is live elsewhere at the same moment comes to it.
    pub(crate) fn join(&mut self, other: &Levels) {
        self.requested = self.requested.saturating_add(other.requested);
        self.usable = self.usable.saturating_add(other.usable);
        self.blocks = self.blocks.saturating_add(other.blocks);
    }
}

/// The least and the most that a figure was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

impl Extent {
    fn of(value: u64) -> Extent {
        Extent { least: value, most: value }
    }

    #[inline]
    fn take(&mut self, value: u64) {
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    fn add(&mut self, other: Extent) {
        self.least = self.least.saturating_add(other.least);
        self.most = self.most.saturating_add(other.most);
    }
}

/// What a timeline runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The indexes of calls.
    Index,
    /// Milliseconds since the recording began. The clock is coarse: a level may stand a few
    /// milliseconds off.
    Time,
}

/// One step of a timeline: the levels when it began and after each of its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Where on the axis it begins.
    pub at: u64,
    /// The index (on an axis of time) or the milliseconds (on one of indexes) of its first call, or of
    /// the last call before it where it has none.
    pub beside: u64,
    /// The place on the other axis of the call that first brought the most requested bytes.
    pub most_at: u64,
    /// Calls made in it.
    pub calls: u64,
    /// The levels as it began.
    pub began: Levels,
    /// Requested bytes.
    pub requested: Extent,
    /// Usable bytes.
    pub usable: Extent,
    /// Blocks.
    pub blocks: Extent,
}

impl Step {
    fn new(at: u64, beside: u64, levels: &Levels) -> Step {
        Step {
            at,
            beside,
            most_at: beside,
            calls: 0,
            began: *levels,
            requested: Extent::of(levels.requested),
            usable: Extent::of(levels.usable),
            blocks: Extent::of(levels.blocks),
        }
    }

    #[inline]
    fn take(&mut self, levels: &Levels, beside: u64) {
        if levels.requested > self.requested.most {
            self.most_at = beside;
        }
        self.requested.take(levels.requested);
        self.usable.take(levels.usable);
        self.blocks.take(levels.blocks);
    }
}

/// How much was live, step by step.
///
/// ```
/// use heaptape_analyze::timeline::{Axis, Levels, Timeline};
/// let mut line = Timeline::new(Axis::Index, 0..4, 2, Levels::default());
/// for (index, requested) in [100, 300, 200, 50].into_iter().enumerate() {
///     line.call(index as u64, 0, &Levels { requested, usable: requested, blocks: 1 });
/// }
/// let most: Vec<u64> = line.steps().iter().map(|step| step.requested.most).collect();
/// assert_eq!(most, [300, 300]); // the second begins with what the first ended with
/// ```
#[derive(Clone, Debug)]
pub struct Timeline {
    axis: Axis,
    range: Range<u64>,
    per_step: u64,
    steps: Vec<Step>,
    /// Where the last step ends.
    boundary: u64,
    last: Levels,
    /// Where on the other axis the last call was.
    last_beside: u64,
}

impl Timeline {
    /// One over `range` of an axis with at most `width` steps; `levels` is what is live before.
    pub fn new(axis: Axis, range: Range<u64>, width: usize, levels: Levels) -> Timeline {
        let length = range.end.saturating_sub(range.start);
        let per_step = length.div_ceil(width.max(1) as u64).max(1);
        let first = Step::new(range.start, 0, &levels);
        let boundary = range.start.saturating_add(per_step);
        Timeline {
            axis,
            range,
            per_step,
            steps: vec![first],
            boundary,
            last: levels,
            last_beside: 0,
        }
    }

    /// A call was made at `at` of the axis, and these levels came of it. `beside` is its place on the other
    /// axis. What is not in the range changes nothing.
    #[inline]
    pub fn call(&mut self, at: u64, beside: u64, levels: &Levels) {
        if at >= self.boundary {
            self.go_to(at);
        }
        if let Some(step) = self.steps.last_mut() {
            step.take(levels, beside);
            if step.calls == 0 {
                step.beside = beside;
            }
            step.calls += 1;
        }
        (self.last, self.last_beside) = (*levels, beside);
    }

    /// Begins the steps up to the one that `at` lies in.
    #[cold]
    fn go_to(&mut self, at: u64) {
        let at = at.min(self.range.end.saturating_sub(1));
        while at >= self.boundary {
            self.steps.push(Step::new(self.boundary, self.last_beside, &self.last));
            self.boundary = self.boundary.saturating_add(self.per_step);
        }
    }

    /// All that was live is gone from `at` of the axis on, as a process has ended.
    pub fn gone(&mut self, at: u64) {
        self.go_to(at);
        self.last = Levels::default();
        if let Some(step) = self.steps.last_mut() {
            step.take(&Levels::default(), self.last_beside);
        }
    }

    /// From `at` of the axis on it is not known whether what is live has gone: nothing may be left.
    pub fn may_be_gone(&mut self, at: u64) {
        let first = at.saturating_sub(self.range.start) / self.per_step;
        for step in self.steps.iter_mut().skip(usize::try_from(first).unwrap_or(usize::MAX)) {
            (step.requested.least, step.usable.least, step.blocks.least) = (0, 0, 0);
        }
    }

    /// Nothing more comes: the last levels hold up to the end of the range.
    pub fn finish(&mut self) {
        self.go_to(self.range.end);
    }

    /// What it runs over.
    pub fn axis(&self) -> Axis {
        self.axis
    }

    /// The part of the axis that it covers.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The length of a step.
    pub fn per_step(&self) -> u64 {
        self.per_step
    }

    /// Its steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What is live after all that it was told.
    pub fn last(&self) -> Levels {
        self.last
    }

    /// The first step in which the requested bytes were most.
    pub fn highest(&self) -> Option<&Step> {
        // max_by_key gives the last of equals.
        self.steps.iter().rev().max_by_key(|step| step.requested.most)
    }

    /// In a step no more than that lived.
    pub(crate) fn hold(&mut self, step: usize, most: &Levels) {
        if let Some(step) = self.steps.get_mut(step) {
            step.requested.most = step.requested.most.min(most.requested);
            step.usable.most = step.usable.most.min(most.usable);
            step.blocks.most = step.blocks.most.min(most.blocks);
        }
    }

    /// Adds that of another process, over the same range and with the same steps. The levels of the two
    /// within a step may not have met, so the sums are bounds.
    pub fn add(&mut self, other: &Timeline) {
        self.last.join(&other.last);
        for (step, other) in self.steps.iter_mut().zip(&other.steps) {
            step.calls += other.calls;
            step.began.join(&other.began);
            step.requested.add(other.requested);
            step.usable.add(other.usable);
            step.blocks.add(other.blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(requested: u64) -> Levels {
        Levels { requested, usable: requested + 8, blocks: 1 }
    }

    /// Against the least and the most of each stretch, made by looking at every value.
    #[test]
    fn steps_hold_the_least_and_the_most_of_their_calls() {
        let values: Vec<u64> = (0..1000u64).map(|i| i * i % 977).collect();
        for width in [1, 3, 7, 100, 999, 1000, 5000] {
            let mut line = Timeline::new(Axis::Index, 0..1000, width, levels(5));
            for (index, &value) in values.iter().enumerate() {
                line.call(index as u64, 2 * index as u64, &levels(value));
            }
            line.finish();
            let per_step = line.per_step() as usize;
            assert!(line.steps().len() <= width && line.steps().len() * per_step >= 1000);
            for (n, step) in line.steps().iter().enumerate() {
                let first = n * per_step;
                let before = if first == 0 { 5 } else { values[first - 1] };
                let here = values.iter().skip(first).take(per_step).copied().chain([before]);
                let (least, most) = (here.clone().min().unwrap(), here.max().unwrap());
                assert_eq!((step.requested.least, step.requested.most), (least, most));
                assert_eq!(step.began.requested, before);
                assert_eq!((step.usable.least, step.usable.most), (least + 8, most + 8));
                assert_eq!((step.at, step.beside), (first as u64, 2 * first as u64));
                let before = first.saturating_sub(1);
                let brought = values.iter().skip(before).take(per_step + first - before);
                let place = brought.clone().position(|&value| value == most);
                assert_eq!(step.most_at, place.map_or(0, |place| 2 * (before + place) as u64));
            }
            let calls: u64 = line.steps().iter().map(|step| step.calls).sum();
            assert_eq!(calls, 1000);
        }
    }

    #[test]
    fn a_level_holds_where_nothing_happens_and_ends_with_its_process() {
        let mut line = Timeline::new(Axis::Time, 0..100, 10, levels(0));
        line.call(12, 0, &levels(70));
        line.gone(55);
        line.finish();
        let most: Vec<u64> = line.steps().iter().map(|s| s.requested.most).collect();
        assert_eq!(most, [0, 70, 70, 70, 70, 70, 0, 0, 0, 0]);
        assert_eq!(line.steps()[5].requested.least, 0);
    }

    #[test]
    fn times_that_go_back_and_beyond_change_no_earlier_step() {
        let mut line = Timeline::new(Axis::Time, 10..30, 4, levels(0));
        for (time, value) in [(3, 1), (22, 2), (12, 3), (90, 4), (u64::MAX, 5)] {
            line.call(time, 0, &levels(value));
        }
        line.finish();
        let most: Vec<u64> = line.steps().iter().map(|s| s.requested.most).collect();
        assert_eq!(most, [1, 1, 3, 5]);
    }

    #[test]
    fn a_sum_of_two_is_bounds() {
        let one = |at, value| {
            let mut line = Timeline::new(Axis::Time, 0..20, 2, levels(0));
            line.call(at, 0, &levels(value));
            line.gone(15);
            line.finish();
            line
        };
        let mut sum = one(2, 100);
        sum.add(&one(12, 50));
        let extents: Vec<_> =
            sum.steps().iter().map(|s| (s.requested.least, s.requested.most)).collect();
        assert_eq!(extents, [(0, 100), (0, 150)]);
    }

    #[test]
    fn a_run_without_calls_has_one_step() {
        let mut line = Timeline::new(Axis::Index, 0..0, 100, levels(7));
        line.finish();
        assert_eq!(line.steps().len(), 1);
        assert_eq!(line.highest().unwrap().requested.most, 7);
    }
}
