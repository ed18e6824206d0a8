//! The live set at a moment: as a list of its largest blocks, or added up by caller or by bin.
//!
//! The blocks come from the tape's reader; callers are resolved by a function that is handed in.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use heaptape_tape::{LiveBlock, ProcessNumber, Tape};

use crate::Error;
use crate::bins::Bin;
use crate::callers::Callers;
use crate::modules::{Module, Place};
use crate::profile::Frame;
use crate::stack::{self, Stack};
use crate::tree::{Grain, Identity};

/// The blocks that are alive after the first `made` events of a process; with 0 those that it
/// inherited by fork.
pub fn after(tape: &Tape, process: ProcessNumber, made: u64) -> Result<Vec<LiveBlock>, Error> {
    Ok(match made.checked_sub(1) {
        Some(last) => tape.live_at(process, last)?,
        None => tape.inherited(process)?,
    })
}

/// The sums over a live set, or over a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many blocks.
    pub blocks: u64,
    /// Their requested bytes.
    pub requested: u64,
    /// Their usable bytes.
    pub usable: u64,
    /// The requested bytes of the largest.
    pub largest: u64,
    /// How many of them are in a realloc under way that has given their address up.
    pub released: u64,
}

impl Sum {
    /// The sums over these blocks.
    pub fn of<'a>(blocks: impl IntoIterator<Item = &'a LiveBlock>) -> Sum {
        let mut sum = Sum::default();
        blocks.into_iter().for_each(|b| sum.add(b));
        sum
    }

    fn add(&mut self, block: &LiveBlock) {
        self.blocks += 1;
        self.requested = self.requested.saturating_add(block.size);
        self.usable = self.usable.saturating_add(block.size.saturating_add(block.slack));
        self.largest = self.largest.max(block.size);
        self.released += u64::from(block.released);
    }

    fn join(&mut self, other: &Sum) {
        self.blocks += other.blocks;
        self.requested = self.requested.saturating_add(other.requested);
        self.usable = self.usable.saturating_add(other.usable);
        self.largest = self.largest.max(other.largest);
        self.released += other.released;
    }
}

/// Puts the largest blocks first, of equals the oldest.
pub fn sort(blocks: &mut [LiveBlock]) {
    blocks.sort_unstable_by_key(|b| (Reverse(b.size), b.ordinal, b.address));
}

/// Where blocks were made: a place in a module, or a bare address where none was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The return address in the first block's process; 0 when unknown.
    pub address: u64,
    /// Where that is.
    pub place: Option<Place>,
    /// The call stack, where the same caller on another one is another.
    pub trace: Option<Box<Trace>>,
}

/// The call stack of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The process of the first block that was made there.
    pub process: ProcessNumber,
    /// Its frames.
    pub stack: Stack,
    /// The same with their names, where somebody has looked them up: nothing here does.
    pub frames: Vec<Frame>,
}

/// What a caller is known by in every process of a job: the places of the frames of its stack, or its own.
pub(crate) type CallerKey = Vec<Whereabout>;

/// What a place is known by, wherever its file was mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Whereabout {
    /// An address in no file.
    Address(u64),
    /// An offset in a file.
    Module(OfPath, u64),
    /// A line of a script: its file and function, if they are known.
    Script(Option<(String, String)>, u32),
}

impl Whereabout {
    fn of(place: Option<&Place>, address: u64) -> Whereabout {
        match place {
            Some(place) => Whereabout::Module(OfPath(Arc::clone(&place.module)), place.offset),
            None => Whereabout::Address(address),
        }
    }
}

/// A module that is the same as any other with its path.
#[derive(Clone, Debug)]
pub(crate) struct OfPath(Arc<Module>);

impl PartialEq for OfPath {
    fn eq(&self, other: &OfPath) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.path == other.0.path
    }
}

impl Eq for OfPath {}

impl Hash for OfPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.path.hash(state);
    }
}

impl PartialOrd for OfPath {
    fn partial_cmp(&self, other: &OfPath) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OfPath {
    fn cmp(&self, other: &OfPath) -> Ordering {
        self.0.path.cmp(&other.0.path)
    }
}

impl Trace {
    /// Of a stack in a process. Calls of Python's interpreter are left out where its lines stand for them, so that one
    /// line is not several.
    pub fn of(process: ProcessNumber, stack: Stack) -> Trace {
        Trace { process, stack: stack.folded(), frames: Vec::new() }
    }
}

impl Caller {
    /// A caller on whichever stack.
    pub fn new(address: u64, place: Option<Place>) -> Caller {
        Caller { address, place, trace: None }
    }

    /// A caller on a stack in a process, where that is known.
    pub(crate) fn at(
        address: u64,
        place: Option<Place>,
        process: ProcessNumber,
        stack: Option<Stack>,
    ) -> Caller {
        let trace = stack.map(|stack| Box::new(Trace::of(process, stack)));
        Caller { address, place, trace }
    }

    /// The order of those that are the same in several processes.
    pub(crate) fn order(&self) -> (Option<ProcessNumber>, u64) {
        (self.trace.as_ref().map(|trace| trace.process), self.address)
    }

    pub(crate) fn key(&self) -> CallerKey {
        // The caller is the first of a stack's frames, unless a line of a script stands for it.
        let frames = self.trace.as_ref().map_or(&[][..], |trace| &trace.stack.frames);
        if frames.is_empty() {
            return vec![Whereabout::of(self.place.as_ref(), self.address)];
        }
        let key = frames.iter().map(|frame| match frame {
            stack::Frame::Native { address, place } => Whereabout::of(place.as_ref(), *address),
            stack::Frame::Interpreted { code, line } => {
                let code = code.as_ref().map(|code| (code.file.clone(), code.function.clone()));
                Whereabout::Script(code, *line)
            }
        });
        key.collect()
    }
}

/// The blocks of one caller or of one bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<K> {
    /// What they have in common.
    pub key: K,
    /// Their sums.
    pub sum: Sum,
}

/// Adds the blocks up by caller, the largest sum first. The same place of a file is one caller,
/// wherever it was mapped.
pub fn by_caller<E>(
    blocks: &[LiveBlock],
    mut place: impl FnMut(&LiveBlock) -> Result<Option<Place>, E>,
) -> Result<Vec<Part<Caller>>, E> {
    // First by mapping, which needs no path to be looked at for every block.
    let mut mapped: HashMap<(Option<*const Module>, u64), Part<Caller>> = HashMap::new();
    for block in blocks {
        let place = place(block)?;
        let key = (place.as_ref().map(|p| Arc::as_ptr(&p.module)), block.caller);
        let part = mapped
            .entry(key)
            .or_insert_with(|| Part { key: Caller::new(block.caller, place), sum: Sum::default() });
        part.sum.add(block);
    }
    Ok(sorted(join_mappings(mapped.into_values())))
}

/// Adds the blocks up by call stack; those of which none is known, by caller.
pub fn by_site(
    blocks: &[LiveBlock],
    callers: &mut Callers<'_>,
) -> Result<Vec<Part<Caller>>, Error> {
    let mut mapped = HashMap::new();
    for block in blocks {
        let passed = callers.changes_before(block.process, block.birth)?;
        let part = match mapped.entry((block.process, block.caller, block.site, passed)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let key = callers.site_of_block(block)?;
                new.insert(Part { key, sum: Sum::default() })
            }
        };
        part.sum.add(block);
    }
    Ok(sorted(join_mappings(mapped.into_values())))
}

fn sorted(mut parts: Vec<Part<Caller>>) -> Vec<Part<Caller>> {
    parts.sort_by_cached_key(|p| {
        let stack = if p.key.trace.is_some() { p.key.key() } else { Vec::new() };
        (Reverse((p.sum.requested, p.sum.blocks)), p.key.address, stack)
    });
    parts
}

/// Joins the parts that are the same place of the same file.
fn join_mappings(mapped: impl Iterator<Item = Part<Caller>>) -> Vec<Part<Caller>> {
    let mut joined: HashMap<CallerKey, Part<Caller>> = HashMap::new();
    for part in mapped {
        match joined.entry(part.key.key()) {
            Entry::Vacant(new) => {
                new.insert(part);
            }
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.sum.join(&part.sum);
                // Which of them names the caller must not depend on the order of a hash map.
                if part.key.order() < known.key.order() {
                    known.key = part.key;
                }
            }
        }
    }
    joined.into_values().collect()
}

/// Joins the parts whose stacks print the same, once they are named: two addresses of one line are one site.
pub fn fold(mut parts: Vec<Part<Caller>>) -> Vec<Part<Caller>> {
    let alike = alike(parts.iter().map(|part| &part.key));
    for (place, &first) in alike.iter().enumerate().filter(|(place, first)| *place != **first) {
        let sum = parts[place].sum;
        parts[first].sum.join(&sum);
    }
    let mut places = (0..).zip(alike);
    parts.retain(|_| places.next().is_some_and(|(place, first): (usize, usize)| place == first));
    parts.sort_by_key(|part| Reverse((part.sum.requested, part.sum.blocks)));
    parts
}

/// For each caller the place of the first one whose stack prints the same; of one without a named stack its own.
pub(crate) fn alike<'a>(callers: impl Iterator<Item = &'a Caller>) -> Vec<usize> {
    let mut known = HashMap::new();
    let firsts = callers.enumerate().map(|(place, caller)| {
        let frames = caller.trace.as_ref().map_or(&[][..], |trace| &trace.frames);
        if frames.is_empty() {
            return place;
        }
        let printed: Vec<_> =
            frames.iter().map(|frame| Identity::of(frame, Grain::Place)).collect();
        *known.entry(printed).or_insert(place)
    });
    firsts.collect()
}

/// Adds the blocks up by bin, the smallest first; bins without a block are left out.
pub fn by_bin(blocks: &[LiveBlock]) -> Vec<Part<Bin>> {
    let mut found: HashMap<Bin, Sum> = HashMap::new();
    for block in blocks {
        found.entry(Bin::of_bytes(block.size)).or_default().add(block);
    }
    let mut parts: Vec<_> = found.into_iter().map(|(key, sum)| Part { key, sum }).collect();
    parts.sort_by_key(|p| p.key);
    parts
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::convert::Infallible;

    fn block(ordinal: u64, size: u64, caller: u64) -> LiveBlock {
        LiveBlock {
            address: 0x1000 + ordinal * 0x100,
            size,
            slack: 8,
            align: 0,
            birth: ordinal,
            ordinal,
            process: ProcessNumber(0),
            thread: 0,
            caller,
            site: None,
            time: 0,
            released: false,
        }
    }

    fn place(block: &LiveBlock) -> Result<Option<Place>, Infallible> {
        let module =
            Module { path: "/lib/x".into(), build_id: Vec::new(), bias: 0, start: 0, end: 0x100 };
        // Two mappings of one file: 0x10 and 0x110 are the same place.
        let known = block.caller < 0x200;
        let offset = block.caller % 0x100;
        Ok(known.then(|| Place { offset, module: Arc::new(module), function: None }))
    }

    #[test]
    fn one_place_of_a_file_is_one_caller() {
        let blocks = [block(0, 10, 0x10), block(1, 5, 0x110), block(2, 40, 0x900)];
        let parts = by_caller(&blocks, place).unwrap();
        let sums: Vec<_> = parts.iter().map(|p| (p.sum.requested, p.sum.blocks)).collect();
        assert_eq!(sums, [(40, 1), (15, 2)]);
        assert_eq!(parts[0].key.place, None);
        assert_eq!((parts[1].sum.usable, parts[1].sum.largest), (31, 10));
    }

    /// A named caller on a stack of one call, at this offset and in this line.
    pub(crate) fn named(offset: u64, line: Option<u32>) -> Caller {
        let file = Some("/src/app.c".into());
        let frame = Frame { file, line, offset, ..Frame::named("test2") };
        let frames = vec![stack::Frame::Native { address: offset, place: None }];
        let stack = Stack { frames, end: heaptape_tape::SiteEnd::Outermost };
        let trace = Trace { process: ProcessNumber(0), stack, frames: vec![frame] };
        Caller { address: offset, place: None, trace: Some(Box::new(trace)) }
    }

    #[test]
    fn two_addresses_of_one_line_are_one_site() {
        let part = |key, requested| Part { key, sum: Sum { requested, ..Sum::default() } };
        let parts = fold(vec![
            part(named(0x30, Some(8)), 9),
            part(named(0x10, Some(7)), 6),
            part(named(0x20, Some(7)), 5),
            // Of these no line is known that could be the same, or no name.
            part(named(0x40, None), 3),
            part(named(0x50, None), 2),
            part(Caller::new(0x60, None), 1),
            part(Caller::new(0x60, None), 1),
        ]);
        let rows: Vec<_> = parts.iter().map(|p| (p.key.address, p.sum.requested)).collect();
        assert_eq!(rows, [(0x10, 11), (0x30, 9), (0x40, 3), (0x50, 2), (0x60, 1), (0x60, 1)]);
    }

    #[test]
    fn bins_and_order() {
        let mut blocks = [block(0, 10, 0), block(1, 40, 0), block(2, 16, 0), block(3, 40, 0)];
        let bins: Vec<_> = by_bin(&blocks).iter().map(|p| (p.key.unit(), p.sum.blocks)).collect();
        assert_eq!(bins, [(16, 2), (40, 2)]);
        sort(&mut blocks);
        assert_eq!(blocks.map(|b| b.ordinal), [1, 3, 2, 0]);
        assert_eq!(Sum::of(&blocks).requested, 106);
    }
}
