//! What an ELF file tells its dynamic loader: the libraries that it needs and where to look for them.
//!
//! Read through the program headers alone, as the loader does, so that files without section headers
//! are read as well. Source: elf(5), ld.so(8).

use object::Endianness;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, PT_LOAD,
};
use object::read::ReadRef;
use object::read::elf::{Dyn, ElfFile, FileHeader, ProgramHeader};

/// The dynamic section, as far as we use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// Names of the libraries that must be loaded with it, in order.
    pub needed: Vec<String>,
    /// Directories to look in before all others (`DT_RPATH`).
    pub rpath: Vec<String>,
    /// Directories to look in after `LD_LIBRARY_PATH` (`DT_RUNPATH`).
    pub runpath: Vec<String>,
    /// Whether it says that it is a program that can be loaded anywhere.
    pub is_pie: bool,
}

/// Reads the dynamic section; empty when there is none.
pub(super) fn of<'data, H, R>(file: &ElfFile<'data, H, R>) -> object::Result<Dynamic>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let (endian, mut dynamic) = (file.endian(), Dynamic::default());
    for header in file.elf_program_headers() {
        let Some(entries) = header.dynamic(endian, file.data())? else { continue };
        let value = |tag: u32| {
            let entry = entries.iter().find(|entry| entry.tag32(endian) == Some(tag));
            entry.map(|entry| entry.d_val(endian).into())
        };
        let strings =
            value(DT_STRTAB).zip(value(DT_STRSZ)).and_then(|(at, size)| bytes(file, at, size));
        let text = |entry: &H::Dyn| text(strings?, entry.d_val(endian).into());
        for entry in entries {
            match entry.tag32(endian) {
                Some(DT_NEEDED) => dynamic.needed.extend(text(entry)),
                Some(DT_RPATH) => dynamic.rpath.extend(directories(text(entry))),
                Some(DT_RUNPATH) => dynamic.runpath.extend(directories(text(entry))),
                Some(DT_FLAGS_1) => {
                    let flags: u64 = entry.d_val(endian).into();
                    dynamic.is_pie = flags & u64::from(DF_1_PIE) != 0;
                }
                _ => {}
            }
        }
    }
    Ok(dynamic)
}

/// The bytes that will lie at an address.
fn bytes<'data, H, R>(file: &ElfFile<'data, H, R>, address: u64, size: u64) -> Option<&'data [u8]>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let endian = file.endian();
    let mut loads = file.elf_program_headers().iter().filter(|h| h.p_type(endian) == PT_LOAD);
    loads.find_map(|header| {
        let (start, length): (u64, u64) =
            (header.p_vaddr(endian).into(), header.p_filesz(endian).into());
        let inside = address.checked_sub(start)?;
        if inside.checked_add(size)? > length {
            return None;
        }
        let offset: u64 = header.p_offset(endian).into();
        file.data().read_bytes_at(offset.checked_add(inside)?, size).ok()
    })
}

/// The text at an offset of the string table.
fn text(strings: &[u8], offset: u64) -> Option<String> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let end = rest.iter().position(|&b| b == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

fn directories(list: Option<String>) -> Vec<String> {
    let list = list.unwrap_or_default();
    list.split(':').filter(|directory| !directory.is_empty()).map(str::to_owned).collect()
}
