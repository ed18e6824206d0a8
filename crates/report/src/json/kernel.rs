//! The fields of `heaptape.limit/1` that the kernel tells of a whole job.

use heaptape_ledger::{Group, Job, Judge, Kernel, Over};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct KernelPart<'a> {
    cgroup: Option<GroupPart<'a>>,
    cgroup_missing: Option<&'a str>,
    resident: Option<ResidentPart>,
    killed: Option<KilledPart<'a>>,
}

#[derive(Serialize)]
struct GroupPart<'a> {
    version: u8,
    directory: &'a str,
    limit: u64,
    peak: Option<u64>,
    current: Option<u64>,
    page_cache: Option<u64>,
    kernel: Option<u64>,
    oom_kills: u64,
}

/// The parts when most was held, and how closely it was looked at.
#[derive(Serialize)]
struct ResidentPart {
    source: &'static str,
    held: u64,
    anonymous: u64,
    shared: u64,
    swap: u64,
    heaptape: Option<u64>,
    page_cache: Option<u64>,
    kernel: Option<u64>,
    looks: u64,
    longest_us: u64,
    most_between: u64,
}

#[derive(Serialize)]
struct KilledPart<'a> {
    time_ms: u64,
    by: &'static str,
    bytes: u64,
    pid: Option<u32>,
    command: &'a [String],
    resident: Option<u64>,
}

impl<'a> KernelPart<'a> {
    pub(super) fn of(job: &'a Job) -> KernelPart<'a> {
        let kernel = job.kernel.as_ref();
        KernelPart {
            cgroup: kernel.and_then(|kernel| kernel.group.as_ref()).map(GroupPart::of),
            cgroup_missing: kernel.and_then(|kernel| kernel.missing.as_deref()),
            resident: kernel.filter(|kernel| kernel.looks.count > 0).map(ResidentPart::of),
            killed: job.over().map(KilledPart::of),
        }
    }
}

impl<'a> GroupPart<'a> {
    fn of(group: &'a Group) -> GroupPart<'a> {
        GroupPart {
            version: group.version,
            directory: &group.directory,
            limit: group.limit,
            peak: group.peak,
            current: group.current,
            page_cache: group.cache,
            kernel: group.kernel,
            oom_kills: group.oom_kills,
        }
    }
}

impl ResidentPart {
    fn of(kernel: &Kernel) -> ResidentPart {
        let (most, looks) = (&kernel.most, kernel.looks);
        ResidentPart {
            source: if kernel.group.is_some() { "cgroup" } else { "pss" },
            held: most.held(),
            anonymous: most.anonymous,
            shared: most.shared,
            swap: most.swap,
            heaptape: most.ours,
            page_cache: most.cache,
            kernel: most.kernel,
            looks: looks.count,
            longest_us: looks.longest,
            most_between: looks.grown,
        }
    }
}

impl<'a> KilledPart<'a> {
    fn of(over: &'a Over) -> KilledPart<'a> {
        let who = over.who.as_ref();
        KilledPart {
            time_ms: over.time,
            by: match over.judge {
                Judge::Kernel => "kernel",
                Judge::Machine => "machine",
                Judge::Resident => "resident",
                Judge::Unaccounted => "unaccounted",
            },
            bytes: over.bytes,
            pid: who.map(|(pid, ..)| *pid),
            command: who.map_or(&[], |(_, command, _)| command),
            resident: who.and_then(|(_, _, resident)| *resident),
        }
    }
}
