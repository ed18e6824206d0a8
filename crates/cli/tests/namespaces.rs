//! Processes in pid namespaces of their own: none is taken for another that has the same number, and each is recorded to its end.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::run;
use harness::{compare, record, scratch, skip, tape, truth};
use serde_json::Value;
use std::ffi::OsStr;
use std::process::Command;

/// Whether user and pid namespaces can be made here, and a root directory changed in them.
fn has_namespaces() -> bool {
    let probe =
        Command::new("unshare").args(["-U", "-r", "-p", "-f", "chroot", "/", "true"]).output();
    let can = probe.is_ok_and(|outcome| outcome.status.success());
    if !can {
        skip("user and pid namespaces can't be made here");
    }
    can
}

/// Records tests/programs/zygotes.c and holds every process against its own line.
fn zygotes(count: usize, more: &[&str]) {
    /// A zygote, its children and theirs, and the same in two namespaces inside.
    const EACH: usize = 25 + 2 * 25;
    let (program, folder) = (program("zygotes"), scratch());
    let (file, lines) = (folder.path().join("x.tape"), folder.path().join("truth"));
    let root = folder.path().join("root");
    std::fs::create_dir(&root).expect("a folder");
    let words = [count.to_string(), root.to_string_lossy().into_owned()];
    let mut command = vec![program.as_os_str()];
    command.extend(words.iter().map(OsStr::new).chain(more.iter().map(OsStr::new)));
    let mut outcome = run(record(&file, &[], &command).env("TRUTH", &lines));
    // On a machine with more to do than it has time for, the collector may stand still for too long.
    for _ in 0..3 {
        if !outcome.stderr_text().contains("too busy") {
            break;
        }
        std::fs::remove_file(&lines).expect("the lines of the first try");
        std::fs::remove_dir_all(&root).expect("its folder");
        std::fs::create_dir(&root).expect("a folder");
        outcome = run(record(&file, &[], &command).env("TRUTH", &lines));
    }
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0);
    assert_eq!(info["uncovered"], Value::Array(Vec::new()));
    let truth = truth::lines(&lines);
    assert_eq!(truth.len(), 1 + count * EACH);
    assert_eq!(info["processes"].as_array().expect("rows").len(), truth.len());
    let differences = compare::differences(&file, &info, &program, &truth);
    let shown = differences.iter().take(30).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{shown}", differences.len());
}

#[test]
fn zygotes_with_the_same_numbers_inside_are_told_apart() {
    if has_namespaces() {
        zygotes(3, &[]);
    }
}

#[test]
fn namespaces_one_after_the_other_may_have_the_same_inode() {
    if has_namespaces() {
        zygotes(6, &["in-turn"]);
    }
}
