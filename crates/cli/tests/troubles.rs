//! Troubles that tools of this kind are known for and no other file here is about (docs/known-troubles.md lists all).
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, program};
use harness::running::{Outcome, run};
use harness::{HEAPTAPE, compare, heaptape, record, root, scratch, skip, tape, truth};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;

/// Records a command, which must do what it does without us; the tape must be sound and know every free.
fn the_same(file: &Path, command: &[&OsStr]) -> (Value, Outcome) {
    let plain = run(Command::new(command[0]).args(&command[1..]));
    let outcome = run(&mut record(file, &[], command));
    assert_eq!(outcome.code(), plain.code(), "{command:?}: {}", outcome.stderr_text());
    assert_eq!(outcome.stdout, plain.stdout, "{command:?}");
    let info = tape::info(file);
    tape::assert_sound(&info);
    assert_eq!(info["uncovered"], Value::Array(Vec::new()), "{info}");
    (info, outcome)
}

/// How many blocks of each of these sizes came to be.
fn births<const N: usize>(file: &Path, sizes: [u64; N]) -> [u64; N] {
    let mut counts = [0; N];
    tape::rows(file, |row| {
        if let Some(i) = sizes.iter().position(|&size| size == row.size && !row.is_release()) {
            counts[i] += 1;
        }
    });
    counts
}

#[test]
fn a_preload_that_wraps_dlsym_and_allocates_in_it() {
    let (folder, program, wrapper) = (scratch(), program("shimmed"), library("symbols"));
    let file = folder.path().join("x.tape");
    let script = OsStr::new("LD_PRELOAD=\"$1:$LD_PRELOAD\" exec \"$0\"");
    let command = ["sh".as_ref(), "-c".as_ref(), script, program.as_os_str(), wrapper.as_os_str()];
    let (info, _) = the_same(&file, &command);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{info}");
    let rows = info["processes"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["command"][0] == program.to_string_lossy().as_ref());
    // What the wrapper allocates when the library looks something up is an event as any other.
    assert!(row.is_some_and(|row| tape::number(row, "/events") >= 900), "{info}");
}

#[test]
fn libcs_own_debugging_allocator() {
    let (folder, program) = (scratch(), program("exchange"));
    let file = folder.path().join("x.tape");
    let command = [program.as_os_str(), "2".as_ref(), "5000".as_ref()];
    for (name, value) in [
        ("MALLOC_CHECK_", "3"),
        ("GLIBC_TUNABLES", "glibc.malloc.check=3"),
        ("MALLOC_PERTURB_", "165"),
    ] {
        let variables = [(name, value), ("LD_PRELOAD", "libc_malloc_debug.so.0")];
        let outcome = run(record(&file, &[], &command).envs(variables));
        assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""), "{name}");
        let info = tape::info(&file);
        tape::assert_sound(&info);
        assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{name}: {info}");
        assert!(tape::number(&info, "/events") > 10_000, "{name}: {info}");
    }
}

#[test]
fn stacks_that_are_switched_and_threads_that_are_cancelled() {
    let (folder, program) = (scratch(), program("contexts"));
    let (file, lines) = (folder.path().join("x.tape"), folder.path().join("truth"));
    let outcome = run(record(&file, &[], &[program.as_os_str()]).env("TRUTH", &lines));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    // The unwinder that ends a cancelled thread is a library of its own, which libc loads.
    let lines = truth::lines(&lines).into_iter().map(|l| truth::Line { quiet: false, ..l });
    let found = compare::differences(&file, &info, &program, &lines.collect::<Vec<_>>());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn fork_handlers_that_allocate_while_threads_do() {
    let (folder, program) = (scratch(), program("atforks"));
    let file = folder.path().join("x.tape");
    let (info, _) = the_same(&file, &[program.as_os_str()]);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{info}");
    assert_eq!(info["processes"].as_array().map(Vec::len), Some(41), "{info}");
    assert_eq!(births(&file, [4001, 4002, 4003]), [40, 40, 40]);
}

#[test]
fn blocks_that_the_c_library_makes_for_the_program() {
    let (folder, program) = (scratch(), program("inside"));
    let file = folder.path().join("x.tape");
    let (info, _) = the_same(&file, &[program.as_os_str()]);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{info}");
    assert_eq!(births(&file, [4901, 4991, 5012, 5020]), [1, 1, 1, 1]);
    // libc keeps a block or two for itself.
    assert!(tape::number(&info, "/processes/0/end/blocks") < 5, "{info}");
}

#[test]
fn the_program_sees_the_allocator_that_it_sees_without_us() {
    let (folder, program) = (scratch(), program("untouched"));
    let file = folder.path().join("x.tape");
    let (_, outcome) = the_same(&file, &[program.as_os_str()]);
    assert_eq!(outcome.stdout.split(|&b| b == b'\n').count(), 602);
}

#[test]
fn the_program_sees_no_more_in_its_environment_than_is_told() {
    let folder = scratch();
    let names = |bytes: &[u8]| -> BTreeSet<String> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.split('\0').filter_map(|v| Some(v.split_once('=')?.0.to_owned())).collect()
    };
    let script = "cat /proc/self/environ";
    let plain = run(Command::new("sh").args(["-c", script])).stdout;
    let command = ["sh", "-c", script].map(OsStr::new);
    let recorded = run(&mut record(&folder.path().join("x.tape"), &[], &command)).stdout;
    let (plain, recorded) = (names(&plain), names(&recorded));
    let more: Vec<_> = recorded.difference(&plain).collect();
    assert!(!more.is_empty() && plain.is_subset(&recorded), "{more:?}");
    assert!(more.iter().all(|n| n.starts_with("HEAPTAPE_") || *n == "LD_PRELOAD"), "{more:?}");
}

#[test]
fn a_block_that_is_freed_twice_ends_the_program_as_ever() {
    let (folder, program) = (scratch(), program("twice"));
    let file = folder.path().join("x.tape");
    let (info, outcome) = the_same(&file, &[program.as_os_str()]);
    assert_eq!(outcome.code(), 128 + 6);
    assert!(outcome.stderr_text().contains("double free"), "{}", outcome.stderr_text());
    // The second free is on the tape, too: of a block that is none any more.
    assert_eq!(tape::number(&info, "/unknown_frees"), 1, "{info}");
    assert_eq!(info["processes"][0]["exit"]["signal"], 6, "{info}");
}

#[test]
fn a_program_that_has_no_name_any_more() {
    let (folder, program) = (scratch(), program("unnamed"));
    let file = folder.path().join("x.tape");
    let (info, outcome) = the_same(&file, &[program.as_os_str()]);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (6, ""));
    assert_eq!(births(&file, [4321]), [100], "{info}");
}

#[test]
fn names_that_are_no_text() {
    let folder = scratch();
    let odd = folder.path().join(OsString::from_vec(b"n\xff\xfe".to_vec()));
    fs::create_dir(&odd).expect("a folder");
    let copy = odd.join(OsString::from_vec(b"\xc3".to_vec()));
    let status = Command::new("cp").arg(program("shimmed")).arg(&copy).status().expect("cp");
    assert!(status.success());
    let file = odd.join(OsString::from_vec(b"t\x80.tape".to_vec()));
    let argument = OsString::from_vec(b"\xf0\x28".to_vec());
    let (info, _) = the_same(&file, &[copy.as_os_str(), &argument]);
    assert_eq!(tape::number(&info, "/events"), 900, "{info}");
    for arguments in [["info", "--verify"], ["events", "0..3"], ["live", "--at=peak"]] {
        let outcome = run(heaptape([arguments[0]]).arg(&file).arg(arguments[1]));
        assert_eq!(outcome.code(), 0, "{arguments:?}: {}", outcome.stderr_text());
        assert!(String::from_utf8(outcome.stdout).is_ok(), "{arguments:?}");
    }
}

#[test]
fn without_standard_streams() {
    let folder = scratch();
    let (file, seen) = (folder.path().join("x.tape"), folder.path().join("seen"));
    let script = "ls /proc/self/fd >\"$0\"; exit 4";
    let closed = |with: &[&OsStr]| {
        let mut sh = Command::new("sh");
        sh.args(["-c", "exec \"$@\" <&- >&- 2>&-", "sh"]).args(with);
        sh.args(["sh", "-c", script]).arg(&seen);
        let code = run(&mut sh).code();
        (code, fs::read_to_string(&seen).unwrap_or_default())
    };
    let plain = closed(&[]);
    let record = [OsStr::new(HEAPTAPE), "record".as_ref(), "--quiet".as_ref(), "-o".as_ref()];
    let record = [&record[..], &[file.as_os_str(), "--".as_ref()]].concat();
    assert_eq!(closed(&record), plain);
    assert_eq!(plain.0, 4);
    tape::assert_sound(&tape::info(&file));
}

#[test]
fn real_time_threads_on_a_processor_that_they_share_with_the_collector() {
    let can = run(Command::new("taskset").args(["-c", "0", "chrt", "-f", "50", "true"]));
    if can.code() != 0 {
        return skip("threads can't be given a real-time priority here");
    }
    let (folder, program) = (scratch(), program("exchange"));
    let file = folder.path().join("x.tape");
    let mut command = Command::new("taskset");
    command.args(["-c", "0", HEAPTAPE, "record", "--quiet", "-o"]).arg(&file);
    command.args(["--", "chrt", "-f", "50"]).arg(&program).args(["4", "100000"]);
    let outcome = run(&mut command);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert!(tape::number(&info, "/events") > 400_000, "{info}");
}

#[test]
fn a_processor_whose_time_stamp_counter_is_not_trusted() {
    let (folder, program) = (scratch(), program("exchange"));
    let file = folder.path().join("x.tape");
    let command = [program.as_os_str(), "4".as_ref(), "50000".as_ref()];
    let outcome = run(record(&file, &[], &command).env("HEAPTAPE_STAMP", "counter"));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(tape::number(&info, "/unknown_frees"), 0, "{info}");
    assert!(tape::number(&info, "/events") > 100_000, "{info}");
}

#[test]
fn as_the_first_process_of_a_container() {
    let probe = run(Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]));
    if probe.code() != 0 {
        return skip("pid namespaces can't be made here");
    }
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", HEAPTAPE, "record", "--quiet", "-o"]);
    // Processes that nobody waits for but the first one of the namespace.
    let script = "(sleep 0.2; ls >/dev/null) & (setsid sleep 0.3 &); exit 3";
    command.arg(&file).args(["--", "sh", "-c", script]);
    let outcome = run(&mut command);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (3, ""));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(info["uncovered"], Value::Array(Vec::new()), "{info}");
    let commands = info["processes"].to_string();
    assert!(["ls", "setsid", "sleep"].iter().all(|c| commands.contains(c)), "{info}");
}

/// Each row of the table in docs/known-troubles.md: its cells.
fn table() -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("docs/known-troubles.md")).expect("the table");
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #"));
    let cells =
        |row: &str| row.trim_matches('|').split(" | ").map(|c| c.trim().to_owned()).collect();
    rows.map(cells).collect()
}

#[test]
fn every_test_that_the_table_of_known_troubles_names_is_there() {
    let rows = table();
    assert!(rows.len() >= 60, "{} rows", rows.len());
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row.len(), 4, "{row:?}");
        assert_eq!(row[0], (i + 1).to_string(), "{row:?}");
        // The odd pieces between quotes.
        let names: Vec<&str> = row[3].split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty() || row[3].starts_with("cannot happen"), "{row:?}");
        for name in names {
            let Some((file, test)) = name.split_once("::") else {
                assert!(root().join(name).exists(), "{name} is not there: {row:?}");
                continue;
            };
            let path =
                ["crates/cli/tests/", ""].map(|folder| root().join(format!("{folder}{file}")));
            let source = path.iter().find_map(|path| fs::read_to_string(path).ok());
            let source = source.unwrap_or_else(|| panic!("no file {file}: {row:?}"));
            let head = format!("#[test]\nfn {test}(");
            let inner = format!("#[test]\n    fn {test}(");
            assert!(source.contains(&head) || source.contains(&inner), "no test {name}: {row:?}");
        }
    }
}
