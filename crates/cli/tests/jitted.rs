//! Code that is made while a program runs has no unwinding rules: stacks end at the first call of it, which is named.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::run;
use harness::{heaptape, record, scratch, skip};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn recorded(tape: &Path, command: &[&OsStr]) -> String {
    // (Some leave a log where they stand.)
    let folder = tape.parent().expect("a folder");
    let outcome = run(record(tape, &["--stacks"], command).current_dir(folder));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    String::from_utf8_lossy(&outcome.stdout).into_owned()
}

/// The calls that made something, with their stacks.
fn calls(tape: &Path, options: &[&str]) -> Vec<Value> {
    let outcome = run(heaptape(["events", "--json", "--stacks"]).arg(tape).args(options));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let events = outcome.json()["events"].as_array().expect("events").clone();
    events.into_iter().filter(|event| event["effect"] == "made").collect()
}

/// The functions of the call's stack, innermost first, and how it ends.
fn stack(tape: &Path, size: &str) -> (Vec<String>, String) {
    let calls = calls(tape, &["--size", size]);
    assert_eq!(calls.len(), 1, "{calls:?}");
    let frames = calls[0]["stack"]["frames"].as_array().expect("frames").iter();
    let functions = frames.map(|f| f["function"].as_str().unwrap_or("-").to_owned());
    (functions.collect(), calls[0]["stack"]["end"].as_str().expect("an end").to_owned())
}

/// A list of names that is removed, however a test ends.
struct Map(PathBuf);

impl Drop for Map {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_first_call_of_made_code_ends_the_stack_and_has_its_name() {
    let (folder, program) = (scratch(), program("jitted"));
    let tape = folder.path().join("x.tape");
    let map = Map(recorded(&tape, &[program.as_os_str()]).trim().into());
    let check = || {
        // The innermost frame of made code is there, and is the last.
        let expected: [(_, &[&str]); 2] = [
            ("5001", &["from_made", "made: calls the program"]),
            ("5002", &["made: calls malloc"]),
        ];
        for (size, frames) in expected {
            let (functions, end) = stack(&tape, size);
            assert_eq!(functions, frames);
            assert_eq!(end, "foreign");
        }
        let text = run(heaptape(["tree"]).arg(&tape)).stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        for name in ["made: calls the program", "made: calls malloc", "from_made"] {
            assert!(text.contains(name), "{text}");
        }
    };
    check();
    // The names are on the tape then, and the list may go.
    let outcome = run(heaptape(["symbolize"]).arg(&tape));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    drop(map);
    check();
}

#[test]
fn node_names_what_its_code_calls() {
    if Command::new("node").arg("--version").output().is_err() {
        return skip("there is no node");
    }
    let folder = scratch();
    let tape = folder.path().join("x.tape");
    let script = "function brew(i) { return Buffer.allocUnsafeSlow(70000 + i % 3) } \
                  let kept = []; for (let i = 0; i < 3000; i++) kept[i % 10] = brew(i); \
                  console.log(`/tmp/perf-${process.pid}.map`)";
    let command = ["node", "--perf-basic-prof", "-e", script].map(OsStr::new);
    let _map = Map(recorded(&tape, &command).trim().into());
    let calls = calls(&tape, &["--size", "70000..70003"]);
    assert!(calls.len() >= 3000, "{}", calls.len());
    let mut named = 0;
    for call in &calls {
        assert_eq!(call["stack"]["end"], "foreign", "{call}");
        let last = call["stack"]["frames"].as_array().and_then(|all| all.last()).expect("a frame");
        // Once it runs much, node goes through a copy of its own code, which is on no list.
        let is_named = last["function"].is_string();
        assert!(is_named || last["module"].is_null(), "{call}");
        named += usize::from(is_named);
    }
    assert!(named >= 100, "{named}");
}
