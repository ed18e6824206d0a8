//! What kind of executable a file is, and so whether a preloaded library will reach it.
//!
//! Reads the ELF headers, the symbol tables and one note of the file; of any other file the first
//! line. It does not tell whether the file is setuid (its metadata does) or may be executed.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use object::elf::{ELFMAG, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, SHN_UNDEF};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader, Sym, SymbolTable};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, FileKind};

use crate::Error;

/// The longest `#!` line that the kernel reads, in bytes.
const SCRIPT_LINE: usize = 256;

/// What a file is to exec(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executable {
    /// An ELF file.
    Elf(Elf),
    /// A script that names its interpreter.
    Script(Script),
    /// Neither: the kernel refuses it, and shells run it as a shell script.
    Other,
}

/// The first line of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The program that reads the script.
    pub interpreter: PathBuf,
    /// The one argument that the line may give, such as `python3` of `#!/usr/bin/env python3`.
    pub argument: Option<OsString>,
}

/// What the headers of an ELF file say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// What it is built for.
    pub target: Target,
    /// Whether it defines `malloc` itself, so that a preloaded one is never called from it.
    pub defines_malloc: bool,
    /// An allocator under a private name, such as `je_malloc`, that the program may call directly.
    pub private_malloc: Option<String>,
    /// The GNU build id, empty for none.
    pub build_id: Vec<u8>,
    /// Go's build id: the program is written in Go, whose runtime maps its memory itself.
    pub go_build_id: Option<String>,
}

/// What an ELF file is built for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// 32 or 64.
    pub bits: u8,
    /// The machine's number (`e_machine`): 62 is x86-64, 3 is i386, 183 is AArch64.
    pub machine: u16,
    /// How it is linked.
    pub linkage: Linkage,
}

/// How an ELF file is linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// It names no dynamic loader: nothing can be preloaded.
    Static,
    /// It is loaded by a dynamic loader.
    Dynamic {
        /// The loader's path.
        loader: PathBuf,
        /// Whose loader that is.
        libc: Libc,
    },
}

/// A C library, told by its loader's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    /// GNU's: `ld-linux-x86-64.so.2` and the like.
    Glibc,
    /// musl: `ld-musl-x86_64.so.1` and the like.
    Musl,
    /// Any other.
    Other,
}

/// The machine's number of x86-64.
pub const X86_64: u16 = object::elf::EM_X86_64;

/// Tells what the file at `path` is. [`Error::Elf`] when it begins like an ELF file and is damaged,
/// [`Error::Permission`] when it may be executed but not read.
pub fn kind(path: &Path) -> Result<Executable, Error> {
    let (file, head) = open(path)?;
    if !head.starts_with(&ELFMAG) {
        return Ok(parse_script(&head).map_or(Executable::Other, Executable::Script));
    }
    parse_elf(&ReadCache::new(file)).map(Executable::Elf).map_err(|error| damaged(path, error))
}

/// Tells what the ELF file at `path` is built for, without a look at its symbols; `None` for any other
/// file. The errors are those of [`kind`].
pub fn target(path: &Path) -> Result<Option<Target>, Error> {
    let (file, head) = open(path)?;
    if !head.starts_with(&ELFMAG) {
        return Ok(None);
    }
    parse_target(&ReadCache::new(file)).map(Some).map_err(|error| damaged(path, error))
}

/// The file and its beginning, as long as a script's first line may be.
fn open(path: &Path) -> Result<(File, Vec<u8>), Error> {
    let io = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::PermissionDenied => Error::Permission { path: path.to_owned() },
        _ => Error::Io { path: path.to_owned(), source },
    };
    let mut file = File::open(path).map_err(io)?;
    let mut head = Vec::with_capacity(SCRIPT_LINE);
    (&mut file).take(SCRIPT_LINE as u64).read_to_end(&mut head).map_err(io)?;
    Ok((file, head))
}

fn damaged(path: &Path, error: object::Error) -> Error {
    Error::Elf { path: path.to_owned(), reason: error.to_string() }
}

/// Reads the first line of a script, as execve(2) does.
fn parse_script(head: &[u8]) -> Option<Script> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|&b| b == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(end);
    if interpreter.is_empty() {
        return None;
    }
    let argument = rest.trim_ascii();
    Some(Script {
        interpreter: OsString::from_vec(interpreter.to_vec()).into(),
        argument: (!argument.is_empty()).then(|| OsString::from_vec(argument.to_vec())),
    })
}

fn parse_elf<'data, R: ReadRef<'data>>(data: R) -> object::Result<Elf> {
    match FileKind::parse(data)? {
        FileKind::Elf32 => describe::<FileHeader32<Endianness>, R>(data, 32),
        _ => describe::<FileHeader64<Endianness>, R>(data, 64),
    }
}

fn parse_target<'data, R: ReadRef<'data>>(data: R) -> object::Result<Target> {
    match FileKind::parse(data)? {
        FileKind::Elf32 => target_of(FileHeader32::<Endianness>::parse(data)?, data, 32),
        _ => target_of(FileHeader64::<Endianness>::parse(data)?, data, 64),
    }
}

fn target_of<'data, H, R>(header: &H, data: R, bits: u8) -> object::Result<Target>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let endian = header.endian()?;
    let machine = header.e_machine(endian);
    Ok(Target { bits, machine, linkage: linkage(header, endian, data)? })
}

fn describe<'data, H, R>(data: R, bits: u8) -> object::Result<Elf>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let file = ElfFile::<H, R>::parse(data)?;
    let mut elf = Elf {
        target: target_of(file.elf_header(), file.data(), bits)?,
        defines_malloc: false,
        private_malloc: None,
        build_id: build_id(&file)?,
        go_build_id: go_build_id(&file)?,
    };
    for table in [file.elf_dynamic_symbol_table(), file.elf_symbol_table()] {
        find_allocators(&file, table, &mut elf)?;
    }
    Ok(elf)
}

fn linkage<'data, H: FileHeader, R: ReadRef<'data>>(
    header: &H,
    endian: H::Endian,
    data: R,
) -> object::Result<Linkage> {
    for header in header.program_headers(endian, data)? {
        if let Some(loader) = header.interpreter(endian, data)? {
            let loader = PathBuf::from(OsString::from_vec(loader.to_vec()));
            let libc = libc_of(&loader);
            return Ok(Linkage::Dynamic { loader, libc });
        }
    }
    Ok(Linkage::Static)
}

fn libc_of(loader: &Path) -> Libc {
    match loader.file_name().and_then(|n| n.to_str()) {
        Some(name) if name.starts_with("ld-musl-") => Libc::Musl,
        // ld-linux-x86-64.so.2, ld-linux.so.2, ld-linux-aarch64.so.1, ld64.so.2, ld.so.1
        Some(name) if name.starts_with("ld-linux") || name.starts_with("ld64.so") => Libc::Glibc,
        _ => Libc::Other,
    }
}

fn build_id<'data, H: FileHeader, R: ReadRef<'data>>(
    file: &ElfFile<'data, H, R>,
) -> object::Result<Vec<u8>> {
    for header in file.elf_program_headers() {
        let Some(mut notes) = header.notes(file.endian(), file.data())? else { continue };
        while let Some(note) = notes.next()? {
            if note.name() == b"GNU" && note.n_type(file.endian()) == NT_GNU_BUILD_ID {
                return Ok(note.desc().to_vec());
            }
        }
    }
    Ok(Vec::new())
}

fn go_build_id<'data, H: FileHeader, R: ReadRef<'data>>(
    file: &ElfFile<'data, H, R>,
) -> object::Result<Option<String>> {
    let sections = file.elf_section_table();
    let Some((_, section)) = sections.section_by_name(file.endian(), b".note.go.buildid") else {
        return Ok(None);
    };
    let Some(mut notes) = section.notes(file.endian(), file.data())? else { return Ok(None) };
    let note = notes.next()?;
    Ok(note.map(|note| String::from_utf8_lossy(note.desc()).into_owned()))
}

/// Looks through a symbol table. The names are read in one piece: asking the file for each of
/// a hundred thousand names takes longer than the program's own start.
fn find_allocators<'data, H, R>(
    file: &ElfFile<'data, H, R>,
    table: &SymbolTable<'data, H, R>,
    elf: &mut Elf,
) -> object::Result<()>
where
    H: FileHeader,
    R: ReadRef<'data>,
{
    if table.is_empty() {
        return Ok(());
    }
    let endian = file.endian();
    let names = file.elf_section_table().section(table.string_section())?;
    let names = names.data(endian, file.data())?;
    for symbol in table.iter().filter(|s| s.st_shndx(endian) != SHN_UNDEF) {
        let name = names.get(symbol.st_name(endian) as usize..).unwrap_or_default();
        if name.starts_with(b"malloc\0") {
            elf.defines_malloc = true;
        } else if elf.private_malloc.is_none() {
            elf.private_malloc = private_malloc(name);
        }
    }
    Ok(())
}

/// The name, if it is that of an allocator's `malloc` under one of the known private prefixes.
/// `name` goes on behind its NUL.
fn private_malloc(name: &[u8]) -> Option<String> {
    const NAMES: [&str; 4] = ["je_malloc", "_rjem_malloc", "_rjem_je_malloc", "mi_malloc"];
    NAMES
        .iter()
        .find(|n| name.strip_prefix(n.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)))
        .map(|n| (*n).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Option<(String, Option<String>)> {
        let s = parse_script(text.as_bytes())?;
        let text = |s: OsString| s.into_string().unwrap();
        Some((text(s.interpreter.into()), s.argument.map(text)))
    }

    #[test]
    fn scripts() {
        assert_eq!(script("#!/bin/sh\nexit"), Some(("/bin/sh".into(), None)));
        assert_eq!(
            script("#! /usr/bin/env  -S python3 -u \n"),
            Some(("/usr/bin/env".into(), Some("-S python3 -u".into())))
        );
        assert_eq!(script("#!\n"), None);
        assert_eq!(script("exit 0\n"), None);
        assert_eq!(script(""), None);
    }

    #[test]
    fn loaders() {
        assert_eq!(libc_of(Path::new("/lib64/ld-linux-x86-64.so.2")), Libc::Glibc);
        assert_eq!(libc_of(Path::new("/lib/ld-musl-x86_64.so.1")), Libc::Musl);
        assert_eq!(libc_of(Path::new("/system/bin/linker64")), Libc::Other);
    }

    #[test]
    fn private_names_must_end() {
        assert_eq!(private_malloc(b"je_malloc\0rest").as_deref(), Some("je_malloc"));
        assert_eq!(private_malloc(b"je_malloc_usable\0"), None);
        assert_eq!(private_malloc(b"je_malloc"), None);
    }

    #[test]
    fn this_test_is_a_dynamic_program() {
        let Executable::Elf(elf) = kind(&std::env::current_exe().unwrap()).unwrap() else {
            panic!("not ELF");
        };
        assert_eq!(elf.target.bits as u32, usize::BITS);
        assert!(matches!(elf.target.linkage, Linkage::Dynamic { libc: Libc::Glibc, .. }));
        assert_eq!(target(&std::env::current_exe().unwrap()).unwrap(), Some(elf.target));
        assert!(!elf.defines_malloc);
        assert_eq!((elf.private_malloc, elf.go_build_id), (None, None));
    }

    #[test]
    fn damaged_files_are_told() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let path = std::env::temp_dir().join(format!("heaptape-elf-{}", std::process::id()));
        for n in [4, 5, 20, 63, 64, 100, 1000] {
            std::fs::write(&path, &whole[..n]).unwrap();
            assert!(matches!(kind(&path), Err(Error::Elf { .. })), "{n} bytes");
            assert!(n > 64 || matches!(target(&path), Err(Error::Elf { .. })), "{n} bytes");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_missing_file_is_an_error() {
        assert!(matches!(kind(Path::new("/no/such/file")), Err(Error::Io { .. })));
    }
}
