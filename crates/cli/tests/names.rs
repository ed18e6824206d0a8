//! Callers are named by the functions that the programs know they are in, and by no other.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, program, rust_program, sources};
use harness::running::run;
use harness::{heaptape, one_sentence, record, scratch};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// tests/programs/named.cpp and its plugin, in a folder of their own and recorded.
struct Recorded {
    folder: TempDir,
    program: PathBuf,
    plugin: PathBuf,
    tape: PathBuf,
}

impl Recorded {
    fn new() -> Recorded {
        let folder = scratch();
        let path = folder.path().canonicalize().expect("the folder");
        let (program, plugin) = (path.join("named"), path.join("plugin.so"));
        fs::copy(self::program("named"), &program).expect("a copy");
        fs::copy(library("plugin"), &plugin).expect("a copy");
        let tape = path.join("x.tape");
        record_to(&tape, &[program.as_os_str(), plugin.as_os_str()]);
        Recorded { folder, program, plugin, tape }
    }

    fn named(&self, options: &[&OsStr]) -> BTreeMap<u64, String> {
        named(&self.tape, options)
    }
}

fn record_to(tape: &Path, command: &[&OsStr]) {
    let outcome = run(&mut record(tape, &[], command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
}

/// What the JSON of `events` calls the function of each block of 10,001 bytes and more; `-` for none.
fn named(tape: &Path, options: &[&OsStr]) -> BTreeMap<u64, String> {
    let mut command = heaptape(["events", "--json", "--call", "malloc", "--size", "10001..10009"]);
    let outcome = run(command.arg(tape).args(options));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let rows = outcome.json()["events"].as_array().expect("events").clone();
    let named = rows.iter().map(|row| {
        let function = row["function"].as_str();
        let file = Path::new(row["module"].as_str().expect("a module")).file_name();
        let at = format!("{}+{:#x}", file.unwrap().display(), row["offset"].as_u64().unwrap());
        let whole = function.map_or(at.clone(), |f| format!("{f} ({at})"));
        assert_eq!(row["caller"], whole, "{row}");
        (row["size"].as_u64().expect("a size"), function.unwrap_or("-").to_owned())
    });
    named.collect()
}

fn names(functions: [&str; 4]) -> BTreeMap<u64, String> {
    [10001, 10003, 10005, 10007].into_iter().zip(functions.map(str::to_owned)).collect()
}

const ALL: [&str; 4] = [
    "only_here",
    "shop::Shelf<3>::stock(unsigned long)",
    "shop::(anonymous namespace)::unnamed(unsigned long)",
    "plugin_make",
];

#[test]
fn the_functions_that_the_program_knows() {
    let recorded = Recorded::new();
    assert_eq!(recorded.named(&[]), names(ALL));
    let tape = recorded.folder.path().join("rust.tape");
    record_to(&tape, &[rust_program("named").as_os_str()]);
    // As `Shelf<T>` or `Shelf<u16>`: compilers write the symbol in two ways.
    let rust = &named(&tape, &[])[&10009];
    assert!(rust.contains("named::shop::Shelf<") && rust.ends_with("::stock"), "{rust}");
}

#[test]
fn every_view_names_them() {
    let recorded = Recorded::new();
    let print = |args: &[&str]| {
        let outcome = run(heaptape(args).arg(&recorded.tape));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        String::from_utf8(outcome.stdout).expect("text")
    };
    for view in
        [&["events", "--call", "malloc"][..], &["live", "--top", "0"], &["live", "--by", "caller"]]
    {
        let text = print(view);
        for function in ALL {
            assert!(
                text.contains(&format!("  {function} (")),
                "{view:?} lacks {function}:\n{text}"
            );
        }
    }
    for by in [&[][..], &["--by", "caller"]] {
        let text = print(&[&["live", "--json", "--top", "0"][..], by].concat());
        let live: Value = serde_json::from_str(&text).expect("JSON");
        let list = live["list"].as_array().expect("a list");
        for function in ALL {
            assert!(list.iter().any(|part| part["function"] == function), "{live}");
        }
    }
    let csv = print(&["export", "--to", "csv"]);
    assert!(csv.lines().next().is_some_and(|head| head.contains(",module,offset,function")));
    for function in ALL {
        assert!(csv.lines().any(|line| line.contains(&format!(",{function},"))), "{csv}");
    }
}

#[test]
fn a_long_name_is_cut_on_a_terminal_only() {
    let recorded = Recorded::new();
    let print = |args: &[&str], columns: Option<&str>| {
        let mut command = heaptape(args);
        if let Some(width) = columns {
            command.env("COLUMNS", width);
        }
        let outcome = run(command.env_remove("TERM").arg(&recorded.tape));
        String::from_utf8(outcome.stdout).expect("text")
    };
    for view in [&["events", "--call", "malloc"][..], &["live", "--by", "caller"]] {
        let text = print(view, Some("90"));
        let cut = text.lines().find(|l| l.contains("shop::(ano")).expect("the caller");
        assert!(cut.contains('…') && cut.contains("long) (named+0x"), "{cut}");
        assert!(print(view, None).contains(&format!("  {} (named+0x", ALL[2])));
    }
    let live = print(&["live", "--by", "caller"], Some("90"));
    assert!(live.lines().skip(1).all(|line| line.chars().count() <= 90), "{live}");
}

#[test]
fn files_that_went_away_or_changed_give_no_name() {
    let recorded = Recorded::new();
    fs::remove_file(&recorded.plugin).expect("the plugin");
    let without = names([ALL[0], ALL[1], ALL[2], "-"]);
    assert_eq!(recorded.named(&[]), without);
    // Another build, with other functions in the same places.
    let source = recorded.folder.path().join("named.cpp");
    let text = fs::read_to_string(sources().join("named.cpp")).expect("the source");
    fs::write(&source, text.replace("only_here", "not_there")).expect("a source");
    let mut compiler = Command::new("c++");
    compiler.args(["-O1", "-fno-optimize-sibling-calls", "-o"]).arg(&recorded.program);
    let output = compiler.arg(&source).output().expect("c++");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(recorded.named(&[]), names(["-"; 4]));
}

#[test]
fn a_stripped_program_is_named_by_place() {
    let recorded = Recorded::new();
    let strip = Command::new("strip").arg(&recorded.program).status().expect("strip");
    assert!(strip.success());
    assert_eq!(recorded.named(&[]), names(["-", "-", "-", ALL[3]]));
}

#[test]
fn a_tape_is_read_on_another_machine() {
    let recorded = Recorded::new();
    let root = recorded.folder.path().join("root");
    let below = |file: &Path| root.join(file.strip_prefix("/").expect("an absolute path"));
    fs::create_dir_all(below(&recorded.program).parent().unwrap()).expect("a folder");
    fs::rename(&recorded.program, below(&recorded.program)).expect("the program");
    // By its name alone.
    fs::rename(&recorded.plugin, root.join("plugin.so")).expect("the plugin");
    assert_eq!(recorded.named(&[]), names(["-"; 4]));
    let sysroot = [
        OsStr::new("--sysroot"),
        recorded.folder.path().as_os_str(),
        OsStr::new("--sysroot"),
        root.as_os_str(),
    ];
    assert_eq!(recorded.named(&sysroot), names(ALL));
}

#[test]
fn a_sysroot_that_is_none_is_told() {
    let recorded = Recorded::new();
    for command in [&["events"][..], &["live"], &["leaks"], &["export", "--to", "csv"]] {
        let outcome = run(heaptape(command).arg(&recorded.tape).args(["--sysroot", "/no/such"]));
        assert_eq!(outcome.code(), 1);
        assert!(one_sentence(&outcome).contains("/no/such is no directory"));
    }
}

#[test]
fn names_do_no_harm_to_a_terminal() {
    let recorded = Recorded::new();
    let file = fs::read(&recorded.program).expect("the program");
    let at: Vec<usize> =
        (0..file.len()).filter(|&i| file[i..].starts_with(b"\0only_here\0")).collect();
    assert!(!at.is_empty());
    let mut strange = file;
    at.iter().for_each(|&i| strange[i..i + 11].copy_from_slice(b"\0a\x1b[2J\n\xff,\"\0"));
    fs::write(&recorded.program, strange).expect("the program");
    let name = "a\u{1b}[2J\n\u{fffd},\"";
    assert_eq!(recorded.named(&[]), names([name, ALL[1], ALL[2], ALL[3]]));
    for view in [&["events"][..], &["live"], &["live", "--by", "caller"]] {
        let outcome = run(heaptape(view).arg(&recorded.tape));
        let text = String::from_utf8(outcome.stdout).expect("text");
        assert!(text.contains("a\\u{1b}[2J\\n\u{fffd},\" (named+0x"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
