//! Programs that know their own calls, recorded: the tape must tell exactly what they say of themselves.
//!
//! Calls, bytes, addresses, usable sizes, order within each thread, and the live set at the end are compared per process.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, program, static_program};
use harness::running::{Outcome, run};
use harness::{compare, record, scratch, skip, tape, truth};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Records `PROGRAM ARGS…` and compares. `lines` is how many images write a truth line.
fn exact(program: &Path, args: &[&OsStr], status: i32, lines: usize) -> (Value, Outcome) {
    let folder = scratch();
    let (file, truth) = (folder.path().join("x.tape"), folder.path().join("truth"));
    let mut command = vec![program.as_os_str()];
    command.extend(args);
    let outcome = run(record(&file, &[], &command).env("TRUTH", &truth));
    assert_eq!(outcome.code(), status, "exit status; stderr:\n{}", outcome.stderr_text());
    assert_eq!(outcome.stderr_text(), "", "stderr");
    let truth = truth::lines(&truth);
    assert_eq!(truth.len(), lines, "truth lines");
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0);
    let differences = compare::differences(&file, &info, program, &truth);
    let shown = differences.iter().take(30).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{shown}", differences.len());
    (info, outcome)
}

fn exact_simple(name: &str, status: i32) -> Value {
    exact(&program(name), &[], status, 1).0
}

#[test]
fn eight_threads_free_and_resize_across_threads() {
    exact_simple("threads8", 0);
}

#[test]
fn the_order_holds_while_threads_fight_over_blocks() {
    let program = program("exchange");
    let folder = scratch();
    let file = folder.path().join("x.tape");
    for threads in ["2", "8"] {
        let command = [program.as_os_str(), OsStr::new(threads), OsStr::new("400000")];
        let outcome = run(&mut record(&file, &[], &command));
        assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
        let info = tape::info(&file);
        tape::assert_sound(&info);
        assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{info}");
        // All blocks of the program were freed; libc keeps one or two a thread.
        assert!(tape::number(&info, "/processes/0/end/blocks") <= 20, "{info}");
    }
}

#[test]
fn a_thousand_short_threads() {
    exact_simple("shorts", 0);
}

#[test]
fn five_hundred_idle_threads_hold_nobody_up() {
    exact_simple("idle", 0);
}

#[test]
fn threads_with_the_smallest_stacks() {
    exact_simple("tinystack", 0);
}

#[test]
fn sixty_four_children_at_once() {
    let (info, _) = exact(&program("children64"), &[], 0, 65);
    let rows = info["processes"].as_array().expect("processes");
    assert_eq!(rows.len(), 65);
    assert!(rows[1..].iter().all(|r| r["parent"] == rows[0]["pid"]), "{info}");
    let mut codes: Vec<_> = rows[1..].iter().filter_map(|r| r["exit"]["code"].as_i64()).collect();
    codes.sort();
    assert_eq!(codes, (0..64).collect::<Vec<_>>());
}

#[test]
fn forks_of_every_kind() {
    exact(&program("forker"), &[], 0, 26);
}

#[test]
fn vfork_children_count_for_their_parent() {
    exact(&program("vforker"), &[], 0, 11);
}

#[test]
fn posix_spawn() {
    exact(&program("spawner"), &[], 0, 11);
}

#[test]
fn a_daemon_that_closes_all_descriptors() {
    let (info, _) = exact(&program("daemon"), &[], 0, 3);
    let rows = info["processes"].as_array().expect("processes");
    assert!(rows.iter().any(|r| r["exit"]["code"] == 13), "the daemon's own end: {info}");
}

#[test]
fn exec_with_an_empty_environment() {
    let (info, _) = exact(&program("emptyenv"), &[], 0, 16);
    assert_eq!(info["uncovered"], Value::Array(Vec::new()));
}

#[test]
fn every_way_out() {
    let program = program("exits");
    let modes = [
        ("_exit", 51),
        ("_Exit", 52),
        ("syscall", 53),
        ("quick_exit", 54),
        ("exit", 55),
        ("return", 56),
        ("with_threads", 57),
        ("pthread_exit", 0),
        ("abort", 128 + 6),
        ("segv", 128 + 11),
        ("kill", 128 + 9),
        ("term", 128 + 15),
    ];
    for (mode, status) in modes {
        let (info, _) = exact(&program, &[OsStr::new(mode)], status, 1);
        let exit = &info["processes"][0]["exit"];
        let (code, signal) = if status > 128 {
            (Value::Null, Value::from(status - 128))
        } else {
            (Value::from(status), Value::Null)
        };
        assert_eq!((&exit["code"], &exit["signal"]), (&code, &signal), "{mode}");
    }
}

#[test]
fn constructors_destructors_and_exit_handlers() {
    exact_simple("ctors", 8);
}

#[test]
fn calls_before_any_constructor() {
    exact_simple("preinit", 0);
}

#[test]
fn thread_local_objects() {
    exact_simple("tls", 0);
}

#[test]
fn signal_handlers_on_alternate_stacks() {
    exact_simple("signals", 0);
}

#[test]
fn exceptions() {
    exact_simple("exceptions", 0);
}

#[test]
fn operator_new_in_every_form() {
    exact_simple("news", 0);
}

#[test]
fn a_replaced_operator_new_is_still_called() {
    let (info, _) = exact(&program("newreplaced"), &[], 0, 1);
    // The library's other forms call the program's own operator; a recording must not change that.
    let folder = scratch();
    let plain = folder.path().join("truth");
    run(Command::new(program("newreplaced")).env("TRUTH", &plain).env_remove("LD_PRELOAD"));
    let plain = &truth::lines(&plain)[0];
    for (i, name) in tape::CALLS.iter().enumerate().skip(1) {
        let recorded = tape::number(&info, &format!("/processes/0/calls/{name}"));
        // libstdc++ itself makes a call or two at its start.
        assert!(
            recorded >= plain.calls[i] && recorded <= plain.calls[i] + 4,
            "{name}: {recorded} recorded, {} without heaptape",
            plain.calls[i]
        );
    }
}

#[test]
fn sized_free() {
    exact_simple("sized", 0);
}

#[test]
fn zero_sizes_failures_and_overflows() {
    exact_simple("odd", 0);
}

#[test]
fn every_entry_point() {
    exact_simple("entries", 0);
}

#[test]
fn mapping_calls_pass_through() {
    exact_simple("maps", 0);
}

#[test]
fn peak_and_end_of_a_quiet_program() {
    let info = exact_simple("peak", 0);
    assert_eq!(info["processes"].as_array().map(Vec::len), Some(1));
    assert_eq!(info["processes"][0]["threads"], 1);
}

#[test]
fn inside_a_seccomp_sandbox() {
    exact(&program("sandbox"), &[], 14, 1);
    exact(&program("sandbox"), &[OsStr::new("syscall")], 14, 1);
}

#[test]
fn after_limits_are_tightened() {
    exact(&program("dropped"), &[OsStr::new("limits"), OsStr::new("/")], 0, 4);
}

#[test]
fn after_the_root_and_the_user_are_given_up() {
    if !rustix::process::geteuid().is_root() {
        return skip("chroot needs root");
    }
    let empty = scratch();
    exact(&program("dropped"), &[OsStr::new("root"), empty.path().as_os_str()], 0, 4);
}

#[test]
fn libraries_loaded_and_unloaded() {
    exact(&program("plugged"), &[library("plugin").as_os_str()], 0, 1);
}

#[test]
fn a_static_program_runs_and_is_named_as_not_covered() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let program = static_program("static");
    let command =
        [OsStr::new("sh"), OsStr::new("-c"), OsStr::new("\"$0\"; exit $?"), program.as_os_str()];
    let outcome = run(&mut record(&file, &[], &command));
    assert_eq!((outcome.code(), outcome.stdout.as_slice()), (15, &b"static\n"[..]));
    let info = tape::info(&file);
    let uncovered = info["uncovered"].as_array().expect("uncovered");
    assert_eq!(uncovered.len(), 1, "{info}");
    assert!(uncovered[0]["command"].to_string().contains("static"), "{info}");
    assert!(uncovered[0]["why"].as_str().is_some_and(|w| w.contains("static")), "{info}");
}
