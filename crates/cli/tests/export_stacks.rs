//! What `export` makes of call stacks says the same in every format: of a service whose memory is known by function.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::{Outcome, run};
use harness::{has_stacks, heaptape, one_sentence, record, scratch, skip};
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// tests/programs/service.c with its call stacks: 400 MiB, of which main, test1 and test2 make a quarter, a quarter and a half.
fn service() -> (TempDir, PathBuf) {
    let folder = scratch();
    let tape = folder.path().join("x.tape");
    let program = program("service");
    let outcome = run(&mut record(&tape, &["--stacks"], &[program.as_os_str()]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    (folder, tape)
}

fn export(tape: &Path, format: &str, options: &[&str]) -> Outcome {
    run(heaptape(["export", "--to", format]).arg(tape).args(options))
}

fn exported(tape: &Path, format: &str, options: &[&str]) -> Vec<u8> {
    let outcome = export(tape, format, options);
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""), "{format}");
    outcome.stdout
}

fn text(tape: &Path, format: &str, options: &[&str]) -> String {
    String::from_utf8(exported(tape, format, options)).expect("text")
}

/// The stacks of folded lines, each from the outermost call.
fn folded(text: &str) -> Vec<(Vec<String>, u64)> {
    let line = |line: &str| {
        let (stack, bytes) = line.rsplit_once(' ').expect("a figure");
        (stack.split(';').map(str::to_owned).collect(), bytes.parse().expect("bytes"))
    };
    text.lines().map(line).collect()
}

/// What stacks with a function have, in MiB.
fn below(stacks: &[(Vec<String>, u64)], function: &str) -> u64 {
    let has = |stack: &[String]| stack.iter().any(|name| name == function);
    stacks.iter().filter(|(stack, _)| has(stack)).map(|(_, bytes)| bytes).sum::<u64>() / MIB
}

/// Holds that each function has its part of the 400 MiB.
fn has_its_shares(stacks: &[(Vec<String>, u64)]) {
    let sums = ["main", "test1", "test2", "malloc_wrapper"].map(|name| below(stacks, name));
    assert_eq!(sums, [400, 100, 200, 400], "{stacks:?}");
    let own = stacks
        .iter()
        .filter(|(stack, _)| stack.ends_with(&["main", "malloc_wrapper"].map(str::to_owned)));
    assert_eq!(own.map(|(_, bytes)| bytes).sum::<u64>() / MIB, 100, "{stacks:?}");
}

#[test]
fn folded_stacks_have_the_shares_of_the_service() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service();
    let peak = text(&tape, "folded", &[]);
    has_its_shares(&folded(&peak));
    assert_eq!(peak, text(&tape, "folded", &["--at", "end"]), "all of it stays");
    let blocks = folded(&text(&tape, "folded", &["--metric", "count", "--focus", "^test2$"]));
    assert_eq!(blocks.iter().map(|(_, blocks)| blocks).sum::<u64>(), 2, "{blocks:?}");
    let others = folded(&text(&tape, "folded", &["--ignore", "^test2$"]));
    assert_eq!([below(&others, "main"), below(&others, "test2")], [200, 0]);
}

#[test]
fn speedscope_and_firefox_have_them_too() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service();
    let json =
        |format| -> Value { serde_json::from_slice(&exported(&tape, format, &[])).expect("JSON") };
    let speedscope = json("speedscope");
    let (frames, shown) = (&speedscope["shared"]["frames"], &speedscope["profiles"][0]);
    assert_eq!((&shown["type"], &shown["unit"]), (&"sampled".into(), &"bytes".into()));
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let name = |frame: &Value| {
        let number = frame.as_u64().expect("a number") as usize;
        frames[number]["name"].as_str().expect("a name").to_owned()
    };
    let samples = list(&shown["samples"]);
    let stacks = samples.iter().map(|sample| list(sample).iter().map(name).collect());
    let weights = list(&shown["weights"]);
    let weights = weights.iter().map(|weight| weight.as_u64().expect("bytes"));
    has_its_shares(&stacks.zip(weights).collect::<Vec<_>>());

    let firefox = json("firefox");
    let weights = list(&firefox["threads"][0]["nativeAllocations"]["weight"]);
    let sum: u64 = weights.iter().map(|weight| weight.as_u64().expect("bytes")).sum();
    assert_eq!(sum / MIB, 400);
}

#[test]
fn pprof_prints_them() {
    if !has_stacks() {
        return;
    }
    let (folder, tape) = service();
    let file = folder.path().join("x.pb.gz");
    let written = export(&tape, "pprof", &["-o", file.to_str().expect("a path")]);
    assert_eq!(written.code(), 0, "{}", written.stderr_text());
    let top = Command::new("go")
        .args(["tool", "pprof", "-top", "-cum", "-nodecount=100", "-unit=MB"])
        .arg(&file)
        .env("GOCACHE", folder.path())
        .env("PPROF_TMPDIR", folder.path())
        .output();
    let Ok(top) = top else { return skip("there is no go here, whose pprof would read it") };
    let text = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(top.status.success(), "{text} {}", String::from_utf8_lossy(&top.stderr));
    assert!(text.contains("Type: inuse_space"), "{text}");
    assert!(text.contains("File: service\n"), "of the executable: {text}");
    // flat flat% sum% cum cum% name
    let share = |function: &str| {
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.clone().find(|words| words.get(5) == Some(&function));
        line.unwrap_or_else(|| panic!("no {function} in {text}"))[4].to_owned()
    };
    for (function, percent) in [("main", 100.0), ("test1", 25.0), ("test2", 50.0)] {
        let told: f64 = share(function).trim_end_matches('%').parse().expect("percent");
        assert!((told - percent).abs() < 0.1, "{function}: {text}");
    }
}

/// pprof heads a profile with the file of the first mapping. The first blocks of ls are made by the C library.
#[test]
fn pprof_heads_a_profile_with_the_executable() {
    if !has_stacks() {
        return;
    }
    let folder = scratch();
    let (tape, file) = (folder.path().join("x.tape"), folder.path().join("x.pb.gz"));
    let Ok(ls) = fs::canonicalize("/bin/ls") else { return skip("there is no /bin/ls here") };
    assert_eq!(run(&mut record(&tape, &["--stacks"], &[ls.as_os_str()])).code(), 0);
    assert_eq!(export(&tape, "pprof", &["-o", file.to_str().expect("a path")]).code(), 0);
    let raw = Command::new("go")
        .args(["tool", "pprof", "-raw"])
        .arg(&file)
        .env("GOCACHE", folder.path())
        .env("PPROF_TMPDIR", folder.path())
        .output();
    let Ok(raw) = raw else { return skip("there is no go here, whose pprof would read it") };
    let text = String::from_utf8_lossy(&raw.stdout);
    let first = text.lines().find(|line| line.starts_with("1: ") && line.contains("/0x"));
    let path = format!(" {} ", ls.display());
    assert!(first.is_some_and(|line| line.contains(&path)), "{path}: {text}");
}

/// pprof drops a numeric label that is 0 and has no unit, and takes `thread=0` for a number.
#[test]
fn pprof_finds_the_first_process_and_thread_by_their_labels() {
    if !has_stacks() {
        return;
    }
    let (folder, tape) = service();
    let file = folder.path().join("x.pb.gz");
    let options = ["--label", "rank,thread", "-o", file.to_str().expect("a path")];
    assert_eq!(export(&tape, "pprof", &options).code(), 0);
    for (tag, is_there) in [("process=0", true), ("thread=0", true), ("process=1", false)] {
        let top = Command::new("go")
            .args(["tool", "pprof", "-top", "-cum", "-nodecount=100", "-tagfocus", tag])
            .arg(&file)
            .env("GOCACHE", folder.path())
            .env("PPROF_TMPDIR", folder.path())
            .output();
        let Ok(top) = top else { return skip("there is no go here, whose pprof would read it") };
        let text = String::from_utf8_lossy(&top.stdout);
        assert_eq!(text.contains("malloc_wrapper"), is_there, "{tag}: {text}");
    }
}

/// The lettering of a drawing.
fn letters(svg: &str) -> HashSet<String> {
    let ends = svg.split("<text ").skip(1);
    let letters = |rest: &str| Some(rest.split_once('>')?.1.split_once('<')?.0.trim().to_owned());
    ends.filter_map(letters).collect()
}

#[test]
fn the_pictures_show_them() {
    if !has_stacks() {
        return;
    }
    let (folder, tape) = service();
    let flames = text(&tape, "flamegraph", &[]);
    for title in ["test1 (100.0 MiB, 25.00%)", "test2 (200.0 MiB, 50.00%)"] {
        assert!(flames.contains(&format!("<title>{title}</title>")), "{title}: {flames}");
    }
    let graph = letters(&text(&tape, "callgraph", &[]));
    for figures in ["0 of 400.0 MiB (100 %)", "0 of 100.0 MiB (25 %)", "0 of 200.0 MiB (50 %)"] {
        assert!(graph.contains(figures), "{figures}: {graph:?}");
    }
    assert!(text(&tape, "dot", &[]).starts_with("digraph "));
    for (ending, begin) in [("svg", "<svg"), ("dot", "digraph"), ("pdf", "%PDF")] {
        let file = folder.path().join(format!("x.{ending}"));
        let outcome = export(&tape, "callgraph", &["-o", file.to_str().expect("a path")]);
        if ending == "pdf" && !cfg!(feature = "pdf") {
            assert!(one_sentence(&outcome).contains("without the feature pdf"));
            continue;
        }
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        assert!(fs::read(&file).expect("a file").starts_with(begin.as_bytes()), "{ending}");
    }
}

/// A tape without stacks has callers, and is exported by these.
#[test]
fn a_tape_without_stacks_says_so_and_has_callers() {
    let folder = scratch();
    let tape = folder.path().join("x.tape");
    let program = program("service");
    assert_eq!(run(&mut record(&tape, &[], &[program.as_os_str()])).code(), 0);
    let outcome = export(&tape, "folded", &[]);
    assert!(one_sentence(&outcome).contains("heaptape record --stacks"));
    let stacks = folded(&String::from_utf8(outcome.stdout).expect("text"));
    assert_eq!(below(&stacks, "malloc_wrapper"), 400);
}

#[test]
fn options_that_do_not_fit_and_what_can_not_be_drawn_are_refused() {
    if !has_stacks() {
        return;
    }
    let (folder, tape) = service();
    let kept = folder.path().join("kept.svg");
    fs::write(&kept, "kept").expect("a file");
    let kept_name = kept.to_str().expect("a path");
    for (format, options, says) in [
        ("folded", &["--range", "0..5"][..], "--range is for tables"),
        ("csv", &["--focus", "x"], "--focus is for call stacks"),
        ("csv", &["--at", "end"], "--at is for call stacks"),
        ("folded", &["--label", "thread"], "--label is for --to pprof"),
        ("callgraph", &["-o", "x.png"], "it must end in .svg, .pdf or .dot"),
        ("callgraph", &["--focus", "^none$", "-o", kept_name], "nothing was selected"),
        ("folded", &["--ignore", ".", "-o", kept_name], "nothing was selected"),
        ("folded", &["--focus", "test1", "--metric", "temporary"], "nothing of what was selected"),
        ("flamegraph", &["--metric", "temporary"], "nothing to draw"),
    ] {
        let outcome = export(&tape, format, options);
        assert_ne!(outcome.code(), 0, "{format} {options:?}");
        let sentence = one_sentence(&outcome);
        assert!(sentence.contains(says), "{sentence}");
    }
    assert_eq!(fs::read_to_string(&kept).expect("a file"), "kept");
    let over = export(&tape, "folded", &["-o", tape.to_str().expect("a path")]);
    assert!(one_sentence(&over).contains("would be overwritten"));
}

/// A file of nothing would look like an answer.
#[test]
fn a_selection_that_nothing_is_in_is_an_error_in_every_format() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service();
    for format in ["folded", "flamegraph", "pprof", "speedscope", "firefox", "dot", "callgraph"] {
        let outcome = export(&tape, format, &["--focus", "no such function"]);
        assert_eq!((outcome.code(), outcome.stdout.len()), (1, 0), "{format}");
        let sentence = one_sentence(&outcome);
        let says = "nothing was selected (--focus, --ignore, --process)";
        assert!(sentence.contains(says), "{format}: {sentence}");
    }
}

/// On a terminal a profile that is not text would be noise.
#[test]
fn what_is_not_text_is_not_sent_to_a_terminal() {
    if !has_stacks() {
        return;
    }
    let (folder, tape) = service();
    let typescript = folder.path().join("typescript");
    let command = format!("{} export --to pprof {}", harness::HEAPTAPE, tape.display());
    let outcome = Command::new("script")
        .args([OsStr::new("-qec"), OsStr::new(&command), typescript.as_os_str()])
        .output();
    let Ok(outcome) = outcome else { return skip("there is no script here to make a terminal") };
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(!outcome.status.success() && said.contains("nothing to read on a terminal"), "{said}");
}
