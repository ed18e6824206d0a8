//! Keeps the wrappers of the mapping calls from being found by name: takes the bytes of the capture
//! library as the linker made it and changes a few entries of its table of symbol versions.
//!
//! MPI libraries watch `munmap` and its like, so that no page of a registered buffer goes away unseen.
//! They look the function up with `dlsym` and write a jump over its first bytes. Were that our wrapper,
//! the calls that libc makes inside, as when `free` gives a large block back, would no longer be seen,
//! and an old registration would be used for new memory. So the wrappers get libc's own version, marked
//! as not the default one: programs, which ask for that version, are bound to them, and `dlsym`, which
//! asks for none, goes on to libc.

use object::Endianness;
use object::elf::{FileHeader64, VERSYM_HIDDEN};
use object::read::elf::{FileHeader, SectionHeader, Sym};

/// What MPI libraries patch, and those beside.
const CALLS: [&str; 11] = [
    "mmap", "mmap64", "munmap", "mremap", "mprotect", "madvise", "brk", "sbrk", "shmat", "shmdt",
    "shmget",
];
/// The version that all of these have in libc on x86-64.
const VERSION: &[u8] = b"GLIBC_2.2.5";

/// The library with those wrappers hidden.
pub(crate) fn mapping_calls(library: Vec<u8>) -> Vec<u8> {
    let places = places(&library).expect("the library is a sound ELF file");
    assert_eq!(places.len(), CALLS.len(), "the library wraps all of {CALLS:?}");
    let mut hidden = library;
    for (at, entry) in places {
        hidden[at..at + 2].copy_from_slice(&entry.to_le_bytes());
    }
    hidden
}

/// Where in the file the entries lie, and what they have to be.
fn places(library: &[u8]) -> object::read::Result<Vec<(usize, u16)>> {
    let endian = Endianness::Little;
    let header = FileHeader64::<Endianness>::parse(library)?;
    let sections = header.sections(endian, library)?;
    let symbols = sections.symbols(endian, library, object::elf::SHT_DYNSYM)?;
    let versions = sections.versions(endian, library)?.expect("it needs versions of libc");
    let table = sections
        .iter()
        .find(|section| section.sh_type(endian) == object::elf::SHT_GNU_VERSYM)
        .expect("and says which");
    let start = table.sh_offset(endian) as usize;
    let of_libc = symbols
        .enumerate()
        .map(|(index, _)| versions.version_index(endian, index))
        .find(|&index| matches!(versions.version(index), Ok(Some(v)) if v.name() == VERSION))
        .expect("the library uses something of libc's first version");
    let entry = of_libc.index() | VERSYM_HIDDEN;
    let mut places = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        let name = symbols.symbol_name(endian, symbol)?;
        if !symbol.is_undefined(endian) && CALLS.iter().any(|call| call.as_bytes() == name) {
            places.push((start + 2 * index.0, entry));
        }
    }
    Ok(places)
}
