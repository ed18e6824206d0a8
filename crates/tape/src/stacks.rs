//! What a running process has told of its call stacks: the site that each of its numbers means.
//!
//! The numbers come from the program. A stack that it tells again, were it under another number, is the same site; a number
//! keeps its first meaning; and a number without one, as its stack was lost or there were too many, is
//! unknown: never another stack.

use crate::codes::RawCodes;
use crate::site::{Code, UNKNOWN_CODE};
use crate::sites::RawSites;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use heaptape_wire::site::{MAX_DEPTH, SITE_BIT, SiteEnd, interpreted, interpreted_of, site_of};

/// Numbers, and nodes of the tree, that are remembered of a process at the most.
pub(crate) const MOST: usize = 1 << 24;
/// Bytes of files and functions that are remembered of a process at the most.
pub(crate) const MOST_TEXT: usize = 64 << 20;

/// What stands in the list of a block's callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Address(u64),
    Site(u32),
    /// A site that was not told.
    Unknown,
}

/// The stacks of a process.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    /// The site of each of the program's numbers.
    ids: HashMap<u32, u32>,
    /// The node of each frame below its outer node, and the number of its frame.
    nodes: HashMap<(u32, u64), (u32, u32)>,
    /// The site at each node that has one.
    sites: HashMap<(u32, SiteEnd), u32>,
    /// The number of each frame among those that differ, from 1; the root has 0.
    frames: HashMap<u64, u32>,
    /// The place of each frame among those that were met directly inside of another, and how many those are.
    places: HashMap<(u32, u32), u32>,
    inside: HashMap<u32, u32>,
    /// The piece of each of the program's numbers of code.
    code_ids: HashMap<u32, u32>,
    codes: HashMap<Code, u32>,
    code_bytes: usize,
    /// What is not on the tape yet.
    pub(crate) new_sites: RawSites,
    pub(crate) new_codes: RawCodes,
}

impl Stacks {
    /// What a caller's word means.
    #[inline]
    pub(crate) fn named(&self, word: u64) -> Named {
        if word < SITE_BIT {
            return Named::Address(word);
        }
        let site = site_of(word).and_then(|id| self.ids.get(&id));
        site.map_or(Named::Unknown, |&site| Named::Site(site))
    }

    /// The program tells what its number `id` is; the innermost frame comes first.
    pub(crate) fn site(&mut self, id: u32, end: SiteEnd, frames: &[u64]) {
        let is_full = self.ids.len() >= MOST || self.nodes.len() + MAX_DEPTH > MOST;
        if is_full || self.ids.contains_key(&id) {
            return;
        }
        let (frames, end) = match frames.get(..MAX_DEPTH) {
            Some(inner) if frames.len() > MAX_DEPTH => (inner, SiteEnd::Depth),
            _ => (frames, end),
        };
        let site = self.number(end, frames);
        self.ids.insert(id, site);
    }

    fn number(&mut self, end: SiteEnd, frames: &[u64]) -> u32 {
        let mut outer = frames.iter().rev().map(|&frame| self.coded(frame)).peekable();
        let (mut branch, mut number) = (0, 0);
        while let Some(&next) = outer.peek().and_then(|&frame| self.nodes.get(&(branch, frame))) {
            (branch, number) = next;
            outer.next();
        }
        let rest: Vec<u64> = outer.collect();
        let mut node = branch;
        for &frame in &rest {
            (node, number) = self.grow(node, number, frame);
        }
        let next = self.sites.len() as u32;
        match self.sites.entry((node, end)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.new_sites.site(branch, rest.len(), node, end);
                *new.insert(next)
            }
        }
    }

    /// A new node below another one, whose frame has the number `outer`.
    fn grow(&mut self, node: u32, outer: u32, frame: u64) -> (u32, u32) {
        let next = self.frames.len() as u32 + 1;
        let number = *self.frames.entry(frame).or_insert(next);
        let inside = self.inside.entry(outer).or_insert(0);
        match self.places.entry((outer, number)) {
            Entry::Occupied(known) => self.new_sites.node(*known.get()),
            Entry::Vacant(new) => {
                self.new_sites.node(*new.insert(*inside));
                self.new_sites.inside(number, (number == next).then_some(frame));
                *inside += 1;
            }
        }
        let grown = (self.nodes.len() as u32 + 1, number);
        self.nodes.insert((node, frame), grown);
        grown
    }

    /// A frame with the tape's number for its code.
    fn coded(&self, frame: u64) -> u64 {
        match interpreted_of(frame) {
            Some((id, line)) => {
                interpreted(self.code_ids.get(&id).copied().unwrap_or(UNKNOWN_CODE), line)
            }
            None => frame,
        }
    }

    /// The program tells what its number `id` of code is.
    pub(crate) fn code(&mut self, id: u32, code: Code) {
        let bytes = code.file.len() + code.function.len() + size_of::<Code>();
        let is_full = self.code_bytes + bytes > MOST_TEXT || self.code_ids.len() >= MOST;
        if is_full || self.code_ids.contains_key(&id) {
            return;
        }
        let next = self.codes.len() as u32;
        let number = match self.codes.entry(code) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.new_codes.code(new.key());
                self.code_bytes += bytes;
                *new.insert(next)
            }
        };
        self.code_ids.insert(id, number);
    }
}
