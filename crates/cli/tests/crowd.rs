//! Crowds of threads and processes: all of them are recorded, and where there are more than can be, none waits for ever.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::{Outcome, run};
use harness::tape::{self, number};
use harness::{HEAPTAPE, record, scratch, skip};
use serde_json::Value;
use std::ffi::OsStr;
use std::process::Command;

/// Records tests/programs/crowd.c, unless so many are too many for this system. With the outcome comes what
/// `info --json` says.
fn crowd(threads: u64, processes: u64, calls: u64) -> Option<(Value, Outcome)> {
    let crowd = program("crowd");
    let words = [threads, processes, calls].map(|n| n.to_string());
    let plain = Command::new(&crowd).args(&words).status().expect("a program");
    if !plain.success() {
        skip(&format!("{threads} threads in {processes} processes are too many here: {plain}"));
        return None;
    }
    let (folder, mut command) = (scratch(), vec![crowd.as_os_str()]);
    command.extend(words.iter().map(OsStr::new));
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &[], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    Some((tape::info_outcome(&file).json(), outcome))
}

/// All that the threads did is there, and what libc does to start them.
fn assert_whole(info: &Value, threads: u64, processes: u64, calls: u64) {
    tape::assert_sound(info);
    assert_eq!(info["uncovered"], Value::Array(Vec::new()));
    assert_eq!(number(info, "/unknown_frees"), 0);
    let rows = info["processes"].as_array().expect("rows");
    assert_eq!(rows.len() as u64, if processes == 1 { 1 } else { processes + 1 });
    for row in rows.iter().filter(|row| processes == 1 || row["parent"] != Value::Null) {
        assert_eq!(number(row, "/threads"), threads + 1, "{row}");
        for call in ["malloc", "free"] {
            let (least, seen) = (2 * threads * calls, number(row, &format!("/calls/{call}")));
            assert!((least..=least + 4 * threads + 50).contains(&seen), "{call}: {seen}: {row}");
        }
    }
}

#[test]
fn thousands_of_waiting_threads_leave_the_processors_to_the_collector() {
    if let Some((info, _)) = crowd(3000, 1, 300) {
        assert_whole(&info, 3000, 1, 300);
    }
}

#[test]
fn hundreds_of_processes_at_once() {
    if let Some((info, _)) = crowd(1, 600, 300) {
        assert_whole(&info, 1, 600, 300);
    }
}

#[test]
fn hundreds_of_threads_in_each_of_many_processes() {
    if let Some((info, _)) = crowd(40, 50, 200) {
        assert_whole(&info, 40, 50, 200);
    }
}

#[test]
fn more_processes_than_descriptors() {
    let (folder, crowd) = (scratch(), program("crowd"));
    let file = folder.path().join("x.tape");
    // The hard limit holds for heaptape, too; the soft one must stay what it is for the command.
    for limits in ["ulimit -Sn 60", "ulimit -Sn 60; ulimit -Hn 60"] {
        let script = format!(
            "{limits}; exec \"$0\" record --quiet -o \"$1\" -- sh -c '\"$0\" 1 150 100; r=$?; ulimit -n; exit $r' \"$2\""
        );
        let words = [OsStr::new(HEAPTAPE), file.as_os_str(), crowd.as_os_str()];
        let outcome = run(Command::new("sh").args(["-c", &script]).args(words));
        assert_eq!((outcome.code(), outcome.stdout.as_slice()), (0, &b"60\n"[..]), "{limits}");
        let info = tape::info(&file);
        tape::assert_sound(&info);
        let rows = info["processes"].as_array().expect("rows");
        let threads: Vec<_> = rows.iter().filter(|row| row["threads"] == 2).collect();
        assert_eq!(threads.len(), 150, "{limits}");
        for row in threads {
            assert!(number(row, "/calls/malloc") >= 200, "{limits}: {row}");
        }
    }
}

#[test]
fn more_processes_than_there_are_places_do_not_wait_for_one_another() {
    // All wait for all, so those who found no place have gone on without one.
    if let Some((info, _)) = crowd(1, 1100, 20) {
        tape::assert_sound(&info);
        let uncovered = info["uncovered"].as_array().expect("a list");
        let rows = info["processes"].as_array().expect("rows").len();
        assert_eq!(rows + uncovered.len(), 1101);
        let why = uncovered[0]["why"].as_str().expect("a reason");
        assert!(why.contains("1024 processes"), "{why}");
    }
}

#[test]
fn more_threads_than_there_are_chunks_do_not_wait_for_one_another() {
    if let Some((info, outcome)) = crowd(12000, 1, 10) {
        assert_eq!((&info["complete"], &info["ended"]), (&false.into(), &"no-chunks-left".into()));
        assert_eq!((number(&info, "/lost"), number(&info, "/order_faults")), (0, 0));
        assert!(outcome.stderr_text().contains("threads"), "{}", outcome.stderr_text());
    }
}
