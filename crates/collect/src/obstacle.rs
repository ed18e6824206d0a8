//! What keeps the capture library out of a program, told from the program's file, as one phrase.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use heaptape_proc::elf::{self, Executable, Libc, Linkage, Target, X86_64};
use heaptape_wire::session::SESSION_VARIABLE;

/// A file by its name: in PATH where it has no slash, else as seen from `directory`.
pub(crate) fn find(file: &OsStr, directory: &Path) -> Option<PathBuf> {
    if file.as_bytes().contains(&b'/') {
        return Some(directory.join(file)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(file)).find(|path| path.is_file())
}

/// What keeps the library out of the program that the kernel runs for this file, if the file's
/// headers show it.
pub(crate) fn shown(path: &Path) -> Option<String> {
    of(&elf::target(&program_of(path)?).ok()??)
}

/// Why a program that was run from this file did not load the library.
pub(crate) fn why(path: Option<&Path>) -> String {
    let Some(path) = path else { return "its file can't be found".into() };
    let program = program_of(path);
    let Some(Ok(target)) = program.as_deref().map(elf::target) else {
        return "it can't be read".into();
    };
    if program.is_some_and(|program| is_privileged(&program)) {
        return "it is a setuid program, which ignores LD_PRELOAD".into();
    }
    let shown = target.as_ref().and_then(of);
    shown.unwrap_or_else(|| {
        // The library in our own process sends what we start to the recording that we are in.
        let why = match std::env::var_os(SESSION_VARIABLE) {
            Some(_) => "another heaptape, which records this one, records it",
            None => "it ended, or went on, without loading the capture library",
        };
        why.into()
    })
}

fn is_privileged(path: &Path) -> bool {
    let has_bits = path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o6000 != 0);
    has_bits || rustix::fs::getxattr(path, c"security.capability", &mut [0u8; 64]).is_ok()
}

/// The file that the kernel runs: the interpreter, where the command is a script.
fn program_of(path: &Path) -> Option<PathBuf> {
    // The symbols of an ELF file, which `kind` looks through, take time.
    if elf::target(path).ok()?.is_some() {
        return Some(path.to_owned());
    }
    match elf::kind(path).ok()? {
        Executable::Script(script) => Some(script.interpreter),
        _ => Some(path.to_owned()),
    }
}

fn of(target: &Target) -> Option<String> {
    let why = match &target.linkage {
        _ if target.bits != 64 || target.machine != X86_64 => {
            "it is built for another architecture than x86-64"
        }
        Linkage::Static => "it is statically linked, and nothing can be preloaded into it",
        Linkage::Dynamic { libc: Libc::Musl, .. } => "it uses musl, and heaptape needs glibc",
        Linkage::Dynamic { libc: Libc::Other, .. } => "its C library is not glibc",
        Linkage::Dynamic { libc: Libc::Glibc, .. } => return None,
    };
    Some(why.into())
}
