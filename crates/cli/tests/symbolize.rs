//! Names that are put on a tape: they are those of the files, and stand there when the files are gone.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, sources};
use harness::running::{Outcome, run};
use harness::{heaptape, one_sentence, record, scratch};
use heaptape_tape::{ModuleNames, Tape};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// tests/programs/named.cpp with lines, and its plugin, recorded in a folder of their own.
struct Recorded {
    folder: TempDir,
    path: PathBuf,
    tape: PathBuf,
}

const ALL: [&str; 4] = [
    "only_here",
    "shop::Shelf<3>::stock(unsigned long)",
    "shop::(anonymous namespace)::unnamed(unsigned long)",
    "plugin_make",
];

impl Recorded {
    fn new() -> Recorded {
        let folder = scratch();
        let path = folder.path().canonicalize().expect("the folder");
        let source = sources().join("named.cpp");
        let mut compiler = Command::new("c++");
        compiler.args(["-g", "-O1", "-fno-optimize-sibling-calls", "-o"]).arg(path.join("named"));
        let output = compiler.arg(source).output().expect("c++");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::copy(library("plugin"), path.join("plugin.so")).expect("a copy");
        let tape = path.join("x.tape");
        let command = [path.join("named"), path.join("plugin.so")];
        let command = command.each_ref().map(|word| word.as_os_str());
        let outcome = run(&mut record(&tape, &[], &command));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        Recorded { folder, path, tape }
    }

    fn symbolize(&self, options: &[&str]) -> Outcome {
        let outcome = run(heaptape(["symbolize"]).arg(&self.tape).args(options));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        outcome
    }

    /// Takes away what was recorded.
    fn lose_files(&self) {
        for file in ["named", "plugin.so"] {
            fs::remove_file(self.path.join(file)).expect("a file");
        }
    }
}

fn functions(tape: &Path) -> Vec<String> {
    let mut command = heaptape(["events", "--json", "--call", "malloc", "--size", "10001..10009"]);
    let outcome = run(command.arg(tape));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let rows = outcome.json()["events"].as_array().expect("events").clone();
    rows.iter().map(|row| row["function"].as_str().unwrap_or("-").to_owned()).collect()
}

fn names(tape: &Path) -> Vec<ModuleNames> {
    Tape::open(tape).expect("a tape").names().expect("names")
}

#[test]
fn a_symbolized_tape_reads_the_same_without_the_files() {
    let recorded = Recorded::new();
    assert_eq!(functions(&recorded.tape), ALL);
    let views = [&["events"][..], &["live", "--by", "caller"], &["leaks"], &["report"]];
    let print = |view: &[&str]| run(heaptape(view).arg(&recorded.tape)).stdout;
    let before = views.map(print);
    let size = fs::metadata(&recorded.tape).unwrap().len();
    recorded.symbolize(&[]);
    assert_eq!(views.map(print), before);
    recorded.lose_files();
    assert_eq!(functions(&recorded.tape), ALL);
    assert_eq!(views.map(print), before);
    let verified = run(heaptape(["info", "--verify"]).arg(&recorded.tape));
    assert_eq!(verified.code(), 0, "{}", verified.stderr_text());
    let now = fs::metadata(&recorded.tape).unwrap().len();
    assert!(size < now && now < size + 4096, "{size} {now}");
    // What is on the tape has files and lines.
    let named = names(&recorded.tape);
    let program = named.iter().find(|module| module.path.ends_with("/named")).expect("the program");
    let text = fs::read_to_string(sources().join("named.cpp")).expect("the source");
    let line = |function: &str| {
        let at =
            text.lines().position(|line| line.contains(&format!(" {function}(std::size_t n) {{")));
        Some(at.expect("the function") as u32 + 1)
    };
    for (function, short) in ALL.iter().zip(["only_here", "stock", "unnamed"]) {
        let frames = program
            .places
            .iter()
            .find_map(|place| place.frames.last().filter(|frame| &*frame.function == *function));
        let frame = frames.unwrap_or_else(|| panic!("{function} in {program:?}"));
        assert_eq!(frame.line, line(short));
        assert!(frame.file.as_deref().is_some_and(|file| file.ends_with("named.cpp")), "{frame:?}");
    }
}

#[test]
fn the_tape_is_replaced_whole_or_written_elsewhere() {
    let recorded = Recorded::new();
    let old = fs::read(&recorded.tape).unwrap();
    fs::set_permissions(&recorded.tape, fs::Permissions::from_mode(0o640)).unwrap();
    let other = recorded.path.join("other.tape");
    recorded.symbolize(&["-o", other.to_str().unwrap()]);
    assert!(fs::read(&recorded.tape).unwrap() == old, "the tape has changed");
    let link = recorded.path.join("link.tape");
    symlink(&recorded.tape, &link).unwrap();
    let outcome = run(heaptape(["symbolize"]).arg(&link));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&recorded.tape).unwrap().permissions().mode() & 0o777, 0o640);
    let new = fs::read(&recorded.tape).unwrap();
    assert!(new == fs::read(&other).unwrap(), "both have the same names");
    // Once more changes nothing, and nothing is left beside it.
    recorded.symbolize(&[]);
    assert!(fs::read(&recorded.tape).unwrap() == new, "twice is once");
    let hidden = fs::read_dir(&recorded.path).unwrap().map(|e| e.unwrap().file_name());
    assert!(!hidden.into_iter().any(|name| name.to_string_lossy().starts_with('.')));
}

#[test]
fn names_of_before_stay_where_nothing_better_is_found() {
    let recorded = Recorded::new();
    recorded.symbolize(&[]);
    let before = names(&recorded.tape);
    recorded.lose_files();
    let outcome = recorded.symbolize(&[]);
    let after = names(&recorded.tape);
    let of = |all: &[ModuleNames], file: &str| all.iter().find(|m| m.path.ends_with(file)).cloned();
    for file in ["/named", "/plugin.so"] {
        assert_eq!(of(&after, file), of(&before, file));
    }
    assert!(!outcome.stderr_text().contains("gave no name"), "{}", outcome.stderr_text());
}

#[test]
fn files_that_gave_no_name_are_told() {
    let recorded = Recorded::new();
    recorded.lose_files();
    let text = recorded.symbolize(&[]).stderr_text();
    for file in ["/named gave no name", "/plugin.so gave no name"] {
        assert!(text.contains(file), "{text}");
    }
    assert_eq!(functions(&recorded.tape), ["-"; 4]);
}

#[test]
fn a_cut_tape_stays_one_with_names() {
    let recorded = Recorded::new();
    let whole = fs::read(&recorded.tape).unwrap();
    let cut = recorded.path.join("cut.tape");
    fs::write(&cut, &whole[..whole.len() - 30]).unwrap();
    let outcome = run(heaptape(["symbolize"]).arg(&cut));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    assert!(outcome.stderr_text().contains("It stays so, with names"), "{}", outcome.stderr_text());
    recorded.lose_files();
    assert_eq!(functions(&cut), ALL);
    assert!(Tape::open(&cut).unwrap().summary().cut);
}

#[test]
fn what_can_not_be_written_is_one_sentence_and_leaves_the_tape() {
    let recorded = Recorded::new();
    let old = fs::read(&recorded.tape).unwrap();
    let nowhere = recorded.path.join("no/such/folder.tape");
    for output in [nowhere.to_str().unwrap(), "/dev/full", "/proc/x.tape"] {
        let outcome = run(heaptape(["symbolize", "-o", output]).arg(&recorded.tape));
        assert_eq!(outcome.code(), 1);
        assert!(one_sentence(&outcome).contains(output), "{}", outcome.stderr_text());
    }
    // As when the disk is full; the limit counts 512 bytes.
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 1; trap '' XFSZ; exec \"$0\" symbolize \"$1\""]);
    let outcome = run(shell.arg(heaptape([""]).get_program()).arg(&recorded.tape));
    assert_eq!(outcome.code(), 1, "{}", outcome.stderr_text());
    assert!(one_sentence(&outcome).contains("x.tape"), "{}", outcome.stderr_text());
    assert!(fs::read(&recorded.tape).unwrap() == old, "the tape has changed");
    assert_eq!(fs::read_dir(recorded.folder.path()).unwrap().count(), 3);
    let outcome = run(&mut heaptape(["symbolize", "/dev/null"]));
    assert!(outcome.code() == 1 && one_sentence(&outcome).contains("no regular file"));
}

#[test]
fn servers_are_asked_only_when_that_is_wanted() {
    let recorded = Recorded::new();
    let programs = recorded.path.join("bin");
    fs::create_dir(&programs).unwrap();
    // What a server would send, by the program that asks it.
    let (debug, asked) = (recorded.path.join("named.debug"), recorded.path.join("asked"));
    fs::copy(recorded.path.join("named"), &debug).unwrap();
    let strip = Command::new("strip").arg(recorded.path.join("named")).status().expect("strip");
    assert!(strip.success());
    let script = format!(
        "#!/bin/sh\necho \"$1 $2\" >>{}\nreadelf -n {1} | grep -q \"$2\" && echo {1}\n",
        asked.display(),
        debug.display()
    );
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let events = |options: &[&str]| {
        let mut command = heaptape(["events", "--json", "--size", "10001"]);
        let outcome = run(command.env("PATH", &path).arg(&recorded.tape).args(options));
        let function = outcome.json()["events"][0]["function"].clone();
        function.as_str().unwrap_or("-").to_owned()
    };
    let symbolize = || {
        let mut command = heaptape(["symbolize", "--debuginfod"]);
        run(command.env("PATH", &path).arg(&recorded.tape)).stderr_text()
    };
    if Command::new("debuginfod-find").output().is_err() {
        assert_eq!(events(&["--debuginfod"]), "-");
        assert!(symbolize().contains("as the program debuginfod-find is not installed"));
    }
    let program = programs.join("debuginfod-find");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(events(&[]), "-");
    assert!(!asked.exists(), "a server was asked");
    assert_eq!(events(&["--debuginfod"]), "only_here");
    symbolize();
    assert_eq!(events(&[]), "only_here");
    let text = fs::read_to_string(&asked).unwrap();
    assert!(text.lines().all(|line| line.starts_with("debuginfo ") && line.len() > 20), "{text}");
}
