//! The curves of one tape, made in one pass over each of its processes.
//!
//! A process alone counts what it inherited by fork; in the sum of a job each block counts in the process that
//! made it. The calls come from the tape's stream and go into timelines.

use std::ops::Range;

use heaptape_tape::{Columns, Item, Lent, OldBlock, ProcessSummary, Resolved, Tape};

use super::kernel::Samples;
use super::{Column, Curve, Curves, Figure, Run, Source, Summit, Wish};
use crate::Error;
use crate::moment;
use crate::timeline::{Axis, Extent, Levels, Step, Timeline};
use heaptape_ledger::Bounds;

/// Events between two reports of progress.
const TOLD: u64 = 1 << 14;

/// The part of the axis that a tape has.
pub(super) fn range(source: &Source<'_>, axis: Axis) -> Result<Range<u64>, Error> {
    if axis == Axis::Index {
        let events = source.processes.first().map_or(0, |process| process.events);
        return Ok(0..events.max(1));
    }
    let start = source.processes.iter().map(|p| p.started).min().unwrap_or(0);
    let mut end = start;
    for process in &source.processes {
        end = end.max(moment::last_time(source.tape, process)?);
    }
    Ok(start..end.saturating_add(1))
}

/// Reads a tape. `range` is its part of the axis, `whole` that of all tapes, `part` what is drawn large.
pub(super) fn of(
    source: &Source<'_>,
    range: &Range<u64>,
    whole: &Range<u64>,
    part: &Range<u64>,
    wish: &Wish,
    progress: &mut dyn FnMut(u64),
) -> Result<Run, Error> {
    let near = Frame::new(range, part, wish);
    let outer = (part != whole).then(|| Frame::new(range, whole, wish));
    let mut frames: Vec<Frame> = [Some(near), outer].into_iter().flatten().collect();
    let together = wish.axis == Axis::Time && source.processes.len() > 1;
    let chosen = if together { source.processes.len() } else { 1 };
    for process in source.processes.iter().take(chosen) {
        for frame in &mut frames {
            frame.begin();
        }
        let mut pass = Pass { frames: &mut frames, axis: wish.axis, inherited: !together };
        pass.process(source.tape, process, progress)?;
        for frame in &mut frames {
            frame.end(together);
        }
    }
    let samples = Samples::of(source, wish.axis)?;
    let mut frames = frames.into_iter();
    let near = frames.next().map(|frame| frame.finish(&samples, together)).unwrap_or_default();
    let whole = frames.next().map(|frame| frame.finish(&samples, together));
    Ok(Run { near, whole })
}

/// One part of the axis, and what is known of it so far.
struct Frame {
    axis: Axis,
    /// The tape's own part of it.
    range: Range<u64>,
    columns: usize,
    /// Of the process that is being read, once the pass has come that far.
    line: Option<Timeline>,
    summit: Option<(u64, u64)>,
    /// Of the processes before.
    sum: Option<Timeline>,
}

impl Frame {
    /// The part of `part` that a tape has, with columns as long as if it had all of it.
    fn new(range: &Range<u64>, part: &Range<u64>, wish: &Wish) -> Frame {
        let start = range.start.max(part.start);
        let range = start..range.end.min(part.end).max(start);
        let length = part.end.saturating_sub(part.start);
        let per_column = length.div_ceil(wish.columns.max(1) as u64).max(1);
        let columns = (range.end - range.start).div_ceil(per_column).max(1);
        Frame {
            axis: wish.axis,
            range,
            columns: columns as usize,
            line: None,
            summit: None,
            sum: None,
        }
    }

    fn begin(&mut self) {
        self.line = None;
    }

    fn line(&mut self, before: &Levels) -> &mut Timeline {
        self.line.get_or_insert_with(|| {
            let bytes = before.requested;
            self.summit = (bytes > 0).then_some((self.range.start, bytes));
            Timeline::new(self.axis, self.range.clone(), self.columns, *before)
        })
    }

    /// The levels changed at a place on the axis.
    #[inline]
    fn call(&mut self, at: u64, beside: u64, before: &Levels, levels: &Levels) {
        if at < self.range.start && self.line.is_none() {
            return;
        }
        let end = self.range.end;
        let line = self.line(before);
        if at >= end {
            return;
        }
        line.call(at, beside, levels);
        if self.summit.is_none_or(|(_, most)| levels.requested > most) {
            self.summit = Some((at.max(self.range.start), levels.requested));
        }
    }

    /// The process ends, with what it has.
    fn last(&mut self, ended: Option<u64>, levels: &Levels) {
        let (start, axis) = (self.range.start, self.axis);
        let gone = ended.filter(|&ended| axis == Axis::Time && ended < self.range.end);
        let line = match gone {
            Some(ended) if ended < start => self.line(&Levels::default()),
            _ => self.line(levels),
        };
        match gone {
            Some(ended) => line.gone(ended),
            None => line.finish(),
        }
    }

    /// Takes the line of a process into the sum.
    fn end(&mut self, together: bool) {
        let Some(mut line) = self.line.take() else { return };
        if together {
            line.finish();
        }
        match &mut self.sum {
            Some(sum) => sum.add(&line),
            sum => *sum = Some(line),
        }
    }

    fn finish(self, samples: &Samples, together: bool) -> Curves {
        if self.range.is_empty() {
            return Curves::default();
        }
        let Some(line) = self.sum else { return Curves::default() };
        let summit = if together { highest(&line) } else { self.summit };
        let summit = match summit {
            Some((at, most)) if most > 0 => {
                let lower = line.steps().iter().map(|step| step.requested.least).max();
                let lower = if together { lower.unwrap_or(0) } else { most };
                Some(Summit { at, bytes: Bounds { lower, upper: most } })
            }
            _ => None,
        };
        let mut curves = vec![
            curve(&line, Figure::Requested, |step| step.requested, |levels| levels.requested),
            curve(&line, Figure::Usable, |step| step.usable, |levels| levels.usable),
        ];
        curves.extend(samples.curves(&self.range, line.per_step()));
        Curves { curves, summit }
    }
}

fn highest(line: &Timeline) -> Option<(u64, u64)> {
    line.highest().map(|step| (step.at, step.requested.most))
}

fn curve(
    line: &Timeline,
    figure: Figure,
    extent: fn(&Step) -> Extent,
    level: fn(&Levels) -> u64,
) -> Curve {
    let steps = line.steps();
    let ends = steps.iter().skip(1).map(|step| step.began).chain([line.last()]);
    let columns = steps.iter().zip(ends).map(|(step, end)| {
        let Extent { least, most } = extent(step);
        Column { at: step.at, began: level(&step.began), ended: level(&end), least, most }
    });
    Curve { figure, columns: columns.collect(), end: line.range().end, samples: Vec::new() }
}

/// A pass over the calls of one process.
struct Pass<'a> {
    frames: &'a mut [Frame],
    axis: Axis,
    /// Whether blocks that were inherited by fork count.
    inherited: bool,
}

impl Pass<'_> {
    fn process(
        &mut self,
        tape: &Tape,
        process: &ProcessSummary,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Error> {
        let mut levels = Levels::default();
        if self.inherited && process.inherited_blocks > 0 {
            for block in tape.inherited(process.number)? {
                levels.add(block.size, block.slack);
            }
            if self.axis == Axis::Time {
                self.call(process.started, 0, &Levels::default(), &levels);
            }
        }
        let columns = Columns { slack: true, time: self.axis == Axis::Time, ..Columns::REPLAY };
        let mut items = tape.events_with(process.number, 0..u64::MAX, columns)?;
        let mut made = 0;
        while let Some(item) = items.lend()? {
            match item {
                Lent::Event(event) => {
                    self.event(event, &mut levels);
                    made += 1;
                    if made % TOLD == 0 {
                        progress(TOLD);
                    }
                }
                // A thread gave an address up again before its realloc came: the block of the first is gone.
                Lent::Other(Item::Release(release)) => {
                    if let Some(lost) = &release.lost {
                        self.remove(lost, &mut levels);
                    }
                }
                Lent::Other(_) => {}
            }
        }
        progress(made % TOLD);
        for frame in self.frames.iter_mut() {
            frame.last(process.ended, &levels);
        }
        Ok(())
    }

    #[inline]
    fn event(&mut self, event: &Resolved, levels: &mut Levels) {
        let before = *levels;
        for old in event.ended() {
            self.remove(old, levels);
        }
        if event.ordinal.is_some() {
            levels.add(event.event.size, event.event.slack);
        }
        match self.axis {
            Axis::Index => self.call(event.index, 0, &before, levels),
            Axis::Time => self.call(event.event.time, event.index, &before, levels),
        }
    }

    #[inline]
    fn remove(&self, block: &OldBlock, levels: &mut Levels) {
        if self.inherited || block.birth.is_some() {
            levels.remove(block.size, block.slack);
        }
    }

    #[inline]
    fn call(&mut self, at: u64, beside: u64, before: &Levels, levels: &Levels) {
        for frame in self.frames.iter_mut() {
            frame.call(at, beside, before, levels);
        }
    }
}
