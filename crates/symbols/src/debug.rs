//! The debug information of one file: functions with what was inlined into them, files and lines.
//!
//! The sections are read into memory, unpacked, and handed to addr2line. What it may read is bounded
//! ([`Meter`]), as the files are foreign.

use std::convert::Infallible;
use std::sync::Arc;

use addr2line::gimli::{self, AbbreviationsCacheStrategy, Dwarf, SectionId};
use addr2line::{Context, Frame, LookupContinuation, LookupResult};

use crate::elf::Elf;
use crate::name::is_mangled;
use crate::piece::{Meter, Piece};
use crate::scope::AllScopes;
use crate::search::Search;
use crate::split::Split;

/// More bytes of debug information than this, unpacked, are not read of a module.
const MOST: u64 = 1 << 30;

/// What reading may cost: each byte of a file is read some ten times where all of it is looked up.
const READS_PER_BYTE: u64 = 24;
const READS: u64 = 8 << 20;

/// What entries may look like: a list of attributes that takes more bytes costs more than it is worth.
const LONGEST_ABBREVIATION: usize = 1 << 10;

/// More functions in one another are not told.
const MOST_FRAMES: usize = 128;

/// The debug information of a module.
pub(crate) struct Debug {
    context: Context<Piece>,
    meter: Arc<Meter>,
    split: Split,
    scopes: AllScopes,
    bytes: u64,
}

/// A function as the debug information has it.
pub(crate) struct Found {
    /// Mangled where the language does that; `None` where only the line is known.
    pub(crate) name: Option<String>,
    pub(crate) is_fortran: bool,
    /// The namespaces and types around it, where the name is plain.
    pub(crate) scope: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

impl Debug {
    /// That of a file; `None` where it has none, or none that can be read. What is missing beside it is told.
    pub(crate) fn of(elf: &Elf, search: &Search, missing: &mut Vec<String>) -> Option<Debug> {
        if !elf.has(".debug_info") && !elf.has(".zdebug_info") {
            return None;
        }
        let mut sections = Sections::new();
        let mut dwarf = sections.of(elf, main_name);
        if let Some(alternate) = alternate(elf, search, missing) {
            dwarf.set_sup(sections.of(&alternate, main_name));
        }
        sections.meter.begin();
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf).ok()?;
        let meter = Arc::clone(&sections.meter);
        let bytes = MOST - sections.room;
        let split = Split::new(elf.path(), search, sections);
        Some(Debug { context, meter, split, scopes: AllScopes::default(), bytes })
    }

    /// The length of its sections.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The functions at an address, the innermost first. `None` where nothing is known of it.
    pub(crate) fn at(&mut self, address: u64, missing: &mut Vec<String>) -> Option<Vec<Found>> {
        // The library asks for what lies between an address and the next.
        if address == u64::MAX || self.meter.is_used_up() {
            return None;
        }
        self.meter.begin();
        let mut lookup = self.context.find_frames(address);
        let mut frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames.ok()?,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.split.load(&load, missing));
                }
            }
        };
        let (mut found, mut entries) = (Vec::new(), Vec::new());
        while let Some(frame) = frames.next().ok()? {
            found.push(Found::of(&frame));
            entries.push(frame.dw_die_offset);
            if found.len() == MOST_FRAMES {
                break;
            }
        }
        for (found, entry) in found.iter_mut().zip(entries) {
            found.scope =
                found.name.as_deref().filter(|name| !is_mangled(name)).and(entry).and_then(
                    |entry| {
                        let unit = self.context.find_dwarf_and_unit(address).skip_all_loads()?;
                        self.scopes.around(unit, entry).map(str::to_owned)
                    },
                );
        }
        (!found.is_empty()).then_some(found)
    }
}

impl Found {
    fn of(frame: &Frame<'_, Piece>) -> Found {
        let name = frame.function.as_ref().and_then(|f| f.raw_name().ok());
        let location = frame.location.as_ref();
        Found {
            name: name.map(|n| n.into_owned()),
            is_fortran: frame.function.as_ref().and_then(|f| f.language).is_some_and(is_fortran),
            scope: None,
            file: location.and_then(|l| l.file).map(str::to_owned),
            line: location.and_then(|l| l.line),
        }
    }
}

fn is_fortran(language: gimli::DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Fortran90
            | gimli::DW_LANG_Fortran95
            | gimli::DW_LANG_Fortran03
            | gimli::DW_LANG_Fortran08
            | gimli::DW_LANG_Fortran18
    )
}

/// Of the sections that tell functions and lines, the name; values of variables and macros are left alone.
fn main_name(id: SectionId) -> Option<&'static str> {
    let is_wanted = matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugAranges
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    );
    is_wanted.then(|| id.name())
}

/// Sections on their way into memory, with what is left of the room for a module's.
pub(crate) struct Sections {
    room: u64,
    pub(crate) meter: Arc<Meter>,
    /// Lists of attributes are kept in memory, and units may begin theirs at every byte of one that is long: what
    /// is read of them has a bound of its own, by their own length.
    attributes: Arc<Meter>,
}

impl Sections {
    fn new() -> Sections {
        let meter = || {
            let meter = Meter::default();
            meter.allow(READS);
            Arc::new(meter)
        };
        Sections { room: MOST, meter: meter(), attributes: meter() }
    }

    /// Those of a file, under the names that it has for them.
    pub(crate) fn of(
        &mut self,
        elf: &Elf,
        name: impl Fn(SectionId) -> Option<&'static str>,
    ) -> Dwarf<Piece> {
        let load = |id| Ok::<_, Infallible>(self.section(elf, id, name(id)));
        let Ok(dwarf) = Dwarf::load(load);
        dwarf
    }

    /// A section; empty where there is none, or none that can be right.
    pub(crate) fn section(&mut self, elf: &Elf, id: SectionId, name: Option<&str>) -> Piece {
        let found = name.and_then(|name| elf.section(name, self.room));
        let sound = found.filter(|bytes| id != SectionId::DebugAbbrev || are_short(bytes));
        let bytes = sound.unwrap_or_default();
        self.room -= bytes.len() as u64;
        let meter = if id == SectionId::DebugAbbrev { &self.attributes } else { &self.meter };
        meter.allow(bytes.len() as u64 * READS_PER_BYTE);
        Piece::new(bytes, meter)
    }
}

/// Whether no kind of entry has too many attributes. These end with two zero bytes, and none has two in a row.
fn are_short(abbreviations: &[u8]) -> bool {
    let mut rest = abbreviations;
    while let Some(part) = rest.get(..LONGEST_ABBREVIATION) {
        let Some(end) = memchr::memmem::rfind(part, &[0, 0]) else { return false };
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    true
}

/// The file that debug files of one package share their strings and types in, as `dwz` makes it.
fn alternate(elf: &Elf, search: &Search, missing: &mut Vec<String>) -> Option<Elf> {
    let link = elf.section(".gnu_debugaltlink", 1 << 16)?;
    let end = memchr::memchr(0, &link)?;
    let (name, id) = (std::str::from_utf8(link.get(..end)?).ok()?, link.get(end + 1..)?);
    let files = search.alternates(elf.path(), name, id).into_iter();
    let mut opened = files.filter_map(|path| Elf::open(&path).ok());
    let found = opened.find(|file| file.build_id().is_ok_and(|found| found == id));
    if found.is_none() {
        missing.push(format!(
            "{} shares its debug information with {name}, which is not there.",
            elf.path().display()
        ));
    }
    found
}
