//! The only place that opens files below `/proc`. Parsing is done by the modules beside it.
//!
//! Every function takes a process id as this process's pid namespace knows it. A process that has
//! ended is [`Error::NoProcess`]; one that we may not look at is [`Error::Permission`].

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::maps::{self, Mapping};
use crate::{Error, Region, Smaps, Stat, Statm, Status, regions, smaps, stat, statm, status};

const ESRCH: i32 = 3;

/// The mappings, in order of address. A zombie has none.
pub fn maps(pid: u32) -> Result<Vec<Mapping>, Error> {
    maps::parse(&bytes(pid, "maps")?)
}

/// `status`.
pub fn status(pid: u32) -> Result<Status, Error> {
    Ok(status::parse(&text(pid, "status")?))
}

/// `stat`.
pub fn stat(pid: u32) -> Result<Stat, Error> {
    stat::parse(&bytes(pid, "stat")?)
}

/// `statm`; `page_size` is the kernel's, in bytes.
pub fn statm(pid: u32, page_size: u64) -> Result<Statm, Error> {
    statm::parse(&text(pid, "statm")?, page_size)
}

/// `smaps_rollup`; [`Error::Missing`] on kernels before 4.14.
pub fn smaps_rollup(pid: u32) -> Result<Smaps, Error> {
    Ok(smaps::parse(&text(pid, "smaps_rollup")?))
}

/// `smaps`: the mappings with what is resident in each, in order of address. A zombie has none.
pub fn smaps(pid: u32) -> Result<Vec<Region>, Error> {
    Ok(regions::parse(&bytes(pid, "smaps")?))
}

/// Bytes that are resident between two addresses, both of whole pages of `page_size` bytes.
pub fn present(pid: u32, start: u64, end: u64, page_size: u64) -> Result<u64, Error> {
    const ENTRY: u64 = 8;
    const AT_ONCE: u64 = 8192;
    const PRESENT: u8 = 0x80;
    let page_size = page_size.max(1);
    let failed = |source| error(pid, "pagemap", source);
    let file = fs::File::open(path(pid, "pagemap")).map_err(failed)?;
    let is_there = |entry: &&[u8]| entry.last().is_some_and(|last| last & PRESENT != 0);
    let (mut next, last, mut there) = (start / page_size, end / page_size, 0);
    let mut entries = vec![0; (AT_ONCE * ENTRY) as usize];
    while next < last {
        let count = (last - next).min(AT_ONCE);
        let some = &mut entries[..(count * ENTRY) as usize];
        file.read_exact_at(some, next * ENTRY).map_err(failed)?;
        there += some.chunks(ENTRY as usize).filter(is_there).count() as u64;
        next += count;
    }
    Ok(there * page_size)
}

/// A word of its memory.
pub fn word(pid: u32, address: u64) -> Result<u64, Error> {
    let failed = |source| error(pid, "mem", source);
    let file = fs::File::open(path(pid, "mem")).map_err(failed)?;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, address).map_err(failed)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The command's arguments. Empty for kernel threads and zombies.
pub fn cmdline(pid: u32) -> Result<Vec<OsString>, Error> {
    Ok(strings(&bytes(pid, "cmdline")?))
}

/// The environment as it was at the start, as `NAME=value`.
pub fn environ(pid: u32) -> Result<Vec<OsString>, Error> {
    Ok(strings(&bytes(pid, "environ")?))
}

/// The ids of the threads, ascending. A thread that ends while this reads may hide others.
pub fn tasks(pid: u32) -> Result<Vec<u32>, Error> {
    let entries = fs::read_dir(path(pid, "task")).map_err(|e| error(pid, "task", e))?;
    let mut ids: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// The ids of all threads as they know them, in the innermost pid namespace; `None` where it is not certain
/// that none is missing.
pub fn inner_tasks(pid: u32) -> Option<Vec<u32>> {
    /// As many as the kernel lists in one go.
    const AT_ONCE: usize = 500;
    const ATTEMPTS: usize = 4;
    let listed = (0..ATTEMPTS).find_map(|_| {
        let tasks = tasks(pid).ok()?;
        // The kernel goes from one thread to the next: a list ends early at one that ends just then.
        let unsure = if tasks.len() > AT_ONCE { &tasks[..] } else { tasks.last_chunk::<1>()? };
        unsure.iter().all(|&task| lists_task(pid, task)).then_some(tasks)
    })?;
    let mut inner = Vec::with_capacity(listed.len());
    for task in listed {
        match text(pid, &format!("task/{task}/status")) {
            Ok(status) => inner.push(*status::parse(&status).nspid.last()?),
            Err(_) if !has_task(pid, task) => {}
            Err(_) => return None,
        }
    }
    Some(inner)
}

/// Whether the process certainly has this thread.
fn lists_task(pid: u32, task: u32) -> bool {
    path(pid, &format!("task/{task}")).try_exists().unwrap_or(false)
}

/// Whether the process has this thread; true also where the kernel would not say.
pub fn has_task(pid: u32, task: u32) -> bool {
    path(pid, &format!("task/{task}")).try_exists().unwrap_or(true)
}

/// The inode of the process's pid namespace; `None` when it has ended, or we may not look.
pub fn pid_namespace(pid: u32) -> Option<u64> {
    let link = fs::read_link(path(pid, "ns/pid")).ok()?;
    // It reads `pid:[4026531836]`.
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The ids of all processes. One that lives all the while this reads is among them.
pub fn pids() -> Result<Vec<u32>, Error> {
    let error = |source| Error::Io { path: PathBuf::from("/proc"), source };
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc").map_err(error)? {
        let name = entry.map_err(error)?.file_name();
        pids.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(pids)
}

/// Whether the memory of a process holds these bytes at this address. A process that has no memory, or
/// nothing there, does not.
pub fn holds(pid: u32, address: u64, bytes: &[u8]) -> Result<bool, Error> {
    const EIO: i32 = 5;
    let mut found = vec![0; bytes.len()];
    let opened = fs::File::open(path(pid, "mem"));
    match opened.and_then(|file| file.read_at(&mut found, address)) {
        Ok(length) => Ok(length == bytes.len() && found == bytes),
        Err(source) if source.raw_os_error() == Some(EIO) => Ok(false),
        Err(source) => Err(error(pid, "mem", source)),
    }
}

/// The memory of a process, open for reading at its addresses.
pub fn memory_of(pid: u32) -> Result<fs::File, Error> {
    fs::File::open(path(pid, "mem")).map_err(|e| error(pid, "mem", e))
}

/// The ids of the live children of all threads, ascending. Children that end while this reads may
/// hide others. [`Error::Missing`] on kernels that are built without the file.
pub fn children(pid: u32) -> Result<Vec<u32>, Error> {
    let mut ids = Vec::new();
    for task in tasks(pid)? {
        match text(pid, &format!("task/{task}/children")) {
            Ok(list) => ids.extend(list.split_whitespace().filter_map(|v| v.parse::<u32>().ok())),
            // The thread ended between the listing and now.
            Err(Error::Missing { .. } | Error::NoProcess { .. })
                if !path(pid, &format!("task/{task}")).exists() => {}
            Err(e) => return Err(e),
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The executable's path; the kernel adds ` (deleted)` when it is gone.
pub fn exe(pid: u32) -> Result<PathBuf, Error> {
    fs::read_link(path(pid, "exe")).map_err(|e| error(pid, "exe", e))
}

/// The executable, open for reading: also one that is gone, or in another root directory.
pub fn executable(pid: u32) -> Result<fs::File, Error> {
    fs::File::open(path(pid, "exe")).map_err(|e| error(pid, "exe", e))
}

/// Where a file can be opened that a process has mapped, as long as it runs, also one in another root
/// directory: by its path there, and by an empty one the executable.
pub fn seen_by(pid: u32, file: &str) -> PathBuf {
    match file {
        "" => path(pid, "exe"),
        file => path(pid, &format!("root/{}", file.trim_start_matches('/'))),
    }
}

/// The working directory.
pub fn cwd(pid: u32) -> Result<PathBuf, Error> {
    fs::read_link(path(pid, "cwd")).map_err(|e| error(pid, "cwd", e))
}

/// The machine's name.
pub fn hostname() -> Result<String, Error> {
    let path = PathBuf::from("/proc/sys/kernel/hostname");
    match fs::read(&path) {
        Ok(name) => Ok(String::from_utf8_lossy(name.trim_ascii()).into_owned()),
        Err(source) => Err(Error::Io { path, source }),
    }
}

/// A setting of the kernel, by its path below `/proc/sys`.
pub fn kernel(name: &str) -> Option<String> {
    line(PathBuf::from("/proc/sys").join(name))
}

/// A file below `/sys`.
pub fn sys(name: &str) -> Option<String> {
    line(PathBuf::from("/sys").join(name))
}

/// `meminfo`.
pub fn memory() -> Option<String> {
    fs::read_to_string("/proc/meminfo").ok()
}

/// A file of this process.
pub fn own(file: &str) -> Option<String> {
    text(std::process::id(), file).ok()
}

/// The text of `cgroup`: the groups of a process.
pub fn groups(pid: u32) -> Option<String> {
    text(pid, "cgroup").ok()
}

fn line(path: PathBuf) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

fn bytes(pid: u32, file: &str) -> Result<Vec<u8>, Error> {
    fs::read(path(pid, file)).map_err(|e| error(pid, file, e))
}

fn text(pid: u32, file: &str) -> Result<String, Error> {
    bytes(pid, file).map(|b| String::from_utf8_lossy(&b).into_owned())
}

fn strings(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|&b| b == 0).map(|s| OsString::from_vec(s.to_vec())).collect()
}

fn error(pid: u32, file: &str, source: io::Error) -> Error {
    let whole = path(pid, file);
    if source.raw_os_error() == Some(ESRCH) {
        return Error::NoProcess { pid };
    }
    match source.kind() {
        ErrorKind::NotFound if path(pid, "").exists() => Error::Missing { path: whole },
        ErrorKind::NotFound => Error::NoProcess { pid },
        ErrorKind::PermissionDenied => Error::Permission { path: whole },
        _ => Error::Io { path: whole, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    #[test]
    fn this_process_is_readable() {
        let pid = process::id();
        assert_eq!(status(pid).unwrap().tgid, Some(pid));
        assert_eq!(stat(pid).unwrap().pid, pid);
        assert!(statm(pid, 4096).unwrap().resident > 0);
        assert!(maps::system(&maps(pid).unwrap()) > 0);
        assert!(tasks(pid).unwrap().contains(&pid));
        assert!(has_task(pid, pid) && !has_task(pid, 1) && !has_task(1 << 23, 1 << 23));
        assert!(!cmdline(pid).unwrap().is_empty());
        assert_eq!(exe(pid).unwrap(), std::env::current_exe().unwrap());
    }

    #[test]
    fn a_child_is_found() {
        let mut child = process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = children(process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        match found {
            Ok(ids) => assert!(ids.contains(&child.id())),
            // The file depends on a kernel option.
            Err(e) => assert!(matches!(e, Error::Missing { .. }), "{e}"),
        }
    }

    #[test]
    fn memory_is_compared_and_nothing_is_not_there() {
        let (pid, bytes) = (process::id(), *b"in memory of its own");
        let address = bytes.as_ptr() as u64;
        assert!(holds(pid, address, &bytes.clone()).unwrap());
        assert!(!holds(pid, address, b"in memory of another").unwrap());
        assert!(!holds(pid, 16, &bytes).unwrap());
        assert!(matches!(holds(1 << 23, address, &bytes), Err(Error::NoProcess { .. })));
    }

    #[test]
    fn threads_are_listed_as_they_know_themselves() {
        let pid = process::id();
        let inner = inner_tasks(pid).unwrap();
        assert!(inner.contains(status(pid).unwrap().nspid.last().unwrap()));
        assert!(pids().unwrap().contains(&pid));
        assert_eq!(inner_tasks(1 << 23), None);
    }

    #[test]
    fn no_process_is_told_apart() {
        // Beyond the largest id that Linux gives.
        let pid = 1 << 23;
        assert!(matches!(status(pid), Err(Error::NoProcess { .. })));
        assert!(matches!(tasks(pid), Err(Error::NoProcess { .. })));
        assert_eq!(exe(pid).unwrap_err().to_string(), "There is no process 8388608.");
    }

    #[test]
    fn lists_of_strings() {
        assert!(strings(b"").is_empty());
        assert_eq!(strings(b"a\0"), ["a"]);
        assert_eq!(strings(b"a\0\0b c\0"), ["a", "", "b c"]);
        assert_eq!(strings(b"rewritten title"), ["rewritten title"]);
    }
}
