//! The capture library as a file that the loader can map.
//!
//! The library is embedded in this program. It is written once, under a name made from its content,
//! into a directory of the user's own on a file system that allows execution.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::StatVfsMountFlags;

/// The variable that names another library.
const OVERRIDE: &str = "HEAPTAPE_CAPTURE";

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libheaptape_capture.so"));

/// The path of the library: the one that `HEAPTAPE_CAPTURE` names, or the embedded one, which is
/// written if it is not there yet.
pub(crate) fn path() -> Result<PathBuf> {
    if let Some(named) = env::var_os(OVERRIDE).filter(|v| !v.is_empty()) {
        let named = PathBuf::from(named);
        let path = fs::canonicalize(&named)
            .with_context(|| format!("{OVERRIDE} names {}", named.display()))?;
        ensure!(
            is_loadable(&path),
            "{OVERRIDE} names {}, which LD_PRELOAD cannot: there is a blank or a colon in it",
            path.display()
        );
        return Ok(path);
    }
    let mut refusals = Vec::new();
    for directory in directories() {
        match install(&directory) {
            Ok(path) => return Ok(path),
            Err(why) => refusals.push(format!("{}: {why:#}", directory.display())),
        }
    }
    bail!("there is no directory to put the capture library into ({})", refusals.join("; "))
}

/// Where the library may go, the best first.
fn directories() -> Vec<PathBuf> {
    let home = |variable: &str| env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    let user = rustix::process::getuid().as_raw();
    let cache = home("XDG_CACHE_HOME").or_else(|| Some(home("HOME")?.join(".cache")));
    let mut directories: Vec<PathBuf> =
        cache.into_iter().filter(|d| d.is_absolute()).map(|d| d.join("heaptape")).collect();
    for temporary in ["/tmp", "/var/tmp", "/dev/shm"] {
        directories.push(PathBuf::from(format!("{temporary}/heaptape-{user}")));
    }
    directories
}

fn install(directory: &Path) -> Result<PathBuf> {
    ensure!(is_loadable(directory), "LD_PRELOAD cannot name it: there is a blank or a colon in it");
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    check_private(directory)?;
    let mount = rustix::fs::statvfs(directory)?;
    ensure!(!mount.f_flag.contains(StatVfsMountFlags::NOEXEC), "its file system is mounted noexec");
    let hash = crc32fast::hash(LIBRARY);
    let path = directory.join(format!("capture-{hash:08x}-{}.so", LIBRARY.len()));
    if !fs::read(&path).is_ok_and(|there| there == LIBRARY) {
        write_whole(&path)?;
    }
    Ok(path)
}

/// Nobody else may put a library of theirs there.
fn check_private(directory: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    ensure!(metadata.is_dir(), "it is no directory");
    ensure!(
        metadata.uid() == rustix::process::geteuid().as_raw(),
        "it belongs to user {}",
        metadata.uid()
    );
    ensure!(metadata.mode() & 0o022 == 0, "others may write to it");
    Ok(())
}

/// Another heaptape may be doing the same; whoever renames last wins, and both wrote the same.
fn write_whole(path: &Path) -> Result<()> {
    let mut temporary = OsString::from(path);
    temporary.push(format!(".{}", process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(&temporary)
        .and_then(|mut file| file.write_all(LIBRARY))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What is left of it is of no use; that it cannot be removed changes nothing.
        let _ = fs::remove_file(&temporary);
    }
    Ok(written?)
}

/// LD_PRELOAD's list is separated by blanks and colons, and neither can be quoted.
fn is_loadable(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| b.is_ascii_whitespace() || *b == b':')
}
