//! `heaptape leaks` of programs whose leaks are known, and what always holds of what it says.

use super::compile::{library, program};
use super::running::{Outcome, run};
use super::tape::{info, number};
use super::{heaptape, record, scratch};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// tests/programs/leaky.c with its plugin, recorded.
pub(crate) struct Recorded {
    pub(crate) folder: TempDir,
    pub(crate) tape: PathBuf,
}

/// What it makes when is known by its calls: it must not take so long that it is looked at over time, which happens where
/// the machine is busy.
pub(crate) fn recorded(how: &str) -> Recorded {
    let folder = scratch();
    let tape = folder.path().join("x.tape");
    let (program, plugin) = (program("leaky"), library("plugin"));
    let command = [program.as_os_str(), plugin.as_os_str(), OsStr::new(how)];
    for _ in 0..50 {
        let outcome = run(&mut record(&tape, &[], &command));
        let expected = if how == "kill" { 128 + 9 } else { 0 };
        assert_eq!(outcome.code(), expected, "{}", outcome.stderr_text());
        let found = leaks(&tape, &["--json"]).json();
        let callers = found["callers"].as_array().expect("callers");
        if callers.iter().all(|caller| caller["axis"] == "calls") {
            return Recorded { folder, tape };
        }
    }
    panic!("a program of some milliseconds always took 256");
}

/// tests/programs/drip.c, recorded.
pub(crate) fn dripping(how: &[&str]) -> Recorded {
    let folder = scratch();
    let tape = folder.path().join("x.tape");
    let program = program("drip");
    let words = how.iter().map(OsStr::new);
    let command: Vec<_> = std::iter::once(program.as_os_str()).chain(words).collect();
    let outcome = run(&mut record(&tape, &[], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    Recorded { folder, tape }
}

/// `heaptape leaks`, of all callers.
pub(crate) fn leaks(tape: &Path, options: &[&str]) -> Outcome {
    run(heaptape(["leaks", "--top", "0"]).arg(tape).args(options))
}

/// The same as JSON, its sums held against the tape.
pub(crate) fn json(tape: &Path, options: &[&str]) -> Value {
    let outcome = leaks(tape, &[&["--json"], options].concat());
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let json = outcome.json();
    assert_eq!(json["schema"], "heaptape.leaks/1");
    assert_sums_agree(&json, &info(tape));
    json
}

/// What is printed, as if in one line.
pub(crate) fn text(tape: &Path) -> String {
    let text = String::from_utf8(leaks(tape, &[]).stdout).expect("text");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Each process's sums are all that it left, and the callers add up to what is counted.
pub(crate) fn assert_sums_agree(leaks: &Value, info: &Value) {
    let pair = |value: &Value| (number(value, "/bytes"), number(value, "/blocks"));
    let add = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
    let mut sums = [(0, 0); 4];
    for process in leaks["processes"].as_array().expect("processes") {
        let parts = ["left", "ignored", "suppressed", "inherited"].map(|name| pair(&process[name]));
        let end = &info["processes"][number(process, "/number") as usize]["end"];
        let whole = (number(end, "/requested"), number(end, "/blocks"));
        assert_eq!(parts.into_iter().fold((0, 0), add), whole, "{process}");
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum = add(*sum, part));
    }
    for (name, sum) in ["left", "ignored", "suppressed", "inherited"].into_iter().zip(sums) {
        assert_eq!(pair(&leaks[name]), sum, "{name}");
    }
    let callers = leaks["callers"].as_array().expect("callers");
    let in_callers = callers.iter().map(pair).fold((0, 0), add);
    if leaks["growing_only"] == false {
        assert_eq!(in_callers, sums[0]);
    }
    for caller in callers {
        let (last, left) = (pair(&caller["at"][7]), pair(&caller["at_left"]));
        assert!(last >= left, "at the end there is at least what stays: {caller}");
        if number(leaks, "/ignored/blocks") == 0 {
            assert_eq!(last, left, "{caller}");
        }
        if leaks["processes"].as_array().is_some_and(|all| all.len() == 1) {
            assert_eq!(left, pair(caller), "{caller}");
        }
    }
}

/// The caller that left so many blocks of this size.
pub(crate) fn caller_of(json: &Value, size: u64, blocks: u64) -> Value {
    let callers = json["callers"].as_array().expect("callers");
    let is_it = |c: &&Value| {
        (number(c, "/blocks"), number(c, "/bytes")) == (blocks, blocks * size)
            && number(c, "/oldest/size") == size
    };
    let found: Vec<_> = callers.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{blocks} blocks of {size}: {json}");
    found[0].clone()
}

/// Its word, and the eighth that this is about.
pub(crate) fn growth(caller: &Value) -> (&str, u64) {
    (caller["growth"].as_str().expect("a word"), number(caller, "/eighth"))
}
