//! What is charged beside heap blocks: mappings by page, shared memory once, data before `main`, the start of MPI. The programs
//! ask for blocks to find out how much of the limit is left, and so know to the byte what is charged.
#![forbid(unsafe_code)]

mod harness;

use harness::allocators::installed;
use harness::compile::{fortran_program, library, mpi_program, program};
use harness::limited::bounds;
use harness::running::{Outcome, run};
use harness::{heaptape, scratch, skip};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

const LIMIT: u64 = 100_000_000;

/// `heaptape limit LIMIT --json FILE WORDS… -- COMMAND`, with a library preloaded; what came of it, and the document.
fn limited(
    limit: u64,
    words: &[&str],
    command: &[OsString],
    preload: Option<&Path>,
) -> (Outcome, Value) {
    let folder = scratch();
    let file = folder.path().join("x.json");
    let mut limited = heaptape(["limit", "--json"]);
    limited.arg(&file).args(words).arg(limit.to_string()).arg("--").args(command);
    // Root may use Open MPI only when it insists.
    limited.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    limited.envs(preload.map(|library| ("LD_PRELOAD", library)));
    let outcome = run(&mut limited);
    let text = fs::read_to_string(&file).expect("a document");
    (outcome, serde_json::from_str(&text).expect("JSON"))
}

fn words<T: AsRef<OsStr>>(words: impl IntoIterator<Item = T>) -> Vec<OsString> {
    words.into_iter().map(|word| word.as_ref().to_owned()).collect()
}

/// Runs a program that checks by itself what is charged.
fn check(name: &str, preload: Option<&Path>) {
    let command = words([program(name).as_os_str(), OsStr::new(&LIMIT.to_string())]);
    let (outcome, document) = limited(LIMIT, &[], &command, preload);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!((said.as_str(), outcome.code()), ("begin\n", 0), "{preload:?}");
    // It asks for too much to find out what fits.
    assert_eq!(document["verdict"], "refused");
    assert!(bounds(&document["peak"]["charged"]).1 <= LIMIT);
}

#[test]
fn mappings_are_charged_by_page_and_given_back_exactly() {
    check("mapping", None);
}

#[test]
fn what_an_allocator_maps_for_blocks_is_not_charged_twice() {
    for allocator in installed() {
        check("mapping", Some(&allocator));
    }
}

#[test]
fn shared_memory_is_charged_once_from_its_first_mapping_to_its_last() {
    check("sharing", None);
}

#[test]
fn data_that_does_not_fit_is_refused_before_main() {
    const DATA: u64 = 2 << 30;
    let mut programs = vec![program("bss")];
    programs.extend(fortran_program("bss"));
    for program in programs {
        let command = words([&program]);
        for (on_limit, status, verdict) in [("fail", 126, "refused"), ("kill", 137, "killed")] {
            let (outcome, document) = limited(1 << 30, &["--on-limit", on_limit], &command, None);
            assert_eq!((outcome.code(), outcome.stdout.len()), (status, 0), "{program:?}");
            assert_eq!(document["verdict"], verdict);
            let refused = document["first_refusal"]["bytes"].as_u64();
            assert!((DATA..DATA + (16 << 20)).contains(&refused.unwrap_or(0)), "{refused:?}");
            assert_eq!(document["first_refusal"]["module"], "bss");
            assert!(outcome.stderr_text().contains("2.0 GiB of data with bss"), "{outcome:?}");
            assert!(bounds(&document["peak"]["charged"]).1 < 1 << 20);
        }
        let (outcome, document) = limited(3 << 30, &[], &command, None);
        assert!(outcome.code() == 0 && outcome.stdout.trim_ascii().starts_with(b"main"));
        assert_eq!(document["verdict"], "within");
        assert!(document["charged"]["data"].as_u64() >= Some(DATA));
    }
}

/// A fork's child writes over what it shares with its parent: twice as much is resident as is charged.
#[test]
fn copies_of_what_a_fork_shares_are_told_where_they_pass_the_limit() {
    let script = "import os, sys, time\nx = bytearray(60 << 20)\nchild = os.fork()\n\
                  x[::4096] = b'x' * (15 << 10)\ntime.sleep(3)\nif child: os.waitpid(child, 0)";
    let command = words(["python3", "-c", script]);
    let (outcome, document) = limited(LIMIT, &[], &command, None);
    assert_eq!((outcome.code(), &document["verdict"]), (0, &"within".into()), "{document}");
    let text = outcome.stderr_text();
    assert!(text.contains("resident at one time, which is more than"), "{text}");
}

#[test]
fn large_stacks_are_charged_whole_from_the_start_of_their_threads_to_the_end() {
    let command = words([program("large_stacks").as_os_str(), OsStr::new(&LIMIT.to_string())]);
    let (outcome, document) = limited(LIMIT, &[], &command, None);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!((said.as_str(), outcome.code()), ("right\n", 0));
    assert!(bounds(&document["peak"]["charged"]).1 <= LIMIT);
}

#[test]
fn what_was_charged_for_a_call_that_a_jump_has_left_is_given_back() {
    const BLOCK: i64 = 1 << 20;
    let command = words([program("jumping").as_os_str(), OsStr::new(&LIMIT.to_string())]);
    let (outcome, document) = limited(LIMIT, &[], &command, None);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let numbers: Vec<i64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [jumps, missing] = numbers[..] else { panic!("{said}") };
    assert_eq!((jumps, outcome.code()), (60, 0), "{said}");
    // Between a charge and its note there are a few instructions, and a jump may leave these as well.
    assert!((0..=5 * BLOCK).contains(&missing), "{missing}");
    assert!(bounds(&document["peak"]["charged"]).1 <= LIMIT, "{document}");
}

/// The program knows what the libraries have, and asks for blocks to see what is left after each call.
#[test]
fn data_of_a_library_is_charged_by_the_time_it_is_loaded_and_refused_where_it_does_not_fit() {
    let folder = scratch();
    let copy = folder.path().join("copy.so");
    fs::copy(library("roomy"), &copy).expect("a copy");
    let command = words([
        program("opening").as_os_str(),
        OsStr::new(&LIMIT.to_string()),
        library("roomy").as_os_str(),
        copy.as_os_str(),
        library("roomless").as_os_str(),
    ]);
    for preload in [None].into_iter().chain(installed().into_iter().map(Some)) {
        let (outcome, document) = limited(LIMIT, &[], &command, preload.as_deref());
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert_eq!((said.as_str(), outcome.code()), ("right\n", 0), "{preload:?}");
        assert!(bounds(&document["peak"]["charged"]).1 <= LIMIT, "{preload:?}");
    }
    let script = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError as e: print(e)";
    let path = library("roomy");
    let command = words(["python3".as_ref(), "-c".as_ref(), script.as_ref(), path.as_os_str()]);
    let (outcome, document) = limited(30_000_000, &[], &command, None);
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(said.contains("Cannot allocate memory") && outcome.code() == 0, "{said}");
    assert_eq!(document["refused"], 1, "{document}");
    assert!(outcome.stderr_text().contains("40.0 MiB of data with bss"), "{outcome:?}");
}

/// A job that shares a window of so many bytes, under every MPI that is there.
fn with_window(ranks: usize, bytes: u64, limit: u64, option: &[&str]) -> Vec<(Outcome, Value)> {
    let mpis = [("openmpi", &["--oversubscribe"][..]), ("mpich", &[])];
    let run = |(mpi, options): (&str, &[&str])| {
        let Some(program) = mpi_program("window", mpi) else {
            skip(&format!("{mpi} is not installed"));
            return None;
        };
        let mut command = words([format!("mpirun.{mpi}"), "-n".into(), ranks.to_string()]);
        command.extend(words(options));
        command.extend([program.into_os_string(), bytes.to_string().into()]);
        Some(limited(limit, option, &command, None))
    };
    mpis.into_iter().filter_map(run).collect()
}

#[test]
fn a_window_of_four_ranks_is_charged_once() {
    const WINDOW: u64 = 256 << 20;
    for (outcome, document) in with_window(4, WINDOW, 1 << 30, &[]) {
        assert_eq!((outcome.code(), &document["verdict"]), (0, &"within".into()));
        let shared = document["charged"]["shared"].as_u64().unwrap_or(0);
        assert!((WINDOW..WINDOW + (1 << 20)).contains(&shared), "{shared}");
    }
    for (outcome, document) in with_window(4, WINDOW, 250 << 20, &[]) {
        assert_ne!(outcome.code(), 0);
        assert_eq!(document["verdict"], "refused");
    }
}

#[test]
fn what_the_mpi_runtime_takes_when_it_starts_may_be_left_out() {
    let held = with_window(2, 4096, 1 << 30, &[]);
    let excluded = with_window(2, 4096, 1 << 30, &["--exclude-mpi-runtime"]);
    for ((outcome, held), (_, excluded)) in held.into_iter().zip(excluded) {
        assert_eq!(outcome.code(), 0);
        let row = |document: &Value| document["charged"]["mpi_runtime"].as_u64().unwrap_or(0);
        let peak = |document: &Value| document["peak"]["charged"]["upper"].as_u64().unwrap_or(0);
        // Each rank has modules, buffers and what it shares with the other.
        let least = 1 << 20;
        assert!(row(&held) > least && row(&excluded) > least, "{held} {excluded}");
        assert!(peak(&held) > peak(&excluded) + least, "{held} {excluded}");
        for document in [&held, &excluded] {
            let heap = document["charged"]["heap"].as_u64().unwrap_or(0);
            assert!(heap >= 2 * 1000, "the program's own block is no part of the runtime");
        }
    }
}

/// What a document tells of a row, in bytes.
fn row(document: &Value, name: &str) -> u64 {
    document["charged"][name].as_u64().expect("a row")
}

#[test]
fn what_is_mapped_where_nobody_sees_it_is_unaccounted() {
    const BYTES: u64 = 64 << 20;
    let command = words([program("unseen").as_os_str(), OsStr::new(&BYTES.to_string())]);
    for preload in [None].into_iter().chain(installed().into_iter().map(Some)) {
        let (outcome, document) = limited(LIMIT, &[], &command, preload.as_deref());
        assert_eq!(
            (outcome.code(), &document["verdict"]),
            (0, &"unaccounted".into()),
            "{preload:?}"
        );
        let bytes = document["unaccounted"].as_u64().unwrap_or(0);
        // An allocator's own data, charged and never touched, may hide as much.
        let little = if preload.is_some() { 4 << 20 } else { 1 << 20 };
        assert!(bytes.abs_diff(BYTES) < little, "{preload:?}: {bytes}");
    }
    let (outcome, document) = limited(LIMIT, &["--strict"], &command, None);
    assert_eq!((outcome.code(), &document["verdict"]), (3, &"unaccounted".into()));
    // Little is none of the judge's business, and of a large limit it takes more.
    let (_, document) = limited(8 << 30, &[], &command, None);
    assert_eq!(document["verdict"], "within");
}

#[test]
fn ordinary_programs_have_little_that_is_unaccounted() {
    const LITTLE: u64 = 2 << 20;
    let script = "x = [str(i) for i in range(300000)]; import json, time; time.sleep(1.5)";
    let python = words(["python3", "-c", script]);
    let command =
        words([program("deep").as_os_str(), "100000".as_ref(), "8".as_ref(), "50000000".as_ref()]);
    for command in [python, command] {
        for preload in [None].into_iter().chain(installed().into_iter().map(Some)) {
            let (outcome, document) = limited(500_000_000, &[], &command, preload.as_deref());
            assert_eq!((outcome.code(), &document["verdict"]), (0, &"within".into()), "{document}");
            let bytes = document["unaccounted"].as_u64();
            assert!(bytes.is_some_and(|bytes| bytes < LITTLE), "{preload:?}: {bytes:?}");
        }
    }
    for (outcome, document) in with_window(3, 8 << 20, 1 << 30, &[]) {
        assert_eq!((outcome.code(), &document["verdict"]), (0, &"within".into()));
        assert!(document["unaccounted"].as_u64().unwrap_or(0) < LITTLE, "{document}");
    }
}

#[test]
fn stacks_are_charged_as_far_as_they_are_touched() {
    const DEEP: u64 = 2 << 20;
    const STEP: u64 = 64 << 10;
    let deep = |threads: u64, limit: u64| {
        let args = [DEEP, threads, 50_000_000].map(|word| word.to_string());
        let mut command = words([program("deep")]);
        command.extend(words(args));
        limited(limit, &[], &command, None)
    };
    for threads in [0, 3] {
        let (outcome, document) = deep(threads, 500_000_000);
        assert_eq!((outcome.code(), &document["verdict"]), (0, &"within".into()));
        let (stacks, all) = (row(&document, "stacks"), (1 + threads) * DEEP);
        // Beside what the program touches there is what its libraries do, and half a step on average.
        assert!((all..all + (1 + threads) * STEP + STEP).contains(&stacks), "{threads}: {stacks}");
        assert!(row(&document, "heap") < 51_000_000, "the block beside a stack is none");
        let upper = document["peak"]["charged"]["upper"].as_u64();
        assert!(upper >= Some(50_000_000 + stacks), "{upper:?}");
    }
    // Nobody can refuse them: what does not fit is told.
    let limit = 51_500_000;
    let (outcome, document) = deep(0, limit);
    assert_eq!((outcome.code(), &document["verdict"]), (0, &"within".into()));
    assert!(bounds(&document["peak"]["charged"]).1 <= limit);
    assert!(row(&document, "stacks") < 3 * DEEP / 4);
    assert!(document["unaccounted"].as_u64() > Some(DEEP / 4), "{document}");
}

#[test]
fn a_program_that_sheds_the_library_is_named() {
    let command = words([program("barely").as_os_str(), OsStr::new("100000000")]);
    let (outcome, document) = limited(50 << 20, &["--strict"], &command, None);
    // Where the job has a control group of its own it is ended for what it takes, and maybe before the third look at it.
    let killed = !document["cgroup"].is_null() && document["verdict"] == "killed";
    let verdict = if killed { "killed" } else { "uncovered" };
    assert_eq!((outcome.code(), &document["verdict"]), (3, &verdict.into()), "{document}");
    let missed = document["uncovered"].as_array().expect("a list");
    let is_it =
        |missed: &Value| missed["why"].as_str().is_some_and(|why| why.contains("past libc"));
    let taken = || document["killed"]["by"] == "unaccounted";
    assert!(missed.iter().any(is_it) || killed && taken(), "{document}");
}

#[test]
fn a_block_that_is_copied_to_a_new_place_is_no_way_past_the_library() {
    // Close to the limit a block by usable bytes is copied, and for that time resident twice.
    let command =
        words([program("resized").as_os_str(), "60".as_ref(), "25".as_ref(), "30".as_ref()]);
    for strict in [&["--basis", "usable"][..], &["--basis", "usable", "--strict"]] {
        let (outcome, document) = limited(86 << 20, strict, &command, None);
        assert_eq!((outcome.code(), &document["verdict"]), (0, &"within".into()), "{document}");
    }
}

/// Runs the program whose library takes far more than the limit; other copies of the library, which are not
/// exempt, come to its place.
fn indulged(asked: &[&str], preload: Option<&Path>) -> (Outcome, Value) {
    let folder = scratch();
    let greedy = library("greedy");
    let copies = ["libgreedy.so.1", "libother.so.1", "libthird.so.1"];
    let copies = copies.map(|name| folder.path().join(name));
    for copy in &copies {
        fs::copy(&greedy, copy).expect("a copy");
    }
    let path = format!("--exempt={}", copies[0].display());
    let options: Vec<&str> =
        asked.iter().map(|&word| if word == "--exempt=PATH" { &*path } else { word }).collect();
    let mut command = words([program("indulgent").as_os_str(), OsStr::new(&LIMIT.to_string())]);
    command.extend(words(&copies));
    limited(LIMIT, &options, &command, preload)
}

#[test]
fn what_an_exempt_module_asks_for_is_counted_and_not_charged() {
    for words in [
        &["--exempt", "libgreedy.so.1"][..],
        &["--exempt=PATH", "--exempt", "libnone.so"],
        &["--exempt", "libgreedy.so.1", "--brief"],
        &["--exempt", "libgreedy.so.1", "--basis", "usable"],
        &["--exempt", "libgreedy.so.1", "--exact"],
    ] {
        let (outcome, document) = indulged(words, None);
        assert_eq!(
            (outcome.stderr_text().contains("line "), outcome.code()),
            (false, 0),
            "{words:?}"
        );
        assert_eq!(outcome.stdout.trim_ascii(), b"0", "{words:?}: {}", outcome.stderr_text());
        let upper = |figure: &str| document["peak"][figure]["upper"].as_u64().expect("a number");
        assert!(upper("charged") <= LIMIT && upper("requested") >= 400 << 20, "{words:?}");
        let first = &document["first_refusal"]["module"];
        assert_ne!(first, "libgreedy.so.1", "{words:?}");
        if words.contains(&"--brief") {
            continue;
        }
        let modules = document["modules"].as_array().expect("modules");
        let row = |name: &str| {
            let row = modules.iter().find(|row| row["name"] == name).expect("a row");
            (row["exempt"].clone(), row["total"].as_u64().unwrap_or(0))
        };
        // The fork's child has taken its part, which is in the same row.
        let (is_exempt, total) = row("libgreedy.so.1");
        assert!(is_exempt == true && total > (1 << 30) + (180 << 20), "{words:?} {total}");
        assert_eq!(row("libother.so.1"), (false.into(), 10 << 20), "{words:?}");
        assert_eq!(row("libthird.so.1"), (false.into(), 5 << 20), "{words:?}");
        assert!(modules.iter().all(|row| !row["name"].is_null()), "{words:?} {modules:?}");
        assert!(outcome.stderr_text().contains("libgreedy.so.1 (exempt: not charged)"));
    }
    for allocator in installed() {
        let (outcome, _) = indulged(&["--exempt", "libgreedy.so.1"], Some(&allocator));
        assert_eq!(outcome.code(), 0, "{allocator:?}");
        assert_eq!(outcome.stdout.trim_ascii(), b"0", "{allocator:?}: {}", outcome.stderr_text());
    }
}

#[test]
fn a_module_that_is_not_exempt_is_refused() {
    for words in [&[][..], &["--exempt", "libgreedy.so"], &["--exempt", "/lib/libgreedy.so.1"]] {
        let (outcome, document) = indulged(words, None);
        assert_eq!((outcome.code(), &document["verdict"]), (7, &"refused".into()), "{words:?}");
    }
}

#[test]
fn what_a_forks_child_asks_for_stands_with_the_module_that_asked() {
    let command = words(["sh", "-c", "(true; echo $(echo x)) | cat"]);
    let (outcome, document) = limited(LIMIT, &[], &command, None);
    assert_eq!((outcome.code(), outcome.stdout.as_slice()), (0, &b"x\n"[..]));
    let modules = document["modules"].as_array().expect("modules");
    assert!(modules.iter().all(|row| !row["name"].is_null()), "{modules:?}");
}
