//! An ELF file's sections, build id and symbol entries, as far as names need them.
//!
//! Only files of 64 bits with the low byte first are read: heaptape records on no other machine. What the
//! headers say is held against limits before room is made for it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, NT_GNU_BUILD_ID, PT_LOAD, PT_NOTE, SHF_COMPRESSED,
    SHF_EXECINSTR, SHN_LORESERVE, SHN_UNDEF, SHN_XINDEX, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE,
    SHT_SYMTAB, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE,
};

use crate::Error;
use crate::section;
use crate::source::Source;
use crate::strings::Strings;
use crate::table::{Symbol, Table};

const FILE_HEADER: usize = 64;
const SECTION_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SYMBOL: usize = 24;
/// What is mapped begins at a multiple of this.
const PAGE: u64 = 4096;

/// More of each than the largest programs have.
const MOST_SECTIONS: u64 = 1 << 20;
const MOST_SYMBOLS: u64 = 1 << 25;
const MOST_NOTES: u64 = 1 << 16;
/// Bytes of the names of sections.
const MOST_NAMES: u64 = 1 << 24;

/// What is read at a time for a checksum.
const PIECE: u64 = 1 << 20;

/// Symbols that are read at a time.
const BATCH: u64 = 1 << 14;

/// An open file with its headers.
pub(crate) struct Elf {
    path: PathBuf,
    source: Source,
    sections: Vec<Section>,
    /// The names of sections, each ended by a zero byte.
    names: Vec<u8>,
    /// Notes by their segments, for a file without sections.
    notes: Vec<Extent>,
}

/// Which of the two tables of symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The whole one, `.symtab`, which `strip` removes.
    Whole,
    /// The one that the loader needs, `.dynsym`: only what a library exports.
    Exported,
}

/// Where something lies in the file.
#[derive(Clone, Copy)]
struct Extent {
    offset: u64,
    size: u64,
}

struct Section {
    /// Where its name stands among the names of sections.
    name: u32,
    kind: u32,
    packed: bool,
    executable: bool,
    address: u64,
    place: Extent,
    link: u32,
}

impl Elf {
    /// Opens a file and reads its headers.
    pub(crate) fn open(path: &Path) -> Result<Elf, Error> {
        let failed = |source| Error::Io { path: path.to_owned(), source };
        // Before it is opened: opening a pipe would wait for a writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Error::NoFile { path: path.to_owned() });
        }
        let source = File::open(path).and_then(Source::file).map_err(failed)?;
        Elf::read_headers(path, source)
    }

    /// Reads the headers of a file that was unpacked from the one at `path`.
    pub(crate) fn in_memory(path: &Path, bytes: Vec<u8>) -> Result<Elf, Error> {
        Elf::read_headers(path, Source::Memory(Arc::from(bytes)))
    }

    fn read_headers(path: &Path, source: Source) -> Result<Elf, Error> {
        let path = path.to_owned();
        let mut elf =
            Elf { path, source, sections: Vec::new(), names: Vec::new(), notes: Vec::new() };
        let head = elf.read(0, FILE_HEADER)?;
        let right = head.starts_with(&ELFMAG) && head.get(4..6) == Some(&[ELFCLASS64, ELFDATA2LSB]);
        if !right {
            return Err(Error::NoElf { path: elf.path });
        }
        elf.sections = elf.read_sections(&head)?;
        elf.names = elf.names_of_sections(&head);
        if elf.sections.is_empty() {
            elf.notes = elf.read_notes(&head)?;
        }
        Ok(elf)
    }

    /// Where the file lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The contents of a section by its name, unpacked; `None` where it is not there, damaged, or larger than `most`.
    pub(crate) fn section(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        let (section, is_old) = match self.named(name) {
            Some(section) => (section, false),
            None => (self.named(&format!(".z{}", name.strip_prefix('.')?))?, true),
        };
        let place = section.place;
        if section.kind == SHT_NOBITS || place.size > most {
            return None;
        }
        let bytes = self.read(place.offset, place.size as usize).ok()?;
        match (section.packed, is_old) {
            (true, _) => section::unpacked(&bytes, most),
            (_, true) => section::unpacked_gnu(&bytes, most),
            _ => Some(bytes),
        }
    }

    /// Whether there is a section of this name with contents.
    pub(crate) fn has(&self, name: &str) -> bool {
        let found = self.named(name);
        found.is_some_and(|s| s.kind != SHT_NOBITS && s.place.size > 0)
    }

    /// How many bytes the file has.
    pub(crate) fn length(&self) -> u64 {
        self.source.length()
    }

    /// All bytes of the file in pieces, for a checksum.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Result<Vec<u8>, Error>> + '_ {
        let length = self.source.length();
        let starts = (0..length).step_by(PIECE as usize);
        starts.map(move |start| self.read(start, PIECE.min(length - start) as usize))
    }

    fn named(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| {
            let names = self.names.get(section.name as usize..);
            let rest = names.and_then(|names| names.strip_prefix(name.as_bytes()));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        })
    }

    /// The names of sections; none where these are damaged.
    fn names_of_sections(&self, head: &[u8]) -> Vec<u8> {
        let number = match half(head, 62) {
            Some(SHN_XINDEX) => self.sections.first().map(|s| s.link as usize),
            number => number.map(usize::from),
        };
        let place = number.and_then(|n| self.sections.get(n)).map(|s| s.place);
        let place = place.filter(|place| place.size <= MOST_NAMES);
        place.and_then(|p| self.read(p.offset, p.size as usize).ok()).unwrap_or_default()
    }

    /// The GNU build id; empty for none.
    pub(crate) fn build_id(&self) -> Result<Vec<u8>, Error> {
        let sections = self.sections.iter().filter(|s| s.kind == SHT_NOTE).map(|s| s.place);
        for place in sections.chain(self.notes.iter().copied()) {
            // Other notes may be long; that of the build id is not.
            if place.size > MOST_NOTES {
                continue;
            }
            let notes = self.read(place.offset, place.size as usize)?;
            if let Some(id) = build_id(&notes) {
                return Ok(id);
            }
        }
        Ok(Vec::new())
    }

    /// The functions of a table of symbols; `None` when the file has no such table, or not its contents, as
    /// a debug file has for `.dynsym`.
    pub(crate) fn functions(&self, kind: Kind) -> Result<Option<Table>, Error> {
        let wanted = match kind {
            Kind::Whole => SHT_SYMTAB,
            Kind::Exported => SHT_DYNSYM,
        };
        let Some(table) = self.sections.iter().find(|s| s.kind == wanted) else { return Ok(None) };
        let Some(names) = self.sections.get(table.link as usize) else { return Ok(None) };
        let count = table.place.size / SYMBOL as u64;
        self.limit("a table of symbols", count, MOST_SYMBOLS)?;
        let mut symbols = Vec::new();
        for first in (0..count).step_by(BATCH as usize) {
            let entries = BATCH.min(count - first) as usize;
            let offset = table.place.offset.saturating_add(first * SYMBOL as u64);
            let bytes = self.read(offset, entries * SYMBOL)?;
            symbols.extend(bytes.chunks_exact(SYMBOL).filter_map(|entry| self.function(entry)));
        }
        if kind == Kind::Exported {
            // What has no size reaches to the next symbol, and between two of these lies much that is not
            // exported.
            symbols.retain(|s| s.end.is_some());
        }
        let strings = Strings::new(self.source.again(), names.place.offset, names.place.size);
        Ok(Some(Table::new(symbols, strings.map_err(|e| self.failed(e))?)))
    }

    /// A symbol of code in a section of the file.
    fn function(&self, entry: &[u8]) -> Option<Symbol> {
        let (name, info, section) = (word(entry, 0)?, *entry.get(4)?, half(entry, 6)?);
        let (start, size) = (long(entry, 8)?, long(entry, 16)?);
        let code = matches!(info & 15, STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE);
        if !code || name == 0 || section == SHN_UNDEF {
            return None;
        }
        let limit = match section {
            // The section's number stands elsewhere, as there are so many.
            SHN_XINDEX if size > 0 => u64::MAX,
            SHN_LORESERVE.. => return None,
            _ => {
                let section = self.sections.get(usize::from(section)).filter(|s| s.executable)?;
                let end = section.address.saturating_add(section.place.size);
                (section.address <= start && start < end).then_some(end)?
            }
        };
        let end = (size > 0).then(|| start.saturating_add(size).min(limit));
        Some(Symbol { start, end, limit, name, local: info >> 4 == STB_LOCAL })
    }

    fn read_sections(&self, head: &[u8]) -> Result<Vec<Section>, Error> {
        let (offset, size) = (long(head, 40).unwrap_or(0), half(head, 58).unwrap_or(0));
        let mut count = u64::from(half(head, 60).unwrap_or(0));
        if offset == 0 || usize::from(size) != SECTION_HEADER {
            return Ok(Vec::new());
        }
        if count == 0 {
            // There are too many to be counted there.
            let first = self.read(offset, SECTION_HEADER)?;
            count = long(&first, 32).unwrap_or(0);
        }
        self.limit("the list of sections", count, MOST_SECTIONS)?;
        let bytes = self.read(offset, count as usize * SECTION_HEADER)?;
        Ok(bytes.chunks_exact(SECTION_HEADER).filter_map(Section::of).collect())
    }

    fn read_notes(&self, head: &[u8]) -> Result<Vec<Extent>, Error> {
        let headers = self.program_headers(head)?;
        let headers = headers.chunks_exact(PROGRAM_HEADER);
        let notes = headers.filter(|h| word(h, 0) == Some(PT_NOTE));
        Ok(notes.filter_map(|h| Some(Extent { offset: long(h, 8)?, size: long(h, 32)? })).collect())
    }

    fn program_headers(&self, head: &[u8]) -> Result<Vec<u8>, Error> {
        let (offset, size) = (long(head, 32).unwrap_or(0), half(head, 54).unwrap_or(0));
        let count = usize::from(half(head, 56).unwrap_or(0));
        if offset == 0 || usize::from(size) != PROGRAM_HEADER {
            return Ok(Vec::new());
        }
        self.read(offset, count * PROGRAM_HEADER)
    }

    /// The file's own address of what is mapped first: 0 but in executables that have a fixed place.
    pub(crate) fn base(&self) -> Result<u64, Error> {
        let headers = self.program_headers(&self.read(0, FILE_HEADER)?)?;
        let headers = headers.chunks_exact(PROGRAM_HEADER);
        let loaded = headers.filter(|h| word(h, 0) == Some(PT_LOAD));
        let least = loaded.filter_map(|h| long(h, 16)).min().unwrap_or(0);
        Ok(least - least % PAGE)
    }

    fn limit(&self, what: &'static str, count: u64, most: u64) -> Result<(), Error> {
        if count <= most {
            return Ok(());
        }
        Err(Error::TooLarge { path: self.path.clone(), what, count, most })
    }

    /// The caller has held `length` against a limit.
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        self.source.read(offset, length).map_err(|e| self.failed(e))
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }
}

impl Section {
    fn of(header: &[u8]) -> Option<Section> {
        let (flags, kind) = (long(header, 8)?, word(header, 4)?);
        Some(Section {
            name: word(header, 0)?,
            kind,
            packed: flags & u64::from(SHF_COMPRESSED) != 0,
            executable: flags & u64::from(SHF_EXECINSTR) != 0,
            address: long(header, 16)?,
            place: Extent { offset: long(header, 24)?, size: long(header, 32)? },
            link: word(header, 40)?,
        })
    }
}

/// The GNU build id among notes.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let name = word(notes, 0)? as usize;
        let (length, kind) = (word(notes, 4)? as usize, word(notes, 8)?);
        let body = notes.get(12..)?;
        let text = body.get(..name)?;
        let body = body.get(name.next_multiple_of(4)..)?;
        if kind == NT_GNU_BUILD_ID && text == b"GNU\0" {
            return body.get(..length).map(<[u8]>::to_vec);
        }
        notes = body.get(length.next_multiple_of(4)..)?;
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
