//! `heaptape.doctor/1`: a system, or a command, and what a recording makes of it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use heaptape_proc::elf::{Elf, Form, Libc, Linkage, Malloc};
use heaptape_proc::{Allotment, Lag, Mpi, Ucx};
use serde::Serialize;

use super::document;
use crate::doctor::system::{Preload, Trial};
use crate::doctor::{Check, program, system};

#[derive(Serialize)]
struct Diagnosis<'a> {
    schema: &'static str,
    can_record: bool,
    verdict: Option<String>,
    checks: Vec<CheckPart<'a>>,
    system: Option<SystemPart<'a>>,
    program: Option<ProgramPart<'a>>,
}

#[derive(Serialize)]
struct CheckPart<'a> {
    name: &'a str,
    verdict: String,
    finding: &'a str,
    advice: Option<&'a str>,
    fatal: bool,
}

#[derive(Serialize)]
struct SystemPart<'a> {
    kernel: Option<&'a str>,
    page_size: u64,
    processors: u64,
    features: FeaturesPart,
    clock_source: Option<&'a str>,
    tsc_trusted: bool,
    counters: Option<CountersPart>,
    overcommit: Option<u64>,
    memory: SpacePart,
    shm: ShmPart,
    ptrace_scope: Option<u64>,
    cgroup: CgroupPart,
    auto_limit: Option<AutoPart<'a>>,
    huge_pages: HugePagesPart<'a>,
    limits: BTreeMap<&'a str, LimitPart>,
    seccomp: Option<u64>,
    no_new_privileges: Option<bool>,
    preloads: Vec<PreloadPart<'a>>,
    audit: Option<&'a str>,
    mpi: Vec<MpiPart<'a>>,
    ucx: Option<UcxPart<'a>>,
    library: Option<&'a str>,
    trial: Option<TrialPart<'a>>,
}

#[derive(Serialize)]
struct FeaturesPart {
    memfd: bool,
    pidfd: bool,
    wipe_on_fork: bool,
    membarrier: bool,
    smaps_rollup: bool,
}

#[derive(Serialize)]
struct CountersPart {
    error_pages: u64,
    error_bytes: u64,
    threads: u64,
    touched_pages: u64,
    readings: u64,
}

#[derive(Serialize)]
struct SpacePart {
    total: Option<u64>,
    free: Option<u64>,
}

#[derive(Serialize)]
struct ShmPart {
    total: Option<u64>,
    free: Option<u64>,
    needed: u64,
}

#[derive(Serialize)]
struct CgroupPart {
    version: Option<u8>,
    directory: Option<String>,
    writable: bool,
    memory_controller: bool,
    memory_limit: Option<u64>,
    job_group: Option<String>,
    job_group_missing: Option<String>,
}

/// What `limit auto` would take.
#[derive(Serialize)]
struct AutoPart<'a> {
    bytes: u64,
    source: &'a str,
}

#[derive(Serialize)]
struct HugePagesPart<'a> {
    transparent: Option<&'a str>,
    shared: Option<&'a str>,
    reserved: Option<u64>,
    size: Option<u64>,
}

#[derive(Serialize)]
struct LimitPart {
    soft: Option<u64>,
    hard: Option<u64>,
}

#[derive(Serialize)]
struct PreloadPart<'a> {
    name: &'a str,
    path: Option<&'a str>,
    allocator: Option<&'a str>,
}

#[derive(Serialize)]
struct MpiPart<'a> {
    name: &'a str,
    version: Option<&'a str>,
    library: String,
    launcher: Option<String>,
    patches: &'a [&'static str],
}

#[derive(Serialize)]
struct UcxPart<'a> {
    version: Option<&'a str>,
    library: String,
    hook_mode: &'a str,
    events: bool,
}

#[derive(Serialize)]
struct TrialPart<'a> {
    command: &'a str,
    exit_code: Option<i32>,
    processes: u64,
    events: u64,
    lost: u64,
    order_faults: u64,
    seconds: f64,
    plain_seconds: f64,
}

#[derive(Serialize)]
struct ProgramPart<'a> {
    command: &'a [String],
    file: Option<String>,
    scripts: Vec<String>,
    executable: Option<String>,
    elf: Option<ElfPart<'a>>,
    rights: Option<String>,
    libraries: Vec<LibraryPart<'a>>,
    allocator: Option<AllocatorPart<'a>>,
    seen: &'static str,
    obstacle: Option<String>,
    not_seen: Vec<String>,
}

#[derive(Serialize)]
struct ElfPart<'a> {
    kind: &'static str,
    bits: u8,
    machine: u16,
    architecture: String,
    linkage: &'static str,
    loader: Option<String>,
    libc: Option<&'static str>,
    go: bool,
    build_id: Option<String>,
    malloc: Option<&'static str>,
    private_allocator: Option<PrivatePart<'a>>,
    calls_by_name: Option<&'a str>,
    sanitizer: Option<&'static str>,
}

#[derive(Serialize)]
struct PrivatePart<'a> {
    name: &'static str,
    symbol: Option<&'a str>,
}

#[derive(Serialize)]
struct LibraryPart<'a> {
    name: &'a str,
    path: Option<String>,
    preloaded: bool,
}

#[derive(Serialize)]
struct AllocatorPart<'a> {
    name: &'a str,
    file: String,
    preloaded: bool,
}

/// Writes the diagnosis of a system.
pub fn write_system(
    out: &mut impl Write,
    findings: &system::Findings,
    checks: &[Check],
) -> io::Result<()> {
    document(out, &diagnosis(checks, Some(system_part(findings)), None))
}

/// Writes the diagnosis of a command.
pub fn write_program(
    out: &mut impl Write,
    findings: &program::Findings,
    checks: &[Check],
) -> io::Result<()> {
    document(out, &diagnosis(checks, None, Some(program_part(findings))))
}

fn diagnosis<'a>(
    checks: &'a [Check],
    system: Option<SystemPart<'a>>,
    program: Option<ProgramPart<'a>>,
) -> Diagnosis<'a> {
    let part = |check: &'a Check| CheckPart {
        name: check.name,
        verdict: check.verdict.to_string(),
        finding: &check.finding,
        advice: check.advice.as_deref(),
        fatal: check.is_fatal,
    };
    Diagnosis {
        schema: "heaptape.doctor/1",
        can_record: !checks.iter().any(|check| check.is_fatal),
        verdict: checks.iter().map(|check| check.verdict).max().map(|worst| worst.to_string()),
        checks: checks.iter().map(part).collect(),
        system,
        program,
    }
}

fn system_part(f: &system::Findings) -> SystemPart<'_> {
    let s = &f.system;
    let limit =
        |l: &heaptape_proc::system::Limit| (l.name, LimitPart { soft: l.soft, hard: l.hard });
    SystemPart {
        kernel: s.kernel.as_deref(),
        page_size: s.page_size,
        processors: s.processors,
        features: FeaturesPart {
            memfd: s.features.memfd,
            pidfd: s.features.pidfd,
            wipe_on_fork: s.features.wipe_on_fork,
            membarrier: s.features.membarrier,
            smaps_rollup: s.smaps_rollup,
        },
        clock_source: s.clock_source.as_deref(),
        tsc_trusted: s.features.tsc,
        counters: f.lag.map(counters),
        overcommit: s.overcommit,
        memory: SpacePart { total: s.memory.total, free: s.memory.free },
        shm: ShmPart { total: s.shm.total, free: s.shm.free, needed: f.shared_bytes },
        ptrace_scope: s.ptrace_scope,
        cgroup: CgroupPart {
            version: s.cgroup.version,
            directory: s.cgroup.directory.as_deref().map(text),
            writable: s.cgroup.writable,
            memory_controller: s.cgroup.memory,
            memory_limit: s.cgroup.limit,
            job_group: s.cgroup.ground.as_ref().ok().map(|ground| text(ground.parent())),
            job_group_missing: s.cgroup.ground.as_ref().err().map(ToString::to_string),
        },
        auto_limit: f.allotments.least().map(auto),
        huge_pages: HugePagesPart {
            transparent: s.huge_pages.transparent.as_deref(),
            shared: s.huge_pages.shared.as_deref(),
            reserved: s.huge_pages.reserved,
            size: s.huge_pages.size,
        },
        limits: s.limits.iter().map(limit).collect(),
        seccomp: s.seccomp,
        no_new_privileges: s.no_new_privileges,
        preloads: f.preloads.iter().map(preload).collect(),
        audit: f.audit.as_deref(),
        mpi: f.mpi.iter().map(mpi).collect(),
        ucx: f.ucx.as_ref().map(ucx),
        library: f.library.as_deref().ok(),
        trial: f.trial.as_ref().ok().map(trial),
    }
}

fn auto(allotment: &Allotment) -> AutoPart<'_> {
    AutoPart { bytes: allotment.bytes, source: &allotment.source }
}

fn counters(lag: Lag) -> CountersPart {
    CountersPart {
        error_pages: lag.pages,
        error_bytes: lag.pages.saturating_mul(lag.page_size),
        threads: lag.threads,
        touched_pages: lag.touched,
        readings: lag.readings,
    }
}

fn preload(preload: &Preload) -> PreloadPart<'_> {
    PreloadPart {
        name: &preload.name,
        path: preload.path.as_deref(),
        allocator: preload.allocator.as_deref(),
    }
}

fn mpi(mpi: &Mpi) -> MpiPart<'_> {
    MpiPart {
        name: mpi.name,
        version: mpi.version.as_deref(),
        library: text(&mpi.library),
        launcher: mpi.launcher.as_deref().map(text),
        patches: &mpi.patches,
    }
}

fn ucx(ucx: &Ucx) -> UcxPart<'_> {
    UcxPart {
        version: ucx.version.as_deref(),
        library: text(&ucx.library),
        hook_mode: &ucx.hook_mode,
        events: ucx.events,
    }
}

fn trial(trial: &Trial) -> TrialPart<'_> {
    TrialPart {
        command: &trial.command,
        exit_code: trial.code,
        processes: trial.processes,
        events: trial.events,
        lost: trial.lost,
        order_faults: trial.order_faults,
        seconds: trial.recorded as f64 / 1e6,
        plain_seconds: trial.plain as f64 / 1e6,
    }
}

fn program_part(f: &program::Findings) -> ProgramPart<'_> {
    let p = &f.program;
    let library = |library: &'_ heaptape_proc::Library| library.path.as_deref().map(text);
    ProgramPart {
        command: &f.command,
        file: p.file.as_deref().map(text),
        scripts: p.scripts.iter().map(|path| text(path)).collect(),
        executable: p.executable.as_deref().map(text),
        elf: p.elf.as_ref().map(elf),
        rights: p.rights.map(|rights| rights.name().to_owned()),
        libraries: f
            .libraries
            .iter()
            .map(|l| LibraryPart { name: &l.name, path: library(l), preloaded: l.preloaded })
            .collect(),
        allocator: f.allocator.as_ref().map(|a| AllocatorPart {
            name: &a.name,
            file: text(&a.file),
            preloaded: a.preloaded,
        }),
        seen: f.seen().name(),
        obstacle: p.obstacle.as_ref().map(|obstacle| obstacle.to_string()),
        not_seen: f.blind().iter().map(|blind| blind.to_string()).collect(),
    }
}

fn elf(elf: &Elf) -> ElfPart<'_> {
    let (linkage, loader, libc) = match &elf.target.linkage {
        Linkage::Static { .. } => ("static", None, None),
        Linkage::Dynamic { loader, libc } => {
            let libc = match libc {
                Libc::Glibc => Some("glibc"),
                Libc::Musl => Some("musl"),
                Libc::Other => None,
            };
            ("dynamic", Some(text(loader)), libc)
        }
    };
    let allocators = &elf.allocators;
    let hex = elf.build_id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    ElfPart {
        kind: kind(elf.form),
        bits: elf.target.bits,
        machine: elf.target.machine,
        architecture: elf.target.architecture(),
        linkage,
        loader,
        libc,
        go: elf.go_build_id.is_some(),
        build_id: (!hex.is_empty()).then_some(hex),
        malloc: allocators.malloc.map(|malloc| match malloc {
            Malloc::Exported => "exported",
            Malloc::Hidden => "hidden",
        }),
        private_allocator: allocators
            .private
            .as_ref()
            .map(|p| PrivatePart { name: p.allocator, symbol: p.symbol.as_deref() }),
        calls_by_name: allocators.calls.as_deref(),
        sanitizer: allocators.sanitizer,
    }
}

fn kind(form: Form) -> &'static str {
    match form {
        Form::Executable => "executable",
        Form::Pie => "pie",
        Form::Library => "library",
        Form::Object => "object",
        Form::Core => "core",
        Form::Other => "other",
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_proc::{Obstacle, Program};
    use serde_json::{Value, json};

    #[test]
    fn what_is_not_known_is_null_and_never_absent() {
        let program = Program {
            file: None,
            scripts: Vec::new(),
            executable: None,
            elf: None,
            rights: None,
            obstacle: Some(Obstacle::NotFound),
        };
        let command = vec!["a".into()];
        let findings = program::Findings { command, program, libraries: vec![], allocator: None };
        let mut out = Vec::new();
        write_program(&mut out, &findings, &program::checks(&findings)).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["schema"], "heaptape.doctor/1");
        assert_eq!((&value["can_record"], &value["verdict"]), (&json!(false), &json!("problem")));
        assert_eq!(
            value["program"],
            json!({
                "command": ["a"], "file": null, "scripts": [], "executable": null, "elf": null,
                "rights": null, "libraries": [], "allocator": null, "seen": "nothing",
                "obstacle": "there is no such command", "not_seen": []
            })
        );
        assert!(value.as_object().is_some_and(|all| all.contains_key("system")));
    }
}
