//! `/proc/PID/status`: what a process is and how much memory it has.
//!
//! Source: proc_pid_status(5).

use crate::field::{bytes, fields};

/// The fields that we use. Sizes are bytes; a kernel thread and a zombie have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The command's name, at most 15 bytes of it.
    pub name: Option<String>,
    /// The state's letter: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: Option<char>,
    /// The process's id (that of its first thread).
    pub tgid: Option<u32>,
    /// The parent's id.
    pub ppid: Option<u32>,
    /// The process id in each pid namespace, from ours to the innermost.
    pub nspid: Vec<u32>,
    /// Threads now.
    pub threads: Option<u64>,
    /// Address space now.
    pub vm_size: Option<u64>,
    /// The largest resident size so far.
    pub vm_hwm: Option<u64>,
    /// Resident now: anonymous, file and shared pages.
    pub vm_rss: Option<u64>,
    /// Resident anonymous pages.
    pub rss_anon: Option<u64>,
    /// Resident pages of files.
    pub rss_file: Option<u64>,
    /// Resident shared memory (SysV, tmpfs, shared anonymous).
    pub rss_shmem: Option<u64>,
    /// Page tables.
    pub vm_pte: Option<u64>,
    /// Anonymous pages in swap.
    pub vm_swap: Option<u64>,
    /// The mode of seccomp: 0 none, 1 strict, 2 a filter.
    pub seccomp: Option<u64>,
    /// 1 when exec gives no new rights.
    pub no_new_privileges: Option<u64>,
}

/// Reads the text of the file; what it does not tell stays `None`.
pub fn parse(text: &str) -> Status {
    let mut s = Status::default();
    for (name, value) in fields(text) {
        match name {
            "Name" => s.name = Some(value.to_owned()),
            "State" => s.state = value.chars().next(),
            "Tgid" => s.tgid = value.parse().ok(),
            "PPid" => s.ppid = value.parse().ok(),
            "NSpid" => s.nspid = value.split_whitespace().filter_map(|v| v.parse().ok()).collect(),
            "Threads" => s.threads = value.parse().ok(),
            "VmSize" => s.vm_size = bytes(value),
            "VmHWM" => s.vm_hwm = bytes(value),
            "VmRSS" => s.vm_rss = bytes(value),
            "RssAnon" => s.rss_anon = bytes(value),
            "RssFile" => s.rss_file = bytes(value),
            "RssShmem" => s.rss_shmem = bytes(value),
            "VmPTE" => s.vm_pte = bytes(value),
            "VmSwap" => s.vm_swap = bytes(value),
            "Seccomp" => s.seccomp = value.parse().ok(),
            "NoNewPrivs" => s.no_new_privileges = value.parse().ok(),
            _ => {}
        }
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "Name:\tweb: worker\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4711\n\
        Ngid:\t0\nPid:\t4711\nPPid:\t42\nNSpid:\t4711\t17\t1\nVmPeak:\t   10240 kB\n\
        VmSize:\t   10000 kB\nVmHWM:\t    5120 kB\nVmRSS:\t    4096 kB\nRssAnon:\t    1024 kB\n\
        RssFile:\t    3000 kB\nRssShmem:\t      72 kB\nVmPTE:\t      64 kB\nVmSwap:\t       8 kB\n\
        Threads:\t9\n";

    #[test]
    fn a_process_of_a_container() {
        let s = parse(SAMPLE);
        assert_eq!(s.name.as_deref(), Some("web: worker"));
        assert_eq!((s.state, s.tgid, s.ppid), (Some('S'), Some(4711), Some(42)));
        assert_eq!(s.nspid, [4711, 17, 1]);
        assert_eq!(s.threads, Some(9));
        assert_eq!((s.vm_size, s.vm_hwm), (Some(10_240_000), Some(5_242_880)));
        assert_eq!(s.vm_rss, Some(4_194_304));
        assert_eq!(s.rss_anon, Some(1_048_576));
        assert_eq!((s.rss_file, s.rss_shmem), (Some(3_072_000), Some(73_728)));
        assert_eq!((s.vm_pte, s.vm_swap), (Some(65_536), Some(8192)));
    }

    #[test]
    fn a_zombie_has_no_sizes_and_nonsense_is_none() {
        let s =
            parse("Name:\tgone\nState:\tZ (zombie)\nThreads:\tmany\nno colon here\nVmRSS:\t7 MB\n");
        assert_eq!(s.state, Some('Z'));
        assert_eq!((s.vm_rss, s.threads, s.vm_swap), (None, None, None));
    }
}
