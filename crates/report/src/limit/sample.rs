//! Counted jobs as tests of the reports need them.

use heaptape_ledger::bins::bin_of;
use heaptape_ledger::{
    Bounds, Charged, Ended, Felled, FirstRefusal, Group, Job, Judge, Kernel, Kills, Line, Looks,
    Missed, Module, Moment, OnLimit, Over, Parts, Patch, Patched, Process, Spread, Totals, Traffic,
    Victim,
};

use super::{Figures, Settings};

const MIB: u64 = 1 << 20;

/// How the sample was counted.
pub(crate) fn settings() -> Settings {
    Settings {
        source: None,
        on_limit: OnLimit::Fail,
        exclude_mpi_runtime: false,
        exempt: Vec::new(),
        count_launcher: false,
        strict: false,
    }
}

/// A rank that allocated two blocks and freed the larger one.
pub(crate) fn rank(rank: u32, large: u64) -> Process {
    let mut process = Process {
        pid: Some(4709 + rank),
        parent: Some(0),
        rank: Some(rank),
        host: "node1".into(),
        command: vec!["./sizes".into(), "512MB".into()],
        time: [10, 2500],
        ended: Ended { code: Some(0), signal: None },
        peak: Bounds { lower: large, upper: large + MIB },
        end: 1000,
        requested: Bounds::exact(large + 1000),
        usable: Some(Bounds::exact(large + 1008)),
        resident: Some(large / 2),
        threads: 2,
        ..Process::default()
    };
    let sums = &mut process.sums;
    (sums.allocations, sums.frees) = (2, 1);
    (sums.requested, sums.usable) = ([large + 1000, large], [large + 1008, large]);
    let traffic =
        |count, total, freed, peak| Traffic { count, total, freed, peak: Bounds::exact(peak) };
    let module = |path: &str, traffic| Module { path: Some(path.into()), exempt: false, traffic };
    sums.bins[bin_of(large)] = traffic(1, large, large, large);
    sums.bins[bin_of(1000)] = traffic(1, 1000, 0, 1000);
    process.modules = vec![
        module("", traffic(1, large, large, large)),
        module("/usr/lib/libmpi.so.40", traffic(1, 1000, 0, 1000)),
    ];
    process
}

/// Four ranks and their launcher, within 1 GiB.
pub(crate) fn job() -> Job {
    let launcher = Process {
        rank: None,
        parent: None,
        pid: Some(4700),
        launcher: true,
        command: ["mpirun", "-n", "4", "./sizes"].map(String::from).to_vec(),
        ..rank(0, 7 * MIB)
    };
    let ranks = (0..4).map(|n| rank(n, (200 + u64::from(n) * 10) * MIB));
    Job {
        command: ["mpirun", "-n", "4", "./sizes"].map(String::from).to_vec(),
        limit: Some(1 << 30),
        details: true,
        peak: Bounds { lower: 900 * MIB, upper: 966_367_641 },
        charged: Charged {
            heap: 860 * MIB,
            data: 20 * MIB,
            stacks: 20 * MIB,
            mpi_runtime: 5 * MIB,
            ..Charged::default()
        },
        requested: Bounds { lower: 850 * MIB, upper: 861 * MIB },
        usable: Some(Bounds { lower: 850 * MIB, upper: 862 * MIB }),
        resident: Some(450 * MIB),
        elapsed: 2.5,
        processor: [7.25, 0.5],
        faults: [123_456, 3],
        threads: [8, 9],
        numa_nodes: 1,
        processes: [launcher].into_iter().chain(ranks).collect(),
        ..Job::default()
    }
}

/// The same job when rank 2 was refused half a gibibyte.
pub(crate) fn refused() -> Job {
    let mut job = job();
    job.refused = 3;
    job.first = Some(FirstRefusal {
        time: 1234,
        process: Some(3),
        thread: 4712,
        bytes: 512 * MIB,
        caller: 0x40_1234,
        place: Some((String::new(), 0x1234)),
        is_data: false,
        job: 900 * MIB,
    });
    job
}

/// What the kernel says of a job that it had in a group.
pub(crate) fn kernel() -> Kernel {
    Kernel {
        group: Some(Group {
            version: 2,
            directory: "/sys/fs/cgroup/heaptape-1-2".into(),
            limit: 1312 * MIB,
            peak: Some(1200 * MIB),
            current: Some(MIB),
            cache: Some(0),
            kernel: Some(MIB / 2),
            oom_kills: 0,
        }),
        most: Parts {
            anonymous: 800 * MIB,
            shared: 100 * MIB,
            cache: Some(290 * MIB),
            kernel: Some(10 * MIB),
            ..Parts::default()
        },
        looks: Looks { count: 500, longest: 7_250, grown: 12 * MIB },
        ..Kernel::default()
    }
}

/// The end of a job for what was resident.
pub(crate) fn over(judge: Judge) -> Over {
    let who = Some((4711, vec!["./sizes".to_owned()], Some(700 * MIB)));
    Over { time: 1234, judge, bytes: 1100 * MIB, who }
}

/// A process that could not be counted.
pub(crate) fn missed() -> Missed {
    Missed { pid: 0, command: vec!["/opt/static".into()], why: "it is linked statically".into() }
}

/// Names that act on a terminal, and figures as large as they get.
pub(crate) fn hostile() -> Job {
    let mut job = refused();
    let name = "\x1b[2J\r\n|`*\u{202e}".repeat(20);
    for process in &mut job.processes {
        process.command = vec![format!("/a/{name}"), name.clone()];
        process.host = name.clone();
        process.pid = Some(u32::MAX);
        process.rank = process.rank.map(|_| u32::MAX);
        process.peak = Bounds { lower: 0, upper: u64::MAX };
        process.end = u64::MAX;
        process.sums.requested = [u64::MAX, 1];
        process.sums.allocations = u64::MAX;
        process.sums.bins.iter_mut().for_each(|bin| {
            *bin = Traffic {
                count: u64::MAX,
                total: u64::MAX,
                freed: 1,
                peak: Bounds::exact(u64::MAX),
            };
        });
        process.modules.iter_mut().for_each(|m| m.path = Some(format!("/lib/{name}")));
    }
    job.command = vec![name.clone()];
    (job.refused, job.peak.upper, job.requested.upper) = (u64::MAX, u64::MAX, u64::MAX);
    job.charged = Charged { heap: u64::MAX, data: u64::MAX, ..Charged::default() };
    job.uncovered = vec![Missed { command: vec![name.clone()], why: name.clone(), pid: 1 }];
    let victim = Victim { place: None, pid: None, command: vec![name.clone()] };
    job.felled = Some(Felled {
        victims: vec![victim; 50],
        log: Ok(vec![Line { victim: Some(0), message: name.clone() }]),
        ceiling: Some((u64::MAX, name.clone())),
        ..felled()
    });
    job.patches = vec![patch(Patched::Entry, &name, Some(&name))];
    if let Some(first) = &mut job.first {
        first.place = Some((format!("/x/{name}"), u64::MAX));
        (first.bytes, first.job) = (u64::MAX, u64::MAX);
    }
    job
}

/// The figures of a job.
pub(crate) fn with_figures<T>(
    job: &Job,
    verbose: bool,
    use_them: impl FnOnce(&Figures<'_>) -> T,
) -> T {
    use_them(&Figures {
        job,
        totals: &Totals::of(job),
        spread: Spread::of(job),
        settings: &settings(),
        exit: Ended { code: Some(0), signal: None },
        function: Some("main"),
        unmatched: &settings().exempt,
        verbose,
    })
}

/// Rank 1 and another process ended by SIGKILL, when the job held much.
pub(crate) fn felled() -> Felled {
    let victim = |place, pid| Victim { place, pid: Some(pid), command: vec!["/opt/sizes".into()] };
    let moment = Moment {
        time: Some(1500),
        charged: Some(900 * MIB),
        each: vec![(1, 200 * MIB), (2, 700 * MIB)],
        resident: Some((800 * MIB, 120)),
    };
    let message = "Memory cgroup out of memory: Killed process 4710 (sizes) total-vm:9kB".into();
    Felled {
        victims: vec![victim(None, 9), victim(Some(2), 4710)],
        moment,
        kills: Kills { group: Some(1), machine: Some(1) },
        log: Ok(vec![Line { victim: Some(1), message }]),
        ceiling: Some((1 << 30, "/sys/fs/cgroup/job".into())),
    }
}

/// What one library has patched.
pub(crate) fn patch(what: Patched, module: &str, by: Option<&str>) -> Patch {
    Patch {
        what,
        module: module.into(),
        by: by.map(str::to_owned),
        functions: vec!["mmap".into(), "munmap".into()],
        processes: vec![1, 2],
    }
}
