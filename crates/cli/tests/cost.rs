//! What the capture library adds to a call, counted in instructions: the same on any machine, however
//! busy it is.
#![forbid(unsafe_code)]

mod harness;

use harness::{record, scratch, skip};
use std::ffi::OsStr;
use std::process::Command;

const PAIRS: u64 = 100_000;
/// Instructions of ours in a pair of `malloc` and `free`, the look at the usable size not counted.
/// (136 when this was written.)
const MOST_A_PAIR: u64 = 150;

#[test]
fn a_pair_of_calls_costs_few_instructions() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("counting instructions needs valgrind");
    }
    let folder = scratch();
    let (tape, counts) = (folder.path().join("x.tape"), folder.path().join("counts"));
    let program = harness::compile::program("pairs");
    let (tool, out) = ("--tool=callgrind", format!("--callgrind-out-file={}", counts.display()));
    let pairs = PAIRS.to_string();
    let command: [&OsStr; 5] =
        ["valgrind".as_ref(), tool.as_ref(), out.as_ref(), program.as_os_str(), pairs.as_ref()];
    let outcome = record(&tape, &[], &command).output().expect("heaptape runs");
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    let listing = Command::new("callgrind_annotate")
        .args(["--threshold=100", "--auto=no"])
        .arg(&counts)
        .output()
        .expect("callgrind_annotate comes with valgrind");
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let ours: u64 = listing.lines().filter_map(instructions_of_ours).sum();
    assert!(ours > PAIRS * 20, "the library was counted: {ours}\n{listing}");
    let a_pair = ours / PAIRS;
    assert!(a_pair <= MOST_A_PAIR, "{a_pair} instructions a pair");
}

/// The count of a line of the listing that is about the capture library.
fn instructions_of_ours(line: &str) -> Option<u64> {
    let is_ours = line.contains("heaptape_capture::") || line.contains("libheaptape");
    let count = line.split_whitespace().next()?.replace(',', "");
    if is_ours { count.parse().ok() } else { None }
}
