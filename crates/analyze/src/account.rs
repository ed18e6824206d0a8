//! The account of a job: the surveys of its processes, or of those that were chosen, as one.
//!
//! Of one process every figure is exact. Of several, each block counts in the process that made it, and not
//! again in a forked copy; the sum at one instant is known as far as the coarse clock goes, so that its peak
//! lies between two bounds.

use std::ops::Range;

use heaptape_tape::{Columns, Item, Lent, ProcessSummary, Release, Tape};

use crate::Error;
use crate::bins::Histogram;
use crate::callers::Callers;
use crate::growth::axis_of;
use crate::lives::Lives;
use crate::sites::{Joined, Site};
use crate::survey::{self, KernelPoint, Moments, Plan, Point, Reallocs, Survey, ThreadDeeds};
use crate::timeline::{Axis, Levels, Timeline};
use crate::together::{self, Ends, Tops};
use crate::{moment, overview};
use heaptape_ledger::Bounds;

/// Even points of the run at which it is looked at what lives.
pub const EIGHTHS: usize = 8;
/// The steps of a curve, at the most.
pub const STEPS: usize = 1024;

/// The most that was live at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Requested bytes.
    pub requested: Bounds,
    /// Usable bytes, then.
    pub usable: Bounds,
    /// Blocks, then.
    pub blocks: Bounds,
    /// The index of the event after which it was; `None` for several processes.
    pub at: Option<u64>,
    /// Milliseconds since the recording began. For several processes it came within
    /// [`Peak::within`] after.
    pub time: u64,
    /// How many milliseconds the time may be off.
    pub within: u64,
}

/// What the kernel held at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The writable, committed part of the address space, in bytes.
    pub system: Option<Bounds>,
    /// Pages in RAM, in bytes. Of several processes, shared pages may be counted in each of them (upper).
    pub resident: Option<Bounds>,
}

/// A thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The process, by its place in [`Account::parts`].
    pub part: usize,
    /// Its number in its process.
    pub number: u32,
    /// What it did.
    pub deeds: ThreadDeeds,
}

/// A process of the account.
#[derive(Clone, Debug)]
pub struct Part {
    /// What the tape's index says.
    pub process: ProcessSummary,
    /// After the event that brought the most, and after the last.
    pub peak: Point,
    /// After its last event.
    pub end: Point,
    /// What the kernel said of it.
    pub kernel: Vec<KernelPoint>,
}

/// Figures of one process, or of several together.
#[derive(Clone, Debug)]
pub struct Account {
    /// The processes, in order of start.
    pub parts: Vec<Part>,
    /// From the start of the first to the end of the last, in milliseconds since the recording began.
    pub time: Range<u64>,
    /// How much was live over time.
    pub over_time: Timeline,
    /// The same over the index, of a single process.
    pub over_index: Option<Timeline>,
    /// The most.
    pub peak: Peak,
    /// What each process left, added up.
    pub end: Levels,
    /// What the kernel held at the peak; nothing is known where its samples missed it.
    pub held_at_peak: Held,
    /// The most that the kernel held at any sample.
    pub held_most: Held,
    /// The size classes.
    pub bins: Histogram,
    /// The callers, the one with most bytes made first.
    pub sites: Vec<Site>,
    /// Whether the even points are even in time, or in calls.
    pub axis: Axis,
    /// How long blocks lived.
    pub lives: Lives,
    /// How reallocs went.
    pub reallocs: Reallocs,
    /// The threads.
    pub threads: Vec<Thread>,
}

impl Account {
    /// Reads all events of the chosen processes. `progress` is told how many more have been read; of several
    /// processes every event is read twice.
    pub fn of(
        tape: &Tape,
        chosen: &[&ProcessSummary],
        callers: &mut Callers<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Account, Error> {
        let chosen: Vec<ProcessSummary> = chosen.iter().map(|p| until_replaced(tape, p)).collect();
        let time = span(tape, &chosen)?;
        match chosen.as_slice() {
            [process] => one(tape, process, time, callers, progress),
            chosen => several(tape, chosen, time, callers, progress),
        }
    }

    /// How many events [`Account::of`] reads in all.
    pub fn reads(chosen: &[&ProcessSummary]) -> u64 {
        let events: u64 = chosen.iter().map(|process| process.events).sum();
        if chosen.len() == 1 { events } else { 2 * events }
    }

    /// Milliseconds that it covers.
    pub fn duration(&self) -> u64 {
        self.time.end - self.time.start
    }

    /// Events of all its processes.
    pub fn events(&self) -> u64 {
        self.parts.iter().map(|part| part.process.events).sum()
    }

    /// Samples that show less than the allocator had handed out missed the peak, which was shorter than the
    /// time between them: then nothing is known.
    fn keep_plausible(&mut self) {
        let usable = self.peak.usable.lower;
        for held in [&mut self.held_at_peak, &mut self.held_most] {
            if held.system.is_some_and(|system| system.upper < usable) {
                *held = Held::default();
            }
        }
    }

    fn empty(time: Range<u64>) -> Account {
        Account {
            parts: Vec::new(),
            over_time: Timeline::new(Axis::Time, time.clone(), STEPS, Levels::default()),
            time,
            over_index: None,
            peak: Peak::default(),
            end: Levels::default(),
            held_at_peak: Held::default(),
            held_most: Held::default(),
            bins: Histogram::new(),
            sites: Vec::new(),
            axis: Axis::Time,
            lives: Lives::default(),
            reallocs: Reallocs::default(),
            threads: Vec::new(),
        }
    }

    /// Finds the peak of the sum of several processes, of which one alone had `own`; gives the number of its
    /// step.
    fn peak_of_sum(&mut self, own: u64) -> usize {
        let steps = self.over_time.steps();
        // Whatever came when within a step, so much lived together.
        let lower = steps.iter().map(|step| step.requested.least).max().unwrap_or(0).max(own);
        let Some(step) = self.over_time.highest() else { return 0 };
        self.peak = Peak {
            requested: Bounds { lower, upper: step.requested.most },
            usable: Bounds { lower: step.usable.least.max(lower), upper: step.usable.most },
            blocks: Bounds { lower: step.blocks.least, upper: step.blocks.most },
            at: None,
            time: step.at,
            within: self.over_time.per_step(),
        };
        ((step.at - self.time.start) / self.over_time.per_step()) as usize
    }

    fn add(&mut self, process: &ProcessSummary, survey: Survey, sites: &mut Joined) {
        let part = self.parts.len();
        self.end.join(&survey.end.levels);
        self.bins.join(&survey.bins);
        self.lives.join(&survey.lives);
        self.reallocs.join(&survey.reallocs);
        self.threads.extend(survey.threads.into_iter().map(|(number, deeds)| Thread {
            part,
            number,
            deeds,
        }));
        sites.add(survey.sites);
        self.parts.push(Part {
            process: process.clone(),
            peak: survey.peak,
            end: survey.end,
            kernel: survey.kernel,
        });
    }
}

/// From the first start of the chosen processes to the last end, in milliseconds since the recording began.
pub(crate) fn span_of(tape: &Tape, chosen: &[&ProcessSummary]) -> Result<Range<u64>, Error> {
    let chosen: Vec<ProcessSummary> = chosen.iter().map(|p| until_replaced(tape, p)).collect();
    span(tape, &chosen)
}

/// How many events each of the chosen processes had made at its part of their peak, as in the account: that of the
/// one, or of the sum of several; `None` of one that had nothing then. `progress` is told how many more have been read.
pub(crate) fn peaks(
    tape: &Tape,
    chosen: &[&ProcessSummary],
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Option<u64>>, Error> {
    if let [process] = chosen {
        return Ok(vec![Some(moment::at_peak(process))]);
    }
    let chosen: Vec<ProcessSummary> = chosen.iter().map(|p| until_replaced(tape, p)).collect();
    let mut account = Account::empty(span(tape, &chosen)?);
    let (over_time, tops, own) = sum_over_time(tape, &chosen, &account.time, progress)?;
    account.over_time = over_time;
    let top = account.peak_of_sum(own);
    Ok(together::at_step(&tops, top))
}

/// The process as it was until another program took its place, whose start is known more exactly than its end.
fn until_replaced(tape: &Tape, process: &ProcessSummary) -> ProcessSummary {
    let mut process = process.clone();
    if overview::is_replaced(tape.summary(), &process) {
        let later = tape.summary().processes.iter().filter(|p| p.number > process.number);
        let next = later.filter(|p| p.pid == process.pid).map(|p| p.started).min();
        process.ended = process.ended.min(next.or(process.ended));
    }
    process
}

/// From the first start to the last end; where that is not known, to the last event.
fn span(tape: &Tape, chosen: &[ProcessSummary]) -> Result<Range<u64>, Error> {
    let start = chosen.iter().map(|p| p.started).min().unwrap_or(0);
    let mut end = start;
    for process in chosen {
        end = end.max(match process.ended {
            Some(ended) => ended,
            None => moment::last_time(tape, process)?,
        });
    }
    // The last millisecond belongs to it.
    Ok(start..end.saturating_add(1))
}

/// The middles of the eighths of a length: the processes of a job end one after the other, and at its end none
/// is left.
fn middles(range: &Range<u64>) -> Vec<u64> {
    sixteenths(range, 1)
}

/// The ends of the eighths of a length, the last of them its own.
pub(crate) fn evens(range: &Range<u64>) -> Vec<u64> {
    sixteenths(range, 2)
}

/// Every second sixteenth of a length, from this one on.
fn sixteenths(range: &Range<u64>, first: u64) -> Vec<u64> {
    let (length, all) = (u128::from(range.end - range.start), 2 * EIGHTHS as u64);
    let part = |n: u64| (length * u128::from(n) / u128::from(all)) as u64;
    (first..=all).step_by(2).map(|n| range.start + part(n)).collect()
}

fn one(
    tape: &Tape,
    process: &ProcessSummary,
    time: Range<u64>,
    callers: &mut Callers<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Account, Error> {
    let at_peak = moment::at_peak(process);
    let axis = axis_of(time.end - time.start);
    let moments = match axis {
        Axis::Index => Moments::Events(evens(&(0..process.events))),
        // The last millisecond is the end, when what is left still counts.
        Axis::Time => Moments::Millis(evens(&(time.start..time.end - 1))),
    };
    let plan = Plan {
        moments,
        peak: Some(at_peak),
        time: time.clone(),
        steps: STEPS,
        inherited: true,
        threads: false,
    };
    let modules = callers.modules(process.number)?;
    let survey = survey::of(tape, process, modules, &plan, progress)?;
    let mut account = Account::empty(time);
    let Point { events, time, levels } = survey.peak;
    account.peak = Peak {
        requested: Bounds::exact(levels.requested),
        usable: Bounds::exact(levels.usable),
        blocks: Bounds::exact(levels.blocks),
        at: events.checked_sub(1),
        time,
        within: 0,
    };
    account.held_at_peak = around(&survey.kernel, |point| point.events < events);
    account.held_most = most(&survey.kernel);
    account.over_time = survey.over_time.clone();
    account.over_index = Some(survey.over_index.clone());
    account.axis = axis;
    let mut sites = Joined::default();
    account.add(process, survey, &mut sites);
    account.sites = sites.finish();
    account.keep_plausible();
    Ok(account)
}

fn several(
    tape: &Tape,
    chosen: &[ProcessSummary],
    time: Range<u64>,
    callers: &mut Callers<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Account, Error> {
    let mut account = Account::empty(time.clone());
    let (over_time, tops, own) = sum_over_time(tape, chosen, &time, progress)?;
    account.over_time = over_time;
    let top = account.peak_of_sum(own);
    let at_peak = account.peak.time.saturating_add(account.peak.within / 2);
    let evens = middles(&time);
    let mut plan = Plan {
        moments: Moments::Millis(evens),
        peak: None,
        time,
        steps: 1,
        inherited: false,
        threads: false,
    };
    let mut sites = Joined::default();
    for (process, at_peak) in chosen.iter().zip(together::at_step(&tops, top)) {
        let modules = callers.modules(process.number)?;
        plan.peak = at_peak;
        let survey = survey::of(tape, process, modules, &plan, progress)?;
        account.add(process, survey, &mut sites);
    }
    account.sites = sites.finish();
    account.bins.set_peak(account.peak.requested);
    account.held_at_peak = held_at(&account.parts, at_peak);
    account.held_most = held_most(&account.parts, &account.over_time);
    account.keep_plausible();
    Ok(account)
}

/// How much the processes had made and not freed over time, added up; what each had in the steps of that; and the most that
/// one alone had.
fn sum_over_time(
    tape: &Tape,
    chosen: &[ProcessSummary],
    time: &Range<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<(Timeline, Vec<Tops>, u64), Error> {
    let (mut tops, mut own, mut ends) = (Vec::new(), 0, Ends::default());
    let mut sum = Timeline::new(Axis::Time, time.clone(), STEPS, Levels::default());
    sum.finish();
    for process in chosen {
        let (line, last) = own_over_time(tape, process, time, &mut ends)?;
        sum.add(&line);
        own = own.max(line.highest().map_or(0, |step| step.requested.most));
        tops.push(Tops::of(process, &line, last));
        progress(process.events);
    }
    for tops in &mut tops {
        ends.tell(tops);
    }
    together::hold(&mut sum, &tops);
    Ok((sum, tops, own))
}

/// The curve of one process, and the time of its last call; `ends` is told when it and its children ended, as far as its
/// notes say.
fn own_over_time(
    tape: &Tape,
    process: &ProcessSummary,
    time: &Range<u64>,
    ends: &mut Ends,
) -> Result<(Timeline, u64), Error> {
    let mut line = Timeline::new(Axis::Time, time.clone(), STEPS, Levels::default());
    let (mut levels, mut last) = (Levels::default(), process.started);
    let columns = Columns { slack: true, time: true, notes: true, ..Columns::REPLAY };
    let mut items = tape.events_with(process.number, 0..u64::MAX, columns)?;
    while let Some(item) = items.lend()? {
        let event = match item {
            Lent::Event(event) => event,
            Lent::Other(Item::Release(Release { lost: Some(lost), .. })) => {
                if lost.birth.is_some() {
                    levels.remove(lost.size, lost.slack);
                }
                continue;
            }
            Lent::Other(Item::Note { note, .. }) => {
                ends.note(process.number, note);
                continue;
            }
            Lent::Other(_) => continue,
        };
        for old in event.ended().filter(|old| old.birth.is_some()) {
            levels.remove(old.size, old.slack);
        }
        if event.ordinal.is_some() {
            levels.add(event.event.size, event.event.slack);
        }
        last = last.max(event.event.time);
        line.call(event.event.time, event.index, &levels);
    }
    if let Some(ended) = process.ended {
        line.gone(ended);
    }
    line.finish();
    // A process may have ended long before anybody saw it.
    line.may_be_gone(last);
    Ok((line, last))
}

/// What the kernel said before and after a moment; `before` tells which samples came before it.
fn around(kernel: &[KernelPoint], before: impl Fn(&KernelPoint) -> bool) -> Held {
    let next = kernel.partition_point(before);
    let two = [next.checked_sub(1).and_then(|last| kernel.get(last)), kernel.get(next)];
    let extent = |figure: fn(&KernelPoint) -> Option<u64>| {
        let values = || two.iter().flatten().filter_map(|point| figure(point));
        Some(Bounds { lower: values().min()?, upper: values().max()? })
    };
    Held { system: extent(|p| p.system), resident: extent(|p| p.resident) }
}

fn most(kernel: &[KernelPoint]) -> Held {
    let most = |figure: fn(&KernelPoint) -> Option<u64>| {
        kernel.iter().filter_map(figure).max().map(Bounds::exact)
    };
    Held { system: most(|p| p.system), resident: most(|p| p.resident) }
}

/// What the kernel held of all processes that were there at a time.
fn held_at(parts: &[Part], time: u64) -> Held {
    let mut sum = Held::default();
    for part in parts {
        let p = &part.process;
        if p.started > time || p.ended.is_some_and(|ended| ended < time) {
            continue;
        }
        let held = around(&part.kernel, |point| point.time < time);
        if let Some(system) = held.system {
            sum.system.get_or_insert_default().add(system);
        }
        if let Some(resident) = held.resident {
            // How much of it they share is not known.
            let all = sum.resident.get_or_insert_default();
            all.lower = all.lower.max(resident.lower);
            all.upper = all.upper.saturating_add(resident.upper);
        }
    }
    sum
}

/// The most that the kernel held of all processes together, looked at once a step of the curve.
fn held_most(parts: &[Part], over_time: &Timeline) -> Held {
    let every = (over_time.steps().len() / 64).max(1);
    let mut most = Held::default();
    for step in over_time.steps().iter().step_by(every) {
        let held = held_at(parts, step.at);
        for (most, held) in [(&mut most.system, held.system), (&mut most.resident, held.resident)] {
            if let Some(held) = held {
                let most = most.get_or_insert_default();
                most.lower = most.lower.max(held.lower);
                most.upper = most.upper.max(held.upper);
            }
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_even_point_is_the_end() {
        assert_eq!(evens(&(0..80)), [10, 20, 30, 40, 50, 60, 70, 80]);
        assert_eq!(middles(&(0..80)), [5, 15, 25, 35, 45, 55, 65, 75]);
        assert_eq!(evens(&(5..8)).last(), Some(&8));
        assert_eq!(evens(&(5..5)), [5; EIGHTHS]);
    }

    #[test]
    fn what_the_kernel_held_lies_between_two_samples() {
        let point =
            |events, system| KernelPoint { events, system: Some(system), ..KernelPoint::default() };
        let kernel = [point(0, 10), point(10, 30), point(20, 20)];
        let system = |events| around(&kernel, |p| p.events < events).system.unwrap();
        assert_eq!(system(5), Bounds { lower: 10, upper: 30 });
        assert_eq!(system(15), Bounds { lower: 20, upper: 30 });
        assert_eq!(system(99), Bounds::exact(20));
        assert_eq!(around(&[], |_| true), Held::default());
    }
}
