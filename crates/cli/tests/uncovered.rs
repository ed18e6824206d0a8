//! Programs that can't be recorded: each runs as ever and is named with the reason, and one that the kernel refuses is
//! told in one sentence.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{program, static_program};
use harness::running::{Outcome, run};
use harness::{HEAPTAPE, one_sentence, record, scratch, skip, tape};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Any user that is not root.
const NOBODY: u32 = 65534;

/// Records a command; gives what `info --json` says as well.
fn recorded(command: &[&OsStr]) -> (Value, Outcome) {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &[], command));
    (tape::info(&file), outcome)
}

/// The one process that is named, and why it was not recorded.
fn the_uncovered(info: &Value) -> (&Value, &str) {
    let uncovered = info["uncovered"].as_array().expect("a list");
    assert_eq!(uncovered.len(), 1, "{info}");
    (&uncovered[0], uncovered[0]["why"].as_str().expect("a reason"))
}

/// Copies a program. Another process does it: a file that this one has written may still be open in a
/// child that another test is just starting, and then it can't be run.
fn copied(from: &Path, to: &Path) {
    let status = Command::new("cp").args([from, to]).status().expect("cp");
    assert!(status.success());
}

fn executable(path: PathBuf, content: &[u8]) -> PathBuf {
    let plain = path.with_extension("plain");
    fs::write(&plain, content).expect("a file");
    copied(&plain, &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    path
}

#[test]
fn a_setuid_program_is_named() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can make a program that runs as another user");
    }
    let folder = scratch();
    let program = folder.path().join("id");
    copied(Path::new("/usr/bin/id"), &program);
    chown(&program, Some(NOBODY), None).expect("another owner");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("its mode");
    let plain = Command::new(&program).arg("-u").output().expect("id").stdout;
    if plain != NOBODY.to_string().into_bytes().into_iter().chain(*b"\n").collect::<Vec<_>>() {
        return skip("setuid programs do nothing on this file system");
    }
    let script = "\"$0\" -u; exit $?";
    let by_a_shell = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_os_str()];
    for command in [&[program.as_os_str(), "-u".as_ref()][..], &by_a_shell] {
        let (info, outcome) = recorded(command);
        assert_eq!((outcome.code(), &outcome.stdout), (0, &plain), "{}", outcome.stderr_text());
        let (process, why) = the_uncovered(&info);
        assert!(why.contains("setuid"), "{why}");
        assert!(process["command"][0].to_string().contains("/id"), "{process}");
    }
}

#[test]
fn what_the_kernel_refuses_is_told_in_one_sentence() {
    let folder = scratch();
    let whole = fs::read(program("peak")).expect("a program");
    let changed = |at: usize, bytes: &[u8]| {
        let mut copy = whole.clone();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        copy
    };
    let loader = b"/lib64/ld-linux";
    let loader = whole.windows(loader.len()).position(|w| w == loader).expect("a loader's name");
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("aarch64", changed(18, &[183]), "another architecture"),
        ("i386-with-64-bits", changed(18, &[3]), "another architecture"),
        ("without-a-loader", changed(loader, b"/no/such/loader"), "interpreter"),
        ("script", b"#!/no/such/interpreter -x\n".to_vec(), "interpreter"),
        ("cut", whole[..100].to_vec(), "damaged"),
        ("another-system", changed(16, &[9]), "damaged"),
    ];
    for (name, content, word) in cases {
        let file = executable(folder.path().join(name), &content);
        let tape = folder.path().join("x.tape");
        let outcome = run(&mut record(&tape, &[], &[file.as_os_str()]));
        assert_eq!(outcome.code(), 126, "{name}: {}", outcome.stderr_text());
        let sentence = one_sentence(&outcome);
        assert!(sentence.contains(word) && sentence.contains(name), "{sentence}");
        assert_eq!(outcome.stdout, b"", "{name}");
        assert!(!tape.exists(), "{name}: nothing ran, so there is no tape");
    }
}

#[test]
fn a_text_without_a_first_line_is_still_for_the_shell() {
    let folder = scratch();
    let file = executable(folder.path().join("text"), b"echo \"$1\"; exit 9\n");
    let (info, outcome) = recorded(&[file.as_os_str(), "word".as_ref()]);
    assert_eq!((outcome.code(), outcome.stdout.as_slice()), (9, &b"word\n"[..]));
    tape::assert_sound(&info);
}

#[test]
fn a_static_program_that_becomes_a_covered_one_is_named() {
    let (program, peak) = (static_program("static"), program("peak"));
    let alone = [program.as_os_str(), peak.as_os_str()];
    let script = "\"$0\" \"$1\"; exit $?";
    let by_a_shell = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), alone[0], alone[1]];
    for (command, rows) in [(&alone[..], 1), (&by_a_shell, 2)] {
        let (info, outcome) = recorded(command);
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let (process, why) = the_uncovered(&info);
        assert!(why.contains("statically linked"), "{why}");
        assert!(process["command"][0].to_string().contains("static"), "{process}");
        let pid = &process["pid"];
        let processes = info["processes"].as_array().expect("rows");
        let of_peak = |row: &&Value| row["command"][0].to_string().contains("peak");
        let row = processes.iter().find(of_peak).expect("the covered one");
        assert_eq!((&row["pid"], &row["exit"]["code"]), (pid, &Value::from(0)), "{info}");
        assert!(processes.len() >= rows, "{info}");
    }
}

#[test]
fn the_command_of_a_recorded_heaptape_is_named_as_recorded_by_the_other() {
    let folder = scratch();
    let (outer, inner) = (folder.path().join("outer.tape"), folder.path().join("inner.tape"));
    let peak = program("peak");
    let options = ["record", "--quiet", "-o"].map(OsStr::new);
    let command = [&[OsStr::new(HEAPTAPE)][..], &options].concat();
    let command = [&command[..], &[inner.as_os_str(), "--".as_ref(), peak.as_os_str()]].concat();
    let outcome = run(&mut record(&outer, &[], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let (outer, inner) = (tape::info(&outer), tape::info(&inner));
    let (process, why) = the_uncovered(&inner);
    assert!(why.contains("another heaptape"), "{why}");
    assert_eq!(Path::new(process["command"][0].as_str().expect("a name")), peak);
    let rows = outer["processes"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["pid"] == process["pid"]), "{outer}");
}

/// A program made by a compiler that may be missing.
fn compiled(compiler: &str, flags: &[&str], folder: &Path) -> Option<PathBuf> {
    let (source, program) = (folder.join("foreign.c"), folder.join("foreign"));
    let text = "#include <stdlib.h>\nint main(void) { free(malloc(10)); return 8; }\n";
    fs::write(&source, text).expect("a source");
    let made = Command::new(compiler).args(flags).arg(&source).arg("-o").arg(&program).output();
    let runs = made.is_ok_and(|outcome| outcome.status.success())
        && Command::new(&program).status().is_ok_and(|status| status.code() == Some(8));
    runs.then_some(program)
}

#[test]
fn programs_of_other_c_libraries_and_architectures_run_and_are_named() {
    let cases = [("musl-gcc", &[][..], "musl"), ("cc", &["-m32"][..], "another architecture")];
    for (compiler, flags, word) in cases {
        let folder = scratch();
        let Some(program) = compiled(compiler, flags, folder.path()) else {
            skip(&format!("{compiler} {flags:?} makes no program that runs here"));
            continue;
        };
        let script = "\"$0\"; exit $?";
        let by_a_shell = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_os_str()];
        for command in [&[program.as_os_str()][..], &by_a_shell] {
            let (info, outcome) = recorded(command);
            assert_eq!(outcome.code(), 8, "{compiler}: {}", outcome.stderr_text());
            assert!(the_uncovered(&info).1.contains(word), "{info}");
        }
    }
}

#[test]
fn what_was_recorded_is_never_listed_as_not_recorded() {
    // Forks of forks that become programs and are gone at once, many of them in one round.
    let pipeline = "for i in $(seq 150); do x=$(readlink none$i | cat); done";
    let at_once = "for i in $(seq 150); do (/bin/true; /bin/true) & done; wait";
    let pool = "import multiprocessing as m\n\
                for i in range(4):\n with m.get_context('spawn').Pool(4) as p: p.map(abs, range(40))\n";
    let commands = [["bash", "-c", pipeline], ["sh", "-c", at_once], ["python3", "-c", pool]];
    for command in commands {
        for _ in 0..3 {
            let (info, outcome) = recorded(&command.map(OsStr::new));
            assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
            tape::assert_sound(&info);
            assert_eq!(info["uncovered"], serde_json::json!([]), "{command:?}");
        }
    }
}
