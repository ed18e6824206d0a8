//! `--on-limit stop`: what is stopped is named, and nothing stays stopped that the user has not been told of.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::limited::assert_documented;
use harness::running::{Running, state, until, until_file_has};
use harness::{LIMIT, heaptape, scratch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The pids that stand behind `kill -CONT` in a line with these words.
fn named(text: &str, words: &str) -> Option<Vec<i32>> {
    let line = text.lines().find(|line| line.starts_with("heaptape: ") && line.contains(words))?;
    let list = line.split_once("kill -CONT ")?.1.split_once(" let")?.0;
    Some(list.split(' ').filter_map(|pid| pid.parse().ok()).collect())
}

fn pid_in(file: &Path) -> i32 {
    until(LIMIT, || fs::read_to_string(file).ok()?.trim().parse().ok()).expect("a pid")
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("started by our own child");
}

#[test]
fn who_has_left_the_session_is_stopped_and_named_to_the_end() {
    let folder = scratch();
    let said = folder.path().join("said");
    let json = folder.path().join("x.json");
    // One in a session of its own, and one of its own group, whose parent is gone.
    let script = "setsid sh -c 'echo $$ >away; exec sleep 1000' & (set -m; sh -c 'echo $$ >aside; exec sleep 1000' & )
        until [ -s away ] && [ -s aside ]; do sleep 0.01; done; echo $$ >own; \"$0\" 70000000; exit 0";
    let mut job = heaptape(["limit", "50MB", "--on-limit", "stop", "--quiet", "--json"]);
    job.arg(&json).args(["--", "bash", "-c", script]).arg(program("sizes"));
    // Its words are read while it runs.
    let text = fs::File::create(&said).expect("a file");
    let running = Running::start_telling(job.current_dir(folder.path()), text);
    let told = |words: &str| until(LIMIT, || named(&fs::read_to_string(&said).ok()?, words));
    let stopped = told("the job is stopped").expect("who is stopped");
    let [away, aside, own] = ["away", "aside", "own"].map(|name| pid_in(&folder.path().join(name)));
    for pid in [away, aside, own] {
        assert!(stopped.contains(&pid), "{pid} of {stopped:?}");
        assert_eq!(state(pid), Some('T'));
    }
    // The command and what asked for too much go; the others are still there.
    for &pid in stopped.iter().filter(|&&pid| pid != away && pid != aside) {
        send(pid, Signal::KILL);
    }
    let still = told("the command has ended").expect("who is still stopped");
    assert_eq!(still.iter().filter(|&&pid| pid == away || pid == aside).count(), 2, "{still:?}");
    // (Where the tests run in a shell's background, an interrupt is ignored by all that they start.)
    running.signal(Signal::TERM);
    let outcome = running.finish(LIMIT);
    assert_eq!(outcome.code(), 137);
    let left = named(&fs::read_to_string(&said).expect("its words"), "the counting has ended")
        .expect("pids");
    let document: Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("a document")).expect("JSON");
    assert_documented(&document);
    let rows = document["stopped"].as_array().expect("rows");
    for pid in [away, aside] {
        assert!(
            left.contains(&pid) && rows.iter().any(|row| row["pid"] == pid),
            "{pid}: {left:?} {rows:?}"
        );
        assert_eq!(state(pid), Some('T'), "it stays as it is");
        send(pid, Signal::KILL);
    }
    assert_eq!((left.len(), rows.len()), (2, 2), "{left:?} {rows:?}");
}

#[test]
fn a_job_that_goes_on_leaves_nothing_to_be_told() {
    let folder = scratch();
    let (said, json) = (folder.path().join("said"), folder.path().join("x.json"));
    let mut job = heaptape(["limit", "50MB", "--on-limit", "stop", "--json"]);
    job.arg(&json).arg("--").arg(program("sizes")).arg("70000000");
    let running = Running::start_telling(&mut job, fs::File::create(&said).expect("a file"));
    let told = || named(&fs::read_to_string(&said).ok()?, "the job is stopped");
    let stopped = until(LIMIT, told).expect("who is stopped");
    assert_eq!(stopped.len(), 1);
    send(stopped[0], Signal::CONT);
    assert_eq!(running.finish(LIMIT).code(), 5);
    let document: Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("a document")).expect("JSON");
    assert_eq!(
        (&document["stopped"], &document["verdict"]),
        (&serde_json::json!([]), &"killed".into())
    );
    let text = fs::read_to_string(&said).expect("its words");
    assert!(text.contains("\nStopped at ") && !text.contains("Still stopped"), "{text}");
}

/// Who was let go on is not stopped again for each further request, with nobody told.
#[test]
fn a_job_that_goes_on_is_not_stopped_again() {
    let folder = scratch();
    let said = folder.path().join("said");
    let script = "for i in 1 2 3; do \"$0\" 70000000; done; \"$0\" 70000000 & \"$0\" 70000000 & wait; exit 7";
    let mut job = heaptape(["limit", "50MB", "--on-limit", "stop"]);
    job.args(["--", "sh", "-c", script]).arg(program("sizes"));
    let running = Running::start_telling(&mut job, fs::File::create(&said).expect("a file"));
    let told = || named(&fs::read_to_string(&said).ok()?, "the job is stopped");
    for pid in until(LIMIT, told).expect("who is stopped") {
        send(pid, Signal::CONT);
    }
    let outcome = running.finish(LIMIT);
    let text = fs::read_to_string(&said).expect("its words");
    assert_eq!((outcome.code(), text.matches("kill -CONT").count()), (7, 1), "{text}");
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "refused 70000000\n".repeat(5));
}

/// Where nobody can stop the job each of many refusals would wait in vain.
#[test]
fn a_stopped_heaptape_holds_up_no_more_than_one_refusal() {
    let folder = scratch();
    let script = "import os, time
open('pid', 'w').write(str(os.getpid()))
open('ready', 'w').write('ready')
while not os.path.exists('go'): time.sleep(0.01)
refused = 0
for i in range(200):
    try: bytearray(70000000)
    except MemoryError: refused += 1
open('refused', 'w').write(f'{refused} refused')";
    let mut job = heaptape(["limit", "50MB", "--on-limit", "stop", "--quiet", "--"]);
    job.args(["/usr/bin/python3", "-c", script]).current_dir(folder.path());
    let running = Running::start(&mut job);
    assert!(until_file_has(&folder.path().join("ready"), "ready", LIMIT));
    running.signal(Signal::STOP);
    fs::write(folder.path().join("go"), "").expect("a file");
    let is_done = until_file_has(&folder.path().join("refused"), "200 refused", LIMIT);
    // As long as it lives it would be stopped now, for the request of that time.
    let pid = pid_in(&folder.path().join("pid"));
    let has_ended = until(LIMIT, || matches!(state(pid), None | Some('Z')).then_some(())).is_some();
    running.signal(Signal::CONT);
    assert!(is_done && has_ended, "each waits");
    assert_eq!(running.finish(LIMIT).code(), 0);
}
