//! The capture library as a file: embedded in this program, written once, by content, into a private
//! directory that allows its code to run.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heaptape_proc::elf::{self, Executable, Form};

use crate::output::by_limit;

/// The library, as `build.rs` made it.
const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libheaptape.so"));

/// Where to find the library instead, for developers.
const OVERRIDE: &str = "HEAPTAPE_CAPTURE";

/// The path of the library's file, which is written if it is not there yet.
///
/// # Errors
/// When no directory of ours can hold a file whose code may run.
pub(crate) fn path() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(OVERRIDE).map(PathBuf::from) {
        if !path.is_file() {
            bail!("{OVERRIDE} names {}, which is not a file; nothing was started", path.display());
        }
        if !is_library(&path) {
            // The loader would say so in the program's own output, and start it all the same.
            bail!(
                "{OVERRIDE} names {}, which is not a shared library of this system; nothing was started",
                path.display()
            );
        }
        return path.canonicalize().with_context(|| format!("cannot find {}", path.display()));
    }
    let mut refusals = Vec::new();
    for directory in directories() {
        match place(&directory) {
            Ok(path) => return Ok(path),
            Err(error) => {
                let limit = error.root_cause().downcast_ref().map_or("", by_limit);
                if !limit.is_empty() {
                    // No other place would do better.
                    let place = directory.display();
                    bail!(
                        "cannot put the capture library into {place}: {error:#}{limit}; nothing was started"
                    );
                }
                refusals.push(format!("{}: {error:#}", directory.display()));
            }
        }
    }
    bail!(
        "there is no place for the capture library ({}); set XDG_CACHE_HOME to a directory that you may write and run programs from",
        refusals.join("; ")
    )
}

/// Leaves this program's place beside the library, which looks for it there where only variables ask for a
/// limit. Nothing is left beside a library that is not ours.
///
/// # Errors
/// When there is something else of that name, or the link can't be made.
pub(crate) fn leave_way_back(library: &Path) -> Result<()> {
    let Some(place) = way_back(library).filter(|_| std::env::var_os(OVERRIDE).is_none()) else {
        return Ok(());
    };
    let program = std::env::current_exe().context("cannot find heaptape's own file")?;
    if fs::read_link(&place).is_ok_and(|there| there == program) {
        return Ok(());
    }
    // Beside it first: somebody may be looking for it.
    let beside = place.with_file_name(format!(".heaptape.{}", std::process::id()));
    let made = std::os::unix::fs::symlink(&program, &beside)
        .and_then(|()| fs::rename(&beside, &place))
        .with_context(|| format!("cannot make the link {}", place.display()));
    if made.is_err() {
        let _ = fs::remove_file(&beside);
    }
    made
}

/// `heaptape-0123.so` without its ending, for `libheaptape-0123.so`: as the library finds it.
fn way_back(library: &Path) -> Option<PathBuf> {
    let name = library.file_name()?.to_str()?;
    Some(library.with_file_name(name.strip_prefix("lib")?.strip_suffix(".so")?))
}

fn is_library(path: &Path) -> bool {
    matches!(elf::kind(path), Ok(Executable::Elf(elf)) if elf.form == Form::Library && elf.target.is_ours())
}

/// Directories to try, in order.
fn directories() -> Vec<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let own = format!("heaptape-{uid}");
    // What root records may go on as another user, who can't read root's own directories.
    let common = (uid == 0).then(|| Path::new("/var/cache/heaptape").to_owned());
    [
        common,
        variable("XDG_CACHE_HOME").map(|dir| dir.join("heaptape")),
        variable("HOME").map(|dir| dir.join(".cache/heaptape")),
        variable("XDG_RUNTIME_DIR").map(|dir| dir.join("heaptape")),
        variable("TMPDIR").map(|dir| dir.join(&own)),
        Some(Path::new("/tmp").join(&own)),
        Some(Path::new("/var/tmp").join(&own)),
        Some(Path::new("/dev/shm").join(&own)),
    ]
    .into_iter()
    .flatten()
    // LD_PRELOAD is split at blanks and colons.
    .filter(|dir| !dir.to_string_lossy().contains([' ', ':', '\t', '\n']))
    .collect()
}

/// Puts the library into a directory, unless it is there already.
fn place(directory: &Path) -> Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    check_owner(directory)?;
    let mut hasher = DefaultHasher::new();
    BYTES.hash(&mut hasher);
    let path = directory.join(format!("libheaptape-{:016x}.so", hasher.finish()));
    let is_there = fs::read(&path).is_ok_and(|bytes| bytes == BYTES);
    if !is_there {
        write(directory, &path)?;
    }
    if !allows_exec(&path) {
        bail!("it is mounted noexec");
    }
    Ok(path)
}

/// Nobody else may be able to put a library in our place.
fn check_owner(directory: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    let uid = rustix::process::getuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != uid || metadata.permissions().mode() & 0o022 != 0 {
        bail!("it is not a directory that only its owner, who is you, may write");
    }
    Ok(())
}

/// Writes beside the final name and renames, so that nobody ever sees half a library.
fn write(directory: &Path, path: &Path) -> Result<()> {
    let temporary = directory.join(format!(".libheaptape.{}", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&temporary)?;
    let written = file.write_all(BYTES).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    Ok(written?)
}

/// Whether code in this file may be mapped to run.
fn allows_exec(path: &Path) -> bool {
    const NOEXEC: rustix::fs::StatVfsMountFlags = rustix::fs::StatVfsMountFlags::NOEXEC;
    rustix::fs::statvfs(path).is_ok_and(|fs| !fs.f_flag.contains(NOEXEC))
}
