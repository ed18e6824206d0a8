//! Sites: what each caller made, what became of it, and how much of it lived at chosen moments.
//!
//! A site is a return address in a module, or, on a tape with call stacks, one of these; the same place of a file is one
//! site in every process of a job. The calls come from the survey of a process, the places from its modules.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use heaptape_tape::{
    CallerNumber, Maker, ProcessNumber, Resolved, SiteNumber, Sites, interpreted_of,
};

use crate::live::Trace;
use crate::lives::Load;
use crate::modules::{Modules, Place};

/// Who made blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A call from this return address (0 when unknown), which lies at this place, where one is known.
    Caller {
        /// The address, in the first process that called from there.
        address: u64,
        /// Where that is.
        place: Option<Place>,
    },
    /// The process that forked: the blocks were there from the start.
    Inherited,
}

impl Origin {
    /// The path of the module; `None` where none is known.
    pub fn module(&self) -> Option<&str> {
        match self {
            Origin::Caller { place, .. } => place.as_ref().map(|p| p.module.path.as_str()),
            Origin::Inherited => None,
        }
    }
}

/// What the calls of one site, or of several together, did. Sizes are requested bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// What was made: all successful allocations, a realloc with its new size.
    pub made: Load,
    /// What lives at the end.
    pub left: Load,
    /// Of the blocks made, those that were freed before their thread's next allocation.
    pub temporary: Load,
    /// Of the blocks made, those that ended within nine allocations of their process.
    pub short: Load,
    /// Bytes that reallocs which moved a block had to copy, at the most.
    pub copied: u64,
    /// What lived at the peak.
    pub at_peak: Load,
    /// What lived at each of the moments that were asked for.
    pub at: Vec<Load>,
}

impl Deeds {
    /// Those of several sites together.
    pub fn of<'a>(sites: impl IntoIterator<Item = &'a Site>) -> Deeds {
        let mut all = Deeds::default();
        sites.into_iter().for_each(|site| all.join(&site.deeds));
        all
    }

    /// Takes in those of another site.
    pub fn join(&mut self, other: &Deeds) {
        self.made.join(other.made);
        self.at_peak.join(other.at_peak);
        self.left.join(other.left);
        self.temporary.join(other.temporary);
        self.short.join(other.short);
        self.copied = self.copied.saturating_add(other.copied);
        self.at.resize(self.at.len().max(other.at.len()), Load::default());
        self.at.iter_mut().zip(&other.at).for_each(|(load, other)| load.join(*other));
    }
}

/// A call stack that calls of a process stood on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The process.
    pub process: ProcessNumber,
    /// The call stack in the process, where that is known.
    pub stack: Option<SiteNumber>,
    /// The index of the first event that was made there.
    pub met: u64,
}

/// One of the call stacks of a caller, and what lived there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The call stack.
    pub standing: Standing,
    /// What lived there at the peak.
    pub at_peak: Load,
    /// What lives there at the end.
    pub left: Load,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Who.
    pub origin: Origin,
    /// The call stack; of several that were joined, the one with most at the peak.
    pub standing: Standing,
    /// Of those, the one with most at the end.
    pub left: Standing,
    /// The call stacks that were joined; none where none is known.
    pub shares: Vec<Share>,
    /// How many of them there are, those that print the same counted once where somebody has folded them.
    pub stacks: u64,
    /// The thread, where threads are kept apart; else 0.
    pub thread: u32,
    /// What.
    pub deeds: Deeds,
    /// The call stack with most at the peak itself, where somebody has looked it up.
    pub trace: Option<Box<Trace>>,
    /// The same of the one with most at the end.
    pub left_trace: Option<Box<Trace>>,
}

impl Site {
    /// Nothing was made there yet.
    fn new(origin: Origin, standing: Standing) -> Site {
        Site {
            origin,
            standing,
            left: standing,
            shares: Vec::new(),
            stacks: u64::from(standing.stack.is_some()),
            thread: 0,
            deeds: Deeds::default(),
            trace: None,
            left_trace: None,
        }
    }

    /// Makes stacks that print the same one, once it is known what each of the shares prints. The largest of them stand
    /// for the caller.
    pub fn fold<K: Eq + Hash>(&mut self, printed: &[K]) {
        self.stacks = printed.iter().collect::<HashSet<_>>().len() as u64;
        self.standing = self.largest(printed, |share| share.at_peak).unwrap_or(self.standing);
        self.left = self.largest(printed, |share| share.left).unwrap_or(self.left);
    }

    /// The first of the shares that print the same and have most together.
    fn largest<K: Eq + Hash>(
        &self,
        printed: &[K],
        load: impl Fn(&Share) -> Load,
    ) -> Option<Standing> {
        let mut groups: HashMap<&K, (Load, Reverse<usize>)> = HashMap::new();
        for (place, (share, key)) in self.shares.iter().zip(printed).enumerate() {
            let (sum, _) = groups.entry(key).or_insert((Load::default(), Reverse(place)));
            sum.join(load(share));
        }
        let (_, Reverse(place)) = groups.into_values().max()?;
        self.shares.get(place).map(|share| share.standing)
    }

    /// What the stacks that stand for a caller have most of.
    fn most(&self) -> Most {
        let Deeds { at_peak, left, made, .. } = self.deeds;
        Most { at_peak: (at_peak, made), left: (left, made) }
    }

    /// Its own call stack.
    fn share(&self) -> Option<Share> {
        let Deeds { at_peak, left, .. } = self.deeds;
        self.standing.stack.map(|_| Share { standing: self.standing, at_peak, left })
    }

    /// Takes in another site of the same caller; `most` is the largest loads so far.
    fn join(&mut self, other: Site, most: &mut Most) {
        let more = other.most();
        if more.at_peak > most.at_peak {
            (most.at_peak, self.standing) = (more.at_peak, other.standing);
        }
        if more.left > most.left {
            (most.left, self.left) = (more.left, other.left);
        }
        self.stacks += other.stacks;
        self.shares.extend(other.shares);
        self.deeds.join(&other.deeds);
    }
}

/// The sites of a process, growing as its calls are told.
pub(crate) struct SiteTable<'a> {
    process: ProcessNumber,
    modules: &'a Modules,
    /// The stacks, where they can come to mean something else.
    stacks: Sites,
    sites: Vec<Site>,
    /// Where threads are kept apart: what stands for each caller in each thread in the place of the caller's number.
    apart: Option<HashMap<(CallerNumber, u32), CallerNumber>>,
    /// Where the sites of each caller's number are: since which change of the modules, and which site.
    known: Vec<(u32, u32)>,
    /// Earlier sites of callers whose module changed.
    earlier: HashMap<CallerNumber, Vec<(u32, u32)>>,
    /// The indexes at which modules were unloaded, and how many of them have passed.
    changes: Vec<u64>,
    passed: u32,
    moments: usize,
}

/// The place of the site of inherited blocks.
const INHERITED: u32 = 0;
const UNKNOWN: (u32, u32) = (u32::MAX, 0);

impl<'a> SiteTable<'a> {
    /// With `threads` each thread has its own sites. The stacks need not be told where no module is ever unloaded.
    pub(crate) fn new(
        process: ProcessNumber,
        modules: &'a Modules,
        stacks: Sites,
        inherited: Load,
        threads: bool,
    ) -> SiteTable<'a> {
        let deeds = Deeds { left: inherited, ..Deeds::default() };
        SiteTable {
            modules,
            stacks,
            process,
            sites: vec![Site {
                deeds,
                ..Site::new(Origin::Inherited, Standing { process, stack: None, met: 0 })
            }],
            apart: threads.then(HashMap::new),
            known: Vec::new(),
            earlier: HashMap::new(),
            changes: modules.changes(),
            passed: 0,
            moments: 0,
        }
    }

    /// What stands for who made a block.
    #[inline]
    fn row(&mut self, maker: Maker) -> CallerNumber {
        let Some(apart) = &mut self.apart else { return maker.caller };
        let next = CallerNumber(apart.len() as u32);
        *apart.entry((maker.caller, maker.thread)).or_insert(next)
    }

    /// The site of who made an event; events come in order.
    #[inline]
    pub(crate) fn here(&mut self, maker: Maker, event: &Resolved) -> &mut Deeds {
        let (row, index) = (self.row(maker), event.index);
        while self.changes.get(self.passed as usize).is_some_and(|&change| change <= index) {
            self.passed += 1;
        }
        let site = match self.known.get(row.0 as usize) {
            Some(&(since, site)) if since == self.passed => site,
            _ => self.meet(row, maker.thread, event),
        };
        &mut self.sites[site as usize].deeds
    }

    /// The caller is met for the first time, or for the first time since modules changed.
    #[cold]
    fn meet(&mut self, caller: CallerNumber, thread: u32, event: &Resolved) -> u32 {
        let (address, index, stack) = (event.event.caller, event.index, event.site);
        let thread = if self.apart.is_some() { thread } else { 0 };
        let number = caller.0 as usize;
        if number >= self.known.len() {
            self.known.resize(number + 1, UNKNOWN);
        }
        let place = self.modules.find_call(address, index);
        let before = self.known[number];
        let origin = Origin::Caller { address, place };
        let is_same = before != UNKNOWN && self.is_same(before.1, &origin, index);
        let site = if is_same { before.1 } else { self.sites.len() as u32 };
        if !is_same {
            let standing = Standing { process: self.process, stack, met: index };
            self.sites.push(Site { thread, ..Site::new(origin, standing) });
            if before != UNKNOWN {
                self.earlier.entry(caller).or_default().push(before);
            }
        }
        self.known[number] = (self.passed, site);
        site
    }

    /// Whether a site that was met before has this origin, and all of its stack still lies in the same modules.
    fn is_same(&self, site: u32, origin: &Origin, index: u64) -> bool {
        let site = &self.sites[site as usize];
        let module =
            |address, index| self.modules.find_call(address, index).map(|place| place.module);
        let Standing { stack, met, .. } = site.standing;
        let outer = stack.into_iter().flat_map(|stack| self.stacks.frames_of(stack));
        let mut addresses = outer.filter(|&frame| interpreted_of(frame).is_none());
        site.origin == *origin
            && addresses.all(|address| module(address, met) == module(address, index))
    }

    /// The site of a block that was born in event `birth`.
    #[inline]
    pub(crate) fn of_block(&mut self, maker: Option<Maker>, birth: Option<u64>) -> &mut Deeds {
        let site = match maker.zip(birth) {
            Some((maker, birth)) => {
                let row = self.row(maker);
                self.find(row, birth)
            }
            None => INHERITED,
        };
        &mut self.sites[site as usize].deeds
    }

    #[inline]
    fn find(&self, caller: CallerNumber, birth: u64) -> u32 {
        let Some(&(since, site)) = self.known.get(caller.0 as usize) else { return INHERITED };
        if self.changes.is_empty() { site } else { self.find_earlier(caller, birth, (since, site)) }
    }

    #[cold]
    fn find_earlier(&self, caller: CallerNumber, birth: u64, last: (u32, u32)) -> u32 {
        let passed = self.changes.partition_point(|&change| change <= birth) as u32;
        let earlier = self.earlier.get(&caller).map_or(&[][..], Vec::as_slice);
        // Each stands with the last change that it was met after; the block's is the first that was met so late.
        let of_then = earlier.iter().find(|(met, _)| *met >= passed);
        of_then.map_or(last.1, |&(_, site)| site)
    }

    /// Remembers what lives now as what lived at the peak.
    #[cold]
    pub(crate) fn peak(&mut self) {
        self.sites.iter_mut().for_each(|site| site.deeds.at_peak = site.deeds.left);
    }

    /// Remembers what lives now as the next of the moments.
    pub(crate) fn moment(&mut self, gone: bool) {
        for site in &mut self.sites {
            site.deeds.at.resize(self.moments, Load::default());
            site.deeds.at.push(if gone { Load::default() } else { site.deeds.left });
        }
        self.moments += 1;
    }

    /// The sites, once all is told.
    pub(crate) fn finish(mut self) -> Vec<Site> {
        for site in &mut self.sites {
            site.deeds.at.resize(self.moments, Load::default());
        }
        let is_there = |d: &Deeds| {
            d.left.blocks > 0 || d.at_peak.blocks > 0 || d.at.iter().any(|l| l.blocks > 0)
        };
        self.sites.retain(|site| site.origin != Origin::Inherited || is_there(&site.deeds));
        self.sites
    }
}

/// The most that one of several sites has: at the peak, and at the end; of equals who made more.
struct Most {
    at_peak: (Load, Load),
    left: (Load, Load),
}

/// A site, and the most that one of those which were joined has.
struct Largest {
    site: Site,
    most: Most,
}

/// Sites of several processes, those at the same place of the same file joined.
#[derive(Default)]
pub struct Joined {
    sites: HashMap<(Option<String>, u64), Largest>,
    inherited: Option<Site>,
}

impl Joined {
    /// Takes in the sites of another process.
    pub fn add(&mut self, sites: Vec<Site>) {
        for mut site in sites {
            site.shares = site.share().into_iter().collect();
            let key = match &site.origin {
                Origin::Caller { place: Some(p), .. } => (Some(p.module.path.clone()), p.offset),
                Origin::Caller { place: None, address } => (None, *address),
                Origin::Inherited => {
                    match &mut self.inherited {
                        Some(known) => known.deeds.join(&site.deeds),
                        None => self.inherited = Some(site),
                    }
                    continue;
                }
            };
            match self.sites.entry(key) {
                Entry::Vacant(new) => {
                    new.insert(Largest { most: site.most(), site });
                }
                Entry::Occupied(mut known) => {
                    let Largest { site: known, most } = known.get_mut();
                    known.join(site, most);
                }
            }
        }
    }

    /// All of them, the one with most bytes made first.
    pub fn finish(self) -> Vec<Site> {
        let mut sites: Vec<Site> =
            self.sites.into_values().map(|known| known.site).chain(self.inherited).collect();
        let name = |site: &Site| match &site.origin {
            Origin::Caller { address, place } => {
                let place = place.as_ref().map(|p| (p.module.path.clone(), p.offset));
                (place, *address)
            }
            Origin::Inherited => (None, 0),
        };
        sites.sort_by_cached_key(|site| (Reverse(site.deeds.made), name(site)));
        sites
    }
}

/// The sites of each module, added up; the one with most bytes made first. `None` is what no module was
/// known for.
pub fn by_module(sites: &[Site]) -> Vec<(Option<String>, Deeds)> {
    let mut modules: HashMap<Option<&str>, Deeds> = HashMap::new();
    for site in sites {
        modules.entry(site.origin.module()).or_default().join(&site.deeds);
    }
    let mut modules: Vec<_> =
        modules.into_iter().map(|(path, deeds)| (path.map(str::to_owned), deeds)).collect();
    modules.sort_by(|a, b| (b.1.made, &a.0).cmp(&(a.1.made, &b.0)));
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller on a stack, with what lives there at the peak and at the end.
    fn site(stack: u32, at_peak: u64, left: u64) -> Site {
        let standing = Standing {
            process: ProcessNumber(stack % 2),
            stack: Some(SiteNumber(stack)),
            met: u64::from(stack),
        };
        let load = |bytes| Load { bytes, blocks: u64::from(bytes > 0) };
        let deeds = Deeds {
            made: load(at_peak + left),
            at_peak: load(at_peak),
            left: load(left),
            ..Deeds::default()
        };
        let origin = Origin::Caller { address: 0x40, place: None };
        Site { deeds, ..Site::new(origin, standing) }
    }

    #[test]
    fn a_caller_has_a_stack_with_most_at_the_peak_and_one_with_most_at_the_end() {
        let mut joined = Joined::default();
        joined.add(vec![site(1, 10, 3), site(2, 50, 0)]);
        joined.add(vec![site(3, 20, 7), site(4, 0, 5)]);
        let sites = joined.finish();
        let [site] = sites.as_slice() else { panic!("{sites:?}") };
        assert_eq!(
            (site.standing.stack, site.left.stack),
            (Some(SiteNumber(2)), Some(SiteNumber(3)))
        );
        assert_eq!((site.standing.met, site.left.process), (2, ProcessNumber(1)));
        assert_eq!((site.stacks, site.deeds.left.bytes), (4, 15));
        // Stacks 1, 3 and 4 print the same: what they have together is no more at the peak, but at the end.
        let mut site = site.clone();
        site.fold(&["a", "b", "a", "a"]);
        assert_eq!(
            (site.stacks, site.standing.stack, site.left.stack),
            (2, Some(SiteNumber(2)), Some(SiteNumber(1)))
        );
    }
}
