//! Lines of Python stand between the frames of C where they ran, whatever becomes of the interpreter.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{program, sources};
use harness::running::run;
use harness::{has_stacks, record, scratch, skip};
use heaptape_tape::{Event, Item, ProcessNumber, Site, SiteEnd, Tape};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Records a command with stacks.
fn recorded(options: &[&str], command: &[&OsStr]) -> (TempDir, Tape) {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let mut recording = record(&file, &[&["--stacks"], options].concat(), command);
    let outcome = run(recording.env("PYTHONHASHSEED", "0"));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let tape = Tape::open(&file).expect("a tape");
    (folder, tape)
}

/// The process that called most. (A command may be a script that becomes the interpreter in the end.)
fn busiest(tape: &Tape) -> ProcessNumber {
    tape.summary().processes.iter().max_by_key(|process| process.events).expect("a process").number
}

/// Whether a call is for a `bytearray` of this size, or for a block of that: a byte more is asked for, and since 3.15 the head
/// of an object.
fn is_bytearray(size: u64, event: &Event) -> bool {
    [size, size + 1, size + 33].contains(&event.size) && !event.call.is_release()
}

/// The stacks of all calls that made blocks of this size, in any process.
fn stacks(tape: &Tape, size: u64) -> Vec<Site> {
    let of_process = |process| {
        let sites = tape.sites(process).expect("sites");
        let calls = tape.events(process, 0..u64::MAX).expect("events").filter_map(|item| {
            let Item::Event(call) = item.expect("an event") else { return None };
            is_bytearray(size, &call.event)
                .then(|| call.site.and_then(|number| sites.get(number)).expect("a stack"))
        });
        calls.collect::<Vec<_>>()
    };
    tape.summary().processes.iter().flat_map(|process| of_process(process.number)).collect()
}

/// Which frames of a stack are lines of Python, and which lines: a frame of C is 0.
fn lines(site: &Site) -> Vec<u64> {
    let line = |frame: &u64| if frame >> 63 == 1 { frame & 0xff_ffff } else { 0 };
    site.frames.iter().map(line).collect()
}

/// The interpreters of Python that are here, of the versions whose frames can be read; more may be named in a variable, as
/// bench/pythons.sh does.
fn pythons() -> Vec<PathBuf> {
    let of_version = |command: &Path| {
        let told = Command::new(command).arg("--version").output().ok()?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let known = ["3.11.", "3.12.", "3.13.", "3.14.", "3.15."];
        known.iter().any(|version| told.contains(version)).then(|| command.to_owned())
    };
    let mut found: Vec<PathBuf> = Vec::new();
    let usual = ["python3", "python3.11", "python3.12", "python3.13", "python3.14", "python3.15"];
    let named = std::env::var_os("HEAPTAPE_PYTHONS").unwrap_or_default();
    let usual = usual.map(PathBuf::from).into_iter().chain(std::env::split_paths(&named));
    let homes = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    let built = homes.and_then(|homes| fs::read_dir(homes).ok()).into_iter().flatten();
    let built = built.filter_map(|entry| Some(entry.ok()?.path().join("bin/python3")));
    for command in usual.chain(built) {
        found.extend(of_version(&command));
    }
    found
}

/// The lines of Python code that made `bytearray`s of this size, innermost first, as `function:line`.
fn python_lines(tape: &Tape, process: ProcessNumber, size: u64) -> Vec<(String, u64)> {
    let sites = tape.sites(process).expect("sites");
    let mut found: Vec<(String, u64)> = Vec::new();
    for item in tape.events(process, 0..u64::MAX).expect("events") {
        let Item::Event(call) = item.expect("an event") else { continue };
        if !is_bytearray(size, &call.event) {
            continue;
        }
        let site = call.site.and_then(|number| sites.get(number)).expect("a stack");
        let lines = site.frames.iter().filter(|&&frame| frame >> 63 == 1).map(|&frame| {
            let (code, line) = ((frame >> 24) as u32, frame & 0xff_ffff);
            format!("{}:{line}", sites.code(code).expect("its code").function)
        });
        let lines = lines.collect::<Vec<_>>().join(" < ");
        match found.iter_mut().find(|(known, _)| *known == lines) {
            Some((_, count)) => *count += 1,
            None => found.push((lines, 1)),
        }
    }
    found
}

#[test]
fn python_is_told_by_function_and_line() {
    if !has_stacks() {
        return;
    }
    let script = sources().join("lines.py");
    let pythons = pythons();
    if pythons.is_empty() {
        return skip("no Python of a version whose frames can be read");
    }
    for python in pythons {
        let (_folder, tape) = recorded(&[], &[python.as_os_str(), script.as_os_str()]);
        let expected = [
            (5000, "build:7 < main:23 < <module>:35", 300),
            (3000, "produce:13 < main:24 < <module>:35", 50),
            (7000, "method:18 < main:25 < <module>:35", 20),
            (9000, "<lambda>:26 < main:26 < <module>:35", 5),
            (11000, "in_thread:30 < Thread.run:", 10),
        ];
        for (size, wanted, count) in expected {
            let found = python_lines(&tape, busiest(&tape), size);
            let is_it = |(line, made): &(String, u64)| {
                let inner = ["A.method.<locals>.<listcomp>:18 < ", "A.", "main.<locals>."];
                let line = inner.iter().fold(line.clone(), |line, inner| line.replace(inner, ""));
                line.starts_with(wanted) && *made == count
            };
            assert!(found.iter().any(is_it), "{}: {size}: {found:?}", python.display());
        }
    }
}

/// A stack that is cut has the inner frames of the whole one, each in its place.
#[test]
fn a_stack_that_is_cut_begins_as_the_whole_one() {
    if !has_stacks() {
        return;
    }
    let script = sources().join("lines.py");
    for python in pythons() {
        let command = [python.as_os_str(), script.as_os_str()];
        let (_folder, whole) = recorded(&[], &command);
        for depth in [1, 2, 3, 5, 8, 13] {
            let (_folder, cut) = recorded(&["--depth", &depth.to_string()], &command);
            for size in [5000, 3000, 7000, 9000, 11000] {
                let (whole, cut) = (stacks(&whole, size), stacks(&cut, size));
                assert_eq!(whole.len(), cut.len());
                for (whole, cut) in whole.iter().zip(&cut) {
                    assert_eq!(cut.frames.len(), depth.min(whole.frames.len()), "{cut:x?}");
                    assert_eq!(
                        lines(cut)[..],
                        lines(whole)[..cut.frames.len()],
                        "{depth}: {cut:x?} {whole:x?}"
                    );
                    let is_cut = cut.frames.len() < whole.frames.len();
                    assert!(!is_cut || cut.end == SiteEnd::Depth, "{cut:x?}");
                }
            }
        }
    }
}

/// Where a call of the interpreter's loop stands among the calls of C is told by the outermost of its frames.
#[test]
fn lines_of_a_deep_recursion_stand_inside_the_frames_of_c_that_run_them() {
    let script = "import sys\nsys.setrecursionlimit(30000)\nkept = []\n\
                  def deep(n):\n  if n == 0: kept.append(bytearray(5000000))\n  else: deep(n - 1)\n\
                  deep(9000)";
    for python in pythons() {
        let command = [python.as_os_str(), "-c".as_ref(), script.as_ref()];
        let (_folder, tape) = recorded(&[], &command);
        let sites = stacks(&tape, 5_000_000);
        assert_eq!(sites.len(), 1, "{}", python.display());
        let lines = lines(&sites[0]);
        let first = lines.iter().position(|&line| line != 0).expect("a line of Python");
        assert!(first < 10 && lines[first] == 5 && lines.ends_with(&[6]), "{lines:?}");
    }
}

/// A program may close its interpreter, and the library of it, and go on.
#[test]
fn an_interpreter_may_go_and_come_back() {
    if !has_stacks() {
        return;
    }
    let (program, library) = (program("embedded"), "libpython3.11.so.1.0");
    let plain = Command::new(&program).arg(library).output().expect("it runs");
    if plain.status.code() != Some(0) {
        return skip("no libpython3.11 to load (Debian: libpython3.11)");
    }
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &["--stacks"], &[program.as_os_str(), library.as_ref()]));
    assert_eq!((outcome.code(), &outcome.stdout), (0, &plain.stdout), "{}", outcome.stderr_text());
    let tape = Tape::open(&file).expect("a tape");
    let own = stacks(&tape, 778);
    assert_eq!(own.len(), 3000);
    assert!(own.iter().all(|site| lines(site).iter().all(|line| *line == 0)), "lines of nobody");
    let its = stacks(&tape, 5000);
    assert_eq!(its.len(), 200);
    let have_lines = its.iter().filter(|site| lines(site).contains(&1) && lines(site).contains(&2));
    assert_eq!(have_lines.count(), 200);
}
