//! What a recording takes: what the capture library adds to a call, counted in instructions, and the
//! memory of heaptape itself. Both are the same on any machine, however busy it is.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, program};
use harness::limited::limited;
use harness::running::{Running, until};
use harness::{LIMIT, record, scratch, skip, tape};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

const PAIRS: u64 = 100_000;
/// Instructions of ours in a pair of `malloc` and `free`, the look at the usable size counted.
/// (125 when this was written.)
const MOST_A_PAIR: u64 = 130;

#[test]
fn a_pair_of_calls_costs_few_instructions() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("counting instructions needs valgrind");
    }
    let folder = scratch();
    let (tape, counts) = (folder.path().join("x.tape"), folder.path().join("counts"));
    let program = program("pairs");
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

/// Instructions of ours in a counted pair, and where wanted after a thread has ended in `dlopen`.
fn counted_pair(ended: u32) -> Option<u64> {
    let folder = scratch();
    let counts = folder.path().join("counts");
    let out = format!("--callgrind-out-file={}", counts.display());
    let (program, library) = (program("quitting"), library("quitter"));
    let (pairs, ended) = (PAIRS.to_string(), ended.to_string());
    let mut counted = limited(folder.path(), 1 << 30, &[], "valgrind", &["--tool=callgrind", &out]);
    let outcome = counted.arg(program).arg(library).args([pairs, ended]).output().ok()?;
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    let listing = Command::new("callgrind_annotate")
        .args(["--threshold=100", "--auto=no"])
        .arg(&counts)
        .output()
        .ok()?;
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    Some(listing.lines().filter_map(instructions_of_ours).sum::<u64>() / PAIRS)
}

#[test]
fn a_thread_that_ends_while_it_loads_a_library_does_not_leave_others_slow() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("counting instructions needs valgrind");
    }
    let pairs = [0, 1].map(|ended| counted_pair(ended).expect("valgrind runs"));
    assert!(pairs[0] > 20 && pairs[1] <= pairs[0] * 5 / 4 + 5, "{pairs:?} instructions a pair");
}

/// The count of a line of the listing that is about the capture library.
fn instructions_of_ours(line: &str) -> Option<u64> {
    let is_ours = line.contains("heaptape_capture::") || line.contains("libheaptape");
    let count = line.split_whitespace().next()?.replace(',', "");
    if is_ours { count.parse().ok() } else { None }
}

/// Records children of a parent that holds very many blocks; gives the most memory that heaptape had,
/// in KiB.
fn memory_of(blocks: u64, children: u64) -> u64 {
    let folder = scratch();
    let (file, program) = (folder.path().join("x.tape"), program("nursery"));
    let (count, forks) = (blocks.to_string(), children.to_string());
    let running = Running::start(&mut record(
        &file,
        &[],
        &[program.as_os_str(), OsStr::new(&count), OsStr::new(&forks)],
    ));
    let status = format!("/proc/{}/status", running.pid().as_raw_nonzero());
    let mut most = 0;
    until(LIMIT, || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        // The status of a process that has ended tells no memory.
        let now = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
        most = most.max(now.unwrap_or(0));
        if now.is_none() { Some(()) } else { None }
    });
    let outcome = running.finish(LIMIT);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0);
    let rows = info["processes"].as_array().expect("rows");
    assert_eq!(rows.len() as u64, children + 1);
    for row in &rows[1..] {
        assert!(tape::number(row, "/inherited/blocks") >= blocks, "{row}");
        assert_eq!(tape::number(row, "/events"), 100, "{row}");
    }
    most
}

#[test]
fn a_thousand_children_of_a_large_parent_take_no_memory_each() {
    let (few, many) = (memory_of(1_500_000, 8), memory_of(1_500_000, 1000));
    // Each child's heap would be some 100 MiB if it were copied, and some 10 MiB as a list of places.
    assert!(many < few + (32 << 10), "{few} KiB with 8 children, {many} KiB with 1000");
}
