//! Programs that other compilers make, with runtimes that bring an allocator along: each runs as ever, what is seen of it
//! is on the tape, and the rest is named. (bench/foreign.sh installs the compilers and has heavier ones.)
#![forbid(unsafe_code)]

mod harness;

use harness::compile::sources;
use harness::running::{Outcome, run};
use harness::{record, scratch, skip, tape};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a program plainly and recorded, which must be the same; the tape must be sound.
fn the_same(folder: &Path, program: &Path, args: &[&str]) -> (Value, PathBuf, Outcome) {
    let file = folder.join("x.tape");
    let plain = run(Command::new(program).args(args));
    let command: Vec<&OsStr> =
        [program.as_os_str()].into_iter().chain(args.iter().map(OsStr::new)).collect();
    let outcome = run(&mut record(&file, &[], &command));
    let what = program.display();
    assert_eq!(outcome.code(), plain.code(), "{what}: {}", outcome.stderr_text());
    assert_eq!(outcome.stdout, plain.stdout, "{what}");
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{what}: {info}");
    (info, file, outcome)
}

/// Why the one process is named.
fn the_reason(info: &Value) -> &str {
    let uncovered = info["uncovered"].as_array().expect("a list");
    assert_eq!(uncovered.len(), 1, "{info}");
    uncovered[0]["why"].as_str().expect("a reason")
}

/// A program of tests/programs made by a compiler that may be missing.
fn made(compiler: &str, args: &[&str], source: &str, folder: &Path) -> Option<PathBuf> {
    let program = folder.join(source.split('.').next().unwrap_or(source));
    let mut command = Command::new(compiler);
    command.args(args).arg("-o").arg(&program).arg(sources().join(source));
    command.env("GOCACHE", folder.join("cache")).env("GOFLAGS", "-mod=mod");
    if command.output().is_ok_and(|outcome| outcome.status.success()) {
        return Some(program);
    }
    skip(&format!("{compiler} {args:?} makes no program here"));
    None
}

/// Calls that made blocks of these sizes.
fn births(file: &Path, sizes: std::ops::Range<u64>) -> u64 {
    let mut count = 0;
    tape::rows(file, |row| count += u64::from(!row.is_release() && sizes.contains(&row.size)));
    count
}

#[test]
fn clangs_sanitizers_which_are_linked_in_find_what_they_find_and_are_named() {
    let folder = scratch();
    for sanitizer in ["address", "leak", "thread", "memory"] {
        let flag = format!("-fsanitize={sanitizer}");
        let Some(program) = made("clang", &["-g", &flag], "sanitized.c", folder.path()) else {
            continue;
        };
        for fault in [false, true] {
            let args = if fault { &["fault"][..] } else { &[] };
            let (info, _, outcome) = the_same(folder.path(), &program, args);
            let is_found = outcome.stderr_text().contains("heap-use-after-free");
            assert_eq!(is_found, fault && matches!(sanitizer, "address" | "thread"), "{sanitizer}");
            let why = the_reason(&info);
            assert!(why.contains("it defines malloc itself"), "{sanitizer}: {why}");
            assert_eq!(tape::number(&info, "/processes/0/events"), 0, "nothing is claimed: {info}");
        }
    }
}

#[test]
fn a_go_program_runs_and_is_named() {
    let folder = scratch();
    let Some(program) = made("go", &["build"], "plain.go", folder.path()) else { return };
    let (info, _, _) = the_same(folder.path(), &program, &[]);
    let why = the_reason(&info);
    assert!(why.contains("written in Go and statically linked"), "{why}");
    assert_eq!(tape::number(&info, "/events"), 0, "{info}");
}

#[test]
fn of_a_go_program_the_calls_of_c_are_seen() {
    let folder = scratch();
    let Some(program) = made("go", &["build"], "calling.go", folder.path()) else { return };
    let (info, file, _) = the_same(folder.path(), &program, &[]);
    let why = the_reason(&info);
    assert!(why.contains("it is written in Go"), "{why}");
    assert_eq!(births(&file, 700..800), 2000);
}

/// CPython has mimalloc linked in since 3.13, and does not call it where it has a global lock.
#[test]
fn an_interpreter_that_does_not_call_its_mimalloc_is_not_named() {
    let cases: [(&[&str], bool); 3] =
        [(&[], true), (&["-DPYTHON"], false), (&["-DPYTHON", "-DWITHOUT_LOCK"], true)];
    for (defined, is_named) in cases {
        let folder = scratch();
        let options = [&["-s", "-rdynamic"], defined].concat();
        let Some(program) = made("cc", &options, "lookalike.c", folder.path()) else { return };
        let (info, file, _) = the_same(folder.path(), &program, &[]);
        assert_eq!(births(&file, 700..701), 1);
        match is_named {
            true => assert!(the_reason(&info).contains("mimalloc linked in"), "{info}"),
            false => assert_eq!(info["uncovered"], serde_json::json!([]), "{info}"),
        }
    }
}

#[test]
fn rustc_compiles_as_ever_and_its_jemalloc_is_named() {
    let folder = scratch();
    let text = "fn main() { println!(\"{}\", (1..9).map(|i| vec![i; 9].len()).sum::<usize>()); }";
    let source = folder.path().join("x.rs");
    std::fs::write(&source, text).expect("a source");
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Ok(sysroot) = rustc else { return skip("rustc is not here") };
    let rustc = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim()).join("bin/rustc");
    if !rustc.exists() {
        return skip("rustc is not where it says");
    }
    let program = folder.path().join("x");
    let file = folder.path().join("x.tape");
    let command = [rustc.as_os_str(), source.as_os_str(), "-o".as_ref(), program.as_os_str()];
    let outcome = run(&mut record(&file, &[], &command));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    assert_eq!(run(&mut Command::new(&program)).stdout, b"72\n");
    let info = tape::info(&file);
    tape::assert_sound(&info);
    let uncovered = info["uncovered"].as_array().expect("a list");
    let of_rustc = uncovered.iter().find(|u| u["pid"] == info["processes"][0]["pid"]);
    let why = of_rustc.and_then(|u| u["why"].as_str()).unwrap_or_default();
    assert!(why.contains("it defines malloc itself") || why.is_empty(), "{info}");
    // The linker that it starts is a process as any other.
    let rows = info["processes"].as_array().expect("rows");
    let linker = |row: &&Value| row["command"][0].as_str().is_some_and(|c| c.ends_with("cc"));
    assert!(rows.iter().find(linker).is_some_and(|row| row["events"] != 0), "{info}");
}
