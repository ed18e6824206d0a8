//! What kind of executable a file is, and so whether a preloaded library will reach it.
//!
//! Reads the ELF headers, the symbol tables and one note of the file; of any other file the first
//! line. It does not tell whether the file is setuid (its metadata does) or may be executed.

mod allocators;
mod dynamic;
mod script;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use object::elf::{
    ELFMAG, ET_CORE, ET_DYN, ET_EXEC, ET_REL, FileHeader32, FileHeader64, NT_GNU_BUILD_ID,
};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, FileKind};

pub use allocators::{Allocators, Malloc, Private};
pub use dynamic::Dynamic;
pub use script::Script;

use crate::Error;

/// The longest `#!` line that the kernel reads, in bytes.
const SCRIPT_LINE: usize = 256;

/// What a file is to exec(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executable {
    /// An ELF file.
    Elf(Box<Elf>),
    /// A script that names its interpreter.
    Script(Script),
    /// Neither: the kernel refuses it, and shells run it as a shell script.
    Other,
}

/// What the headers of an ELF file say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// What it is built for.
    pub target: Target,
    /// What kind of ELF file it is.
    pub form: Form,
    /// The allocators in it and those that it calls by their own names.
    pub allocators: Allocators,
    /// The libraries that it asks for, and where it wants them looked for.
    pub dynamic: Dynamic,
    /// The GNU build id, empty for none.
    pub build_id: Vec<u8>,
    /// Go's build id: the program is written in Go, whose runtime maps its memory itself.
    pub go_build_id: Option<String>,
}

/// A kind of ELF file (`e_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A program that is loaded where it says.
    Executable,
    /// A program that can be loaded anywhere (PIE).
    Pie,
    /// A shared library, which can't be started.
    Library,
    /// An object file, which is still to be linked.
    Object,
    /// A core dump.
    Core,
    /// Any other, which no kernel starts.
    Other,
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
    Static {
        /// Whether a note says that Go's linker made it.
        is_go: bool,
    },
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

impl Target {
    /// Whether it is for this machine: 64 bits of x86-64.
    pub fn is_ours(&self) -> bool {
        self.bits == 64 && self.machine == X86_64
    }

    /// The architecture's name, such as `x86-64` or `AArch64`.
    pub fn architecture(&self) -> String {
        use object::elf as e;
        let name = match (self.machine, self.bits) {
            (e::EM_X86_64, 64) => "x86-64",
            (e::EM_X86_64, _) => "x32",
            (e::EM_386, _) => "i386",
            (e::EM_AARCH64, _) => "AArch64",
            (e::EM_ARM, _) => "Arm",
            (e::EM_RISCV, 64) => "RISC-V 64",
            (e::EM_RISCV, _) => "RISC-V 32",
            (e::EM_PPC64, _) => "PowerPC 64",
            (e::EM_PPC, _) => "PowerPC",
            (e::EM_S390, _) => "s390x",
            (e::EM_MIPS, _) => "MIPS",
            (e::EM_LOONGARCH, _) => "LoongArch",
            (other, bits) => return format!("machine {other}, {bits} bits"),
        };
        name.to_owned()
    }
}

impl Linkage {
    /// A file that needs no loader may be one itself, by its name: it is told in its arguments what to load, and preloads
    /// libraries into that.
    fn look_for_loader(&mut self, path: &Path) {
        let libc = libc_of(path);
        if matches!(self, Linkage::Static { is_go: false }) && libc != Libc::Other {
            *self = Linkage::Dynamic { loader: path.to_owned(), libc };
        }
    }
}

/// Tells what the file at `path` is. [`Error::Elf`] when it begins like an ELF file and is damaged,
/// [`Error::Permission`] when it may be executed but not read.
pub fn kind(path: &Path) -> Result<Executable, Error> {
    kind_of(open(path)?, path)
}

/// As [`kind`], of a file that is open already; `path` is for messages.
pub fn kind_of(mut file: File, path: &Path) -> Result<Executable, Error> {
    let head = head(&mut file).map_err(|source| refused(path, source))?;
    if !head.starts_with(&ELFMAG) {
        return Ok(script::parse(&head).map_or(Executable::Other, Executable::Script));
    }
    let mut elf = parse_elf(&ReadCache::new(file)).map_err(|error| damaged(path, error))?;
    elf.target.linkage.look_for_loader(path);
    Ok(Executable::Elf(Box::new(elf)))
}

/// Tells what the ELF file at `path` is built for, without a look at its symbols; `None` for any other
/// file. The errors are those of [`kind`].
pub fn target(path: &Path) -> Result<Option<Target>, Error> {
    let mut file = open(path)?;
    let head = head(&mut file).map_err(|source| refused(path, source))?;
    if !head.starts_with(&ELFMAG) {
        return Ok(None);
    }
    let mut target = parse_target(&ReadCache::new(file)).map_err(|error| damaged(path, error))?;
    target.linkage.look_for_loader(path);
    Ok(Some(target))
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|source| refused(path, source))
}

/// The beginning of a file, as long as a script's first line may be.
fn head(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(SCRIPT_LINE);
    file.take(SCRIPT_LINE as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn refused(path: &Path, source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::PermissionDenied => Error::Permission { path: path.to_owned() },
        _ => Error::Io { path: path.to_owned(), source },
    }
}

fn damaged(path: &Path, error: object::Error) -> Error {
    Error::Elf { path: path.to_owned(), reason: error.to_string() }
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
    let target = target_of(file.elf_header(), file.data(), bits)?;
    let dynamic = dynamic::of(&file)?;
    let form = form(file.elf_header().e_type(file.endian()), &target, &dynamic);
    let is_program = matches!(form, Form::Executable | Form::Pie);
    Ok(Elf {
        allocators: allocators::find(&file, &dynamic, is_program)?,
        form,
        build_id: build_id(&file)?,
        go_build_id: go_build_id(&file)?,
        target,
        dynamic,
    })
}

fn form(e_type: u16, target: &Target, dynamic: &Dynamic) -> Form {
    match e_type {
        ET_EXEC => Form::Executable,
        // A static PIE has no loader, and a flag.
        ET_DYN if dynamic.is_pie || matches!(target.linkage, Linkage::Dynamic { .. }) => Form::Pie,
        ET_DYN => Form::Library,
        ET_REL => Form::Object,
        ET_CORE => Form::Core,
        _ => Form::Other,
    }
}

fn linkage<'data, H: FileHeader, R: ReadRef<'data>>(
    header: &H,
    endian: H::Endian,
    data: R,
) -> object::Result<Linkage> {
    let mut is_go = false;
    for header in header.program_headers(endian, data)? {
        let mut notes = header.notes(endian, data).ok().flatten();
        while let Some(note) = notes.as_mut().and_then(|notes| notes.next().ok().flatten()) {
            is_go |= note.name() == b"Go";
        }
        if let Some(loader) = header.interpreter(endian, data)? {
            let loader = PathBuf::from(OsString::from_vec(loader.to_vec()));
            let libc = libc_of(&loader);
            return Ok(Linkage::Dynamic { loader, libc });
        }
    }
    Ok(Linkage::Static { is_go })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders() {
        assert_eq!(libc_of(Path::new("/lib64/ld-linux-x86-64.so.2")), Libc::Glibc);
        assert_eq!(libc_of(Path::new("/lib/ld-musl-x86_64.so.1")), Libc::Musl);
        assert_eq!(libc_of(Path::new("/system/bin/linker64")), Libc::Other);
    }

    #[test]
    fn this_test_is_a_dynamic_program() {
        let Executable::Elf(elf) = kind(&std::env::current_exe().unwrap()).unwrap() else {
            panic!("not ELF");
        };
        assert_eq!(elf.target.bits as u32, usize::BITS);
        assert!(matches!(elf.target.linkage, Linkage::Dynamic { libc: Libc::Glibc, .. }));
        assert_eq!(target(&std::env::current_exe().unwrap()).unwrap(), Some(elf.target));
        assert_eq!((elf.form, elf.go_build_id), (Form::Pie, None));
        assert_eq!(elf.allocators, Allocators::default());
        assert!(elf.dynamic.needed.iter().any(|name| name == "libc.so.6"), "{:?}", elf.dynamic);
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
    #[expect(clippy::print_stderr, reason = "a test says what it had to do without")]
    fn changed_bytes_never_panic() {
        let programs = ["/bin/true", "/usr/bin/true", "/bin/sh"];
        let Some(whole) = programs.iter().find_map(|path| std::fs::read(path).ok()) else {
            return eprintln!("none of {programs:?} can be read");
        };
        let path = std::env::temp_dir().join(format!("heaptape-changed-{}", std::process::id()));
        // The headers, then places all over the file.
        let places = (4..1000).chain((1000..whole.len()).step_by(whole.len() / 500));
        for at in places {
            let mut copy = whole.clone();
            copy[at] = [0, 0x7f, 0xff][at % 3];
            std::fs::write(&path, &copy).unwrap();
            // Any answer is right.
            let _ = (kind(&path), target(&path));
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_missing_file_is_an_error() {
        assert!(matches!(kind(Path::new("/no/such/file")), Err(Error::Io { .. })));
    }
}
