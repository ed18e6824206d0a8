//! Why a program was not recorded, as one phrase: what its file shows, or what else there is to say.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use heaptape_proc::elf;
use heaptape_proc::program::{self, Place, Rights};
use heaptape_proc::{Error, Obstacle, read};
use heaptape_wire::session::SESSION_VARIABLE;

/// A file by its name: in PATH where it has no slash, else as seen from `directory`.
pub(crate) fn find(file: &OsStr, directory: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program::find(file, Place { path: &path, directory })
}

/// What keeps the library out of the program that the kernel runs for this file, if the file's
/// headers show it.
pub(crate) fn shown(path: &Path) -> Option<String> {
    let target = elf::target(&program::loaded(path)?).ok()??;
    Obstacle::of(&target).map(|obstacle| obstacle.to_string())
}

/// Whether a process, or heaptape itself, is in a sandbox that it has entered or inherited.
pub(crate) fn is_sandboxed(pid: Option<u32>) -> bool {
    let is_in_one = |pid| read::status(pid).is_ok_and(|status| status.seccomp.unwrap_or(0) != 0);
    pid.is_some_and(is_in_one) || is_in_one(std::process::id())
}

/// Why a program that was run from this file did not load the library.
pub(crate) fn why(path: Option<&Path>, is_sandboxed: bool) -> String {
    let Some(path) = path else { return "its file can't be found".into() };
    let program = program::loaded(path);
    let target = match program.as_deref().map(elf::target) {
        Some(Ok(target)) => target,
        Some(Err(Error::Elf { reason, .. })) => return Obstacle::Damaged(reason).to_string(),
        _ => return Obstacle::Unreadable.to_string(),
    };
    if let Some(rights) = program.as_deref().and_then(Rights::of) {
        return Obstacle::Privileged(rights).to_string();
    }
    let shown = target.as_ref().and_then(Obstacle::of).map(|obstacle| obstacle.to_string());
    shown.unwrap_or_else(|| {
        // The library in our own process sends what we start to the recording that we are in.
        let why = match std::env::var_os(SESSION_VARIABLE) {
            Some(_) => "another heaptape, which records this one, records it",
            None if is_sandboxed => {
                "it was started in a sandbox (seccomp), in which the capture library could not start"
            }
            None => "it ended, or went on, without loading the capture library",
        };
        why.into()
    })
}
