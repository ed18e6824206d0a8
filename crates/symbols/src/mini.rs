//! The table of symbols that some distributions leave in a stripped file, packed: `.gnu_debugdata`, an ELF file
//! within the ELF file.

use lzma_rust2::XzReader;

use crate::elf::{Elf, Kind};
use crate::section::up_to;
use crate::table::Table;

/// More than this is not unpacked, in bytes; those of the largest programs have some MiB.
const MOST: u64 = 256 << 20;

/// What unpacking may take beside, in KiB.
const WORK: u32 = 128 << 10;

/// The functions in it; `None` where there is none, or it is damaged.
pub(crate) fn functions(elf: &Elf) -> Option<Table> {
    let packed = elf.section(".gnu_debugdata", MOST)?;
    let bytes = up_to(XzReader::new_mem_limit(packed.as_slice(), true, WORK), MOST).ok()?;
    Elf::in_memory(elf.path(), bytes).ok()?.functions(Kind::Whole).ok()?
}
