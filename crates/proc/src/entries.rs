//! Where calls enter a library, and by which entries of its own it calls others: what an ELF file says of functions that
//! somebody may have patched in memory.
//!
//! Read from the file's dynamic symbols and relocations. Addresses are the file's own; [`Entries::base`] says where in memory
//! they are.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use object::elf::{FileHeader64, PT_LOAD, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
use object::read::elf::{ElfFile, ProgramHeader};
use object::read::{Object, ObjectSymbol, ObjectSymbolTable, ReadCache, ReadRef, RelocationTarget};
use object::{Endianness, RelocationFlags};

use crate::Error;

/// Bytes of a function that are kept, at most.
pub const CODE: usize = 16;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// The functions that it exports: name, address, and the first bytes of their code, none of
    /// another's. Of names for one address the first.
    pub functions: Vec<(String, u64, Vec<u8>)>,
    /// Where it keeps the addresses of functions that it calls: name and address.
    pub slots: Vec<(String, u64)>,
    /// The address of its first byte.
    first: u64,
}

impl Entries {
    /// Reads a file, for functions of the names that are `wanted`.
    ///
    /// # Errors
    /// [`Error::Elf`] where it is no ELF file of 64 bits.
    pub fn read(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Entries, Error> {
        let file =
            File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        parse(&ReadCache::new(file), wanted)
            .map_err(|error| Error::Elf { path: path.to_owned(), reason: error.to_string() })
    }

    /// What is added to the file's addresses where its first byte lies at `start` in memory.
    pub fn base(&self, start: u64) -> u64 {
        start.wrapping_sub(self.first)
    }
}

fn parse<'data, R: ReadRef<'data>>(
    data: R,
    wanted: impl Fn(&str) -> bool,
) -> object::Result<Entries> {
    const PAGE: u64 = 4096;
    let file = ElfFile::<FileHeader64<Endianness>, R>::parse(data)?;
    let endian = file.endian();
    let mut loads = file.elf_program_headers().iter().filter(|h| h.p_type(endian) == PT_LOAD);
    let first = loads.find(|header| header.p_offset(endian) == 0);
    let first = first.map_or(0, |header| header.p_vaddr(endian) / PAGE * PAGE);
    let mut functions = BTreeMap::new();
    for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
        let Some(name) = symbol.name().ok().filter(|name| wanted(name)) else { continue };
        if let Some(code) = code(&file, symbol.address(), symbol.size()) {
            let known = functions.entry(symbol.address()).or_insert((name, code));
            known.0 = known.0.min(name);
        }
    }
    let functions = functions.into_iter();
    let functions =
        functions.map(|(address, (name, code))| (name.to_owned(), address, code)).collect();
    let mut slots = Vec::new();
    for (address, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let RelocationFlags::Elf { r_type: R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT } =
            relocation.flags()
        else {
            continue;
        };
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let table = file.dynamic_symbol_table();
        let symbol = table.and_then(|table| table.symbol_by_index(index).ok());
        let name = symbol.as_ref().and_then(|symbol| symbol.name().ok());
        if let Some(name) = name.filter(|name| wanted(name)) {
            slots.push((name.to_owned(), address));
        }
    }
    Ok(Entries { functions, slots, first })
}

/// The first bytes of a function.
fn code<'data, R: ReadRef<'data>>(
    file: &ElfFile<'data, FileHeader64<Endianness>, R>,
    address: u64,
    size: u64,
) -> Option<Vec<u8>> {
    let endian = file.endian();
    let mut loads = file.elf_program_headers().iter().filter(|h| h.p_type(endian) == PT_LOAD);
    loads.find_map(|header| {
        let found =
            header.data_range(endian, file.data(), address, size.min(CODE as u64)).ok()??;
        (!found.is_empty()).then(|| found.to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    #[test]
    fn functions_are_where_the_file_says_and_slots_lead_to_them() {
        let pid = std::process::id();
        let maps = read::maps(pid).unwrap();
        let libc = maps.iter().find(|mapping| mapping.label().contains("/libc.so")).unwrap();
        let path = libc.path().unwrap();
        let entries =
            Entries::read(path, |name| ["mmap", "mmap64", "munmap"].contains(&name)).unwrap();
        let names: Vec<&str> = entries.functions.iter().map(|(name, ..)| &**name).collect();
        assert!(names.contains(&"munmap") && names.contains(&"mmap"), "{names:?}");
        assert_eq!(names.len(), 2, "mmap64 is the same: {names:?}");
        for (name, address, code) in &entries.functions {
            let at = entries.base(libc.start).wrapping_add(*address);
            assert!(read::holds(pid, at, code).unwrap(), "{name}");
        }
        let own = Entries::read(&read::exe(pid).unwrap(), |name| name == "munmap").unwrap();
        assert!(own.slots.iter().all(|(name, address)| name == "munmap" && *address > 0));
        assert!(!own.slots.is_empty());
    }

    #[test]
    fn what_is_no_elf_file_is_said() {
        let error = Entries::read(Path::new("/etc/passwd"), |_| true).unwrap_err();
        assert!(matches!(error, Error::Elf { .. }), "{error}");
    }
}
