//! What this system is and allows, as far as a recording depends on it.
//!
//! Read from `/proc` and `/sys`. What a kernel does not tell is `None`.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::cgroup::Cgroup;
use crate::{read, status};

/// A system, as one process of it sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// The kernel's version, such as `6.1.0-18-amd64`.
    pub kernel: Option<String>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Processors that this process may use.
    pub processors: u64,
    /// What the kernel keeps time by.
    pub clock_source: Option<String>,
    /// Whether `/proc/PID/smaps_rollup` is there.
    pub smaps_rollup: bool,
    /// The mode of overcommit: 0 guesses, 1 always grants, 2 counts.
    pub overcommit: Option<u64>,
    /// Yama's scope of ptrace, 0 to 3; `None` without Yama.
    pub ptrace_scope: Option<u64>,
    /// Bytes of memory, and of those that are available.
    pub memory: Space,
    /// Bytes in `/dev/shm`, and those that are free.
    pub shm: Space,
    /// The cgroup of this process.
    pub cgroup: Cgroup,
    /// The setting of transparent huge pages, and that for shared memory.
    pub huge_pages: HugePages,
    /// The limits of this process.
    pub limits: Vec<Limit>,
    /// The mode of seccomp: 0 none, 1 strict, 2 a filter.
    pub seccomp: Option<u64>,
    /// Whether exec gives no new rights.
    pub no_new_privileges: Option<bool>,
    /// What of the kernel heaptape uses, as it was tried.
    pub features: Features,
}

/// A place for bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All of them.
    pub total: Option<u64>,
    /// Those that can be had.
    pub free: Option<u64>,
}

/// Pages larger than usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// The mode of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent: Option<String>,
    /// The same for shared memory.
    pub shared: Option<String>,
    /// Pages set aside by the administrator.
    pub reserved: Option<u64>,
    /// Bytes of one.
    pub size: Option<u64>,
}

/// A limit of this process; `None` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The resource, as in `RLIMIT_AS`.
    pub name: &'static str,
    /// What holds now.
    pub soft: Option<u64>,
    /// How far that may be raised.
    pub hard: Option<u64>,
}

/// What of the kernel heaptape uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `memfd_create`, for shared memory where `/dev/shm` is full.
    pub memfd: bool,
    /// `pidfd_open`, to see processes end.
    pub pidfd: bool,
    /// `MADV_WIPEONFORK`, to tell a forked child.
    pub wipe_on_fork: bool,
    /// `membarrier`, for exact budgets.
    pub membarrier: bool,
    /// The time stamp counter as the kernel trusts it, to order threads.
    pub tsc: bool,
}

const LIMITS: [(&str, Resource); 9] = [
    ("AS", Resource::As),
    ("DATA", Resource::Data),
    ("STACK", Resource::Stack),
    ("NOFILE", Resource::Nofile),
    ("NPROC", Resource::Nproc),
    ("FSIZE", Resource::Fsize),
    ("MEMLOCK", Resource::Memlock),
    ("CORE", Resource::Core),
    ("RSS", Resource::Rss),
];

impl System {
    /// Reads all of it; `features` are what was tried.
    pub fn read(features: Features) -> System {
        let own = status::parse(&read::own("status").unwrap_or_default());
        System {
            kernel: read::kernel("kernel/osrelease"),
            page_size: rustix::param::page_size() as u64,
            processors: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            clock_source: read::sys("devices/system/clocksource/clocksource0/current_clocksource"),
            smaps_rollup: read::smaps_rollup(std::process::id()).is_ok(),
            overcommit: number(read::kernel("vm/overcommit_memory")),
            ptrace_scope: number(read::kernel("kernel/yama/ptrace_scope")),
            memory: memory(),
            shm: shm(Path::new("/dev/shm")),
            cgroup: Cgroup::read(),
            huge_pages: HugePages::read(),
            limits: limits(),
            seccomp: own.seccomp,
            no_new_privileges: own.no_new_privileges.map(|mode| mode != 0),
            features,
        }
    }

    /// A limit by its name.
    pub fn limit(&self, name: &str) -> Option<Limit> {
        self.limits.iter().copied().find(|limit| limit.name == name)
    }
}

fn number(text: Option<String>) -> Option<u64> {
    text?.parse().ok()
}

fn limits() -> Vec<Limit> {
    let read = |&(name, resource): &(&'static str, Resource)| {
        let limit = getrlimit(resource);
        Limit { name, soft: limit.current, hard: limit.maximum }
    };
    LIMITS.iter().map(read).collect()
}

fn memory() -> Space {
    let text = read::memory().unwrap_or_default();
    let of = |name| crate::field::find(&text, name).and_then(crate::field::bytes);
    Space { total: of("MemTotal"), free: of("MemAvailable") }
}

fn shm(directory: &Path) -> Space {
    let Ok(found) = rustix::fs::statvfs(directory) else { return Space::default() };
    let bytes = |blocks: u64| blocks.checked_mul(found.f_frsize);
    Space { total: bytes(found.f_blocks), free: bytes(found.f_bavail) }
}

impl HugePages {
    fn read() -> HugePages {
        let text = read::memory().unwrap_or_default();
        let of = |name| crate::field::find(&text, name);
        let mode = |file: &str| read::sys(&format!("kernel/mm/transparent_hugepage/{file}"));
        HugePages {
            transparent: mode("enabled").and_then(|text| chosen(&text)),
            shared: mode("shmem_enabled").and_then(|text| chosen(&text)),
            reserved: of("HugePages_Total").and_then(|value| value.parse().ok()),
            size: of("Hugepagesize").and_then(crate::field::bytes),
        }
    }
}

/// The one in brackets of `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// NUMA nodes of the machine that have memory or processors; `None` where the kernel does not tell.
pub fn numa_nodes() -> Option<u64> {
    numbers_in(&read::sys("devices/system/node/online")?)
}

/// How many numbers a list such as `0-3,8` has.
fn numbers_in(list: &str) -> Option<u64> {
    list.split(',').try_fold(0u64, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_counted() {
        let lists = ["0", "0-1", "0-3,8", "", "a", "3-1", "0-18446744073709551615"];
        let counts = lists.map(numbers_in);
        assert_eq!(counts, [Some(1), Some(2), Some(5), None, None, None, None]);
    }

    #[test]
    fn this_system_is_read() {
        let system = System::read(Features::default());
        assert!(system.kernel.is_some() && system.page_size >= 4096 && system.processors > 0);
        assert!(system.memory.total > system.memory.free || system.memory.free.is_none());
        assert!(system.limit("NOFILE").is_some() && system.limit("OTHER").is_none());
    }

    #[test]
    fn the_mode_in_brackets() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!((chosen("always"), chosen("[a")), (None, None));
    }
}
