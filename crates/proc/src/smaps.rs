//! `/proc/PID/smaps_rollup`: resident memory, split by kind and by whose it is.
//!
//! Source: proc_pid_smaps(5) and the kernel's Documentation/filesystems/proc.rst. The file exists
//! since Linux 4.14, the split of Pss since 5.0 or so.

use crate::field::{bytes, fields};

/// The sums over all mappings of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Smaps {
    /// Resident pages.
    pub rss: Option<u64>,
    /// Resident pages, each divided by the number of processes that map it.
    pub pss: Option<u64>,
    /// The anonymous part of Pss.
    pub pss_anon: Option<u64>,
    /// The part of Pss that belongs to files.
    pub pss_file: Option<u64>,
    /// The part of Pss that is shared memory.
    pub pss_shmem: Option<u64>,
    /// Pages that others map too, unchanged since they were read.
    pub shared_clean: Option<u64>,
    /// Pages that others map too, changed.
    pub shared_dirty: Option<u64>,
    /// Pages of this process alone, unchanged.
    pub private_clean: Option<u64>,
    /// Pages of this process alone, changed.
    pub private_dirty: Option<u64>,
    /// Anonymous pages, shared ones whole.
    pub anonymous: Option<u64>,
    /// Anonymous memory in huge pages.
    pub anon_huge_pages: Option<u64>,
    /// Pages in swap, shared ones whole.
    pub swap: Option<u64>,
    /// Pages in swap, each divided by its users.
    pub swap_pss: Option<u64>,
    /// Pages locked in memory.
    pub locked: Option<u64>,
}

impl Smaps {
    /// Bytes that would be free if the process ended: its unshared pages (USS).
    pub fn uss(&self) -> Option<u64> {
        self.private_clean?.checked_add(self.private_dirty?)
    }
}

/// Reads the text of the file; what it does not tell stays `None`.
pub fn parse(text: &str) -> Smaps {
    let mut s = Smaps::default();
    for (name, value) in fields(text) {
        let field = match name {
            "Rss" => &mut s.rss,
            "Pss" => &mut s.pss,
            "Pss_Anon" => &mut s.pss_anon,
            "Pss_File" => &mut s.pss_file,
            "Pss_Shmem" => &mut s.pss_shmem,
            "Shared_Clean" => &mut s.shared_clean,
            "Shared_Dirty" => &mut s.shared_dirty,
            "Private_Clean" => &mut s.private_clean,
            "Private_Dirty" => &mut s.private_dirty,
            "Anonymous" => &mut s.anonymous,
            "AnonHugePages" => &mut s.anon_huge_pages,
            "Swap" => &mut s.swap,
            "SwapPss" => &mut s.swap_pss,
            "Locked" => &mut s.locked,
            _ => continue,
        };
        *field = bytes(value);
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup() {
        let s = parse(
            "55d0c0000000-7fff12345000 ---p 00000000 00:00 0                    [rollup]\n\
             Rss:                3512 kB\nPss:                 401 kB\nPss_Dirty:           120 kB\n\
             Pss_Anon:            100 kB\nPss_File:            281 kB\nPss_Shmem:            20 kB\n\
             Shared_Clean:       3200 kB\nShared_Dirty:          0 kB\nPrivate_Clean:       192 kB\n\
             Private_Dirty:       120 kB\nReferenced:         3512 kB\nAnonymous:           120 kB\n\
             AnonHugePages:      2048 kB\nSwap:                  4 kB\nSwapPss:               2 kB\n\
             Locked:                0 kB\n",
        );
        assert_eq!((s.rss, s.pss), (Some(3512 << 10), Some(401 << 10)));
        assert_eq!((s.pss_anon, s.pss_file), (Some(100 << 10), Some(281 << 10)));
        assert_eq!((s.pss_shmem, s.swap, s.swap_pss), (Some(20 << 10), Some(4096), Some(2048)));
        assert_eq!((s.shared_clean, s.shared_dirty), (Some(3200 << 10), Some(0)));
        assert_eq!((s.uss(), s.anonymous), (Some(312 << 10), Some(120 << 10)));
        assert_eq!((s.anon_huge_pages, s.locked), (Some(2 << 20), Some(0)));
    }

    #[test]
    fn an_older_kernel_has_no_split() {
        let s = parse("Rss: 8 kB\nPss: 4 kB\n");
        assert_eq!((s.rss, s.pss, s.pss_anon, s.uss()), (Some(8192), Some(4096), None, None));
    }
}
