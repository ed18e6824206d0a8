//! Parallel jobs: launched under `heaptape record`, or each rank by itself under `record --join`. What the ranks compute,
//! say and leave with is what they do without us, and the tape holds exactly what each rank counted.
#![forbid(unsafe_code)]

mod harness;

use harness::allocators::installed;
use harness::compile::{mpi_program, program};
use harness::running::{Outcome, Running, run, until};
use harness::tape::{self, number};
use harness::{HEAPTAPE, LIMIT, compare, heaptape, scratch, skip, truth};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The MPIs that Debian has, each with what its `mpirun` needs here.
const MPIS: [(&str, &[&str]); 2] = [("openmpi", &["--oversubscribe"]), ("mpich", &[])];

/// A program built with one MPI, and how to launch it.
struct Job {
    mpi: &'static str,
    options: Vec<&'static str>,
    program: PathBuf,
}

/// How a job is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Plain,
    Outside,
    Joined,
}

/// What a recorded job left.
struct Left {
    outcome: Outcome,
    tapes: Vec<PathBuf>,
    truth: Vec<truth::Line>,
    _folder: tempfile::TempDir,
}

/// The program under every MPI that is there.
fn jobs(name: &str) -> Vec<Job> {
    let job = |(mpi, options): (&'static str, &[&'static str])| {
        Some(Job { mpi, options: options.to_vec(), program: mpi_program(name, mpi)? })
    };
    let jobs: Vec<Job> = MPIS.into_iter().filter_map(job).collect();
    if jobs.len() < MPIS.len() {
        skip("Open MPI or MPICH is not installed");
    }
    jobs
}

impl Job {
    /// `mpirun -n RANKS PROGRAM MODE`, recorded or not, its tapes in FOLDER.
    fn command(&self, how: How, folder: &Path, ranks: usize, mode: &[&str]) -> Command {
        let mpirun = format!("mpirun.{}", self.mpi);
        let mut command = match how {
            How::Outside => {
                let mut record = heaptape(["record", "--quiet", "-o"]);
                fs::create_dir(folder.join("tapes")).expect("a directory for the tape");
                record.arg(folder.join("tapes/job.tape")).arg("--").arg(mpirun);
                record
            }
            _ => Command::new(mpirun),
        };
        command.args(["-n", &ranks.to_string()]).args(&self.options);
        if how == How::Joined {
            command.args([HEAPTAPE, "record", "--quiet", "--join", "-o"]);
            command.arg(folder.join("tapes")).arg("--");
        }
        command.arg(&self.program).args(mode);
        // Root may use Open MPI only when it insists.
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        command.env("TRUTH", folder.join("truth")).env_remove("LD_PRELOAD");
        command
    }

    fn run(&self, how: How, ranks: usize, mode: &[&str]) -> Left {
        let folder = scratch();
        let outcome = run(&mut self.command(how, folder.path(), ranks, mode));
        Left::of(outcome, folder)
    }

    /// Records the job in both ways and compares it with the plain job, and the tapes with the truth.
    fn exact(&self, ranks: usize, mode: &[&str]) {
        let plain = self.run(How::Plain, ranks, mode);
        for how in [How::Outside, How::Joined] {
            let left = self.run(how, ranks, mode);
            let what = format!("{} {:?} {mode:?} {how:?}", self.mpi, self.options);
            assert_eq!(
                left.outcome.code(),
                plain.outcome.code(),
                "{what}: {}",
                left.outcome.stderr_text()
            );
            assert_eq!(lines(&left.outcome), lines(&plain.outcome), "{what}");
            assert_eq!(left.outcome.stderr_text(), plain.outcome.stderr_text(), "{what}");
            let info = left.exact(self, ranks, &what);
            for rank in of_ranks(&info) {
                assert_eq!(rank["exit"]["code"], 0, "{what}: {rank}");
            }
        }
    }
}

impl Left {
    fn of(outcome: Outcome, folder: tempfile::TempDir) -> Left {
        let tapes = tape::all_in(&folder.path().join("tapes"));
        Left { outcome, tapes, truth: truth::lines(&folder.path().join("truth")), _folder: folder }
    }

    /// Asserts that there is one tape, that it is sound, and that it has what each rank counted.
    fn exact(&self, job: &Job, ranks: usize, what: &str) -> Value {
        assert_eq!(self.tapes.len(), 1, "{what}: {:?}", self.tapes);
        assert_eq!(self.truth.len(), ranks, "{what}: ranks that told what they did");
        let info = tape::info(&self.tapes[0]);
        tape::assert_sound(&info);
        assert_eq!(info["uncovered"], serde_json::json!([]), "{what}");
        let mut seen: Vec<u64> = of_ranks(&info).map(|p| number(p, "/rank")).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..ranks as u64).collect::<Vec<_>>(), "{what}: {info}");
        for rank in of_ranks(&info) {
            assert_eq!(number(rank, "/mpi/size"), ranks as u64, "{what}: {rank}");
            assert!(rank["mpi"]["job"].is_string() && rank["mpi"]["host"].is_string(), "{rank}");
        }
        let found = compare::differences(&self.tapes[0], &info, &job.program, &self.truth);
        assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
        info
    }
}

/// The rows of a tape that are ranks.
fn of_ranks(info: &Value) -> impl Iterator<Item = &Value> {
    info["processes"].as_array().expect("processes").iter().filter(|p| !p["rank"].is_null())
}

/// Lines of stdout in an order of their own: ranks write when they come to it.
fn lines(outcome: &Outcome) -> Vec<String> {
    let text = String::from_utf8_lossy(&outcome.stdout);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn every_rank_is_on_one_tape_with_exactly_its_own_calls() {
    for job in jobs("ranks") {
        job.exact(4, &["exchange"]);
    }
}

#[test]
fn the_transports_of_open_mpi_carry_what_they_carry_without_us() {
    let Some(mut job) = jobs("ranks").into_iter().find(|job| job.mpi == "openmpi") else { return };
    let ucx = ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any"];
    let ucx = [&ucx[..], &["--mca", "opal_common_ucx_devices", "any", "-x"]].concat();
    let own_hooks = ["UCX_MEM_EVENTS=y", "--mca", "opal_common_ucx_opal_mem_hooks", "0"];
    let transports = [
        vec!["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"],
        vec!["--mca", "pml", "ob1", "--mca", "btl", "vader,self"],
        [&ucx[..], &["UCX_MEM_MMAP_HOOK_MODE=bistro"]].concat(),
        [&ucx[..], &["UCX_MEM_MMAP_HOOK_MODE=reloc"]].concat(),
        [&ucx[..], &["UCX_MEM_MMAP_HOOK_MODE=none"]].concat(),
        [&ucx[..], &own_hooks].concat(),
    ];
    for transport in transports {
        job.options = [vec!["--oversubscribe"], transport].concat();
        job.exact(2, &["exchange"]);
    }
}

#[test]
fn a_look_up_by_name_finds_libcs_mapping_calls_and_the_programs_own_calls_are_noted() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(&mut harness::record(&file, &[], &[program("lookup").as_os_str()]));
    assert_eq!(outcome.code(), 0, "{}", String::from_utf8_lossy(&outcome.stdout));
    let events = run(heaptape(["events", "--notes"]).arg(&file));
    let text = String::from_utf8_lossy(&events.stdout).into_owned();
    for call in ["mmap", "munmap"] {
        let noted = |line: &str| line.contains(&format!(" {call} ")) && line.contains("0x543000");
        assert_eq!(text.lines().filter(|line| noted(line)).count(), 1, "{call}:\n{text}");
    }
}

#[test]
fn registration_caches_hear_of_every_unmapping_that_they_hear_of_without_us() {
    let Some(mut job) = jobs("unmaps").into_iter().find(|job| job.mpi == "openmpi") else { return };
    let mut told = 0;
    for hooks in ["0", "1"] {
        for mode in ["bistro", "reloc", "none"] {
            if (hooks, mode) == ("0", "reloc") {
                // UCX 1.13 goes round for ever in its own hook of sbrk then, also without us.
                continue;
            }
            job.options =
                vec!["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca"];
            job.options.extend(["opal_common_ucx_devices", "any", "--mca"]);
            job.options.extend(["opal_common_ucx_opal_mem_hooks", hooks, "-x"]);
            let variable = format!("UCX_MEM_MMAP_HOOK_MODE={mode}");
            job.options.push(variable.leak());
            for who in ["ucx", "opal"] {
                let plain = job.run(How::Plain, 1, &[who]);
                assert_eq!(plain.outcome.code(), 0, "{}", plain.outcome.stderr_text());
                told += lines(&plain.outcome).iter().filter(|line| line.contains(" 1")).count();
                for how in [How::Outside, How::Joined] {
                    let left = job.run(how, 1, &[who]);
                    let what = format!("hooks {hooks}, {mode}, {who}, {how:?}");
                    assert_eq!(lines(&left.outcome), lines(&plain.outcome), "{what}");
                    tape::assert_sound(&tape::info(&left.tapes[0]));
                }
            }
        }
    }
    assert!(told > 20, "the program should be told of something at all, not {told} times");
}

#[test]
fn ranks_end_as_they_do_without_us_and_all_before_is_on_the_tape() {
    for job in jobs("ranks") {
        for mode in ["abort", "leave"] {
            // The status must be one that mpirun leaves with without us. Where ranks leave by themselves, MPICH's
            // leaves with 9, or with 0 when they were too quick for it, which is a matter of luck.
            let is_luck = |code| job.mpi == "mpich" && mode == "leave" && matches!(code, 0 | 9);
            let plain = || job.run(How::Plain, 3, &[mode]).outcome.code();
            for how in [How::Outside, How::Joined] {
                let left = job.run(how, 3, &[mode]);
                let what = format!("{} {mode} {how:?}", job.mpi);
                let code = left.outcome.code();
                let is_its = is_luck(code) || (0..20).any(|_| plain() == code);
                assert!(is_its, "{what}: {code} is none of mpirun's own");
                let info = left.exact(&job, 3, &what);
                let ended = |p: &Value| p["exit"]["code"].is_u64() || p["exit"]["signal"].is_u64();
                let known = of_ranks(&info).filter(|p| ended(p)).count();
                // Before Linux 6.15 only the launcher is told how the ranks that it started ended.
                assert!(known == 3 || how == How::Joined, "{what}: {info}");
            }
        }
    }
}

#[test]
fn ranks_with_an_allocator_of_the_users_are_recorded_exactly() {
    for library in installed() {
        for mut job in jobs("ranks") {
            let library = library.display();
            let words = match job.mpi {
                "mpich" => vec!["-genv".to_owned(), "LD_PRELOAD".to_owned(), library.to_string()],
                _ => vec!["-x".to_owned(), format!("LD_PRELOAD={library}")],
            };
            job.options.extend(words.into_iter().map(|word| &*word.leak()));
            job.exact(2, &["exchange"]);
        }
    }
}

#[test]
fn each_rank_leaves_with_its_own_status() {
    // Open MPI ends the others as soon as one has left with an error.
    let Some(job) = jobs("ranks").into_iter().find(|job| job.mpi == "mpich") else { return };
    let plain = job.run(How::Plain, 3, &["status"]);
    for how in [How::Outside, How::Joined] {
        let left = job.run(how, 3, &["status"]);
        assert_eq!(left.outcome.code(), plain.outcome.code(), "{how:?}");
        let info = left.exact(&job, 3, &format!("{how:?}"));
        for rank in of_ranks(&info) {
            let code = rank["exit"]["code"].as_u64();
            // See above.
            let may_be_unknown = how == How::Joined && code.is_none();
            assert!(may_be_unknown || code == Some(40 + number(rank, "/rank")), "{how:?}: {rank}");
        }
    }
}

#[test]
fn sigterm_to_mpirun_ends_the_ranks_and_the_tape() {
    for job in jobs("ranks") {
        let mut codes = Vec::new();
        for how in [How::Plain, How::Joined] {
            let folder = scratch();
            let running = Running::start(&mut job.command(how, folder.path(), 3, &["wait"]));
            let all = || (truth::lines(&folder.path().join("truth")).len() == 3).then_some(());
            until(Duration::from_secs(60), all).expect("three ranks that wait");
            running.signal(Signal::TERM);
            let left = Left::of(running.finish(LIMIT), folder);
            codes.push(left.outcome.code());
            if how == How::Joined {
                left.exact(&job, 3, job.mpi);
            }
        }
        // MPICH's mpirun leaves with 15, or with 0 when the ranks were too quick for it.
        assert!(codes[0] == codes[1] || job.mpi == "mpich", "{}: {codes:?}", job.mpi);
    }
}

#[test]
fn an_mpi_program_without_a_launcher_is_no_rank() {
    for job in jobs("ranks") {
        let folder = scratch();
        let file = folder.path().join("x.tape");
        let truth = folder.path().join("truth");
        let command = [job.program.as_os_str(), OsStr::new("exchange")];
        let outcome = run(harness::record(&file, &[], &command).env("TRUTH", &truth));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let info = tape::info(&file);
        tape::assert_sound(&info);
        let found = compare::differences(&file, &info, &job.program, &truth::lines(&truth));
        assert!(found.is_empty(), "{}: {}", job.mpi, found.join("\n"));
    }
}

#[test]
fn a_fortran_program_is_recorded_with_the_start_of_mpi() {
    for job in jobs("heat") {
        let plain = job.run(How::Plain, 3, &[]);
        for how in [How::Outside, How::Joined] {
            let left = job.run(how, 3, &[]);
            let what = format!("{} {how:?}", job.mpi);
            assert_eq!(left.outcome.code(), 0, "{what}: {}", left.outcome.stderr_text());
            assert_eq!(lines(&left.outcome), lines(&plain.outcome), "{what}");
            let info = tape::info(&left.tapes[0]);
            tape::assert_sound(&info);
            for rank in of_ranks(&info) {
                // 50 steps with two arrays each, up to 400,000 bytes.
                assert!(number(rank, "/calls/malloc") > 100, "{what}: {rank}");
                assert!(number(rank, "/peak/requested") > 800_000, "{what}: {rank}");
            }
            let events =
                run(heaptape(["events", "--notes", "--process", "rank:1"]).arg(&left.tapes[0]));
            let text = String::from_utf8_lossy(&events.stdout).into_owned();
            assert!(text.contains("mpi_init_enter") && text.contains("mpi_init_return"), "{what}");
        }
    }
}

#[test]
fn two_jobs_in_one_directory_do_not_mix() {
    for job in jobs("ranks") {
        let folder = scratch();
        let start = |_| {
            Running::start(&mut job.command(How::Joined, folder.path(), 2, &["exchange", "60"]))
        };
        let running: Vec<Running> = (0..2).map(start).collect();
        for one in running {
            let outcome = one.finish(LIMIT);
            assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        }
        let tapes = tape::all_in(&folder.path().join("tapes"));
        assert_eq!(tapes.len(), 2, "{tapes:?}");
        for file in &tapes {
            let info = tape::info(file);
            tape::assert_sound(&info);
            let mut ranks: Vec<u64> = of_ranks(&info).map(|p| number(p, "/rank")).collect();
            ranks.sort_unstable();
            assert_eq!(ranks, [0, 1], "{info}");
        }
    }
}

#[test]
fn one_recorded_rank_among_others_is_enough() {
    for job in jobs("ranks") {
        let folder = scratch();
        let mut command = job.command(How::Joined, folder.path(), 1, &["exchange"]);
        command.args([":", "-n", "1"]).arg(&job.program).arg("exchange");
        let outcome = run(&mut command);
        assert_eq!(outcome.code(), 0, "{}: {}", job.mpi, outcome.stderr_text());
        let info = tape::info(&tape::all_in(&folder.path().join("tapes"))[0]);
        tape::assert_sound(&info);
        assert_eq!(of_ranks(&info).map(|p| number(p, "/rank")).collect::<Vec<_>>(), [0]);
        assert_eq!(of_ranks(&info).next().map(|p| number(p, "/mpi/size")), Some(2));
    }
}

#[test]
fn processes_that_ranks_spawn_are_recorded_with_their_own_calls() {
    for job in jobs("spawning") {
        let plain = job.run(How::Plain, 2, &[]);
        if plain.outcome.code() != 0 {
            skip(&format!("{}'s mpirun spawns nothing here, also without us", job.mpi));
            continue;
        }
        // All of them in the launcher's one recording.
        let left = job.run(How::Outside, 2, &[]);
        assert_eq!(left.outcome.code(), 0, "{}", left.outcome.stderr_text());
        let info = tape::info(&left.tapes[0]);
        tape::assert_sound(&info);
        assert_eq!(info["uncovered"], serde_json::json!([]), "{info}");
        let mut ranks: Vec<u64> = of_ranks(&info).map(|p| number(p, "/rank")).collect();
        ranks.sort_unstable();
        assert_eq!((ranks, left.truth.len()), (vec![0, 0, 1, 1], 4), "{info}");
        let found = compare::differences(&left.tapes[0], &info, &job.program, &left.truth);
        assert!(found.is_empty(), "{}: {}", job.mpi, found.join("\n"));
    }
}

#[test]
fn processes_that_ranks_spawn_join_where_their_command_says_so() {
    for job in jobs("spawning") {
        if job.run(How::Plain, 2, &[]).outcome.code() != 0 {
            skip(&format!("{}'s mpirun spawns nothing here, also without us", job.mpi));
            continue;
        }
        // Without `record --join` of their own they are on no tape.
        let left = job.run(How::Joined, 2, &[]);
        assert_eq!((left.outcome.code(), left.tapes.len()), (0, 1), "{:?}", left.tapes);
        assert_eq!(of_ranks(&tape::info(&left.tapes[0])).count(), 2);

        let folder = scratch();
        let mut command = job.command(How::Joined, folder.path(), 2, &[]);
        command.args([HEAPTAPE, "record", "--quiet", "--join", "-o"]);
        command.arg(folder.path().join("tapes")).arg("--").arg(&job.program);
        let outcome = run(&mut command);
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let left = Left::of(outcome, folder);
        let mut told = 0;
        for file in &left.tapes {
            let info = tape::info(file);
            tape::assert_sound(&info);
            let pids: Vec<u64> = of_ranks(&info).map(|p| number(p, "/pid")).collect();
            let its = left.truth.iter().filter(|line| pids.contains(&line.pid));
            let its: Vec<truth::Line> = its.cloned().collect();
            told += its.len();
            let found = compare::differences(file, &info, &job.program, &its);
            assert!(found.is_empty(), "{}: {}", job.mpi, found.join("\n"));
        }
        assert_eq!((told, left.truth.len()), (4, 4), "{:?}", left.tapes);
    }
}

/// What a launcher calls to start a daemon on a host: here a process with that host's name.
const HOST: &str = "#!/bin/sh
while [ \"${1#-}\" != \"$1\" ]; do shift; done
host=$1; shift
exec unshare --uts sh -c \"echo $host >/proc/sys/kernel/hostname; $*\"
";

#[test]
fn a_job_on_two_hosts_leaves_a_tape_of_each_in_one_directory() {
    let may_unshare = run(Command::new("unshare").args(["--uts", "true"])).code() == 0;
    if !rustix::process::geteuid().is_root() || !may_unshare {
        return skip("only root can give a process a host name of its own");
    }
    for job in jobs("ranks") {
        let folder = scratch();
        let agent = folder.path().join("on-host");
        fs::write(&agent, HOST).expect("a script");
        let status = Command::new("chmod").arg("+x").arg(&agent).status().expect("chmod");
        assert!(status.success());
        let agent = agent.to_str().expect("a path in UTF-8");
        let options = match job.mpi {
            "openmpi" => {
                vec!["--mca", "plm_rsh_agent", agent, "-host", "nodea:2,nodeb:2", "--oversubscribe"]
            }
            _ => vec!["-launcher", "ssh", "-launcher-exec", agent, "-hosts", "nodea,nodeb"],
        };
        let mut command = Command::new(format!("mpirun.{}", job.mpi));
        command.args(options).args(["-n", "4", HEAPTAPE, "record", "--quiet", "--join", "-o"]);
        command.arg(folder.path().join("tapes")).arg("--").arg(&job.program).arg("exchange");
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        command.env("TRUTH", folder.path().join("truth")).env_remove("LD_PRELOAD");
        let outcome = run(&mut command);
        assert_eq!(outcome.code(), 0, "{}: {}", job.mpi, outcome.stderr_text());
        let tapes = tape::all_in(&folder.path().join("tapes"));
        assert_eq!(tapes.len(), 2, "{}: {tapes:?}", job.mpi);
        let mut all = Vec::new();
        for (file, host) in tapes.iter().zip(["nodea", "nodeb"]) {
            let info = tape::info(file);
            tape::assert_sound(&info);
            assert_eq!(info["host"], host, "{}: {info}", job.mpi);
            let ranks: Vec<u64> = of_ranks(&info).map(|p| number(p, "/rank")).collect();
            assert_eq!(ranks.len(), 2, "{}: {info}", job.mpi);
            assert!(of_ranks(&info).all(|p| number(p, "/mpi/size") == 4), "{info}");
            all.extend(ranks);
        }
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3], "{}", job.mpi);
        // The two are one job to who reads them together.
        let words = run(heaptape(["info"]).args(&tapes));
        let words = String::from_utf8_lossy(&words.stdout).into_owned();
        for host in ["nodea", "nodeb"] {
            assert!(words.contains(&format!("It was made on {host}")), "{}: {words}", job.mpi);
        }
    }
}
