//! `limit --join`: wrappers that end with the verdict of the whole job, and where the report goes.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{mpi_program, program, static_program};
use harness::limited::{ground, written};
use harness::running::{Outcome, Running, run, stat, until};
use harness::{HEAPTAPE, LIMIT, heaptape, one_sentence, scratch, skip};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// `heaptape limit LIMIT --quiet --join --json FOLDER/x.json OPTIONS… -- COMMAND…`, in the folder, whose name is the job's.
fn join(folder: &Path, limit: &str, options: &[&str], command: &[&OsStr]) -> Command {
    let mut counted = heaptape(["limit", limit, "--quiet", "--join", "--json"]);
    counted.arg(folder.join("x.json")).args(options).arg("--").args(command);
    let name = folder.file_name().expect("a name");
    counted.env("HEAPTAPE_JOB", name).current_dir(folder);
    counted
}

fn shell(script: &str) -> [&OsStr; 3] {
    ["sh", "-c", script].map(OsStr::new)
}

/// Two ranks of a job, of which the second begins when the first has ended well: the status of both.
fn both(limit: &str, second: &str) -> (i32, i32, Value) {
    let folder = scratch();
    let strict = |script: &str| join(folder.path(), limit, &["--strict"], &shell(script));
    let first = Running::start(&mut strict("touch one; until [ -e two ]; do sleep 0.01; done"));
    let script = format!("touch two; until [ -e one ]; do sleep 0.01; done; sleep 0.2; {second}");
    let second = run(&mut strict(&script));
    let first = first.finish(LIMIT);
    (first.code(), second.code(), written(&folder.path().join("x.json")))
}

#[test]
fn a_strict_wrapper_ends_with_the_verdict_of_the_whole_job() {
    let sizes = program("sizes");
    let too_much = format!("{} 70000000 || exit 0", sizes.display());
    for (limit, second, statuses, verdict) in [
        ("1GB", "exit 0", (0, 0), "within"),
        // One that fails is told as it is, and at once: a launcher ends the others for it.
        ("1GB", "exit 7", (0, 7), "within"),
        ("1GB", "kill -9 $$", (0, 137), "within"),
        ("50MB", &too_much, (3, 3), "refused"),
        (
            "50MB",
            &format!("{}; exit 9", too_much.trim_end_matches("exit 0").to_owned() + ":"),
            (3, 3),
            "refused",
        ),
    ] {
        let (one, two, document) = both(limit, second);
        assert_eq!(
            ((one, two), document["verdict"].as_str()),
            (statuses, Some(verdict)),
            "{second}"
        );
    }
}

/// The pids of a cgroup.
fn members(group: &Path) -> Vec<String> {
    let pids = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    pids.split_whitespace().map(str::to_owned).collect()
}

/// Asserts that the job had a group, and that it is gone.
fn assert_no_group_is_left(document: &Value) {
    let directory = document["cgroup"]["directory"].as_str().expect("a group");
    assert!(!Path::new(directory).exists(), "{directory} is left");
}

#[test]
fn all_commands_of_a_strict_job_are_in_one_group_and_their_wrappers_are_not() {
    let Some(ground) = ground() else { return };
    let folder = scratch();
    let script = "echo $$ >>pids; until [ -e go ]; do sleep 0.01; done";
    let start = || Running::start(&mut join(folder.path(), "1GB", &["--strict"], &shell(script)));
    let wrappers = [start(), start()];
    let pids = || {
        let text = fs::read_to_string(folder.path().join("pids")).ok()?;
        let pids: Vec<String> = text.lines().map(str::to_owned).collect();
        (pids.len() == 2).then_some(pids)
    };
    let pids = until(LIMIT, pids).expect("two commands");
    let group = collector(folder.path()).expect("the process that counts");
    let started = &stat(group.as_raw_nonzero()).expect("its times")[19];
    let group = ground.join(format!("heaptape-{}-{started}", group.as_raw_nonzero()));
    let inside = members(&group);
    assert!(pids.iter().all(|pid| inside.contains(pid)), "{pids:?} {inside:?}");
    for wrapper in &wrappers {
        assert!(!inside.contains(&wrapper.pid().as_raw_nonzero().to_string()));
    }
    fs::write(folder.path().join("go"), "").expect("a file");
    assert!(wrappers.map(|wrapper| wrapper.finish(LIMIT).code()) == [0, 0]);
    let document = written(&folder.path().join("x.json"));
    assert_eq!(
        (&document["verdict"], &document["cgroup_missing"]),
        (&"within".into(), &Value::Null)
    );
    assert_no_group_is_left(&document);
}

#[test]
fn what_one_command_takes_past_the_library_ends_the_whole_strict_job() {
    if ground().is_none() {
        return;
    }
    let folder = scratch();
    let strict = |script: &str| join(folder.path(), "20MB", &["--strict"], &shell(script));
    let first = Running::start(&mut strict("touch one; sleep 1000"));
    let raw = program("enclosed");
    let script =
        format!("until [ -e one ]; do sleep 0.01; done; {} raw 1000000000; exit 0", raw.display());
    let (second, first) = (run(&mut strict(&script)), first.finish(LIMIT));
    let document = written(&folder.path().join("x.json"));
    assert_eq!((first.code(), second.code()), (3, 3), "{document}");
    assert_eq!(document["verdict"], "killed", "{document}");
    // It is told where the commands' own words go.
    let said = first.stderr_text() + &second.stderr_text();
    assert!(said.contains("killing the job: "), "{said}");
    assert_no_group_is_left(&document);
}

#[test]
fn a_strict_job_waits_for_what_its_group_holds_and_nobody_counts() {
    if ground().is_none() {
        return;
    }
    let folder = scratch();
    let script = format!(
        "(until [ -e one ]; do sleep 0.01; done; exec env -i {} raw 600000000) & exit 0",
        static_program("enclosed").display()
    );
    let first = Running::start(&mut join(folder.path(), "20MB", &["--strict"], &shell(&script)));
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::write(folder.path().join("one"), "").expect("a file");
    let first = first.finish(LIMIT);
    let document = written(&folder.path().join("x.json"));
    assert_eq!((first.code(), &document["verdict"]), (3, &"killed".into()), "{document}");
    assert_no_group_is_left(&document);
}

#[test]
fn a_strict_job_waits_longer_than_for_words_of_nobody() {
    if ground().is_none() {
        return;
    }
    // Ten seconds is how long somebody is awaited who is known by the shared pages only.
    let folder = scratch();
    let stays = static_program("enclosed");
    let script = format!("env -i {} stay 12 >/dev/null 2>&1 & exit 0", stays.display());
    let first = run(&mut join(folder.path(), "20MB", &["--strict"], &shell(&script)));
    let document = written(&folder.path().join("x.json"));
    assert_eq!((first.code(), &document["verdict"]), (3, &"uncovered".into()), "{document}");
    let uncovered = document["uncovered"].to_string();
    assert!(!uncovered.contains("ended before the job"), "{uncovered}");
    assert!(document["elapsed"].as_f64() >= Some(12.0), "{document}");
    assert_no_group_is_left(&document);
}

/// A strict job of two commands, of which somebody has put the second into a group before it joins; the first ends by a
/// `script`, which is given the group of its own that both have come from. What the second says, the status of both and the
/// document; none where there can be no such group.
fn beside_another_group(script: &str) -> Option<(Outcome, i32, Value)> {
    let ground = ground()?;
    let folder = scratch();
    let name = folder.path().file_name().expect("a name");
    let other = ground.join(name);
    if fs::create_dir(&other).is_err() || !other.join("cgroup.procs").exists() {
        skip("no group can be made for a command here");
        return None;
    }
    let ground = ground.display();
    let first = format!("touch one; until [ -e two ]; do sleep 0.01; done; cd {ground}; {script}");
    let first = Running::start(&mut join(folder.path(), "1GB", &["--strict"], &shell(&first)));
    assert!(until(LIMIT, || folder.path().join("one").exists().then_some(())).is_some());
    let script = format!("grep -F {} /proc/self/cgroup; touch two; sleep 0.5", name.display());
    let second = join(folder.path(), "1GB", &["--strict"], &shell(&script));
    let mut moved = Command::new("sh");
    let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", other.display());
    moved.args(["-c", &enter, "sh"]).arg(second.get_program()).args(second.get_args());
    moved.current_dir(folder.path()).env_remove("LD_PRELOAD").env("HEAPTAPE_JOB", name);
    let (second, first) = (run(&mut moved), first.finish(LIMIT));
    let document = written(&folder.path().join("x.json"));
    let _ = fs::remove_dir(&other);
    assert!(!second.stdout.is_empty(), "it was taken from its group");
    let why = document["cgroup_missing"].as_str().expect("a sentence");
    assert!(why.contains("stays there") && document["cgroup"].is_object(), "{document}");
    assert_no_group_is_left(&document);
    Some((second, first.code(), document))
}

/// What somebody has made for a command, as a batch system for its tasks, is not left.
#[test]
fn a_command_of_another_group_stays_there_and_is_no_escape() {
    let Some((second, first, document)) = beside_another_group("true") else { return };
    assert_eq!((first, second.code()), (0, 0), "{document}");
}

#[test]
fn who_leaves_the_group_is_named_though_another_command_has_never_been_in_it() {
    let script = "echo $$ >cgroup.procs && sleep 1 || exit 9";
    let Some((_, first, document)) = beside_another_group(script) else { return };
    if document["exit"]["code"] == 9 || first == 9 {
        return skip("no process can leave its group here");
    }
    assert_eq!((first, &document["verdict"]), (3, &"uncovered".into()), "{document}");
    let uncovered = document["uncovered"].to_string();
    assert!(uncovered.contains("outside of its control group"), "{uncovered}");
}

#[test]
fn what_can_not_be_counted_is_not_started_by_a_strict_wrapper() {
    let folder = scratch();
    let fixed = static_program("static");
    let outcome = run(&mut join(folder.path(), "1GB", &["--strict"], &[fixed.as_os_str()]));
    assert_eq!((outcome.code(), outcome.stdout.len()), (3, 0));
    assert!(one_sentence(&outcome).ends_with("with --strict it is not started"));
    let outcome =
        run(&mut join(folder.path(), "1GB", &["--strict"], &shell("exec /no/such/program")));
    assert_eq!(outcome.code(), 127);
}

#[test]
fn a_report_that_can_not_be_written_is_no_verdict() {
    let folder = scratch();
    fs::create_dir(folder.path().join("x.json")).expect("a directory in its place");
    let outcome = run(&mut join(folder.path(), "1GB", &["--strict"], &shell("exit 0")));
    assert_eq!(outcome.code(), 125, "{}", outcome.stderr_text());
    fs::remove_dir(folder.path().join("x.json")).expect("our own");
    let script = "rm x.json; mkdir x.json";
    let outcome = run(&mut join(folder.path(), "1GB", &["--strict"], &shell(script)));
    assert_eq!(outcome.code(), 3, "{}", outcome.stderr_text());
    assert!(one_sentence(&outcome).contains("x.json"));
}

/// A launcher knows the wrapper alone.
#[test]
fn a_strict_wrapper_passes_signals_on_and_takes_its_command_with_it() {
    let script = "trap 'exit 6' TERM; echo $$ >pid; while :; do sleep 0.01; done";
    for (signal, status) in [(Signal::TERM, 6), (Signal::KILL, 137)] {
        let folder = scratch();
        let running =
            Running::start(&mut join(folder.path(), "1GB", &["--strict"], &shell(script)));
        let pid = || fs::read_to_string(folder.path().join("pid")).ok()?.trim().parse().ok();
        let pid: i32 = until(LIMIT, pid).expect("a command that has begun");
        let pid = Pid::from_raw(pid).expect("a pid");
        assert_ne!(running.pid(), pid);
        running.signal(signal);
        assert_eq!(running.finish(LIMIT).code(), status);
        let is_gone = || test_kill_process(pid).is_err().then_some(());
        assert!(until(LIMIT, is_gone).is_some(), "{signal:?}");
        written(&folder.path().join("x.json"));
    }
}

/// The process that counts for the job that is named after a folder.
fn collector(folder: &Path) -> Option<Pid> {
    let name = folder.file_name()?.to_str()?;
    let is_it = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has = |start: &str| {
            words.split(|&byte| byte == 0).any(|word| word.starts_with(start.as_bytes()))
        };
        has("HEAPTAPE_COLLECTS=") && has(&format!("HEAPTAPE_JOB={name}"))
    };
    let pids = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Pid::from_raw(pids.into_iter().find(is_it)?)
}

#[test]
fn a_wrapper_does_not_wait_for_a_verdict_that_nobody_tells() {
    let folder = scratch();
    let script = "touch begun; until [ -e go ]; do sleep 0.01; done";
    let running = Running::start(&mut join(folder.path(), "1GB", &["--strict"], &shell(script)));
    assert!(until(LIMIT, || folder.path().join("begun").exists().then_some(())).is_some());
    let pid = until(LIMIT, || collector(folder.path())).expect("the process that counts");
    kill_process(pid, Signal::KILL).expect("started by our own child");
    fs::write(folder.path().join("go"), "").expect("a file");
    let outcome = running.finish(LIMIT);
    assert_eq!(outcome.code(), 3);
    assert!(one_sentence(&outcome).ends_with("without a verdict"), "{}", outcome.stderr_text());
}

#[test]
fn a_pipe_that_nobody_reads_holds_no_joined_command_up() {
    for is_read in [false, true] {
        let folder = scratch();
        let pipe = folder.path().join("x.json");
        assert_eq!(run(Command::new("mkfifo").arg(&pipe)).code(), 0);
        let reader = is_read.then(|| Running::start(Command::new("cat").arg(&pipe)));
        // It is there when the report is written, and no sooner needed.
        let command = shell("until [ -e go ]; do sleep 0.01; done");
        let running = Running::start(&mut join(folder.path(), "1GB", &["--strict"], &command));
        std::thread::sleep(std::time::Duration::from_millis(200));
        fs::write(folder.path().join("go"), "").expect("a file");
        let outcome = running.finish(LIMIT);
        match reader {
            Some(reader) => {
                assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
                assert_eq!(reader.finish(LIMIT).json()["verdict"], "within");
            }
            None => {
                assert_eq!(outcome.code(), 3);
                assert!(one_sentence(&outcome).ends_with("nobody reads this pipe"));
            }
        }
    }
}

#[test]
fn the_document_of_an_earlier_job_is_gone_when_the_commands_begin() {
    let folder = scratch();
    let file = folder.path().join("x.json");
    fs::write(&file, "{\"verdict\": \"within\"}").expect("a file");
    let script = "cat x.json; until [ -e go ]; do sleep 0.01; done";
    let running = Running::start(&mut join(folder.path(), "1GB", &[], &shell(script)));
    let is_empty = || fs::metadata(&file).is_ok_and(|meta| meta.len() == 0).then_some(());
    assert!(until(LIMIT, is_empty).is_some());
    fs::write(folder.path().join("go"), "").expect("a file");
    let outcome = running.finish(LIMIT);
    assert_eq!((outcome.code(), outcome.stdout.len()), (0, 0), "it had gone before");
    assert_eq!(written(&file)["verdict"], "within");
}

const MPIS: [(&str, &[&str]); 2] = [("openmpi", &["--oversubscribe"]), ("mpich", &[])];

/// `mpirun -n 4 heaptape limit LIMIT --join --strict --json FILE --`
fn ranks(mpi: &str, options: &[&str], limit: &str, file: &Path) -> Command {
    let mut job = Command::new(format!("mpirun.{mpi}"));
    job.args(options).args(["-n", "4", HEAPTAPE, "limit", limit]);
    job.args(["--join", "--strict", "--quiet", "--json"]).arg(file).arg("--");
    // Root may use Open MPI only when it insists.
    job.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    job.env_remove("LD_PRELOAD");
    job
}

#[test]
fn the_ranks_of_mpi_end_with_the_verdict() {
    for (mpi, options) in MPIS {
        let Some(program) = mpi_program("together", mpi) else {
            skip(&format!("{mpi} is not installed"));
            continue;
        };
        for (limit, granted, status) in [("300MB", "2 of 4", 3), ("800MB", "4 of 4", 0)] {
            let folder = scratch();
            let file = folder.path().join("x.json");
            let mut job = ranks(mpi, options, limit, &file);
            let outcome = run(job.arg(&program).arg("100000000"));
            let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
            assert_eq!(outcome.code(), status, "{mpi}: {said}{}", outcome.stderr_text());
            assert!(said.starts_with(granted), "{mpi}: {said}");
            let document = written(&file);
            assert_eq!(document["verdict"] == "within", status == 0);
            if ground().is_some() {
                assert_no_group_is_left(&document);
            }
        }
    }
}

#[test]
fn ranks_of_mpi_that_take_memory_past_the_library_are_ended() {
    if ground().is_none() {
        return;
    }
    for (mpi, options) in MPIS {
        if mpi_program("together", mpi).is_none() {
            skip(&format!("{mpi} is not installed"));
            continue;
        }
        let folder = scratch();
        let file = folder.path().join("x.json");
        let mut job = ranks(mpi, options, "50MB", &file);
        let outcome = run(job.arg(program("enclosed")).args(["raw", "200000000"]));
        let document = written(&file);
        assert_ne!(outcome.code(), 0, "{mpi}: {document}");
        assert_eq!(document["verdict"], "killed", "{mpi}: {document}");
        assert_no_group_is_left(&document);
    }
}
