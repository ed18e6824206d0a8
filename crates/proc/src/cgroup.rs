//! Control groups: where memory is accounted for this process, and where a job can have a group of its own.
//!
//! From `/proc/self/cgroup`, `/proc/self/mountinfo` and the files of the groups they lead to; sources are cgroups(7) and the
//! kernel's Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst. Nothing here makes or changes a group.

mod ceiling;
mod ground;
mod memory;

use std::fs;
use std::path::{Path, PathBuf};

pub use ceiling::Ceiling;
pub use ground::{Ground, Lack};
pub use memory::Memory;

use crate::read;

/// The group of this process in which its memory is accounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// 1 or 2, by where memory is accounted.
    pub version: Option<u8>,
    /// Its directory.
    pub directory: Option<PathBuf>,
    /// Whether a group of our own can be made in it.
    pub writable: bool,
    /// Whether memory can be limited in groups below it.
    pub memory: bool,
    /// Its limit of memory in bytes; `None` for no limit.
    pub limit: Option<u64>,
    /// The limit that holds in the end: the smallest of its own and those of the groups above it.
    pub ceiling: Option<Ceiling>,
    /// Where a job can have a group of its own, or what is missing.
    pub ground: Result<Ground, Lack>,
}

impl Default for Cgroup {
    fn default() -> Cgroup {
        let (writable, memory) = (false, false);
        let ground = Err(Lack::Hierarchy);
        Cgroup {
            version: None,
            directory: None,
            writable,
            memory,
            limit: None,
            ceiling: None,
            ground,
        }
    }
}

impl Cgroup {
    /// That of this process.
    pub fn read() -> Cgroup {
        let groups = read::own("cgroup").unwrap_or_default();
        let mounts = read::own("mountinfo").unwrap_or_default();
        match place(&groups, &mounts) {
            Some((version, directory)) => Cgroup::at(version, directory),
            None => Cgroup::default(),
        }
    }

    fn at(version: u8, directory: PathBuf) -> Cgroup {
        let memory = version == 1 || has_memory(&directory, "cgroup.controllers");
        Cgroup {
            version: Some(version),
            writable: is_writable(&directory),
            memory,
            limit: ceiling::limit(version, &directory),
            ceiling: Ceiling::of(version, &directory),
            ground: Ground::find(version, &directory, std::process::id()),
            directory: Some(directory),
        }
    }
}

/// Whether another process is accounted in a group whose path ends so; `None` where it has ended.
pub fn is_in(pid: u32, version: u8, end: &str) -> Option<bool> {
    Some(path_of(pid, version)?.split('/').any(|name| name == end))
}

/// The path of the group in which a process is accounted; `None` where it has ended.
pub fn path_of(pid: u32, version: u8) -> Option<String> {
    path_in(&read::groups(pid)?, version).map(str::to_owned)
}

/// A file of a group.
fn text(directory: &Path, file: &str) -> Option<String> {
    fs::read_to_string(directory.join(file)).ok()
}

/// The number behind a name at the begin of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

/// Whether a list of controllers names that of memory.
fn has_memory(directory: &Path, file: &str) -> bool {
    let has = |list: String| list.split_whitespace().any(|name| name == "memory");
    text(directory, file).is_some_and(has)
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
        && rustix::fs::statvfs(path)
            .is_ok_and(|fs| !fs.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// The path of a process's group where memory is accounted, from the text of its `cgroup`.
fn path_in(groups: &str, version: u8) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match version {
            1 => controllers.split(',').any(|name| name == "memory"),
            _ => number == "0" && controllers.is_empty(),
        };
        is_it.then_some(path)
    })
}

/// Where memory is accounted for this process: a group of version 1 that has the memory controller,
/// else the one of version 2. From the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn place(groups: &str, mounts: &str) -> Option<(u8, PathBuf)> {
    let mounted = |kind: &str, option: &str, path: &str| {
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut before = before.split(' ').skip(3);
            let (root, at) = (before.next()?, before.next()?);
            let mut after = after.split(' ');
            let is_it = after.next()? == kind
                && (option.is_empty() || after.nth(1)?.split(',').any(|word| word == option));
            let below = if root == "/" { Some(path) } else { path.strip_prefix(root) };
            // In a namespace of its own the process may stand above what is mounted.
            let below = below.unwrap_or("").trim_start_matches('/');
            is_it.then(|| Path::new(at).join(below))
        })
    };
    let first = path_in(groups, 1).and_then(|path| Some((1, mounted("cgroup", "memory", path)?)));
    first.or_else(|| path_in(groups, 2).and_then(|path| Some((2, mounted("cgroup2", "", path)?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions() {
        let mounts =
            "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = place("0::/user.slice/a\n", mounts);
        assert_eq!(found, Some((2, "/sys/fs/cgroup/user.slice/a".into())));
        let mounts = "33 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      34 25 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = place("4:memory:/job\n0::/\n", mounts);
        assert_eq!(found, Some((1, "/sys/fs/cgroup/memory/job".into())));
        let container = "33 25 0:29 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(place("0::/docker/x\n", container), Some((2, "/sys/fs/cgroup".into())));
        for nonsense in ["", "x", "0:", "a:b:c:d\n"] {
            assert_eq!(place(nonsense, nonsense), None);
        }
    }

    #[test]
    fn this_process_is_in_the_group_that_it_is_in() {
        let own = read::groups(std::process::id()).unwrap_or_default();
        for version in [1, 2] {
            let Some(path) = path_in(&own, version) else { continue };
            let name = path.rsplit('/').next().unwrap_or_default();
            assert_eq!(is_in(std::process::id(), version, name), Some(true), "{own}");
            assert_eq!(is_in(std::process::id(), version, "no-such-group"), Some(false));
        }
        assert_eq!(is_in(1 << 23, 1, ""), None);
    }
}
