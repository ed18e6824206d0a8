//! What is never freed: by caller, or by call stack where the tape has them, with its births and how it came to be so much.
//!
//! What a process left comes from the tape's reader, how it grew from the survey of its calls, places of callers
//! from its modules; which callers are suppressed is told by a function that is handed in. One live set is held
//! at a time.
//!
//! Each block counts in the process that made it: what a child inherits is its parent's.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use heaptape_tape::{
    LiveBlock, Mark, ProcessNumber, ProcessSummary, SiteNumber, Sites, Summary, Tape,
    interpreted_of,
};

use crate::account::{EIGHTHS, evens};
use crate::callers::Callers;
use crate::choice::LastPart;
use crate::growth::{Growth, axis_of};
use crate::live::{Caller, CallerKey};
use crate::lives::Load;
use crate::modules::Modules;
use crate::sites::Origin;
use crate::stack::Stack;
use crate::survey::{self, Moments};
use crate::timeline::Axis;
use crate::{Error, live, moment, overview};

/// How much of the end of a process is ignored unless told otherwise, where it did not end by itself.
pub const IGNORED: LastPart = LastPart::Permille(100);

/// How a process ended, as far as it matters to what it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// By itself: what was left then is never freed.
    Exited,
    /// By a signal.
    Killed,
    /// By an exec.
    Replaced,
    /// It ended, and nobody knows how.
    Unknown,
    /// The tape ends before it.
    Unfinished,
}

impl Fate {
    /// That of a process of this tape.
    pub fn of(summary: &Summary, process: &ProcessSummary) -> Fate {
        if overview::is_replaced(summary, process) {
            return Fate::Replaced;
        }
        match (process.signal, process.code, process.ended) {
            (Some(_), ..) => Fate::Killed,
            (None, Some(_), _) => Fate::Exited,
            // A recording that ended early lets go of its processes.
            (None, None, Some(_)) if summary.ended.is_none() => Fate::Unknown,
            (None, None, _) => Fate::Unfinished,
        }
    }
}

/// A block that was never freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// The process that made it.
    pub process: ProcessNumber,
    /// The index of the event that made it.
    pub index: u64,
    /// Milliseconds since the recording began.
    pub time: u64,
    /// Its requested size.
    pub size: u64,
}

impl Birth {
    fn of(block: &LiveBlock) -> Birth {
        let (process, index, time, size) = (block.process, block.birth, block.time, block.size);
        Birth { process, index, time, size }
    }

    /// The order of births in a job: by their times, as far as those tell.
    fn order(&self) -> (u64, ProcessNumber, u64) {
        (self.time, self.process, self.index)
    }
}

/// How what one caller left in one process came to be so much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// The process.
    pub process: ProcessNumber,
    /// What it left of this caller, without what was born in the ignored part.
    pub left: Load,
    /// Whether the moments are even in time or in calls.
    pub axis: Axis,
    /// What lived at each eighth, whether or not it was freed later. The last is what is left, with what was born in
    /// the ignored part.
    pub at: [Load; EIGHTHS],
}

impl Course {
    /// Of a process about whose moments nothing is known yet.
    fn begin(process: ProcessNumber) -> Course {
        let (left, at) = <(Load, [Load; EIGHTHS])>::default();
        Course { process, left, axis: Axis::Index, at }
    }

    /// What was born in the ignored part, and is among what lived at the end.
    pub fn recent(&self) -> Load {
        let end = self.at[EIGHTHS - 1];
        Load {
            bytes: end.bytes.saturating_sub(self.left.bytes),
            blocks: end.blocks.saturating_sub(self.left.blocks),
        }
    }

    /// The order of processes by how much they left; of equals the first one is the most.
    fn order(&self) -> (Load, Reverse<ProcessNumber>) {
        (self.left, Reverse(self.process))
    }
}

/// What one caller made and nobody freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Who.
    pub caller: Caller,
    /// How much, without what was born in the ignored part.
    pub left: Load,
    /// Of this, what a library made that was unloaded afterwards.
    pub unloaded: Load,
    /// All that it made in the same processes.
    pub made: Load,
    /// The first of the blocks.
    pub oldest: Birth,
    /// The last of them.
    pub newest: Birth,
    /// How it went in the process that left most of it. Growth is a matter of one process: of several, one after the
    /// other, the sum would always rise.
    pub course: Course,
}

impl Kept {
    fn begin(caller: Caller, block: &LiveBlock) -> Kept {
        let birth = Birth::of(block);
        let (left, unloaded, made) = <(Load, Load, Load)>::default();
        let course = Course::begin(block.process);
        Kept { caller, left, unloaded, made, oldest: birth, newest: birth, course }
    }

    fn add(&mut self, block: &LiveBlock) {
        self.left.add(block.size);
        let birth = Birth::of(block);
        self.oldest = std::cmp::min_by_key(self.oldest, birth, Birth::order);
        self.newest = std::cmp::max_by_key(self.newest, birth, Birth::order);
    }

    /// How it came to be so much.
    pub fn growth(&self) -> Growth {
        Growth::of(&self.course.at)
    }

    fn join(&mut self, other: &Kept) {
        self.left.join(other.left);
        self.unloaded.join(other.unloaded);
        self.made.join(other.made);
        self.oldest = std::cmp::min_by_key(self.oldest, other.oldest, Birth::order);
        self.newest = std::cmp::max_by_key(self.newest, other.newest, Birth::order);
        if other.course.order() > self.course.order() {
            self.course = other.course.clone();
        }
        // Which of them names the caller must not depend on the order of a hash map.
        if other.caller.order() < self.caller.order() {
            self.caller = other.caller.clone();
        }
    }
}

impl Kept {
    /// Takes in another caller that prints the same, maybe of the same process.
    fn join_alike(&mut self, mut other: Kept) {
        if self.course.process == other.course.process {
            self.course.left.join(other.course.left);
            self.course.at.iter_mut().zip(&other.course.at).for_each(|(at, more)| at.join(*more));
            other.course = self.course.clone();
        }
        self.join(&other);
    }
}

/// Sums of what is alive at the end. They add up to all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Never freed, and neither of the following.
    pub left: Load,
    /// Born in the ignored part.
    pub recent: Load,
    /// Made by suppressed callers, but for what was born in the ignored part.
    pub suppressed: Load,
    /// Made by an ancestor before the fork.
    pub inherited: Load,
}

impl Sums {
    fn join(&mut self, other: &Sums) {
        self.left.join(other.left);
        self.recent.join(other.recent);
        self.suppressed.join(other.suppressed);
        self.inherited.join(other.inherited);
    }
}

/// What a process left.
#[derive(Clone, Debug)]
pub struct Leaver {
    /// What the tape's index says.
    pub process: ProcessSummary,
    /// How it ended.
    pub fate: Fate,
    /// The first index whose blocks are ignored; the number of events if none are.
    pub ignored_from: u64,
    /// How much.
    pub sums: Sums,
}

/// What processes left.
#[derive(Clone, Debug, Default)]
pub struct Leaks {
    /// The processes, in order of start.
    pub processes: Vec<Leaver>,
    /// The sums over them.
    pub sums: Sums,
    /// The callers that are not suppressed, the one with most bytes first. What they left adds up to `sums.left`.
    pub callers: Vec<Kept>,
}

/// What is left out of account, and who is told of it.
pub struct Plan<'a> {
    /// The part at the end of each process whose blocks are work in progress. `None`: nothing where it ended by
    /// itself, else [`IGNORED`].
    pub ignored: Option<LastPart>,
    /// Whether a caller is suppressed; asked once for each caller of a process that left something, and told
    /// how much.
    pub suppressed: &'a mut dyn FnMut(&Caller, Load) -> bool,
    /// Told how many more events have been dealt with.
    pub progress: &'a mut dyn FnMut(u64),
}

impl Leaks {
    /// Reads what these processes left.
    pub fn of(
        tape: &Tape,
        chosen: &[&ProcessSummary],
        callers: &mut Callers<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Leaks, Error> {
        let mut leaks = Leaks::default();
        let mut joined = HashMap::new();
        for process in chosen {
            let modules = callers.modules(process.number)?;
            let leaver = leaver(tape, process, modules, plan, &mut joined)?;
            leaks.sums.join(&leaver.sums);
            leaks.processes.push(leaver);
        }
        leaks.callers = joined.into_values().collect();
        leaks.sort();
        Ok(leaks)
    }

    /// Joins the callers whose stacks print the same, once they are named: two addresses of one line are one. Where
    /// one process left most of both, how it went is that of both there; else that of the larger.
    pub fn fold(&mut self) {
        let alike = live::alike(self.callers.iter().map(|kept| &kept.caller));
        let mut folded: Vec<Kept> = Vec::new();
        let mut places: HashMap<usize, usize> = HashMap::new();
        for (kept, first) in std::mem::take(&mut self.callers).into_iter().zip(alike) {
            match places.entry(first) {
                Entry::Vacant(new) => {
                    new.insert(folded.len());
                    folded.push(kept);
                }
                Entry::Occupied(known) => folded[*known.get()].join_alike(kept),
            }
        }
        self.callers = folded;
        self.sort();
    }

    fn sort(&mut self) {
        self.callers.sort_by_cached_key(|kept| (Reverse(kept.left), kept.oldest.order()));
    }

    /// Leaves out the callers that do not grow; what is left of them is given back.
    pub fn retain_growing(&mut self) -> Load {
        let mut others = Load::default();
        self.callers.retain(|kept| {
            let grows = kept.growth().is_growing();
            if !grows {
                others.join(kept.left);
            }
            grows
        });
        others
    }
}

/// Callers of several processes: the same place of the same file, or the same stack of such places, is one.
type Joined = HashMap<CallerKey, Kept>;

/// What tells where the calls of a process were.
struct Whereabouts<'a> {
    process: ProcessNumber,
    modules: &'a Modules,
    stacks: Sites,
}

impl Whereabouts<'_> {
    /// The caller in the event `index`, with its stack where that is known.
    fn caller(&self, address: u64, site: Option<SiteNumber>, index: u64) -> Caller {
        let stack = site.and_then(|site| Stack::of(&self.stacks, site, self.modules, index));
        Caller::at(address, self.modules.find_call(address, index), self.process, stack)
    }

    /// Whether lines of a script are on the stack, of which one may have called from several addresses.
    fn is_line(&self, site: Option<SiteNumber>) -> bool {
        let mut frames = site.into_iter().flat_map(|site| self.stacks.frames_of(site));
        frames.any(|frame| interpreted_of(frame).is_some())
    }
}

fn leaver(
    tape: &Tape,
    process: &ProcessSummary,
    modules: &Modules,
    plan: &mut Plan<'_>,
    joined: &mut Joined,
) -> Result<Leaver, Error> {
    let fate = Fate::of(tape.summary(), process);
    let by_default = if fate == Fate::Exited { LastPart::NOTHING } else { IGNORED };
    let part = plan.ignored.unwrap_or(by_default);
    let ignored_from = moment::before_last(tape, process, part)?;
    let mut sums = Sums::default();
    let blocks = live::after(tape, process.number, process.events)?;
    let stacks = tape.sites(process.number)?;
    let whereabouts = Whereabouts { process: process.number, modules, stacks };
    let mut own = kept(&blocks, &whereabouts, ignored_from, &mut sums);
    drop(blocks);
    own.retain(|_, kept| {
        let suppressed = (plan.suppressed)(&kept.caller, kept.left);
        let sum = if suppressed { &mut sums.suppressed } else { &mut sums.left };
        sum.join(kept.left);
        !suppressed
    });
    if own.is_empty() {
        // How what is gone came to be asks for no pass over the events.
        (plan.progress)(process.events);
    } else {
        find_moments(tape, process, &whereabouts, &mut own, plan.progress)?;
    }
    for (key, kept) in own {
        match joined.entry(key) {
            Entry::Vacant(new) => {
                new.insert(kept);
            }
            Entry::Occupied(mut known) => known.get_mut().join(&kept),
        }
    }
    Ok(Leaver { process: process.clone(), fate, ignored_from, sums })
}

/// Adds up by caller what a process made that is alive and was not born in the ignored part.
fn kept(
    blocks: &[LiveBlock],
    whereabouts: &Whereabouts<'_>,
    ignored_from: u64,
    sums: &mut Sums,
) -> Joined {
    let modules = whereabouts.modules;
    let changes = modules.changes();
    // First by address and what was loaded then, which needs no path to be looked at for every block.
    let mut addresses: HashMap<(u64, Option<SiteNumber>, usize), Kept> = HashMap::new();
    for block in blocks {
        if block.process != whereabouts.process {
            sums.inherited.add(block.size);
        } else if block.birth >= ignored_from {
            sums.recent.add(block.size);
        } else {
            let passed = changes.partition_point(|&change| change <= block.birth);
            let kept = addresses.entry((block.caller, block.site, passed)).or_insert_with(|| {
                Kept::begin(whereabouts.caller(block.caller, block.site, block.birth), block)
            });
            kept.add(block);
        }
    }
    let mut joined = Joined::new();
    for (_, mut kept) in addresses {
        if kept.caller.place.as_ref().is_some_and(|p| modules.is_unloaded(&p.module)) {
            kept.unloaded = kept.left;
        }
        match joined.entry(kept.caller.key()) {
            Entry::Vacant(new) => {
                new.insert(kept);
            }
            Entry::Occupied(mut known) => known.get_mut().join(&kept),
        }
    }
    joined
}

/// Fills in what lived of each caller at the eighths.
fn find_moments(
    tape: &Tape,
    process: &ProcessSummary,
    whereabouts: &Whereabouts<'_>,
    own: &mut Joined,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    let life = process.started..last_sign(tape, process)?.max(process.started);
    let axis = axis_of(life.end - life.start);
    let moments = match axis {
        Axis::Index => Moments::Events(evens(&(0..process.events))),
        Axis::Time => Moments::Millis(evens(&life)),
    };
    for kept in own.values_mut() {
        kept.course = Course { left: kept.left, axis, ..Course::begin(process.number) };
    }
    let time = process.started..process.started.saturating_add(1);
    let plan =
        survey::Plan { moments, time, steps: 1, inherited: false, peak: None, threads: false };
    let modules = whereabouts.modules;
    let addresses: HashSet<u64> = own.values().map(|kept| kept.caller.address).collect();
    for site in survey::of(tape, process, modules, &plan, progress)?.sites {
        let Origin::Caller { address, .. } = &site.origin else { continue };
        // Most left nothing, and are not worth their whole stacks.
        let is_line = || whereabouts.is_line(site.standing.stack);
        if site.deeds.left.blocks == 0 && !addresses.contains(address) && !is_line() {
            continue;
        }
        let caller = whereabouts.caller(*address, site.standing.stack, site.standing.met);
        let Some(kept) = own.get_mut(&caller.key()) else { continue };
        let [before @ .., end] = &mut kept.course.at;
        before.iter_mut().zip(&site.deeds.at).for_each(|(load, at)| load.join(*at));
        // At the end of its time a process is gone with its heap, and the two clocks do not agree to the last
        // millisecond: the last moment is after the last event, whenever that was.
        end.join(site.deeds.left);
        kept.made.join(site.deeds.made);
    }
    Ok(())
}

/// When a process ended; if it is not known to have, when it was last seen to live. One that waits makes no calls, but
/// the kernel is asked for it.
fn last_sign(tape: &Tape, process: &ProcessSummary) -> Result<u64, Error> {
    let mut last = moment::last_time(tape, process)?;
    if process.ended.is_none() {
        for mark in tape.marks(process.number)? {
            if let Mark::Sample(sample) = mark? {
                last = last.max(sample.time);
            }
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::named;

    /// What a caller left in a process, all of which was there from the first eighth on.
    fn kept(caller: Caller, process: u32, bytes: u64) -> Kept {
        let process = ProcessNumber(process);
        let birth = Birth { process, index: 0, time: 0, size: bytes };
        let left = Load { bytes, blocks: 1 };
        let course = Course { left, at: [left; EIGHTHS], ..Course::begin(process) };
        let unloaded = Load::default();
        Kept { caller, left, unloaded, made: left, oldest: birth, newest: birth, course }
    }

    #[test]
    fn two_addresses_of_one_line_are_one_leak() {
        let line = |offset| named(offset, Some(7));
        let callers = vec![
            kept(named(0x40, Some(8)), 0, 15),
            kept(line(0x10), 0, 10),
            kept(line(0x20), 0, 8),
            kept(line(0x30), 1, 30),
        ];
        let mut leaks = Leaks { callers, ..Leaks::default() };
        leaks.fold();
        let rows: Vec<_> = leaks.callers.iter().map(|k| (k.left.bytes, k.left.blocks)).collect();
        assert_eq!(rows, [(48, 3), (15, 1)]);
        // Process 1 left 30 of it, process 0 no more than 18.
        let course = &leaks.callers[0].course;
        assert_eq!((course.process, course.at[0].bytes), (ProcessNumber(1), 30));

        let callers = vec![kept(line(0x10), 0, 10), kept(line(0x20), 0, 8)];
        let mut leaks = Leaks { callers, ..Leaks::default() };
        leaks.fold();
        let course = &leaks.callers[0].course;
        assert_eq!((course.left.bytes, course.at[7].bytes, course.at[7].blocks), (18, 18, 2));
    }
}
