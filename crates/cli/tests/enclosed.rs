//! Jobs that the kernel holds to their limit: by a control group of their own where one can be made here, and by looks at
//! their processes.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{program, static_program};
use harness::limited::{
    assert_documented, document, documented_fields, fields, ground, limited, without_groups,
};
use harness::running::{Outcome, Running, run, stat, state, until};
use harness::{LIMIT, heaptape, may_mount, scratch, skip};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// `heaptape limit MIB WORDS… -- enclosed ARGS…`: how it ended, and what its document tells.
fn enclosed(mib: u64, words: &[&str], args: &[&str]) -> (Outcome, Value) {
    let folder = scratch();
    let outcome = run(&mut limited(folder.path(), mib * MIB, words, program("enclosed"), args));
    (outcome, document(folder.path()))
}

fn bytes(mib: u64) -> String {
    (mib * MIB).to_string()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Asserts that the job had a group, and that it is gone.
fn assert_no_group_is_left(document: &Value) {
    let directory = document["cgroup"]["directory"].as_str().expect("a group");
    assert!(!Path::new(directory).exists(), "{directory} is left");
}

#[test]
fn memory_mapped_past_the_library_ends_the_job() {
    if ground().is_none() {
        return;
    }
    let (outcome, document) = enclosed(20, &["--strict"], &["raw", &bytes(1000)]);
    assert_eq!((outcome.code(), &document["verdict"]), (3, &"killed".into()), "{document}");
    assert_eq!(document["exit"]["signal"], 9);
    assert_documented(&document);
    let seen = fields(&document);
    let is_of_these = |name: &&String| {
        ["cgroup.", "resident.", "killed."].iter().any(|begin| name.starts_with(begin))
    };
    let documented = documented_fields();
    assert!(documented.iter().filter(is_of_these).all(|name| seen.contains(name)), "{seen:?}");
    let killed = &document["killed"];
    // The hard limit ends it, or a look, whichever comes first.
    assert!(
        ["kernel", "unaccounted"].contains(&killed["by"].as_str().expect("a word")),
        "{killed}"
    );
    assert!(
        killed["command"][0].as_str().is_some_and(|name| name.ends_with("/enclosed")),
        "{killed}"
    );
    let (limit, peak) = (number(&document["cgroup"]["limit"]), number(&document["cgroup"]["peak"]));
    assert!(limit <= (3 * 20 + 64) * MIB && peak <= limit, "{document}");
    assert!(number(&document["resident"]["anonymous"]) > 20 * MIB, "{document}");
    let text = outcome.stderr_text();
    assert!(text.contains("killing the job: ") && text.contains("enclosed (pid "), "{text}");
    assert_no_group_is_left(&document);
}

#[test]
fn a_job_that_is_honest_is_within() {
    if ground().is_none() {
        return;
    }
    for words in [&["--strict"][..], &["--basis", "resident"], &["--basis", "resident", "--strict"]]
    {
        let (outcome, document) = enclosed(40, words, &["touch", &bytes(30)]);
        let found = (outcome.code(), &document["verdict"], outcome.stdout.as_slice());
        assert_eq!(found, (0, &"within".into(), &b"done\n"[..]), "{words:?} {document}");
        let resident = &document["resident"];
        let held = number(&resident["held"]);
        assert!((30 * MIB..40 * MIB).contains(&held), "{resident}");
        assert_eq!(resident["source"], "cgroup");
        assert!(number(&document["cgroup"]["peak"]) >= held, "{document}");
        assert_eq!(
            (&document["killed"], &document["cgroup"]["oom_kills"]),
            (&Value::Null, &0.into())
        );
        assert_no_group_is_left(&document);
    }
}

#[test]
fn page_cache_is_not_the_programs() {
    if ground().is_none() {
        return;
    }
    let folder = scratch();
    let file = folder.path().join("large");
    let file = file.to_str().expect("UTF-8");
    for words in [&["--strict"][..], &["--basis", "resident"]] {
        let (outcome, document) = enclosed(16, words, &["cache", file, &bytes(300)]);
        let found = (outcome.code(), &document["verdict"]);
        assert_eq!(found, (0, &"within".into()), "{document}");
        assert!(number(&document["resident"]["held"]) < 16 * MIB, "{document}");
        assert!(
            number(&document["cgroup"]["peak"]) > 32 * MIB,
            "the cache was in the group: {document}"
        );
    }
}

#[test]
fn files_in_memory_are_the_programs() {
    if ground().is_none() {
        return;
    }
    if run(Command::new("stat").args(["-f", "-c", "%T", "/dev/shm"])).stdout != b"tmpfs\n" {
        return skip("/dev/shm is no tmpfs");
    }
    let file = format!("/dev/shm/heaptape-enclosed.{}", std::process::id());
    let (_, document) = enclosed(24, &["--basis", "resident"], &["file", &file, &bytes(200)]);
    fs::remove_file(&file).expect("the program's file");
    assert_eq!(document["verdict"], "killed", "{document}");
    assert!(number(&document["resident"]["shared"]) > 16 * MIB, "{document}");
}

#[test]
fn what_touches_too_much_is_ended_by_its_resident_memory() {
    if ground().is_none() {
        return;
    }
    for args in [["touch", &bytes(400)], ["raw", &bytes(400)], ["copy", &bytes(30)]] {
        let (outcome, document) = enclosed(50, &["--basis", "resident"], &args);
        assert_eq!((outcome.code(), &document["verdict"]), (137, &"killed".into()), "{document}");
        assert!(
            ["kernel", "resident"].contains(&document["killed"]["by"].as_str().expect("a word"))
        );
        assert!(number(&document["cgroup"]["peak"]) <= (50 + 50 / 4 + 32 + 1) * MIB, "{document}");
        assert_no_group_is_left(&document);
    }
}

#[test]
fn a_program_that_nobody_can_count_is_held_by_the_kernel() {
    if ground().is_none() {
        return;
    }
    let fixed = static_program("enclosed");
    for (mib, verdict, status) in [(30, "within", 0), (400, "killed", 3)] {
        let folder = scratch();
        let words = ["--basis", "resident", "--strict"];
        let args = ["touch", &bytes(mib)];
        let outcome = run(&mut limited(folder.path(), 50 * MIB, &words, &fixed, &args));
        let document = document(folder.path());
        assert_eq!((outcome.code(), &document["verdict"]), (status, &verdict.into()), "{document}");
        assert_eq!(
            document["uncovered"].as_array().map(Vec::len),
            Some(1),
            "it is named: {document}"
        );
    }
}

/// Pids that run this program with this word.
fn running(word: &str) -> usize {
    let path = program("enclosed");
    let path = path.to_str().expect("UTF-8");
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(path) && line.ends_with(&format!("\0{word}\0"))).count()
}

#[test]
fn many_processes_are_ended_together_and_nothing_is_left() {
    if ground().is_none() {
        return;
    }
    // A number that no other test has.
    let count = "61";
    let (outcome, document) = enclosed(40, &["--basis", "resident"], &["bomb", count]);
    assert_eq!((outcome.code(), &document["verdict"]), (137, &"killed".into()), "{document}");
    assert_eq!(running(count), 0, "some are left");
    assert_no_group_is_left(&document);
}

#[test]
fn a_stopped_job_is_stopped_as_a_whole() {
    if ground().is_none() {
        return;
    }
    let folder = scratch();
    let words = ["--basis", "resident", "--on-limit", "stop"];
    let count = "41";
    let mut command =
        limited(folder.path(), 30 * MIB, &words, program("enclosed"), &["bomb", count]);
    let job = Running::start(&mut command);
    let directory = ground().expect("as before").join(name_of(&job));
    let pids = || -> Vec<String> {
        let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let is_stopped = |pid: &String| state(pid) == Some('T');
    let stopped = until(LIMIT, || {
        let pids = pids();
        (pids.len() > 10 && pids.iter().all(is_stopped)).then_some(pids)
    });
    assert!(stopped.is_some(), "it was not stopped");
    // Its processes are in groups of their own, so each is ended by itself: all are in the job's cgroup.
    while let Some(pids) = Some(pids()).filter(|pids| !pids.is_empty()) {
        for pid in pids
            .iter()
            .filter_map(|pid| pid.parse().ok())
            .filter_map(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    job.finish(LIMIT);
    assert_eq!(document(folder.path())["verdict"], "killed");
    assert!(!directory.exists());
}

/// The name of a job's group.
fn name_of(job: &Running) -> String {
    let pid = job.pid().as_raw_nonzero();
    let started = &stat(pid).expect("a process")[19];
    format!("heaptape-{pid}-{started}")
}

#[test]
fn what_a_killed_heaptape_leaves_is_removed_by_the_next() {
    let Some(ground) = ground() else { return };
    let folder = scratch();
    let mut command =
        limited(folder.path(), 50 * MIB, &["--strict"], program("enclosed"), &["stay", "3"]);
    let job = Running::start(&mut command);
    let directory = ground.join(name_of(&job));
    let procs = || fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let inside = until(LIMIT, || Some(procs()).filter(|pids| !pids.trim().is_empty()));
    let inside = inside.expect("the command in its group");
    assert!(!inside.contains(&job.pid().as_raw_nonzero().to_string()), "heaptape is outside");
    job.signal(Signal::KILL);
    job.finish(LIMIT);
    assert_eq!(procs(), inside, "the job goes on, and is still limited");
    assert!(until(LIMIT, || procs().trim().is_empty().then_some(())).is_some());
    assert!(directory.exists());
    let (_, document) = enclosed(50, &["--strict"], &["stay", "0"]);
    assert_no_group_is_left(&document);
    assert!(!directory.exists(), "what the dead one left is gone");
}

#[test]
fn who_leaves_the_group_is_named() {
    let Some(ground) = ground() else { return };
    let folder = scratch();
    let script = format!("echo $$ >{}/cgroup.procs && sleep 1", ground.display());
    let words = ["--basis", "resident", "--strict"];
    let outcome = run(&mut limited(folder.path(), 50 * MIB, &words, "sh", &["-c", &script]));
    let document = document(folder.path());
    if document["exit"]["code"] != 0 {
        return skip("no process can leave its group here");
    }
    assert_eq!((outcome.code(), &document["verdict"]), (3, &"uncovered".into()), "{document}");
    assert!(
        document["uncovered"].to_string().contains("outside of its control group"),
        "{document}"
    );
}

#[test]
fn without_a_group_looks_at_the_processes_hold_the_limit() {
    if !may_mount() {
        return skip("only root can cover the control groups of this machine");
    }
    let words = ["--basis", "resident"];
    for (args, verdict, status) in [
        (["touch", &bytes(30)], "within", 0),
        (["touch", &bytes(2000)], "killed", 137),
        (["raw", &bytes(2000)], "killed", 137),
        (["bomb", "67"], "killed", 137),
    ] {
        let folder = scratch();
        let command = limited(folder.path(), 50 * MIB, &words, program("enclosed"), &args);
        let outcome = run(&mut without_groups(&command));
        let document = document(folder.path());
        let found = (&document["verdict"], outcome.code());
        assert_eq!(found, (&verdict.into(), status), "{args:?} {document}");
        assert_eq!(
            (&document["cgroup"], &document["resident"]["source"]),
            (&Value::Null, &"pss".into())
        );
        let why = document["cgroup_missing"].as_str().expect("a sentence");
        assert!(why.contains("cgroup") && why.ends_with('.'), "{why}");
        let looks = &document["resident"];
        let (many, age) = (number(&looks["looks"]), number(&looks["longest_us"]));
        assert!(many > 0 && (verdict == "killed" || many > 1 && age > 0), "{looks}");
        assert_eq!(running("67"), 0, "some are left");
    }
}

#[test]
fn strictness_without_a_group_says_what_is_missing() {
    if !may_mount() {
        return skip("only root can cover the control groups of this machine");
    }
    let mut command = heaptape(["limit", "50MB", "--strict", "--"]);
    command.arg(program("enclosed")).args(["stay", "0"]);
    let outcome = run(&mut without_groups(&command));
    let text = outcome.stderr_text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(outcome.code(), 0, "{text}");
    assert!(
        text.contains("The job had no cgroup of its own: ") && text.contains("is not stopped."),
        "{text}"
    );
}

#[test]
fn what_does_not_go_with_resident_memory_is_said() {
    for words in [&["stat"][..], &["limit", "1GB", "--join"]] {
        let mut command =
            heaptape(words.iter().copied().chain(["--basis", "resident", "--", "true"]));
        let outcome = run(&mut command);
        assert_eq!((outcome.code(), outcome.stdout.len()), (2, 0));
        assert!(harness::one_sentence(&outcome).contains("--basis resident"));
    }
}
