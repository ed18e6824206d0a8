//! Allocators other than libc's: those that the user preloads, of which every call is seen as ever, and those in the
//! executable, which are named.
#![forbid(unsafe_code)]

mod harness;

use harness::allocators::{allocator, installed};
use harness::compile::{library, program};
use harness::running::{Outcome, run};
use harness::{compare, heaptape, record, scratch, tape, truth};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// Runs a command with an allocator, and the same recorded: it must end as without heaptape, and the tape must tell
/// exactly what the program says of itself.
fn exact(allocator: &Path, program: &Path, args: &[&str]) {
    let folder = scratch();
    let (file, lines) = (folder.path().join("x.tape"), folder.path().join("truth"));
    let plain = run(Command::new(program).args(args).env("LD_PRELOAD", allocator));
    let command: Vec<&OsStr> =
        [program.as_os_str()].into_iter().chain(args.iter().map(OsStr::new)).collect();
    let mut recording = record(&file, &[], &command);
    let outcome = run(recording.env("LD_PRELOAD", allocator).env("TRUTH", &lines));
    let what = format!("{} with {}", program.display(), allocator.display());
    assert_eq!(outcome.code(), plain.code(), "{what}: {}", outcome.stderr_text());
    assert_eq!(outcome.stderr, plain.stderr, "{what}");
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(info["uncovered"], Value::Array(Vec::new()), "{what}");
    assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{what}");
    // mimalloc ends a program that asks for too much, before it can write its truth.
    if plain.code() != 0 {
        return;
    }
    // An allocator written in C++ brings that library along, which makes a block of its own.
    let truth: Vec<truth::Line> =
        truth::lines(&lines).into_iter().map(|line| truth::Line { quiet: false, ..line }).collect();
    let differences = compare::differences(&file, &info, program, &truth);
    assert!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
}

#[test]
fn every_call_of_one_thread_under_every_allocator() {
    for allocator in installed() {
        exact(&allocator, &program("entries"), &["without-pvalloc"]);
    }
}

#[test]
fn eight_threads_under_every_allocator() {
    for allocator in installed() {
        exact(&allocator, &program("threads8"), &[]);
    }
}

#[test]
fn operators_that_fail_and_throw_under_every_allocator() {
    for allocator in installed() {
        exact(&allocator, &program("news"), &[]);
        exact(&allocator, &program("exceptions"), &[]);
    }
}

#[test]
fn children_under_every_allocator() {
    for allocator in installed() {
        exact(&allocator, &program("spawner"), &[]);
    }
}

/// Rows of the process table whose command names the program.
fn rows_of<'a>(info: &'a Value, program: &Path) -> Vec<&'a Value> {
    let name = program.file_name().expect("a name").to_string_lossy().into_owned();
    let is_its =
        |row: &&Value| row["command"][0].as_str().is_some_and(|c| c.ends_with(&format!("/{name}")));
    info["processes"].as_array().expect("rows").iter().filter(is_its).collect()
}

fn slack(file: &Path) -> u64 {
    let mut slack = 0;
    tape::rows(file, |row| slack += row.slack);
    slack
}

#[test]
fn an_allocator_before_or_behind_ours_in_a_child_is_behind_it() {
    let program = program("shimmed");
    for allocator in installed() {
        let name = allocator.display();
        for order in [format!("{name}:$LD_PRELOAD"), format!("$LD_PRELOAD:{name}")] {
            let folder = scratch();
            let file = folder.path().join("x.tape");
            let script =
                format!("LD_PRELOAD=\"{order}\" \"$0\" && LD_PRELOAD=\"{order}\" exec env \"$0\"");
            let command =
                [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(&script), program.as_os_str()];
            let outcome = run(&mut record(&file, &[], &command));
            assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""), "{order}");
            let info = tape::info(&file);
            tape::assert_sound(&info);
            assert_eq!(info["uncovered"], Value::Array(Vec::new()), "{order}: {info}");
            let rows = rows_of(&info, &program);
            assert_eq!(rows.len(), 2, "{order}: {info}");
            for row in rows {
                assert!(tape::number(row, "/events") >= 900, "{order}: {row}");
            }
        }
    }
}

/// Records a command with libraries of the user's; what came of it, the tape's summary and its slack.
fn recorded(preload: &OsStr, command: &[&OsStr]) -> (Outcome, Value, u64) {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(record(&file, &[], command).env("LD_PRELOAD", preload));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    let slack = slack(&file);
    (outcome, info, slack)
}

/// Why the one process that is named was not recorded, or only in part.
fn the_gap(info: &Value) -> &str {
    let uncovered = info["uncovered"].as_array().expect("a list");
    assert_eq!(uncovered.len(), 1, "{info}");
    let of_row = |row: &Value| row["pid"] == uncovered[0]["pid"];
    assert!(info["processes"].as_array().expect("rows").iter().any(of_row), "{info}");
    uncovered[0]["why"].as_str().expect("a reason")
}

#[test]
fn an_allocator_without_usable_sizes_is_not_asked_for_them() {
    let (shim, program) = (library("shim"), program("shimmed"));
    // (Not for heaptape itself: the library is good for programs that call no more than it defines.)
    let preload = OsString::from(format!("LD_PRELOAD={}", shim.display()));
    let command = [OsStr::new("env"), preload.as_os_str(), program.as_os_str()];
    let (outcome, info, _) = recorded(OsStr::new(""), &command);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let row = &info["processes"][1];
    assert_eq!(tape::number(row, "/events"), 900, "{info}");
    let why = the_gap(&info);
    assert!(why.contains("shim") && why.contains("malloc_usable_size"), "{why}");
}

#[test]
fn blocks_that_libc_made_for_an_allocator_without_pvalloc_are_asked_of_libc() {
    let Some(jemalloc) = allocator("libjemalloc.so.2") else { return };
    let program = program("pages");
    let plain = run(Command::new(&program).env("LD_PRELOAD", &jemalloc));
    let (outcome, info, slack) = recorded(jemalloc.as_os_str(), &[program.as_os_str()]);
    assert_eq!((outcome.code(), plain.code()), (0, 0), "{}", outcome.stderr_text());
    assert_eq!(tape::number(&info, "/processes/0/calls/pvalloc"), 100, "{info}");
    assert!(slack >= 100 * 3000, "what a page has beyond ten bytes: {slack}");
}

#[test]
fn a_malloc_that_stands_before_ours_is_named() {
    let (shim, starter, program) = (library("shim"), program("rawexec"), program("shimmed"));
    let ours = run(&mut heaptape(["capture-path"])).stdout;
    let ours = String::from_utf8(ours).expect("a path in UTF-8");
    let preload = OsString::from(format!("LD_PRELOAD={}:{}", shim.display(), ours.trim()));
    let command = [starter.as_os_str(), preload.as_os_str(), program.as_os_str()];
    let (outcome, info, _) = recorded(OsStr::new(""), &command);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let why = the_gap(&info);
    assert!(why.contains("shim") && why.contains("before heaptape's library"), "{why}");
}

#[test]
fn an_executable_with_its_own_malloc_runs_as_ever_and_is_named() {
    let (outcome, info, _) = recorded(OsStr::new(""), &[program("ownmalloc").as_os_str()]);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (7, ""));
    assert_eq!(tape::number(&info, "/events"), 0, "nothing is claimed: {info}");
    let why = the_gap(&info);
    assert!(why.contains("it defines malloc itself"), "{why}");
}

#[test]
fn what_an_executables_malloc_hands_on_is_seen() {
    let (outcome, info, _) = recorded(OsStr::new(""), &[program("handson").as_os_str()]);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let calls = &info["processes"][0]["calls"];
    assert!(tape::number(calls, "/malloc") >= 500 && tape::number(calls, "/free") >= 500, "{info}");
    assert!(the_gap(&info).contains("it defines malloc itself"), "{info}");
}

#[test]
fn allocators_that_only_the_executable_calls_are_named() {
    for (name, events, words) in [
        ("private", 600, "_rjem_malloc"),
        ("hidden", 600, "a malloc of its own"),
        ("gonote", 2, "written in Go"),
    ] {
        let (outcome, info, _) = recorded(OsStr::new(""), &[program(name).as_os_str()]);
        assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""), "{name}");
        let seen = tape::number(&info, "/events");
        assert!((events..events + 20).contains(&seen), "{name}: {info}");
        assert!(the_gap(&info).contains(words), "{name}: {info}");
    }
}

#[test]
fn a_program_that_is_fixed_in_place_and_takes_mallocs_address_is_recorded_whole() {
    let program = harness::compile::fixed_program("pointers");
    let (outcome, info, _) = recorded(OsStr::new(""), &[program.as_os_str()]);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    assert_eq!(info["uncovered"], Value::Array(Vec::new()), "{info}");
    let events = tape::number(&info, "/events");
    assert!((2000..2010).contains(&events), "the C++ library makes a block, too: {info}");
}

#[test]
fn the_library_without_a_session_does_nothing_wherever_it_stands() {
    let ours = String::from_utf8(run(&mut heaptape(["capture-path"])).stdout).expect("a path");
    for allocator in installed() {
        for order in [
            format!("{}:{}", allocator.display(), ours.trim()),
            format!("{}:{}", ours.trim(), allocator.display()),
        ] {
            let outcome = run(Command::new(program("news")).env("LD_PRELOAD", &order));
            let plain = run(Command::new(program("news")).env("LD_PRELOAD", &allocator));
            assert_eq!(outcome.code(), plain.code(), "{order}: {}", outcome.stderr_text());
        }
    }
}
