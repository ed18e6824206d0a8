//! What processes of a counted job leave behind when they end, and how a whole job is ended or stopped.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{program, static_program};
use harness::limited::{bounds, document, limited};
use harness::running::{Outcome, Running, run, state, until};
use harness::{LIMIT, scratch};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// More than what a small program has beside blocks: its data and that of its libraries, its reserve.
const BESIDE: u64 = 512 << 10;

fn numbers(outcome: &Outcome) -> Vec<u64> {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn what_a_parent_held_stays_charged_until_its_heir_lets_go() {
    const PAGE: u64 = 4096;
    let (folder, limit, bytes) = (scratch(), 100u64 << 20, 60u64 << 20);
    let args = [bytes.to_string(), limit.to_string()];
    let args = args.each_ref().map(String::as_str);
    // (libc gives a block up to a page more than was asked for.)
    let words = ["--basis", "usable"];
    let outcome = run(&mut limited(folder.path(), limit, &words, program("heirs"), &args));
    let [all, .., third] = numbers(&outcome)[..] else { panic!("four numbers") };
    assert!(outcome.code() == 0 && (all - 2 * PAGE..=all).contains(&third), "{third} of {all}");
    let outcome = run(&mut limited(folder.path(), limit, &[], program("heirs"), &args));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let small = bytes / 4;
    let [all, first, second, third] = numbers(&outcome)[..] else { panic!("four numbers") };
    // The rest is its data, which the child shares, and a reserve, which it has, too.
    assert!((limit - BESIDE..limit).contains(&all), "{all}");
    for (had, expected) in [(first, all - bytes - small), (second, all - bytes), (third, all)] {
        assert!((expected - PAGE..=expected).contains(&had), "{had} of {expected}");
    }
    let document = document(folder.path());
    let peak = &document["peak"]["charged"];
    let (lower, upper) = bounds(peak);
    assert!(lower <= upper && upper <= limit, "{document}");
    assert_eq!(document["processes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn what_an_heir_has_let_go_of_does_not_stand_in_the_peak_and_leaves_room_at_once() {
    let folder = scratch();
    for (blocks, bytes) in [(100u64, 1u64 << 20), (2000, 2000)] {
        let (held, args) = (blocks * bytes, [blocks.to_string(), bytes.to_string()]);
        let args = args.each_ref().map(String::as_str);
        // A part in 256 may be told a little later.
        let most = held + held / 256 + 2 * BESIDE;
        for words in [&[][..], &["--exact"]] {
            let outcome =
                run(&mut limited(folder.path(), 1 << 40, words, program("legacy"), &args));
            assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
            let (lower, upper) = bounds(&document(folder.path())["peak"]["charged"]);
            let is_true = (held..=upper).contains(&lower) && lower <= held + 2 * BESIDE;
            assert!(is_true && upper <= most, "{words:?}: {lower} to {upper}, {blocks} of {bytes}");
            // The child's begin takes as much, and nothing more.
            let tight = held + 2 * BESIDE;
            let outcome = run(&mut limited(folder.path(), tight, words, program("legacy"), &args));
            assert_eq!((outcome.code(), numbers(&outcome)), (0, vec![0]), "{words:?}");
        }
    }
}

#[test]
fn nothing_is_lost_with_processes_that_are_killed_at_random() {
    let (folder, limit) = (scratch(), 8u64 << 20);
    let limit_word = limit.to_string();
    for words in [&[][..], &["--exact"]] {
        let mut command =
            limited(folder.path(), limit, words, program("perish"), &["60", &limit_word]);
        let outcome = run(&mut command);
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let [before, after] = numbers(&outcome)[..] else { panic!("two numbers") };
        assert!((limit - BESIDE..limit).contains(&before), "{before}");
        assert_eq!(before, after, "{words:?}");
        let peak = document(folder.path())["peak"]["charged"]["upper"].as_u64();
        assert!(peak <= Some(limit), "{peak:?}");
    }
}

/// A job that strays: its program, and the shared memory that it maps.
struct Straying {
    folder: tempfile::TempDir,
    segment: PathBuf,
    command: Command,
}

impl Straying {
    fn new(on_limit: &str) -> Straying {
        let folder = scratch();
        let name = format!("/heaptape-test-{}-{on_limit}", std::process::id());
        let segment = Path::new("/dev/shm").join(&name[1..]);
        let lingering = static_program("lingering");
        let args = [&name, "20000000", lingering.to_str().expect("a path")];
        let words = ["--on-limit", on_limit];
        let command = limited(folder.path(), 30_000_000, &words, program("straying"), &args);
        Straying { folder, segment, command }
    }
}

/// Whether a process is there and runs, or waits to.
fn lives(pid: u64) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

#[test]
fn a_job_that_is_killed_leaves_no_process_and_no_shared_memory() {
    let mut straying = Straying::new("kill");
    let outcome = run(&mut straying.command);
    let pids = numbers(&outcome);
    let left: Vec<&u64> = pids.iter().filter(|&&pid| lives(pid)).collect();
    let is_there = straying.segment.exists();
    let _ = fs::remove_file(&straying.segment);
    assert_eq!(pids.len(), 3, "{}", outcome.stderr_text());
    assert_eq!((left.len(), is_there, outcome.code()), (0, false, 137), "{left:?}");
    let document = document(straying.folder.path());
    assert_eq!(document["verdict"], "killed");
    assert_eq!(document["first_refusal"]["bytes"], 20_000_000);
    assert_eq!(document["first_refusal"]["pid"], pids[0]);
    assert!(!outcome.stderr_text().contains("went on"), "{}", outcome.stderr_text());
}

#[test]
fn a_job_that_is_stopped_waits_for_a_debugger_and_goes_on() {
    let mut straying = Straying::new("stop");
    let running = Running::start(&mut straying.command);
    let out = running.stdout_path();
    let pids = || {
        let text = fs::read_to_string(&out).unwrap_or_default();
        let pids: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let is_stopped = |&pid: &u64| state(pid) == Some('T');
        (pids.len() == 3 && pids.iter().all(is_stopped)).then_some(pids)
    };
    let stopped = until(Duration::from_secs(30), pids);
    let text = fs::read_to_string(&out).unwrap_or_default();
    for pid in text.lines().filter_map(|line| line.parse().ok()) {
        // Those that go on wait for a signal to end them.
        for signal in [Signal::CONT, Signal::TERM] {
            let _ = kill_process(Pid::from_raw(pid).expect("a pid"), signal);
        }
    }
    let outcome = running.finish(LIMIT);
    let _ = fs::remove_file(&straying.segment);
    assert!(stopped.is_some(), "{}", outcome.stderr_text());
    assert_eq!(document(straying.folder.path())["verdict"], "killed");
}
