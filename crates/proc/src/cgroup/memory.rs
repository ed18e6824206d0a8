//! What a group holds: its `memory.stat` and the files beside it, of both versions.

use std::path::Path;

use super::{field, text};

/// Bytes that a group and those below it hold, and what the kernel did about them. What it does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Pages of no file.
    pub anonymous: Option<u64>,
    /// Shared memory, files in tmpfs among it.
    pub shared: Option<u64>,
    /// Page cache: pages of files on disks, which the kernel takes back when they are needed.
    pub cache: Option<u64>,
    /// The kernel's own: page tables, stacks, and what it keeps of files, pipes and sockets.
    pub kernel: Option<u64>,
    /// What was moved to swap.
    pub swap: Option<u64>,
    /// All that is held against the limit, page cache too.
    pub current: Option<u64>,
    /// The most of that.
    pub peak: Option<u64>,
    /// Processes that the kernel has killed for want of memory.
    pub oom_kills: Option<u64>,
}

impl Memory {
    /// Looks at a group; all is `None` where there is none.
    pub fn read(version: u8, directory: &Path) -> Memory {
        let number = |file: &str| text(directory, file)?.trim().parse().ok();
        let stat = text(directory, "memory.stat").unwrap_or_default();
        let stat = |name: &str| field(&stat, name);
        if version == 1 {
            let control = text(directory, "memory.oom_control").unwrap_or_default();
            let shared = stat("total_shmem");
            return Memory {
                anonymous: stat("total_rss"),
                shared,
                cache: stat("total_cache").map(|all| all.saturating_sub(shared.unwrap_or(0))),
                kernel: number("memory.kmem.usage_in_bytes"),
                swap: stat("total_swap"),
                current: number("memory.usage_in_bytes"),
                peak: number("memory.max_usage_in_bytes"),
                oom_kills: field(&control, "oom_kill"),
            };
        }
        let events = text(directory, "memory.events").unwrap_or_default();
        let shared = stat("shmem");
        // Kernels before 5.18 tell no sum.
        let parts = ["kernel_stack", "pagetables", "percpu", "sock", "slab"];
        let sum = || parts.iter().filter_map(|name| stat(name)).reduce(u64::saturating_add);
        Memory {
            anonymous: stat("anon"),
            shared,
            cache: stat("file").map(|all| all.saturating_sub(shared.unwrap_or(0))),
            kernel: stat("kernel").or_else(sum),
            swap: number("memory.swap.current"),
            current: number("memory.current"),
            peak: number("memory.peak"),
            oom_kills: field(&events, "oom_kill"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(version: u8, files: &[(&str, &str)]) -> Memory {
        let name = format!("heaptape-memory.{}.{version}.{}", std::process::id(), files.len());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        files.iter().for_each(|(file, text)| fs::write(directory.join(file), text).unwrap());
        let memory = Memory::read(version, &directory);
        fs::remove_dir_all(&directory).unwrap();
        memory
    }

    #[test]
    fn version_1() {
        let stat = "cache 1\nrss 2\ntotal_cache 4096000\ntotal_rss 8192\ntotal_rss_huge 0\ntotal_shmem 96000\ntotal_swap 7\n";
        let memory = read(
            1,
            &[
                ("memory.stat", stat),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
                ("memory.usage_in_bytes", "5000000\n"),
                ("memory.max_usage_in_bytes", "6000000\n"),
                ("memory.kmem.usage_in_bytes", "1000\n"),
            ],
        );
        assert_eq!((memory.anonymous, memory.shared), (Some(8192), Some(96_000)));
        assert_eq!((memory.cache, memory.kernel), (Some(4_000_000), Some(1000)));
        assert_eq!((memory.current, memory.peak), (Some(5_000_000), Some(6_000_000)));
        assert_eq!((memory.oom_kills, memory.swap), (Some(3), Some(7)));
    }

    #[test]
    fn version_2() {
        let events =
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 4\noom_group_kill 1\n");
        let stat = "anon 100\nfile 50\nkernel 30\nkernel_stack 1\nshmem 20\nanon_thp 0\n";
        let files = [("memory.stat", stat), events, ("memory.swap.current", "5\n")];
        let memory = read(2, &files);
        assert_eq!((memory.anonymous, memory.shared), (Some(100), Some(20)));
        assert_eq!((memory.swap, memory.cache), (Some(5), Some(30)));
        assert_eq!((memory.kernel, memory.oom_kills, memory.peak), (Some(30), Some(4), None));
        // An older kernel.
        let memory = read(2, &[("memory.stat", "anon 1\nkernel_stack 2\nslab 3\n"), events]);
        assert_eq!((memory.kernel, memory.cache), (Some(5), None));
    }

    #[test]
    fn a_group_that_is_gone_holds_what_nobody_knows() {
        assert_eq!(Memory::read(2, Path::new("/no/such/group")), Memory::default());
    }
}
