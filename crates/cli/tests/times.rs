//! The times on a tape: none lies before its process began, and within a process they never go back.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::run;
use harness::{heaptape, record, record_loop, scratch, tape};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

fn assert_times_in_order(mut command: Command, file: &Path, code: i32) {
    let outcome = run(&mut command);
    assert_eq!(outcome.code(), code, "{}", outcome.stderr_text());
    let info = tape::info(file);
    for row in info["processes"].as_array().expect("rows") {
        let number = format!("#{}", row["number"]);
        let outcome = run(heaptape(["events", "--json", "--process", &number]).arg(file));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let listing = outcome.json();
        let events = listing["events"].as_array().expect("a list");
        let events = events.iter().filter(|event| event["time_ms"].is_u64());
        let mut before = row["started_ms"].as_u64().expect("a start");
        for event in events {
            let time = event["time_ms"].as_u64().expect("a time");
            assert!(time >= before, "{time} after {before}: {event} of {row}");
            before = time;
        }
        assert!(row["ended_ms"].as_u64() >= Some(before), "{before}: {row}");
        assert_ne!((before, &row["events"]), (0, &Value::from(0)));
    }
}

#[test]
fn no_event_lies_before_the_start_of_its_process() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let script =
        "ls -lR /usr/include >/dev/null; for i in 1 2 3 4 5; do (ls / | cat) >/dev/null; done";
    let words = ["sh", "-c", script].map(OsStr::new);
    assert_times_in_order(record(&file, &[], &words), &file, 0);
    let forker = program("children64");
    assert_times_in_order(record(&file, &[], &[forker.as_os_str()]), &file, 0);
}

#[test]
fn times_do_not_go_back_where_there_are_threads() {
    let folder = scratch();
    let command = record_loop(folder.path(), &[], "0", "3000");
    assert_times_in_order(command, &folder.path().join("x.tape"), 7);
}
