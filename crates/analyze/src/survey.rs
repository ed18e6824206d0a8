//! One pass over the calls of a process that fills every table of the report.
//!
//! The calls come from the tape's stream, the places of callers from the process's modules; what comes out
//! is a [`Survey`]. All its tables are told of the same births and deaths, so their sums agree: the sites,
//! the modules and the bins all add up to what the process made, and to what it left.

use std::ops::Range;

use heaptape_tape::{
    Columns, Effect, Item, Lent, Maker, Mark, OldBlock, ProcessSummary, Release, Resolved, Sites,
    Tape,
};

use crate::Error;
use crate::bins::Histogram;
use crate::lives::{Lives, Load, least_age};
use crate::modules::Modules;
use crate::numbered::Numbered;
use crate::sites::{Site, SiteTable};
use crate::timeline::{Axis, Levels, Timeline};

/// What is asked of a process.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The moments, rising, at which the sites' live blocks are wanted.
    pub moments: Moments,
    /// The number of events after which is the peak, for the live blocks then; `None` where the process has
    /// no part in it.
    pub peak: Option<u64>,
    /// The part of time that the curves over time cover, in milliseconds.
    pub time: Range<u64>,
    /// The steps of the curves, at the most.
    pub steps: usize,
    /// Whether blocks that were inherited by fork count: with the process alone they do, in the sum of a job
    /// the parent's count already.
    pub inherited: bool,
    /// Whether each thread has its own sites.
    pub threads: bool,
}

/// Moments on one of the two axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moments {
    /// After so many events.
    Events(Vec<u64>),
    /// At these milliseconds since the recording began. A process that has ended has nothing then.
    Millis(Vec<u64>),
}

/// How reallocs went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reallocs {
    /// Those that gave a block another size at its place.
    pub in_place: u64,
    /// Those that gave it another place.
    pub moved: u64,
    /// Those that failed.
    pub failed: u64,
    /// Bytes that the blocks grew by.
    pub grown: u64,
    /// Bytes that they shrank by.
    pub shrunk: u64,
    /// Bytes that were copied, at the most: of a block that moved, the smaller of its two sizes.
    pub copied: u64,
}

impl Reallocs {
    /// Takes in those of another process.
    pub fn join(&mut self, other: &Reallocs) {
        for (sum, more) in [
            (&mut self.in_place, other.in_place),
            (&mut self.moved, other.moved),
            (&mut self.failed, other.failed),
            (&mut self.grown, other.grown),
            (&mut self.shrunk, other.shrunk),
            (&mut self.copied, other.copied),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// What a thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadDeeds {
    /// Its events.
    pub events: u64,
    /// What it made.
    pub made: Load,
    /// What it freed of other threads' blocks.
    pub freed_of_others: Load,
    /// What it made that lives at the end.
    pub left: Load,
}

/// The levels at a point of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// How many events the process had made.
    pub events: u64,
    /// Milliseconds since the recording began.
    pub time: u64,
    /// What was live.
    pub levels: Levels,
}

/// What the kernel said at one moment. Sizes are bytes, `None` is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelPoint {
    /// How many events the process had made.
    pub events: u64,
    /// Milliseconds since the recording began.
    pub time: u64,
    /// The writable, committed part of the address space.
    pub system: Option<u64>,
    /// Pages in RAM.
    pub resident: Option<u64>,
    /// Pages in RAM, each divided by its number of users.
    pub pss: Option<u64>,
}

/// Everything that one pass finds out about a process.
#[derive(Clone, Debug)]
pub struct Survey {
    /// How much was live over the index.
    pub over_index: Timeline,
    /// The same over time.
    pub over_time: Timeline,
    /// After the event that first brought the most requested bytes.
    pub peak: Point,
    /// After the last event.
    pub end: Point,
    /// The size classes.
    pub bins: Histogram,
    /// The callers; those of blocks that were made before, if they count, are one site.
    pub sites: Vec<Site>,
    /// How long blocks lived.
    pub lives: Lives,
    /// How reallocs went.
    pub reallocs: Reallocs,
    /// What each thread did, with its number.
    pub threads: Vec<(u32, ThreadDeeds)>,
    /// What the kernel said, in order.
    pub kernel: Vec<KernelPoint>,
}

/// Surveys a process. `progress` is told how many more events have been read, now and then.
pub fn of(
    tape: &Tape,
    process: &ProcessSummary,
    modules: &Modules,
    plan: &Plan,
    progress: &mut dyn FnMut(u64),
) -> Result<Survey, Error> {
    const TOLD: u64 = 1 << 14;
    let inherited = inherited(tape, process, plan)?;
    // Without changes an address means the same from the first to the last.
    let can_change = process.sites.sites > 0 && !modules.changes().is_empty();
    let stacks = if can_change { tape.sites(process.number)? } else { Sites::default() };
    let mut pass = Pass::new(process, modules, stacks, plan, inherited);
    let columns = Columns { slack: true, caller: true, time: true, ..Columns::REPLAY };
    let mut items = tape.events_with(process.number, 0..u64::MAX, columns)?;
    let mut told = 0;
    while let Some(item) = items.lend()? {
        match item {
            Lent::Event(event) => pass.event(event),
            Lent::Other(Item::Release(release)) => pass.release(release),
            Lent::Other(_) => {}
        }
        if pass.survey.end.events - told >= TOLD {
            progress(pass.survey.end.events - told);
            told = pass.survey.end.events;
        }
    }
    progress(pass.survey.end.events - told);
    let mut survey = pass.finish(process);
    survey.kernel = kernel(tape, process)?;
    Ok(survey)
}

/// What a forked process begins with, if that counts.
fn inherited(tape: &Tape, process: &ProcessSummary, plan: &Plan) -> Result<Vec<u64>, Error> {
    if !plan.inherited || process.inherited_blocks == 0 {
        return Ok(Vec::new());
    }
    let blocks = tape.inherited(process.number)?;
    Ok(blocks.iter().flat_map(|block| [block.size, block.slack]).collect())
}

fn kernel(tape: &Tape, process: &ProcessSummary) -> Result<Vec<KernelPoint>, Error> {
    let mut points = Vec::new();
    for mark in tape.marks(process.number)? {
        if let Mark::Sample(sample) = mark? {
            let (events, time) = (sample.index, sample.time);
            let (system, resident, pss) = (sample.system, sample.resident, sample.pss);
            points.push(KernelPoint { events, time, system, resident, pss });
        }
    }
    Ok(points)
}

/// The moments that have not come yet.
struct Ahead<'a> {
    rest: std::slice::Iter<'a, u64>,
    axis: Axis,
    /// The next one.
    next: u64,
}

impl<'a> Ahead<'a> {
    fn new(moments: &'a Moments) -> Ahead<'a> {
        let (axis, all) = match moments {
            Moments::Events(all) => (Axis::Index, all),
            Moments::Millis(all) => (Axis::Time, all),
        };
        let mut ahead = Ahead { rest: all.iter(), axis, next: 0 };
        ahead.go_on();
        ahead
    }

    fn go_on(&mut self) {
        self.next = self.rest.next().copied().unwrap_or(u64::MAX);
    }

    /// Whether a moment lies before an event.
    #[inline]
    fn comes_before(&self, index: u64, time: u64) -> bool {
        match self.axis {
            Axis::Index => self.next <= index,
            Axis::Time => self.next < time,
        }
    }

    fn is_over(&self) -> bool {
        self.next == u64::MAX
    }
}

/// Blocks that end within fewer allocations than this are short-lived.
const SHORT: u64 = least_age(2);

/// A survey that is under way.
struct Pass<'a> {
    survey: Survey,
    sites: SiteTable<'a>,
    threads: Numbered<ThreadDeeds>,
    ahead: Ahead<'a>,
    /// The number of events after which is the peak.
    peak: u64,
    levels: Levels,
    inherited: bool,
}

impl<'a> Pass<'a> {
    fn new(
        process: &ProcessSummary,
        modules: &'a Modules,
        stacks: Sites,
        plan: &'a Plan,
        inherited: Vec<u64>,
    ) -> Pass<'a> {
        let (mut levels, mut bins, mut load) =
            (Levels::default(), Histogram::new(), Load::default());
        for block in inherited.chunks_exact(2) {
            levels.add(block[0], block[1]);
            bins.begin(block[0]);
            load.add(block[0]);
        }
        let start = Point { events: 0, time: process.started, levels };
        let mut over_time =
            Timeline::new(Axis::Time, plan.time.clone(), plan.steps, Levels::default());
        if levels.blocks > 0 {
            over_time.call(process.started, 0, &levels);
        }
        let survey = Survey {
            over_index: Timeline::new(Axis::Index, 0..process.events, plan.steps, levels),
            over_time,
            peak: start,
            end: start,
            bins,
            sites: Vec::new(),
            lives: Lives::new(process.events),
            reallocs: Reallocs::default(),
            threads: Vec::new(),
            kernel: Vec::new(),
        };
        Pass {
            survey,
            sites: SiteTable::new(process.number, modules, stacks, load, plan.threads),
            threads: Numbered::default(),
            ahead: Ahead::new(&plan.moments),
            peak: plan.peak.unwrap_or(u64::MAX),
            levels,
            inherited: plan.inherited,
        }
    }

    #[inline]
    fn event(&mut self, resolved: &Resolved) {
        let event = &resolved.event;
        while self.ahead.comes_before(resolved.index, event.time) {
            self.sites.moment(false);
            self.ahead.go_on();
        }
        if resolved.index == self.peak {
            self.sites.peak();
        }
        self.thread(event.thread).events += 1;
        for old in resolved.ended() {
            self.died(
                old,
                resolved.index,
                Some(event.thread).filter(|_| resolved.effect == Effect::Freed),
            );
        }
        if let Some(ordinal) = resolved.ordinal {
            self.born(ordinal, resolved);
        }
        if event.call.is_reallocation() {
            self.reallocated(resolved);
        }
        self.levels_are(resolved.index + 1, event.time);
    }

    /// The levels after so many events, the last of which was made at a time.
    #[inline]
    fn levels_are(&mut self, events: u64, time: u64) {
        let survey = &mut self.survey;
        survey.over_index.call(events - 1, time, &self.levels);
        survey.over_time.call(time, events - 1, &self.levels);
        survey.end = Point { events, time, levels: self.levels };
        if self.levels.requested > survey.peak.levels.requested {
            survey.peak = survey.end;
        }
    }

    #[inline]
    fn thread(&mut self, number: u32) -> &mut ThreadDeeds {
        self.threads.at(number)
    }

    #[inline]
    fn born(&mut self, ordinal: u64, resolved: &Resolved) {
        let event = &resolved.event;
        let (size, thread) = (event.size, event.thread);
        self.levels.add(size, event.slack);
        self.survey.bins.allocate(size);
        self.survey.lives.born(resolved.index, ordinal, thread, size);
        let deeds = self.thread(thread);
        deeds.made.add(size);
        deeds.left.add(size);
        if let Some(caller) = resolved.caller {
            let maker = Maker { caller, thread };
            let site = self.sites.here(maker, resolved);
            site.made.add(size);
            site.left.add(size);
        }
    }

    /// A block ends in the event `index`; `freed_by` is the thread that freed it, if none resized it.
    #[inline]
    fn died(&mut self, old: &OldBlock, index: u64, freed_by: Option<u32>) {
        if old.birth.is_none() && !self.inherited {
            return;
        }
        self.levels.remove(old.size, old.slack);
        self.survey.bins.release(old.size);
        let site = self.sites.of_block(old.maker, old.birth);
        site.left.remove(old.size);
        let Some((maker, birth)) = old.maker.zip(old.birth) else { return };
        let lives = &mut self.survey.lives;
        lives.died(index, birth, old.age, old.size);
        if old.age < SHORT {
            site.short.add(old.size);
        }
        if freed_by.is_some() && lives.is_newest(old.ordinal, maker.thread) {
            lives.temporary.add(old.size);
            site.temporary.add(old.size);
        }
        self.thread(maker.thread).left.remove(old.size);
        if let Some(thread) = freed_by.filter(|&thread| thread != maker.thread) {
            self.thread(thread).freed_of_others.add(old.size);
        }
    }

    #[inline]
    fn reallocated(&mut self, resolved: &Resolved) {
        let event = &resolved.event;
        let reallocs = &mut self.survey.reallocs;
        match resolved.effect {
            Effect::InPlace => reallocs.in_place += 1,
            Effect::Moved => reallocs.moved += 1,
            Effect::Failed => {
                reallocs.failed += 1;
                return;
            }
            _ => return,
        }
        let Some(old) = &resolved.block else { return };
        let (grown, shrunk) =
            (event.size.saturating_sub(old.size), old.size.saturating_sub(event.size));
        reallocs.grown = reallocs.grown.saturating_add(grown);
        reallocs.shrunk = reallocs.shrunk.saturating_add(shrunk);
        if resolved.effect == Effect::Moved {
            let copied = event.size.min(old.size);
            reallocs.copied = reallocs.copied.saturating_add(copied);
            if let Some(caller) = resolved.caller {
                let maker = Maker { caller, thread: event.thread };
                let site = self.sites.here(maker, resolved);
                site.copied = site.copied.saturating_add(copied);
            }
        }
    }

    /// A thread gave an address up again before its realloc came: the block of the first is gone.
    fn release(&mut self, release: &Release) {
        if let Some(lost) = &release.lost {
            self.died(lost, release.index, None);
        }
    }

    fn finish(mut self, process: &ProcessSummary) -> Survey {
        if self.survey.end.events == self.peak {
            self.sites.peak();
        }
        let mut gone = false;
        while !self.ahead.is_over() {
            // What ended took its heap with it.
            gone |= self.ahead.axis == Axis::Time
                && process.ended.is_some_and(|ended| ended < self.ahead.next);
            self.sites.moment(gone);
            self.ahead.go_on();
        }
        let survey = &mut self.survey;
        survey.over_index.finish();
        if let Some(ended) = process.ended {
            survey.over_time.gone(ended);
        }
        survey.over_time.finish();
        survey.sites = self.sites.finish();
        survey.threads = self.threads.into_all().collect();
        self.survey
    }
}
