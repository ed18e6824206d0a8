//! Call stacks come whole onto the tape: each call has the one that it was made by, and no frame is ours.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::run;
use harness::tape::{assert_sound, info, number};
use harness::{HEAPTAPE, has_stacks, heaptape, record, scratch};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn recorded(folder: &Path, options: &[&str], command: &[&OsStr]) -> PathBuf {
    let tape = folder.join("x.tape");
    let outcome = run(&mut record(&tape, options, command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    tape
}

/// What a command prints.
fn text(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).expect("text")
}

/// The calls of a process that made something, with their stacks.
fn calls(tape: &Path, options: &[&str]) -> Vec<Value> {
    let outcome = run(heaptape(["events", "--json", "--stacks"]).arg(tape).args(options));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let events = outcome.json()["events"].as_array().expect("events").clone();
    events.into_iter().filter(|event| event["effect"] == "made").collect()
}

fn frames(event: &Value) -> &[Value] {
    event["stack"]["frames"].as_array().unwrap_or_else(|| panic!("no stack: {event}"))
}

/// The functions of a program's own file in a stack, innermost first.
fn functions(event: &Value, program: &Path) -> Vec<String> {
    let ours = frames(event).iter().filter(|frame| frame["module"] == program.to_str().unwrap());
    ours.map(|frame| frame["function"].as_str().unwrap_or("-").to_owned()).collect()
}

#[test]
fn each_path_of_a_service_has_what_it_took() {
    if !has_stacks() {
        return;
    }
    let (folder, service) = (scratch(), program("holders"));
    let tape = recorded(folder.path(), &["--stacks"], &[service.as_os_str()]);
    let info = info(&tape);
    assert_sound(&info);
    assert_eq!(info["settings"]["stacks"], "64");
    let all = calls(&tape, &[]);
    let (mut paths, mut sites) = (BTreeMap::new(), BTreeMap::<u64, (u64, Value)>::new());
    for event in &all {
        let size = number(event, "/size");
        let site = sites.entry(number(event, "/site")).or_default();
        site.0 += size;
        // Whoever has the same number has the same stack.
        assert!(site.1.is_null() || site.1 == event["stack"], "{event}");
        site.1 = event["stack"].clone();
        let first = &frames(event)[0];
        for field in ["module", "offset", "function"] {
            assert_eq!(first[field], event[field], "{event}");
        }
        assert_eq!(event["stack"]["end"], "outermost");
        for frame in frames(event) {
            assert!(!frame["module"].as_str().unwrap_or("").contains("heaptape"), "{event}");
        }
        if size == 1_000_000 {
            *paths.entry(functions(event, &service).join(" ")).or_insert(0) += size;
        }
    }
    let expected = [("main _start", 1), ("test1 main _start", 1), ("test2 main _start", 2)];
    let expected = expected.map(|(path, times)| (path.to_owned(), times * 100_000_000));
    assert_eq!(paths, BTreeMap::from(expected));
    // All sites together have all that was made, and nothing was given back.
    let sum: u64 = sites.values().map(|site| site.0).sum();
    assert_eq!(sum, all.iter().map(|event| number(event, "/size")).sum::<u64>());
    assert!(sum >= 400_000_000);
    assert_eq!(number(&info, "/processes/0/sites/count"), sites.len() as u64);
    // The two calls of test2 are two sites.
    let large = sites.values().filter(|site| site.0 == 100_000_000);
    assert_eq!(large.count(), 4);
}

#[test]
fn no_more_frames_are_kept_than_were_asked_for() {
    if !has_stacks() {
        return;
    }
    let (folder, service) = (scratch(), program("holders"));
    let tape = recorded(folder.path(), &["--depth", "2"], &[service.as_os_str()]);
    let info = info(&tape);
    assert_eq!(info["settings"]["stacks"], "2");
    for event in calls(&tape, &["--size", "1000000"]) {
        assert_eq!(frames(&event).len(), 2, "{event}");
        assert_eq!(event["stack"]["end"], "depth");
    }
    let sites = &info["processes"][0]["sites"];
    assert!(number(sites, "/cut") >= 4 && number(sites, "/cut") <= number(sites, "/count"));
    let text = text(heaptape(["events", "--stacks", "--size", "1000000"]).arg(&tape));
    assert!(text.contains("\n             test1 (holders.c:"), "{text}");
    assert!(text.contains("… cut here: no more frames were to be recorded (--depth)\n"), "{text}");
    let whole = self::text(heaptape(["info"]).arg(&tape));
    assert!(whole.contains("cut at depth") && whole.contains("stacks=2\n"), "{whole}");
}

#[test]
fn stacks_of_events_have_inlined_functions_and_lines() {
    if !has_stacks() {
        return;
    }
    let (folder, program) = (scratch(), program("inlined"));
    let tape = recorded(folder.path(), &["--stacks"], &[program.as_os_str()]);
    let all = calls(&tape, &["--size", "4321"]);
    let [call] = all.as_slice() else { panic!("{all:?}") };
    let told = |n: usize| {
        let frame = &frames(call)[n];
        let file = frame["file"].as_str().unwrap_or_default().rsplit('/').next();
        let words = ["function", "kind"].map(|field| frame[field].as_str().unwrap_or_default());
        (words, file, frame["line"].as_u64())
    };
    assert_eq!(told(0), (["grow", "inlined"], Some("inlined.c"), Some(5)));
    assert_eq!(told(1), (["main", "native"], Some("inlined.c"), Some(11)));
    let text = text(heaptape(["events", "--stacks", "--size", "4321"]).arg(&tape));
    assert!(text.contains("   grow (inlined.c:5, inlined)\n"), "{text}");
}

#[test]
fn a_tape_without_stacks_is_one_of_the_first_version() {
    let (folder, service) = (scratch(), program("holders"));
    let tape = recorded(folder.path(), &[], &[service.as_os_str()]);
    assert_eq!(fs::read(&tape).unwrap()[8..10], [1, 0]);
    let info = info(&tape);
    assert!(info["settings"].get("stacks").is_none());
    assert_eq!(info["processes"][0]["sites"], Value::Null);
    for event in calls(&tape, &["0..20"]) {
        assert!(event["site"].is_null() && event.get("stack") == Some(&Value::Null), "{event}");
    }
}

/// The processes of a job and its threads each have stacks of their own.
#[test]
fn children_and_threads_have_stacks_of_their_own() {
    if !has_stacks() {
        return;
    }
    for name in ["forker", "threads8", "signals"] {
        let (folder, program) = (scratch(), program(name));
        let tape = folder.path().join("x.tape");
        run(&mut record(&tape, &["--stacks"], &[program.as_os_str()]));
        let checked = run(heaptape(["info", "--json", "--verify"]).arg(&tape));
        assert_eq!(checked.code(), 0, "{name}: {}", checked.stderr_text());
        let info = checked.json();
        assert_sound(&info);
        for process in info["processes"].as_array().expect("processes") {
            let made = number(process, "/calls/malloc") + number(process, "/calls/calloc");
            assert_eq!(made > 0, !process["sites"].is_null(), "{name}: {process}");
            let which = format!("#{}", number(process, "/number"));
            let all = calls(&tape, &["--process", &which, "0..1000"]);
            let without = all.iter().filter(|event| event["site"].is_null()).count();
            assert!(without * 100 <= all.len(), "{name}: {without} of {} calls", all.len());
            let sites: BTreeSet<u64> = all.iter().filter_map(|e| e["site"].as_u64()).collect();
            assert!(sites.iter().all(|&site| site < number(process, "/sites/count")));
        }
    }
}

#[test]
fn every_view_reads_a_tape_with_stacks_as_one_without() {
    if !has_stacks() {
        return;
    }
    let (folder, other, service) = (scratch(), scratch(), program("holders"));
    let with = recorded(folder.path(), &["--stacks"], &[service.as_os_str()]);
    let without = recorded(other.path(), &[], &[service.as_os_str()]);
    for (view, rows, bytes) in [
        (&["live", "--by", "caller", "--json"][..], "list", "requested"),
        (&["leaks", "--json"], "callers", "bytes"),
    ] {
        let of = |tape: &Path| {
            let json = run(heaptape(view.iter().copied()).arg(tape)).json();
            let rows = json[rows].as_array().expect("rows").clone();
            // With stacks, one caller may stand in several rows.
            let mut callers = BTreeMap::<String, [u64; 2]>::new();
            for row in &rows {
                let caller = row["caller"].as_str().expect("a caller").to_owned();
                let [all_blocks, all_bytes] = callers.entry(caller).or_default();
                *all_blocks += row["blocks"].as_u64().expect("blocks");
                *all_bytes += row[bytes].as_u64().expect("bytes");
            }
            callers
        };
        assert_eq!(of(&with).len(), 4, "{view:?}");
        assert_eq!(of(&with), of(&without), "{view:?}");
    }
    let same = run(heaptape(["diff"]).args([&with, &without]));
    assert_eq!(same.code(), 0, "{}", same.stderr_text());
}

#[test]
fn a_depth_that_is_none_is_refused_in_words() {
    for depth in ["0", "129", "-1", "many"] {
        let outcome = run(Command::new(HEAPTAPE).args(["record", "--depth", depth, "--", "true"]));
        assert_eq!(outcome.code(), 2, "{depth}");
        let said = outcome.stderr_text();
        assert!(said.contains("a call stack is recorded with 1 to 128 frames"), "{said}");
    }
}
