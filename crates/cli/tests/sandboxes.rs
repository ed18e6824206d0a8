//! Programs that live under restrictions: filters of system calls, other roots and namespaces, limits, tracers, and runtimes
//! that replace the allocator. None is harmed, and what is not seen is named.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{program, sanitized_program};
use harness::running::{Outcome, run};
use harness::{HEAPTAPE, record, scratch, skip, tape};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Records a command; the tape must be sound.
fn recorded(command: &[&OsStr]) -> (Value, Outcome) {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &[], command));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    (info, outcome)
}

fn words<'a>(program: &'a Path, args: &[&'a str]) -> Vec<&'a OsStr> {
    let args = args.iter().copied().map(OsStr::new);
    [program.as_os_str()].into_iter().chain(args).collect()
}

fn plain(command: &[&OsStr]) -> Outcome {
    run(Command::new(command[0]).args(&command[1..]))
}

/// Recorded, the command ends as it does without heaptape, and prints the same.
fn the_same(command: &[&OsStr]) -> Value {
    let plain = plain(command);
    let (info, outcome) = recorded(command);
    assert_eq!(outcome.code(), plain.code(), "{command:?}: {}", outcome.stderr_text());
    assert_eq!(outcome.stdout, plain.stdout, "{command:?}");
    assert_eq!(outcome.stderr_text(), plain.stderr_text(), "{command:?}");
    info
}

fn rows(info: &Value) -> &[Value] {
    info["processes"].as_array().expect("rows")
}

/// The rows whose command begins with this program.
fn rows_of<'a>(info: &'a Value, program: &Path) -> Vec<&'a Value> {
    let name = program.to_string_lossy();
    rows(info).iter().filter(|row| row["command"][0] == name.as_ref()).collect()
}

fn nothing_uncovered(info: &Value) {
    assert_eq!(info["uncovered"], Value::Array(Vec::new()), "{info}");
}

fn the_reason(info: &Value) -> &str {
    let uncovered = info["uncovered"].as_array().expect("a list");
    assert_eq!(uncovered.len(), 1, "{info}");
    uncovered[0]["why"].as_str().expect("a reason")
}

fn has(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok();
    if !there {
        skip(&format!("{tool} is not installed"));
    }
    there
}

/// Whether pid namespaces can be made here.
fn has_namespaces() -> bool {
    let probe = Command::new("unshare").args(["-p", "-f", "--mount-proc", "true"]).output();
    let can = probe.is_ok_and(|outcome| outcome.status.success());
    if !can {
        skip("pid namespaces can't be made here");
    }
    can
}

#[test]
fn sandboxes_of_system_calls() {
    let program = program("strict");
    for (how, events, processes) in [("strict", 4002, 1), ("kill", 16_002, 2), ("trap", 16_002, 2)]
    {
        let info = the_same(&words(&program, &[how]));
        nothing_uncovered(&info);
        assert_eq!(rows(&info).len(), processes, "{how}: {info}");
        let seen = tape::number(&info, "/events");
        assert!((events..events + 10).contains(&seen), "{how}: {seen} events");
    }
}

/// Records PROGRAM in a filter that it inherits.
fn filtered(how: &str, program: &Path) -> Value {
    let filter = harness::compile::program("filtered");
    the_same(&[filter.as_os_str(), OsStr::new(how), program.as_os_str()])
}

#[test]
fn a_filter_that_refuses_what_services_may_not_do_changes_nothing() {
    let program = program("shimmed");
    // By the second the library can't even tell where it is.
    for how in ["service", "asking"] {
        let info = filtered(how, &program);
        nothing_uncovered(&info);
        let rows = rows_of(&info, &program);
        assert_eq!(rows.len(), 1, "{how}: {info}");
        assert_eq!(rows[0]["events"], 900, "{how}: {info}");
    }
}

#[test]
fn a_filter_that_refuses_what_the_library_needs_leaves_the_program_alone_and_is_named() {
    let program = program("shimmed");
    for (how, call) in [("madvise", "madvise"), ("shared", "mmap")] {
        let info = filtered(how, &program);
        let why = the_reason(&info);
        assert!(why.contains(&format!("{call} failed: Operation not permitted")), "{how}: {why}");
        assert_eq!(info["uncovered"][0]["pid"], rows(&info)[0]["pid"], "{info}");
        assert_eq!(rows_of(&info, &program).len(), 0, "{info}");
    }
}

#[test]
fn limits_that_were_set_before_the_recording_are_named_with_what_is_needed() {
    let (program, folder) = (program("shimmed"), scratch());
    let file = folder.path().join("x.tape");
    // Root may raise any limit, unless it gives that right away.
    let lower = if rustix::process::geteuid().is_root() {
        "exec setpriv --bounding-set=-sys_resource -- \"$@\""
    } else {
        "exec \"$@\""
    };
    for (option, says) in [("-v", "address space is limited to 488 MiB"), ("-d", "data is limited")]
    {
        let kilobytes = if option == "-v" { 500_000 } else { 20_000 };
        let script = format!("ulimit {option} {kilobytes}; {lower}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", HEAPTAPE, "record", "--quiet", "-o"]).arg(&file);
        let outcome = run(command.arg("--").arg(&program));
        assert_eq!(outcome.code(), 0, "{option}: {}", outcome.stderr_text());
        let info = tape::info(&file);
        let why = the_reason(&info);
        assert!(why.contains(says), "{why}");
        // What it tells to set is enough.
        let enough = why.rsplit_once(&format!("ulimit {option} ")).expect("what to set").1;
        let enough: u64 = enough.trim_end_matches(')').parse().expect("a number");
        let script = format!("ulimit {option} {enough}; {lower}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", HEAPTAPE, "record", "--quiet", "-o"]).arg(&file);
        let outcome = run(command.arg("--").arg(&program));
        assert_eq!(outcome.code(), 0, "{option}: {}", outcome.stderr_text());
        let info = tape::info(&file);
        nothing_uncovered(&info);
        assert_eq!(tape::number(&info, "/events"), 900, "{info}");
    }
}

#[test]
fn a_program_in_another_root_and_what_it_becomes() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root may change its root directory");
    }
    let (program, folder) = (program("uprooted"), scratch());
    let root = folder.path().to_str().expect("a path in UTF-8");
    let info = the_same(&words(&program, &[root]));
    nothing_uncovered(&info);
    assert_eq!(tape::number(&info, "/events"), 1600, "{info}");
    // A program with its libraries in there.
    let inner = harness::compile::program("shimmed");
    for file in ["/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"] {
        let place = folder.path().join(file.trim_start_matches('/'));
        fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
        fs::copy(file, place).expect("a copy");
    }
    fs::copy(inner, folder.path().join("inner")).expect("a copy");
    for _ in 0..5 {
        let info = the_same(&words(&program, &[root, "/inner"]));
        assert!(the_reason(&info).contains("root directory"), "{info}");
        assert_eq!(info["uncovered"][0]["pid"], rows(&info)[0]["pid"], "{info}");
    }
}

#[test]
fn a_pid_namespace_with_its_own_proc() {
    if !has_namespaces() {
        return;
    }
    let program = program("shimmed");
    let script = "\"$0\"; \"$0\" & wait; sleep 1; exit 9";
    let command = ["unshare", "-p", "-f", "--mount-proc", "sh", "-c", script].map(OsStr::new);
    let command = [&command[..], &[program.as_os_str()]].concat();
    let info = the_same(&command);
    nothing_uncovered(&info);
    for row in rows_of(&info, &program) {
        assert_eq!(row["events"], 900, "{info}");
        // One that was gone before it was found may have an end that nobody knows; it has no wrong one.
        let code = &row["exit"]["code"];
        assert!(*code == 0 || code.is_null(), "{info}");
    }
    assert_eq!(rows_of(&info, &program).len(), 2, "{info}");
    // The shell, number 1 in there, lived long enough to be found by its number here.
    let shell = rows(&info).iter().find(|row| row["command"][0] == "sh").expect("the shell");
    assert_eq!(shell["exit"]["code"], 9, "{info}");
    assert_ne!(shell["pid"], 1, "{info}");
}

#[test]
fn threads_of_a_pid_namespace_are_known_by_their_numbers_there() {
    if !has_namespaces() {
        return;
    }
    let program = program("nursery");
    let command = ["unshare", "-p", "-f", "--mount-proc"].map(OsStr::new);
    let info = the_same(&[&command[..], &[program.as_os_str()]].concat());
    nothing_uncovered(&info);
    assert!(!rows_of(&info, &program).is_empty(), "{info}");
}

#[test]
fn limits_on_its_memory_stay_as_the_program_sets_them() {
    let program = program("limited");
    for (kind, bytes) in [("as", "62914560"), ("data", "20971520")] {
        let command = words(&program, &[kind, bytes]);
        let count = |outcome: &Outcome| -> i64 {
            let text = String::from_utf8_lossy(&outcome.stdout).trim().to_owned();
            text.parse().unwrap_or_else(|_| panic!("{kind}: {text} {}", outcome.code()))
        };
        let without = count(&plain(&command));
        let (info, outcome) = recorded(&command);
        assert_eq!(outcome.code(), 0, "{kind}: {}", outcome.stderr_text());
        nothing_uncovered(&info);
        let with = count(&outcome);
        assert!((without - 4..without + 200).contains(&with), "{kind}: {without} and {with}");
        assert_eq!(rows(&info)[0]["calls"]["free"], 0, "{info}");
    }
}

#[test]
fn limits_that_a_shell_sets_are_told_and_hold_in_its_children() {
    let program = program("limited");
    let script = "ulimit -v 60000; ulimit -v; \"$0\" as >/dev/null; sh -c 'ulimit -v'";
    let command = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script), program.as_os_str()];
    let info = the_same(&command);
    nothing_uncovered(&info);
    assert_eq!(rows_of(&info, &program).len(), 1, "{info}");
}

#[test]
fn few_descriptors_and_few_processes_are_enough() {
    let program = program("shimmed");
    for limit in ["-n 4", "-u 1", "-s 128", "-c 0", "-f 0", "-l 0"] {
        let script = format!("ulimit {limit} && exec \"$0\"");
        let command = ["sh".as_ref(), "-c".as_ref(), OsStr::new(&script), program.as_os_str()];
        if plain(&command).code() != 0 {
            skip(&format!("ulimit {limit} is not possible here"));
            continue;
        }
        let info = the_same(&command);
        assert_eq!(rows_of(&info, &program).len(), 1, "{limit}: {info}");
    }
}

#[test]
fn mlockall_locks_nothing_of_ours() {
    let program = program("limited");
    let command = words(&program, &["lock"]);
    let plain = plain(&command);
    if plain.code() != 0 {
        return skip("memory can't be locked here");
    }
    let numbers = |outcome: &Outcome| -> Vec<u64> {
        String::from_utf8_lossy(&outcome.stdout).lines().map(|l| l.parse().expect("kB")).collect()
    };
    let (info, outcome) = recorded(&command);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    nothing_uncovered(&info);
    let (without, with) = (numbers(&plain), numbers(&outcome));
    // The library itself is a file like the others.
    assert!(with[0] < without[0] + 2000, "locked: {without:?} kB and {with:?} kB");
    assert!(with[1] < without[1] + 1000, "shared memory: {without:?} kB and {with:?} kB");
}

#[test]
fn a_core_dump_holds_nothing_of_the_arena() {
    if !has("gdb") {
        return;
    }
    let (program, folder) = (program("limited"), scratch());
    let core = folder.path().join("core");
    let save = format!("generate-core-file {}", core.display());
    let ask = ["gdb", "-q", "-batch", "-ex", "break main", "-ex", "run", "-ex", &save, "--args"];
    let command = ask.map(OsStr::new);
    let command =
        [&command[..], &[program.as_os_str(), "as".as_ref(), "40000000".as_ref()]].concat();
    let length = || fs::metadata(&core).map_or(0, |meta| meta.len());
    assert_eq!(plain(&command).code(), 0);
    let without = length();
    fs::remove_file(&core).expect("the core of the plain run");
    assert_eq!(recorded(&command).1.code(), 0);
    assert!(without > 0 && length() < without + (8 << 20), "{without} and {} bytes", length());
}

#[test]
fn under_gdb() {
    if !has("gdb") {
        return;
    }
    let program = program("shimmed");
    let ask =
        ["gdb", "-q", "-batch", "-ex", "break main", "-ex", "run", "-ex", "bt", "-ex", "delete"];
    let command =
        [&ask.map(OsStr::new)[..], &["-ex".as_ref(), "continue".as_ref(), program.as_os_str()]];
    let (info, outcome) = recorded(&command.concat());
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(text.contains("main ()") && text.contains("exited normally"), "{text}");
    let row = rows_of(&info, &program).into_iter().next_back().expect("the program");
    assert!(tape::number(row, "/events") >= 900, "{info}");
}

#[test]
fn under_strace_and_heaptape_under_it() {
    if !Command::new("strace").arg("-V").output().is_ok_and(|o| o.status.success()) {
        return skip("strace is not installed");
    }
    let (program, folder) = (program("shimmed"), scratch());
    let log = folder.path().join("log");
    let strace = ["strace".as_ref(), "-f".as_ref(), "-o".as_ref(), log.as_os_str()];
    let (info, outcome) = recorded(&[&strace[..], &[program.as_os_str()]].concat());
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let row = rows_of(&info, &program).into_iter().next_back().expect("the program");
    assert_eq!(tape::number(row, "/events"), 900, "{info}");
    let file = folder.path().join("x.tape");
    let inner = [HEAPTAPE, "record", "--quiet", "-o"].map(OsStr::new);
    let inner = [&inner[..], &[file.as_os_str(), "--".as_ref(), program.as_os_str()]].concat();
    let outcome = plain(&[&strace[..], &inner].concat());
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(tape::number(&info, "/events"), 900, "{info}");
}

#[test]
fn under_valgrind_what_it_takes_over_is_named() {
    if !has("valgrind") {
        return;
    }
    let program = program("shimmed");
    let command = ["valgrind".as_ref(), "-q".as_ref(), program.as_os_str()];
    let info = the_same(&command);
    let uncovered = info["uncovered"].as_array().expect("a list");
    let named = |word: &str| uncovered.iter().any(|u| u["why"].to_string().contains(word));
    assert!(named("valgrind runs it"), "{info}");
    // A tool that only counts leaves the allocator alone. (The kernel takes the program for valgrind.)
    let tool = ["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let info = recorded(&[&tool.map(OsStr::new)[..], &[program.as_os_str()]].concat()).0;
    assert!(rows(&info).iter().any(|row| row["events"] == 900), "{info}");
}

#[test]
fn sanitizers_start_and_find_what_they_find() {
    for (name, can_tell) in
        [("address", true), ("leak", false), ("thread", true), ("undefined", false)]
    {
        let Some(program) = sanitized_program("sanitized", name) else {
            skip(&format!("the {name} sanitizer is not installed"));
            continue;
        };
        let info = the_same(&[program.as_os_str()]);
        nothing_uncovered(&info);
        let calls = &rows(&info)[0]["calls"];
        assert!(
            tape::number(calls, "/malloc") >= 500 && tape::number(calls, "/free") >= 500,
            "{info}"
        );
        let command = [program.as_os_str(), OsStr::new("fault")];
        let (plain, (_, outcome)) = (plain(&command), recorded(&command));
        assert_eq!(outcome.code(), plain.code(), "{name}: {}", outcome.stderr_text());
        let finding = "use-after-free";
        assert_eq!(plain.stderr_text().contains(finding), can_tell, "{name}");
        assert_eq!(
            outcome.stderr_text().contains(finding),
            can_tell,
            "{name}: {}",
            outcome.stderr_text()
        );
    }
}

#[test]
fn a_program_that_gives_its_rights_up_is_recorded_on() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root has rights to give up");
    }
    let program = program("shimmed");
    let ask = [
        "setpriv",
        "--reuid",
        "65534",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set",
        "-all",
    ];
    let folder = scratch();
    let copy = Path::new("/var/tmp").join(folder.path().file_name().expect("a name"));
    fs::copy(&program, &copy).expect("a copy that others can reach");
    let info = the_same(&[&ask.map(OsStr::new)[..], &[copy.as_os_str()]].concat());
    fs::remove_file(&copy).expect("our own copy");
    nothing_uncovered(&info);
    assert_eq!(tape::number(rows_of(&info, &copy)[0], "/events"), 900, "{info}");
}

#[test]
fn a_user_namespace() {
    let probe = Command::new("unshare").args(["-U", "-r", "true"]).output();
    if !probe.is_ok_and(|outcome| outcome.status.success()) {
        return skip("user namespaces can't be made here");
    }
    let program = program("shimmed");
    for flags in ["-U", "-Ur"] {
        let info = the_same(&["unshare".as_ref(), OsStr::new(flags), program.as_os_str()]);
        nothing_uncovered(&info);
        assert_eq!(tape::number(rows_of(&info, &program)[0], "/events"), 900, "{info}");
    }
}
