//! Commands that join one recording, each started by itself, without MPI: who comes first, last, too late, or dies.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, program, static_program};
use harness::running::{Running, run, until, until_file_has};
use harness::tape;
use harness::{HEAPTAPE, LIMIT, heaptape, one_sentence, scratch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// `heaptape record --join -o DIR OPTIONS… -- COMMAND…` for the job JOB.
fn join(directory: &Path, job: Option<&str>, options: &[&str], command: &[&OsStr]) -> Command {
    let mut join = heaptape(["record", "--quiet", "--join", "-o"]);
    join.arg(directory).args(options).arg("--").args(command);
    for variable in
        ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "HEAPTAPE_JOB"]
    {
        join.env_remove(variable);
    }
    if let Some(job) = job {
        join.env("HEAPTAPE_JOB", job);
    }
    join
}

/// A command that begins a file and goes on until another one is there.
fn waiter<'a>(begun: &'a Path, until: &'a Path) -> [&'a OsStr; 5] {
    let script = "echo $$ > \"$0\"; while [ ! -e \"$1\" ]; do sleep 0.05; done; exit 7";
    [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script), begun.as_os_str(), until.as_os_str()]
}

fn pid_in(file: &Path) -> u32 {
    let pid = || fs::read_to_string(file).ok()?.trim().parse().ok();
    until(Duration::from_secs(60), pid).expect("a command that has begun")
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What is on a tape whose collector has ended. Nobody waits for that who started the commands by hand.
fn ended(file: &Path) -> Value {
    let whole = || {
        let info = tape::info(file);
        (info["cut"] == false).then_some(info)
    };
    until(Duration::from_secs(60), whole).expect("a whole tape")
}

#[test]
fn commands_that_are_named_one_job_share_a_tape_and_a_later_one_gets_its_own() {
    let folder = scratch();
    let (dir, go) = (folder.path().join("new/tapes"), folder.path().join("go"));
    let begun = [folder.path().join("a"), folder.path().join("b")];
    let start =
        |file: &PathBuf| Running::start(&mut join(&dir, Some("by/hand"), &[], &waiter(file, &go)));
    let running: Vec<Running> = begun.iter().map(start).collect();
    let mut pids: Vec<u64> = begun.iter().map(|file| pid_in(file).into()).collect();
    fs::write(&go, "").expect("a file");
    for one in running {
        assert_eq!(one.finish(LIMIT).code(), 7);
    }
    let first = tape::all_in(&dir);
    assert_eq!(first.len(), 1, "{first:?}");
    let info = ended(&first[0]);
    tape::assert_sound(&info);
    for process in info["processes"].as_array().expect("processes") {
        let is_shell = process["command"][0] == "sh";
        assert!(!is_shell || process["exit"]["code"] == 7 || process["exit"]["code"].is_null());
        pids.retain(|pid| process["pid"] != *pid);
    }
    assert_eq!(pids, [0u64; 0], "both are on the tape: {info}");

    // The recording has ended: what comes now is not lost, and replaces nothing.
    let before = fs::read(&first[0]).expect("the first tape");
    let peak = program("peak");
    let outcome = run(&mut join(&dir, Some("by/hand"), &[], &[peak.as_os_str()]));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let second =
        until(Duration::from_secs(30), || Some(tape::all_in(&dir)).filter(|t| t.len() == 2));
    let second = second.expect("a second tape");
    assert!(name_of(&first[0]).starts_with("by-hand."), "{first:?}");
    let added = second.iter().find(|path| **path != first[0]).expect("another name");
    assert!(name_of(added).ends_with("-2.tape"), "{added:?}");
    assert!(
        until(Duration::from_secs(30), || (ended(added)["complete"] == true).then_some(()))
            .is_some()
    );
    assert_eq!(fs::read(&first[0]).expect("the first tape"), before);
}

#[test]
fn commands_of_one_job_have_their_stacks_on_the_one_tape() {
    let folder = scratch();
    let (dir, go, begun) =
        (folder.path().join("tapes"), folder.path().join("go"), folder.path().join("a"));
    let first = Running::start(&mut join(&dir, Some("j"), &["--stacks"], &waiter(&begun, &go)));
    pid_in(&begun);
    let holders = program("holders");
    for _ in 0..2 {
        let outcome = run(&mut join(&dir, Some("j"), &["--stacks"], &[holders.as_os_str()]));
        assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    }
    fs::write(&go, "").expect("a file");
    assert_eq!(first.finish(LIMIT).code(), 7);
    let file = &tape::all_in(&dir)[0];
    let info = ended(file);
    tape::assert_sound(&info);
    let processes = info["processes"].as_array().expect("processes");
    let is_holders = |p: &&Value| p["command"][0] == holders.to_str().expect("a path");
    let numbers: Vec<_> =
        processes.iter().filter(is_holders).map(|p| p["number"].clone()).collect();
    assert_eq!(numbers.len(), 2, "{info}");
    for number in numbers {
        let mut events = heaptape(["events", "--json", "--stacks", "--size", "1000000"]);
        let outcome = run(events.arg(file).args(["--process", &format!("#{number}")]));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let events = outcome.json()["events"].as_array().expect("events").clone();
        let mut paths = std::collections::BTreeMap::new();
        for event in &events {
            let frames = event["stack"]["frames"].as_array().expect("a stack");
            let ours = frames.iter().filter(|f| f["module"] == holders.to_str().expect("a path"));
            let names: Vec<_> = ours.filter_map(|f| f["function"].as_str()).collect();
            *paths.entry(names.join(" ")).or_insert(0) += 1;
        }
        let paths: Vec<_> = paths.into_iter().collect();
        let should = [("main _start", 100), ("test1 main _start", 100), ("test2 main _start", 200)];
        assert_eq!(paths, should.map(|(path, calls)| (path.to_owned(), calls)));
    }
}

#[test]
fn the_recording_goes_on_when_the_command_that_began_it_is_killed() {
    let folder = scratch();
    let (dir, go) = (folder.path().join("tapes"), folder.path().join("go"));
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let first = Running::start(&mut join(&dir, Some("j"), &[], &waiter(&a, &go)));
    let killed = pid_in(&a);
    let second = Running::start(&mut join(&dir, Some("j"), &[], &waiter(&b, &go)));
    let survivor = pid_in(&b);
    // The launcher's child is the command itself.
    assert_eq!(first.pid().as_raw_nonzero().get() as u32, killed);
    kill_process(Pid::from_raw(killed as i32).expect("a pid"), Signal::KILL).expect("it runs");
    assert_eq!(first.finish(LIMIT).code(), 137);
    fs::write(&go, "").expect("a file");
    assert_eq!(second.finish(LIMIT).code(), 7);
    let info = ended(&tape::all_in(&dir)[0]);
    tape::assert_sound(&info);
    for pid in [killed, survivor] {
        let is_it = |p: &&Value| p["pid"] == pid;
        assert!(
            info["processes"].as_array().expect("processes").iter().any(|p| is_it(&p)),
            "{info}"
        );
    }
}

#[test]
fn ranks_join_where_the_launcher_passes_no_environment_on() {
    let folder = scratch();
    let dir = folder.path().join("tapes");
    let go = folder.path().join("go");
    let start = |rank: usize| {
        let begun = folder.path().join(rank.to_string());
        let mut command = Command::new("env");
        command.args([
            "-i",
            "PATH=/usr/bin:/bin",
            "PMI_SIZE=2",
            "MPI_LOCALNRANKS=2",
            "PMI_JOBID=kvs_7",
        ]);
        command.arg(format!("PMI_RANK={rank}"));
        command.args([HEAPTAPE, "record", "--quiet", "--join", "-o"]).arg(&dir).arg("--");
        let running = Running::start(command.args(waiter(&begun, &go)));
        (running, begun)
    };
    let running = [start(0), start(1)];
    for (_, begun) in &running {
        pid_in(begun);
    }
    fs::write(&go, "").expect("a file");
    for (one, _) in running {
        let outcome = one.finish(LIMIT);
        assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (7, ""));
    }
    let tapes = tape::all_in(&dir);
    assert_eq!(tapes.len(), 1, "{tapes:?}");
    assert!(name_of(&tapes[0]).starts_with("kvs_7."), "{tapes:?}");
    let info = ended(&tapes[0]);
    tape::assert_sound(&info);
    let shells = info["processes"].as_array().expect("processes").iter();
    let shells = shells.filter(|p| p["command"][0] == "sh" && p["mpi"]["size"] == 2);
    assert_eq!(shells.count(), 2, "{info}");
}

#[test]
fn what_keeps_a_command_from_joining_is_one_sentence() {
    let folder = scratch();
    let file = folder.path().join("file");
    fs::write(&file, "x").expect("a file");
    let sentence = |command: &mut Command, code: i32, holds: &str| {
        let outcome = run(command);
        assert_eq!(outcome.code(), code, "{}", outcome.stderr_text());
        let line = one_sentence(&outcome);
        assert!(line.contains(holds), "{line}");
    };
    let dir = folder.path().join("tapes");
    let yes = [OsStr::new("true")];
    sentence(&mut join(&dir, None, &[], &yes), 125, "HEAPTAPE_JOB");
    sentence(&mut join(&dir, Some(" "), &[], &yes), 125, "HEAPTAPE_JOB");
    sentence(&mut join(&file, Some("j"), &[], &yes), 125, "names a directory");
    sentence(&mut join(&file.join("below"), Some("j"), &[], &yes), 125, "nothing was started");
    sentence(&mut join(Path::new("/proc/1"), Some("j"), &[], &yes), 125, "nothing was started");
    sentence(&mut join(&dir, Some("j"), &[], &[OsStr::new("/no/such")]), 127, "no such command");
    sentence(&mut join(&dir, Some("j"), &[], &[file.as_os_str()]), 126, "not executable");
    assert!(!dir.exists() || tape::all_in(&dir).is_empty());
    assert_eq!(fs::read_to_string(&file).expect("the file"), "x");
}

#[test]
fn a_command_that_could_not_begin_after_all_leaves_no_tape() {
    let folder = scratch();
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").expect("a script");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("mode");
    let dir = folder.path().join("tapes");
    let outcome = run(&mut join(&dir, Some("j"), &[], &[script.as_os_str()]));
    assert_eq!(outcome.code(), 126, "{}", outcome.stderr_text());
    one_sentence(&outcome);
    let is_empty = || tape::all_in(&dir).is_empty().then_some(());
    assert!(until(Duration::from_secs(30), is_empty).is_some(), "{:?}", tape::all_in(&dir));
}

#[test]
fn a_static_program_that_joins_is_named() {
    let folder = scratch();
    let dir = folder.path().join("tapes");
    let program = static_program("static");
    let outcome = run(&mut join(&dir, Some("j"), &[], &[program.as_os_str()]));
    assert!(one_sentence(&outcome).contains("statically linked"), "{}", outcome.stderr_text());
    let info = ended(&tape::all_in(&dir)[0]);
    assert_eq!(info["uncovered"].as_array().map(Vec::len), Some(1), "{info}");
}

#[test]
fn a_tape_that_is_full_ends_and_its_job_does_not() {
    let folder = scratch();
    let dir = folder.path().join("tapes");
    let exchange = program("exchange");
    let command = [exchange.as_os_str(), OsStr::new("2"), OsStr::new("400000")];
    let outcome = run(&mut join(&dir, Some("j"), &["--max-size", "100K"], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let file = tape::all_in(&dir).remove(0);
    let info = ended(&file);
    assert_eq!((&info["complete"], &info["ended"]), (&false.into(), &"max-size".into()), "{info}");
    assert!(file.metadata().expect("the tape").len() <= 100 << 10);
}

/// Runs two commands of one job, each behind what JOIN puts before it, with tests/programs/keeper.c preloaded: what that
/// has told.
fn kept(folder: &Path, join: impl Fn(&[&OsStr]) -> Command) -> String {
    let (go, told) = (folder.join("go"), folder.join("told"));
    let begun = [folder.join("a"), folder.join("b")];
    let start = |file: &PathBuf| {
        let mut command = join(&waiter(file, &go));
        Running::start(command.env("LD_PRELOAD", library("keeper")).env("KEEPER", &told))
    };
    let running: Vec<Running> = begun.iter().map(start).collect();
    for file in &begun {
        pid_in(file);
    }
    assert!(until_file_has(&told, "left", Duration::from_secs(60)), "their commands end");
    fs::write(&go, "").expect("a file");
    for one in running {
        assert_eq!(one.finish(LIMIT).code(), 7);
    }
    fs::read_to_string(&told).expect("what the library told")
}

/// Asserts that a library lost nothing, and was in no process but those of the job when it ended.
fn assert_kept(told: &str, job: &Value) {
    let rows = job["processes"].as_array().expect("processes");
    let is_of_it =
        |pid: &str| rows.iter().any(|row| pid.parse().is_ok_and(|pid: u64| row["pid"] == pid));
    let is_kept = |line: &str| line.strip_prefix("left ").is_some_and(is_of_it);
    assert!(told.lines().all(is_kept), "{told}{job}");
}

/// What a user preloads may keep descriptors for itself, and do something at the end of a process.
#[test]
fn what_is_preloaded_into_commands_that_join_keeps_its_descriptors_and_is_in_them_alone() {
    let folder = scratch();
    let dir = folder.path().join("tapes");
    let told = kept(folder.path(), |command| join(&dir, Some("j"), &[], command));
    let info = ended(&tape::all_in(&dir)[0]);
    tape::assert_sound(&info);
    assert_kept(&told, &info);

    let folder = scratch();
    let file = folder.path().join("x.json");
    let told = kept(folder.path(), |command| {
        let mut counted = heaptape(["stat", "--quiet", "--join", "--json"]);
        counted.arg(&file).arg("--").args(command);
        // Countings of one name meet wherever they are started.
        counted.env("HEAPTAPE_JOB", folder.path().file_name().expect("a name"));
        counted
    });
    let document = || serde_json::from_str(&fs::read_to_string(&file).ok()?).ok();
    assert_kept(&told, &until(Duration::from_secs(60), document).expect("a document"));
}

#[test]
fn nothing_of_the_recording_stays_when_the_job_has_ended() {
    let folder = scratch();
    let dir = folder.path().join("tapes");
    let script = "env | grep ^HEAPTAPE_SESSION=";
    let command = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script)];
    let outcome = run(&mut join(&dir, Some("j"), &[], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let session = text.trim().split_once('=').expect("a variable").1.to_owned();
    let is_gone = || (!Path::new(&session).exists()).then_some(());
    assert!(until(Duration::from_secs(30), is_gone).is_some(), "{session} stays");
    assert_eq!(ended(&tape::all_in(&dir)[0])["complete"], true);
}
