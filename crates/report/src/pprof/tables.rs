//! The tables of a pprof profile: strings, functions, mappings and places, each once.

use std::collections::HashMap;

use heaptape_analyze::modules::Module;
use heaptape_analyze::profile::{Frame, FrameKind, FrameNumber};

use super::message::{Function, Line, Location, Mapping};

/// The granularity of mappings.
const PAGE: u64 = 4096;
/// Where no process has code: behind all addresses of programs.
const NOWHERE: u64 = 1 << 48;

/// The place of the empty string. As the name in the symbol table it says that the other name is to be shown as it is:
/// where both are the same, pprof leaves out what stands between `<` and `>`.
const NOT_KNOWN: i64 = 0;

/// The tables under way; ids count from 1.
#[derive(Default)]
pub(super) struct Tables<'a> {
    pub(super) strings: Strings,
    pub(super) functions: Vec<Function>,
    pub(super) mappings: Vec<Mapping>,
    pub(super) locations: Vec<Location>,
    /// Where the mappings are, by their ids.
    extents: Vec<Extent>,
    known_functions: HashMap<(i64, i64), u64>,
    known_mappings: HashMap<(&'a str, &'a [u8]), u64>,
    known_locations: HashMap<Vec<FrameNumber>, u64>,
}

/// What calls were found in of a module, by addresses of its file.
struct Extent {
    /// What is added to those; 0 where it is not known.
    load: u64,
    low: u64,
    high: u64,
}

impl Extent {
    fn start(&self) -> u64 {
        if self.load == 0 { self.low } else { self.load }
    }

    fn limit(&self) -> u64 {
        self.load.saturating_add(self.high)
    }

    /// Makes it larger where it does not hold an address yet.
    fn add(&mut self, address: u64) {
        self.low = self.low.min(address / PAGE * PAGE);
        self.high = self.high.max((address / PAGE).saturating_add(1).saturating_mul(PAGE));
    }
}

/// A table of strings, of which the first is empty.
pub(super) struct Strings {
    pub(super) list: Vec<String>,
    known: HashMap<String, i64>,
}

impl Default for Strings {
    fn default() -> Strings {
        Strings { list: vec![String::new()], known: HashMap::from([(String::new(), 0)]) }
    }
}

impl Strings {
    /// The place of a string.
    pub(super) fn add(&mut self, text: &str) -> i64 {
        if let Some(&place) = self.known.get(text) {
            return place;
        }
        let place = self.list.len() as i64;
        self.list.push(text.to_owned());
        self.known.insert(text.to_owned(), place);
        place
    }
}

impl<'a> Tables<'a> {
    /// The places of a stack. Inlined functions are lines of the place that they were put into.
    pub(super) fn stack(&mut self, frames: &'a [Frame], stack: &[FrameNumber]) -> Vec<u64> {
        let of = |number: &FrameNumber| frames.get(number.0 as usize);
        let mut places = Vec::new();
        let is_inlined =
            |number: &FrameNumber| of(number).is_some_and(|f| f.kind == FrameKind::Inlined);
        for group in stack.split_inclusive(|number| !is_inlined(number)) {
            if let Some(&known) = self.known_locations.get(group) {
                places.push(known);
                continue;
            }
            let members: Vec<&Frame> = group.iter().filter_map(of).collect();
            let Some(outermost) = members.last() else { continue };
            let id = self.location(outermost, &members);
            self.known_locations.insert(group.to_vec(), id);
            places.push(id);
        }
        places
    }

    fn location(&mut self, outermost: &'a Frame, members: &[&'a Frame]) -> u64 {
        let mapping_id = self.mapping(outermost, members);
        let line = members.iter().map(|frame| self.line(frame)).collect();
        let id = self.locations.len() as u64 + 1;
        self.locations.push(Location { id, mapping_id, address: call(outermost), line });
        id
    }

    /// Gives all places their addresses in memory, once there are no more: until then they have those of their files.
    ///
    /// Processes have different modules at the same addresses, and one may have had several there after each other.
    /// No two mappings may overlap: what would is put where no other is.
    pub(super) fn place(&mut self) {
        let mut order: Vec<usize> = (0..self.extents.len()).collect();
        order.sort_by_key(|&place| (self.extents[place].start(), place));
        let (mut taken, mut free) = (0, NOWHERE);
        for place in order {
            let extent = &mut self.extents[place];
            if extent.start() < taken {
                extent.load = free;
                free = extent.limit();
            } else {
                taken = extent.limit();
            }
        }
        for (mapping, extent) in self.mappings.iter_mut().zip(&self.extents) {
            (mapping.memory_start, mapping.memory_limit) = (extent.start(), extent.limit());
        }
        for location in &mut self.locations {
            let mapping = (location.mapping_id as usize).checked_sub(1);
            if let Some(extent) = mapping.and_then(|mapping| self.extents.get(mapping)) {
                location.address = location.address.saturating_add(extent.load);
            }
        }
    }

    fn line(&mut self, frame: &'a Frame) -> Line {
        let name = self.strings.add(&frame.label());
        let filename = self.strings.add(frame.file.as_deref().unwrap_or_default());
        let id = self.functions.len() as u64 + 1;
        let function_id = *self.known_functions.entry((name, filename)).or_insert(id);
        if function_id == id {
            self.functions.push(Function { id, name, system_name: NOT_KNOWN, filename });
        }
        Line { function_id, line: i64::from(frame.line.unwrap_or_default()) }
    }

    /// Makes the executable the first mapping, before there is any other: pprof tells its file as that of the profile.
    pub(super) fn executable(&mut self, module: &'a Module) {
        // With the whole of it, for there may be no call from there.
        let of_file = |address: u64| address.saturating_sub(module.bias);
        self.file(&module.path, &module.build_id, module.bias);
        if let Some(extent) = self.extents.last_mut() {
            extent.add(of_file(module.start));
            extent.add(of_file(module.end.saturating_sub(1)));
        }
    }

    /// The mapping of a file, which holds nothing when it is new.
    fn file(&mut self, path: &'a str, build_id: &'a [u8], load: u64) -> u64 {
        let id = self.mappings.len() as u64 + 1;
        let known = *self.known_mappings.entry((path, build_id)).or_insert(id);
        if known == id {
            let build_id: String = build_id.iter().map(|b| format!("{b:02x}")).collect();
            self.extents.push(Extent { load, low: u64::MAX, high: 0 });
            self.mappings.push(Mapping {
                id,
                filename: self.strings.add(path),
                build_id: self.strings.add(&build_id),
                ..Mapping::default()
            });
        }
        known
    }

    /// The mapping of a place, made larger where it does not hold it yet; 0 for none.
    fn mapping(&mut self, frame: &'a Frame, members: &[&Frame]) -> u64 {
        if frame.module.is_empty() {
            return 0;
        }
        let known = self.file(&frame.module, &frame.build_id, frame.load);
        if let Some(extent) = self.extents.get_mut(known as usize - 1) {
            extent.add(call(frame));
        }
        if let Some(mapping) = self.mappings.get_mut(known as usize - 1) {
            let is_any = |is: fn(&Frame) -> bool| members.iter().any(|frame| is(frame));
            mapping.has_functions |= is_any(|frame| !frame.function.is_empty());
            mapping.has_filenames |= is_any(|frame| frame.file.is_some());
            mapping.has_line_numbers |= is_any(|frame| frame.line.is_some());
            mapping.has_inline_frames |= members.len() > 1;
        }
        known
    }
}

/// The address of the call in the module's file, which lies before the return address; in memory where no module is.
fn call(frame: &Frame) -> u64 {
    match frame.kind {
        FrameKind::Python | FrameKind::Cut => 0,
        _ => frame.offset.saturating_sub(1),
    }
}
