//! A system in words: each of its features, with what it means for recordings.

use heaptape_proc::cgroup::Ground;
use heaptape_proc::system::{Limit, System};
use heaptape_proc::{Allotments, Lag, Mpi, Ucx};

use super::Check;
use crate::limit::auto;
use crate::size::Size;
use crate::text::{counted, size_or_na};

/// What was found out beside what the system says of itself.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The system.
    pub system: System,
    /// How far its counters are behind.
    pub lag: Option<Lag>,
    /// Bytes of shared memory that a recording needs.
    pub shared_bytes: u64,
    /// The memory that this job was given on this node.
    pub allotments: Allotments,
    /// MPI libraries.
    pub mpi: Vec<Mpi>,
    /// UCX.
    pub ucx: Option<Ucx>,
    /// Libraries that the environment preloads, with what they define.
    pub preloads: Vec<Preload>,
    /// The value of `LD_AUDIT`.
    pub audit: Option<String>,
    /// The capture library's file, or why there is none.
    pub library: Result<String, String>,
    /// The trial recording, or why there is none.
    pub trial: Result<Trial, String>,
}

/// A preloaded library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preload {
    /// The name as it was given.
    pub name: String,
    /// Its file; `None` when there is none, and the loader ignores it.
    pub path: Option<String>,
    /// The allocator that it brings.
    pub allocator: Option<String>,
}

/// What came of recording a program that does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// The program.
    pub command: String,
    /// Its exit code.
    pub code: Option<i32>,
    /// Events on the tape.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Order faults.
    pub order_faults: u64,
    /// Processes that were recorded.
    pub processes: u64,
    /// Microseconds with a recording, and without: the best of a few runs.
    pub recorded: u64,
    /// The same without.
    pub plain: u64,
}

/// All checks of a system, in the order in which they are shown.
pub fn checks(f: &Findings) -> Vec<Check> {
    let s = &f.system;
    let mut checks = vec![kernel(s), features(s), clock(s), counters(f.lag, s), overcommit(s)];
    checks.extend([shared_memory(f), ptrace(s), cgroup(s), enclosure(s), auto(f), huge_pages(s)]);
    checks.extend(limits(s));
    checks.extend([sandbox(s), preloads(f)]);
    checks.extend(f.audit.as_deref().map(audit));
    checks.extend(f.mpi.iter().map(mpi));
    if f.mpi.is_empty() {
        checks.push(Check::ok("MPI", "none installed that the loader knows"));
    }
    checks.push(f.ucx.as_ref().map_or_else(|| Check::ok("UCX", "not installed"), ucx));
    checks.extend([library(f), trial(f)]);
    checks
}

fn kernel(s: &System) -> Check {
    let version = s.kernel.as_deref().unwrap_or("of an unknown version");
    let processors = counted(s.processors, "processor", "processors");
    Check::ok("kernel", format!("Linux {version}, {processors}, pages of {} bytes", s.page_size))
}

fn features(s: &System) -> Check {
    let have = s.features;
    let all = [
        (have.memfd, "memfd"),
        (have.pidfd, "pidfd"),
        (have.wipe_on_fork, "MADV_WIPEONFORK"),
        (have.membarrier, "membarrier"),
        (s.smaps_rollup, "smaps_rollup"),
    ];
    let names = |present: bool| {
        let those = all.iter().filter(|(has, _)| *has == present);
        those.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    };
    if all.iter().all(|(has, _)| *has) {
        return Check::ok("features", names(true));
    }
    let finding = format!("missing: {}", names(false));
    if !have.pidfd || !have.wipe_on_fork {
        let advice = "Use Linux 5.3 or later, and a sandbox that lets these calls through.";
        return Check::problem("features", finding, advice);
    }
    Check::note("features", finding)
}

fn clock(s: &System) -> Check {
    let source = s.clock_source.as_deref().unwrap_or("unknown");
    if s.features.tsc {
        return Check::ok("clock", format!("{source}: the time stamp counter orders threads"));
    }
    let finding = format!(
        "{source}: the kernel does not trust the time stamp counter, and a shared counter orders threads, which costs more where they compete"
    );
    Check::note("clock", finding)
}

fn counters(lag: Option<Lag>, s: &System) -> Check {
    let Some(lag) = lag else {
        let why =
            if s.smaps_rollup { "it could not be measured" } else { "there is no smaps_rollup" };
        return Check::note("counters", format!("error of VmRSS and statm: n/a ({why})"));
    };
    let how = format!(
        "{} read {} times while {} touched {} pages",
        "statm and smaps_rollup",
        lag.readings,
        counted(lag.threads, "thread", "threads"),
        lag.touched
    );
    if lag.pages == 0 {
        return Check::ok("counters", format!("VmRSS and statm are exact ({how})"));
    }
    let pages = counted(lag.pages, "page", "pages");
    let bytes = Size(lag.pages.saturating_mul(lag.page_size));
    let finding = format!("VmRSS and statm are up to {pages} ({bytes}) off ({how})");
    Check::note("counters", finding)
        .advise("For exact figures of resident memory read smaps_rollup; what is requested is always exact.")
}

fn overcommit(s: &System) -> Check {
    let name = "overcommit";
    match s.overcommit {
        Some(0) => Check::ok(name, "0: the kernel grants what is not obviously too much"),
        Some(1) => Check::ok(name, "1: the kernel grants everything"),
        Some(2) => Check::note(
            name,
            "2: the kernel counts what is granted; up to 64 MiB a recorded process are mapped, of which only what is used counts",
        ),
        _ => Check::note(name, "n/a"),
    }
}

fn shared_memory(f: &Findings) -> Check {
    let (name, shm, needed) = ("/dev/shm", f.system.shm, Size(f.shared_bytes));
    let finding = format!(
        "{} in all, {} free; a recording takes {needed}, and up to 64 MiB for many threads",
        size_or_na(shm.total),
        size_or_na(shm.free)
    );
    let enough = shm.free.is_some_and(|free| free >= f.shared_bytes);
    if enough {
        return Check::ok(name, finding);
    }
    let advice = "Make room in /dev/shm (in a container: --shm-size).";
    if f.system.features.memfd {
        let finding = format!("{finding}; memory without a name is used in its place");
        return Check::note(name, finding).advise(advice);
    }
    Check::problem(name, finding, advice)
}

fn ptrace(s: &System) -> Check {
    let finding = match s.ptrace_scope {
        None => "no Yama: a user may trace all processes of his own",
        Some(0) => "0: a user may trace all processes of his own",
        Some(1) => "1: a process may trace its own children",
        Some(2) => "2: only root may trace",
        Some(_) => "3: nobody may trace",
    };
    Check::ok("ptrace", format!("{finding} (recording needs no tracing)"))
}

fn cgroup(s: &System) -> Check {
    let (name, group) = ("cgroup", &s.cgroup);
    let (Some(version), Some(directory)) = (group.version, &group.directory) else {
        return Check::note(name, "none that accounts for memory (recording needs none)");
    };
    let limit = match group.limit {
        Some(bytes) => format!("at most {} of memory", Size(bytes)),
        None => "no limit of memory".to_owned(),
    };
    let finding =
        format!("version {version}, {}: {limit} (recording needs none)", directory.display());
    match group.limit {
        Some(bytes) if bytes < 256 << 20 => Check::note(name, finding)
            .advise("heaptape's own memory counts in this group: raise its limit if the kernel kills something."),
        _ => Check::ok(name, finding),
    }
}

/// Whether a job can be held to its limit by the kernel.
fn enclosure(s: &System) -> Check {
    let name = "limits by kernel";
    match &s.cgroup.ground {
        Ok(ground) => {
            let place = match ground {
                Ground::Below(_) => "below",
                Ground::Alone(_) => "below (heaptape itself, which is alone in it, goes aside)",
                Ground::Beside(_) => "beside heaptape's own, in",
            };
            let finding = format!(
                "limit --strict and --basis resident give a job a cgroup of its own, {place} {}",
                ground.parent().display()
            );
            Check::ok(name, finding)
        }
        Err(lack) => {
            let finding = format!(
                "a job can have no cgroup of its own: {lack}; limit --strict stops only what is counted, and --basis resident looks at processes many times a second"
            );
            Check::note(name, finding).advise(lack.advice())
        }
    }
}

/// What `limit auto` would take.
fn auto(f: &Findings) -> Check {
    let (name, found) = ("limit auto", &f.allotments);
    match found.least() {
        Some(least) => Check::ok(name, format!("would take {}", auto::taken(least))),
        None => Check::ok(name, format!("would take nothing: {}", auto::nothing(found))),
    }
}

fn huge_pages(s: &System) -> Check {
    let pages = &s.huge_pages;
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "n/a".into());
    let reserved = match (pages.reserved, pages.size) {
        (Some(count), Some(size)) => format!("{count} of {} set aside", Size(size)),
        _ => "n/a set aside".to_owned(),
    };
    let finding = format!(
        "transparent: {}, shared memory: {}; {reserved}",
        mode(&pages.transparent),
        mode(&pages.shared)
    );
    match pages.transparent.as_deref() {
        Some("always") => Check::note(
            "huge pages",
            format!(
                "{finding}; with always, resident grows by 2 MiB at a time, and more than was touched"
            ),
        ),
        _ => Check::ok("huge pages", finding),
    }
}

/// Limits that are so low that they matter; one line when none is.
fn limits(s: &System) -> Vec<Check> {
    let low = [
        ("AS", 1 << 30, "64 MiB of address space are mapped in each recorded process"),
        ("DATA", 256 << 20, "heaptape's own memory counts, too"),
        ("NOFILE", 256, "heaptape keeps a file open for each recorded process"),
        ("NPROC", 64, "heaptape starts a few threads"),
        ("FSIZE", 1 << 30, "a tape that is longer ends early"),
    ];
    let is_low = |(name, least, why): &(&'static str, u64, &str)| {
        let limit = s.limit(name)?;
        // The limit on files is lifted as far as the hard one allows.
        let counts = if *name == "FSIZE" { limit.hard } else { limit.soft };
        let shown = counts.filter(|n| n < least)?;
        let value = if is_bytes(name) { Size(shown).to_string() } else { shown.to_string() };
        let finding = format!("RLIMIT_{name} is {value}: {why}");
        Some(Check::note("limits", finding).advise(format!(
            "Raise RLIMIT_{name} with ulimit, if recordings end early or programs run out."
        )))
    };
    let checks: Vec<Check> = low.iter().filter_map(is_low).collect();
    if checks.is_empty() { vec![Check::ok("limits", all_limits(s))] } else { checks }
}

fn all_limits(s: &System) -> String {
    let shown = s.limits.iter().filter(|limit| limit.name != "RSS").map(|limit| {
        let Limit { name, soft, .. } = limit;
        match soft {
            None => format!("{name} none"),
            Some(n) if is_bytes(name) => format!("{name} {}", Size(*n)),
            Some(n) => format!("{name} {n}"),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn is_bytes(limit: &str) -> bool {
    !matches!(limit, "NOFILE" | "NPROC")
}

fn sandbox(s: &System) -> Check {
    let filter = match s.seccomp {
        Some(0) | None => "no seccomp filter",
        Some(1) => "seccomp in strict mode",
        Some(_) => "a seccomp filter is on this process and on all that it starts",
    };
    let privileges = match s.no_new_privileges {
        Some(true) => "; exec gives no new rights, so setuid programs run as we do",
        _ => "",
    };
    Check::ok("sandbox", format!("{filter}{privileges}"))
}

fn preloads(f: &Findings) -> Check {
    let name = "LD_PRELOAD";
    if f.preloads.is_empty() {
        return Check::ok(name, "nothing else is preloaded");
    }
    let shown = f.preloads.iter().map(|preload| match (&preload.path, &preload.allocator) {
        (None, _) => format!("{} (not found; the loader ignores it)", preload.name),
        (Some(_), Some(allocator)) => {
            format!("{} (brings {allocator}, and its blocks are what is recorded)", preload.name)
        }
        (Some(_), None) => preload.name.clone(),
    });
    let finding = shown.collect::<Vec<_>>().join(", ");
    Check::note(name, format!("{finding}; ours stands before them"))
}

fn audit(value: &str) -> Check {
    Check::note(
        "LD_AUDIT",
        format!(
            "{value}: an auditor is loaded with libraries of its own, whose calls are not seen"
        ),
    )
}

fn mpi(mpi: &Mpi) -> Check {
    let version = mpi.version.as_deref().unwrap_or("of an unknown version");
    let library = mpi.library.display();
    let launcher = match &mpi.launcher {
        Some(path) => format!("launcher {}", path.display()),
        None => "no launcher in PATH".to_owned(),
    };
    let patches = if mpi.patches.is_empty() {
        "patches nothing".to_owned()
    } else {
        format!(
            "may patch {} in libc to watch registered memory, which heaptape's wrappers go through",
            mpi.patches.join(", ")
        )
    };
    Check::ok("MPI", format!("{} {version} ({library}, {launcher}): {patches}", mpi.name))
}

fn ucx(ucx: &Ucx) -> Check {
    let version = ucx.version.as_deref().unwrap_or("of an unknown version");
    let hooks = match (ucx.events, ucx.hook_mode.as_str()) {
        (false, _) | (_, "none") => "watches no memory".to_owned(),
        (_, "bistro") => {
            "patches libc's mmap, munmap, mremap, shmat, shmdt, brk, sbrk and madvise (bistro), which heaptape's wrappers go through".to_owned()
        }
        (_, "reloc") => {
            "changes the entries by which libraries call mmap, munmap and the like (reloc), beside heaptape's wrappers".to_owned()
        }
        (_, other) => format!("watches memory in the mode {other}"),
    };
    Check::ok("UCX", format!("{version} ({}): {hooks}", ucx.library.display()))
}

fn library(f: &Findings) -> Check {
    match &f.library {
        Ok(path) => Check::ok("library", path),
        Err(why) => Check::problem(
            "library",
            why,
            "Set XDG_CACHE_HOME to a directory that you may write and run programs from.",
        )
        .fatal(),
    }
}

fn trial(f: &Findings) -> Check {
    const NAME: &str = "recording";
    let advice = "Record it by hand (heaptape record -- true) and see what it says.";
    let trial = match &f.trial {
        Ok(trial) => trial,
        Err(why) => return Check::problem(NAME, why, advice).fatal(),
    };
    let tenths =
        |microseconds: u64| format!("{}.{} ms", microseconds / 1000, microseconds / 100 % 10);
    let finding = format!(
        "{}: {}, lost {}, order faults {}, in {} ({} unrecorded)",
        trial.command,
        counted(trial.events, "event", "events"),
        trial.lost,
        trial.order_faults,
        tenths(trial.recorded),
        tenths(trial.plain)
    );
    if trial.processes == 0 {
        let finding = format!("{} ran, but the library was not loaded into it", trial.command);
        return Check::problem(NAME, finding, advice).fatal();
    }
    if trial.lost > 0 || trial.order_faults > 0 || trial.code != Some(0) {
        return Check::problem(NAME, finding, "This is a defect of heaptape: please report it.");
    }
    Check::ok(NAME, finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use heaptape_proc::Cgroup;
    use heaptape_proc::system::{Features, Space};

    fn good() -> Findings {
        let features =
            Features { memfd: true, pidfd: true, wipe_on_fork: true, membarrier: true, tsc: true };
        let system = System {
            kernel: Some("6.1.0".into()),
            page_size: 4096,
            processors: 2,
            clock_source: Some("tsc".into()),
            smaps_rollup: true,
            overcommit: Some(0),
            shm: Space { total: Some(1 << 30), free: Some(1 << 29) },
            limits: vec![Limit { name: "NOFILE", soft: Some(1024), hard: None }],
            features,
            ..System::default()
        };
        let trial =
            Trial { command: "true".into(), code: Some(0), processes: 1, ..Trial::default() };
        Findings {
            system,
            lag: Some(Lag { pages: 0, page_size: 4096, threads: 2, touched: 560, readings: 40 }),
            shared_bytes: 4 << 20,
            library: Ok("/x/lib.so".into()),
            trial: Ok(trial),
            allotments: Allotments::default(),
            mpi: Vec::new(),
            ucx: None,
            preloads: Vec::new(),
            audit: None,
        }
    }

    fn verdict(f: &Findings, name: &str) -> Verdict {
        let checks = checks(f);
        checks.iter().filter(|c| c.name == name).map(|c| c.verdict).max().expect(name)
    }

    #[test]
    fn a_good_system_has_no_problem() {
        let checks = checks(&good());
        let worst = checks.iter().map(|check| check.verdict).max();
        assert!(worst < Some(Verdict::Problem), "{checks:?}");
        assert!(checks.iter().all(|check| !check.is_fatal && !check.finding.is_empty()));
        assert!(checks.iter().any(|c| c.name == "counters" && c.finding.contains("exact")));
    }

    #[test]
    fn every_problem_says_what_to_do() {
        let mut bad = good();
        bad.system.features = Features::default();
        bad.system.shm = Space::default();
        bad.library = Err("no place".into());
        bad.trial = Err("refused".into());
        let checks = checks(&bad);
        let problems: Vec<&Check> =
            checks.iter().filter(|check| check.verdict == Verdict::Problem).collect();
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems.iter().all(|check| check.advice.is_some()));
        assert_eq!(problems.iter().filter(|check| check.is_fatal).count(), 2);
    }

    #[test]
    fn counters_that_lag_say_by_how_much() {
        let mut f = good();
        f.lag = Some(Lag { pages: 63, page_size: 4096, threads: 1, touched: 280, readings: 40 });
        let checks = checks(&f);
        let found = checks.iter().find(|check| check.name == "counters").unwrap();
        assert!(found.finding.contains("up to 63 pages (252.0 KiB) off"), "{}", found.finding);
        f.lag = None;
        assert_eq!(verdict(&f, "counters"), Verdict::Note);
    }

    #[test]
    fn low_limits_are_named() {
        let mut f = good();
        f.system.limits.push(Limit { name: "AS", soft: Some(100 << 20), hard: None });
        f.system.limits.push(Limit { name: "FSIZE", soft: Some(1), hard: None });
        let checks = checks(&f);
        let found: Vec<_> = checks.iter().filter(|check| check.name == "limits").collect();
        assert_eq!(found.len(), 1);
        assert!(found[0].finding.contains("RLIMIT_AS is 100.0 MiB"), "{}", found[0].finding);
    }

    #[test]
    fn what_auto_would_take_is_said() {
        let mut f = good();
        let said = |f: &Findings| auto(f).finding;
        assert!(said(&f).starts_with("would take nothing: no batch system"), "{}", said(&f));
        let source = "SLURM_MEM_PER_NODE".to_owned();
        f.allotments.all.push(heaptape_proc::Allotment { bytes: 4 << 30, source });
        assert_eq!(said(&f), "would take 4.0 GiB (SLURM_MEM_PER_NODE)");
    }

    #[test]
    fn a_small_group_is_noted() {
        let mut f = good();
        f.system.cgroup = Cgroup {
            version: Some(2),
            directory: Some("/sys/fs/cgroup/a".into()),
            writable: false,
            memory: true,
            limit: Some(64 << 20),
            ceiling: None,
            ground: Ok(Ground::Below("/sys/fs/cgroup/a".into())),
        };
        assert_eq!(verdict(&f, "cgroup"), Verdict::Note);
        f.system.cgroup.limit = None;
        assert_eq!(verdict(&f, "cgroup"), Verdict::Ok);
    }

    #[test]
    fn whether_the_kernel_can_hold_a_job_is_told_with_what_to_do() {
        let mut f = good();
        let found = |f: &Findings| {
            let checks = checks(f);
            checks.into_iter().find(|check| check.name == "limits by kernel").unwrap()
        };
        let lacks = found(&f);
        assert!(lacks.finding.contains("no cgroup hierarchy") && lacks.advice.is_some());
        for ground in [Ground::Below, Ground::Alone, Ground::Beside] {
            f.system.cgroup.ground = Ok(ground("/sys/fs/cgroup/a".into()));
            let check = found(&f);
            assert_eq!((check.verdict, check.advice), (Verdict::Ok, None));
            assert!(check.finding.contains("/sys/fs/cgroup/a"), "{}", check.finding);
        }
    }

    #[test]
    fn a_trial_that_recorded_nothing_is_fatal() {
        let mut f = good();
        f.trial = Ok(Trial { processes: 0, ..f.trial.unwrap() });
        assert!(checks(&f).iter().any(|check| check.name == "recording" && check.is_fatal));
    }
}
