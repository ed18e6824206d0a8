//! The allocators in an ELF file, told by its symbols, or by their messages where it was stripped.

use object::Endianness;
use object::elf::{
    SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE,
};
use object::read::ReadRef;
use object::read::elf::{ElfFile, FileHeader, SectionHeader, Sym, SymbolTable};

use super::Dynamic;

/// What of an ELF file has to do with heap calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocators {
    /// Its own `malloc`.
    pub malloc: Option<Malloc>,
    /// An allocator under a private name, which it may call directly.
    pub private: Option<Private>,
    /// A function of an allocator, such as `mi_malloc`, that it calls in a library by that name.
    pub calls: Option<String>,
    /// A sanitizer (`AddressSanitizer` …) that it is built with, and that takes the place of the allocator.
    pub sanitizer: Option<&'static str>,
}

/// Where a `malloc` that an ELF file defines is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malloc {
    /// Everywhere in a process: the libraries call it as well.
    Exported,
    /// In this file alone.
    Hidden,
}

/// An allocator that is linked in beside the C library's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Private {
    /// Its name, such as `jemalloc`.
    pub allocator: &'static str,
    /// A function of it; `None` where the names are stripped and one of its messages was found.
    pub symbol: Option<String>,
}

/// Prefixes of private names, and whose they are.
const PREFIXES: [(&str, &str); 8] = [
    ("_rjem_je_", "jemalloc"),
    ("_rjem_", "jemalloc"),
    ("je_", "jemalloc"),
    ("jemalloc_", "jemalloc"),
    ("mi_", "mimalloc"),
    ("tc_", "tcmalloc"),
    ("sn_", "snmalloc"),
    ("scalable_", "tbbmalloc"),
];
/// What the prefixes stand before.
const FUNCTIONS: [&str; 9] = [
    "malloc",
    "calloc",
    "mallocx",
    "aligned_alloc",
    "aligned_malloc",
    "malloc_aligned",
    "zalloc_aligned",
    "rust_alloc",
    "heap_malloc",
];
/// Names that have no such prefix.
const WHOLE: [(&str, &str); 4] = [
    ("mallocx", "jemalloc"),
    ("rpmalloc", "rpmalloc"),
    ("dlmalloc", "dlmalloc"),
    ("xxmalloc", "Hoard"),
];
/// Functions that only a sanitizer's runtime has.
const SANITIZERS: [(&str, &str); 5] = [
    ("__asan_init", "AddressSanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__lsan_init", "LeakSanitizer"),
];
/// Libraries that are a sanitizer's runtime, by the beginnings of their names.
const RUNTIMES: [(&str, &str); 5] = [
    ("libasan.so", "AddressSanitizer"),
    ("libhwasan.so", "HWAddressSanitizer"),
    ("libtsan.so", "ThreadSanitizer"),
    ("liblsan.so", "LeakSanitizer"),
    ("libclang_rt.", "a sanitizer of Clang"),
];
const MIMALLOC: &str = "mimalloc";
/// Beginnings of messages that only the allocator itself prints.
const MESSAGES: [(&[u8], &str); 4] = [
    (b"<jemalloc>: ", "jemalloc"),
    (b"mimalloc: error: ", MIMALLOC),
    (b"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "tcmalloc"),
    (b"tcmalloc/tcmalloc.cc", "tcmalloc"),
];

/// Finds the allocators of a file; messages, which take time, in programs alone.
pub(super) fn find<'data, H, R>(
    file: &ElfFile<'data, H, R>,
    dynamic: &Dynamic,
    is_program: bool,
) -> object::Result<Allocators>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut found = Allocators { sanitizer: runtime(dynamic), ..Allocators::default() };
    look(file, file.elf_dynamic_symbol_table(), Malloc::Exported, &mut found)?;
    look(file, file.elf_symbol_table(), Malloc::Hidden, &mut found)?;
    let is_stripped = file.elf_symbol_table().is_empty();
    if is_program && is_stripped && found.private.is_none() && found.sanitizer.is_none() {
        found.private = by_messages(file)?;
    }
    if found.private.as_ref().is_some_and(|private| private.allocator == MIMALLOC)
        && is_python_with_lock(file)?
    {
        found.private = None;
    }
    Ok(found)
}

/// Whether it is a CPython that calls malloc for its objects, though it has mimalloc in it: one with a global lock. (With
/// `PYTHONMALLOC=mimalloc` it calls that.)
fn is_python_with_lock<'data, H, R>(file: &ElfFile<'data, H, R>) -> object::Result<bool>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    const PYTHON: &[u8] = b"Py_Version";
    const WITHOUT_LOCK: &[u8] = b"_Py_MergeZeroLocalRefcount";
    let (table, endian) = (file.elf_dynamic_symbol_table(), file.endian());
    let (mut is_python, mut has_lock) = (false, true);
    for symbol in table.iter() {
        let name = table.symbol_name(endian, symbol)?;
        is_python |= name == PYTHON;
        has_lock &= name != WITHOUT_LOCK;
    }
    Ok(is_python && has_lock)
}

fn runtime(dynamic: &Dynamic) -> Option<&'static str> {
    let of = |name: &String| RUNTIMES.iter().find(|(start, _)| name.starts_with(start));
    dynamic.needed.iter().find_map(of).map(|&(_, sanitizer)| sanitizer)
}

/// Looks through a symbol table. The names are read in one piece: asking the file for each of
/// a hundred thousand names takes longer than the program's own start.
fn look<'data, H, R>(
    file: &ElfFile<'data, H, R>,
    table: &SymbolTable<'data, H, R>,
    malloc: Malloc,
    found: &mut Allocators,
) -> object::Result<()>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    if table.is_empty() {
        return Ok(());
    }
    let endian = file.endian();
    let names = file.elf_section_table().section(table.string_section())?;
    let names = names.data(endian, file.data())?;
    for symbol in table.iter() {
        let rest = names.get(symbol.st_name(endian) as usize..).unwrap_or_default();
        // No name of ours begins otherwise, and this is asked of every symbol.
        if !matches!(rest.first(), Some(b'_' | b'd' | b'j' | b'm' | b'r' | b's' | b't' | b'x')) {
            continue;
        }
        let is_function = matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE);
        let Some(name) = name(rest).filter(|_| is_function) else { continue };
        if symbol.st_shndx(endian) == SHN_UNDEF {
            found.import(name);
        } else {
            found.define(name, malloc);
        }
    }
    Ok(())
}

/// The name at the beginning of `rest`, if it is short enough for one of those that we know.
fn name(rest: &[u8]) -> Option<&str> {
    let end = rest.iter().take(32).position(|&b| b == 0)?;
    str::from_utf8(&rest[..end]).ok()
}

impl Allocators {
    fn define(&mut self, name: &str, malloc: Malloc) {
        if name == "malloc" {
            self.malloc.get_or_insert(malloc);
        } else if let Some(&(_, sanitizer)) = SANITIZERS.iter().find(|(init, _)| *init == name) {
            self.sanitizer.get_or_insert(sanitizer);
        } else if self.private.is_none()
            && let Some(allocator) = whose(name)
        {
            self.private = Some(Private { allocator, symbol: Some(name.to_owned()) });
        }
    }

    fn import(&mut self, name: &str) {
        // A symbol's version may stand behind it in the table for debuggers.
        let name = name.split('@').next().unwrap_or(name);
        if self.calls.is_none() && whose(name).is_some() {
            self.calls = Some(name.to_owned());
        }
    }
}

/// The allocator that a function with this private name belongs to.
fn whose(name: &str) -> Option<&'static str> {
    let prefixed = |(prefix, allocator): &(&str, &'static str)| {
        FUNCTIONS.contains(&name.strip_prefix(prefix)?).then_some(*allocator)
    };
    let whole = |(whole, allocator): &(&str, &'static str)| (*whole == name).then_some(*allocator);
    PREFIXES.iter().find_map(prefixed).or_else(|| WHOLE.iter().find_map(whole))
}

/// Looks for messages of allocators among the constants.
fn by_messages<'data, H, R>(file: &ElfFile<'data, H, R>) -> object::Result<Option<Private>>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let endian = file.endian();
    for section in file.elf_section_table().iter() {
        let flags: u64 = section.sh_flags(endian).into();
        let wanted = u64::from(SHF_ALLOC);
        if flags & (wanted | u64::from(SHF_WRITE | SHF_EXECINSTR)) != wanted {
            continue;
        }
        let data = section.data(endian, file.data())?;
        let holds = |(message, _): &&(&[u8], &str)| memchr::memmem::find(data, message).is_some();
        if let Some(&(_, allocator)) = MESSAGES.iter().find(holds) {
            return Ok(Some(Private { allocator, symbol: None }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_names() {
        for (name, allocator) in [
            ("je_malloc", "jemalloc"),
            ("_rjem_malloc", "jemalloc"),
            ("_rjem_je_calloc", "jemalloc"),
            ("_rjem_mallocx", "jemalloc"),
            ("mi_malloc_aligned", "mimalloc"),
            ("tc_malloc", "tcmalloc"),
            ("scalable_malloc", "tbbmalloc"),
            ("rpmalloc", "rpmalloc"),
        ] {
            assert_eq!(whose(name), Some(allocator), "{name}");
        }
        for name in ["malloc", "je_malloc_usable", "mi_", "my_malloc", "", "xmalloc", "je_"] {
            assert_eq!(whose(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_must_end() {
        assert_eq!(name(b"je_malloc\0rest"), Some("je_malloc"));
        assert_eq!(name(b"je_malloc"), None);
        assert_eq!(name(b"a_name_that_is_longer_than_any_of_those\0"), None);
    }

    #[test]
    fn the_first_of_several_is_named() {
        let mut found = Allocators::default();
        for name in ["malloc", "mi_malloc", "je_malloc", "__asan_init"] {
            found.define(name, Malloc::Exported);
        }
        found.define("malloc", Malloc::Hidden);
        found.import("scalable_malloc@TBB_1");
        assert_eq!(found.malloc, Some(Malloc::Exported));
        assert_eq!(found.private.map(|p| p.allocator), Some("mimalloc"));
        assert_eq!(found.calls.as_deref(), Some("scalable_malloc"));
        assert_eq!(found.sanitizer, Some("AddressSanitizer"));
    }
}
