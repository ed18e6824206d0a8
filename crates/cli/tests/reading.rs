//! What the commands that read a tape say of it: a damaged one, a moment or a process that is not on it, a block
//! whose realloc is under way. The tapes are written here; nothing is recorded.
#![forbid(unsafe_code)]

mod harness;

use harness::running::run;
use harness::{heaptape, one_sentence, root, scratch};
use heaptape_tape::{
    Call, Event, FrameWriter, Header, Origin, ProcessEnd, ProcessNumber, ProcessStart, Writer,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const FIRST: ProcessNumber = ProcessNumber(0);

type Tape = Writer<FrameWriter<File>>;

fn begin(file: &Path) -> Tape {
    let sink = FrameWriter::new(File::create(file).expect("a file")).expect("a sink");
    Writer::new(sink, &Header::default()).expect("a writer")
}

fn start(tape: &mut Tape) {
    let (parent, rank, origin) = (None, None, Origin::Exec);
    let start =
        ProcessStart { pid: 77, parent, origin, time: 0, rank, command: vec!["prog".into()] };
    tape.start_process(&start).expect("a process");
}

fn call(tape: &mut Tape, call: Call, thread: u32, address: u64, size: u64, old: u64) {
    let (time, caller, slack, align) = (50, 0, 8, 0);
    let event = Event { call, thread, time, caller, address, size, slack, align, old };
    tape.event(FIRST, &event).expect("an event");
}

fn end(mut tape: Tape) {
    let end = ProcessEnd { time: 1234, code: Some(0), ..ProcessEnd::default() };
    tape.end_process(FIRST, &end).expect("an end");
    tape.finish(None).expect("a tape");
}

/// A block of thread 1 is given up to a realloc; thread 0 gets its place; then the realloc's event comes.
fn early(folder: &Path) -> PathBuf {
    let file = folder.join("early.tape");
    let mut tape = begin(&file);
    start(&mut tape);
    call(&mut tape, Call::Malloc, 1, 0x1000, 24, 0);
    tape.release(FIRST, 1, 50, 0x1000).expect("a release");
    call(&mut tape, Call::Malloc, 0, 0x1000, 16, 0);
    call(&mut tape, Call::Realloc, 1, 0x2000, 100, 0x1000);
    call(&mut tape, Call::Realloc, 0, 0x1000, 20, 0x1000);
    end(tape);
    file
}

#[test]
fn a_tape_that_was_changed_is_not_said_to_be_sound() {
    let folder = scratch();
    let whole = fs::read(root().join("tests/tapes/v1.tape")).expect("a tape");
    let file = folder.path().join("x.tape");
    let is_sound = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("a file");
        let outcome = run(heaptape(["info", "--verify", "--json"]).arg(&file));
        outcome.code() == 0 && outcome.json()["complete"] == true
    };
    let sound = fs::read(early(folder.path())).expect("a tape");
    assert!(is_sound(&sound));
    for bit in (0..whole.len() * 8).step_by(whole.len() * 8 / 60) {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_sound(&damaged), "bit {} of byte {}", bit % 8, bit / 8);
    }
    assert!(!is_sound(&[&sound[..], &sound].concat()), "twice the same tape");
    assert!(!is_sound(&[&sound[..], &[0]].concat()), "a byte behind its end");
}

#[test]
fn a_block_in_a_realloc_is_shown_as_one() {
    let folder = scratch();
    let file = early(folder.path());
    let live = |at: &str, options: &[&str]| {
        let outcome = run(heaptape(["live", "--at", at]).arg(&file).args(options));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        outcome
    };
    let json = live("1", &["--json"]).json();
    assert_eq!(json["released"], 1, "{json}");
    let list: Vec<_> = json["list"].as_array().into_iter().flatten().collect();
    let flags: Vec<_> = list.iter().map(|b| (&b["address"], &b["size"], &b["released"])).collect();
    let shown = [(0x1000.into(), 24.into(), true.into()), (0x1000.into(), 16.into(), false.into())];
    assert!(flags.iter().copied().eq(shown.iter().map(|(a, b, c)| (a, b, c))), "{json}");
    let text = String::from_utf8(live("1", &[]).stdout).expect("text");
    let marked: Vec<_> = text.lines().filter(|line| line.ends_with("in realloc")).collect();
    assert!(marked.len() == 1 && marked[0].contains("24"), "{text}");
    assert!(text.contains("another block may be there"), "{text}");
    for at in ["0", "2", "end"] {
        assert_eq!(live(at, &["--json"]).json()["released"], 0, "{at}");
        let text = String::from_utf8(live(at, &[]).stdout).expect("text");
        assert!(!text.contains("realloc"), "{text}");
    }
}

#[test]
fn a_realloc_whose_block_was_given_up_before_is_marked() {
    let folder = scratch();
    let file = early(folder.path());
    let csv = run(heaptape(["export", "--to", "csv"]).arg(&file));
    let csv = String::from_utf8(csv.stdout).expect("text");
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = rows.next().expect("names");
    let place = |name| names.iter().position(|n| *n == name).expect("a column");
    let (age, flag) = (place("age"), place("early"));
    let cells: Vec<_> = rows.map(|row| (row[age].to_owned(), row[flag].to_owned())).collect();
    let wanted = [("", ""), ("", ""), ("1", "true"), ("1", "false")];
    assert!(cells.iter().map(|(a, b)| (a.as_str(), b.as_str())).eq(wanted), "{csv}");
    let json = run(heaptape(["events", "--json"]).arg(&file)).json();
    let flags: Vec<_> = (0..4).map(|n| json["events"][n]["early"].as_bool()).collect();
    assert_eq!(flags, [None, None, Some(true), Some(false)], "{json}");
    let text = String::from_utf8(run(heaptape(["events"]).arg(&file)).stdout).expect("text");
    assert_eq!(text.matches("age 1, address given up before").count(), 1, "{text}");
}

#[test]
fn a_moment_past_the_end_is_told() {
    let folder = scratch();
    let file = early(folder.path());
    for (at, told) in [("4", true), ("3", false), ("1235ms", true), ("1.234s", false)] {
        let outcome = run(heaptape(["live", "--at", at]).arg(&file));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        if told {
            assert!(one_sentence(&outcome).contains("this is after"), "{at}");
        } else {
            assert_eq!(outcome.stderr_text(), "", "{at}");
        }
    }
}

#[test]
fn nothing_is_printed_above_an_empty_listing() {
    let folder = scratch();
    let file = early(folder.path());
    for options in [&["2..2"][..], &["99.."], &["--call", "calloc"]] {
        let outcome = run(heaptape(["events"]).arg(&file).args(options));
        assert_eq!((outcome.code(), outcome.stdout.len()), (0, 0), "{options:?}");
        one_sentence(&outcome);
    }
}

#[test]
fn every_name_of_a_call_is_known() {
    let folder = scratch();
    let file = early(folder.path());
    for name in ["free", "cfree", "free_sized", "free_aligned_sized", "new[]", "delete[]"] {
        let outcome = run(heaptape(["events", "--call", name]).arg(&file));
        assert_eq!(outcome.code(), 0, "{name}: {}", outcome.stderr_text());
    }
}

#[test]
fn a_process_that_is_not_there_is_told_with_the_file() {
    let folder = scratch();
    let file = early(folder.path());
    let empty = folder.path().join("empty.tape");
    begin(&empty).finish(None).expect("a tape");
    let csv = ["--to", "csv"];
    let commands: [(&str, &[&str]); 5] =
        [("info", &[]), ("events", &[]), ("live", &[]), ("leaks", &[]), ("export", &csv)];
    for (command, options) in commands {
        for (file, what) in [(&file, "no process 5 on this tape"), (&empty, "no process on this")] {
            let told = run(heaptape([command, "--process", "5"]).arg(file).args(options));
            let sentence = one_sentence(&told);
            let name = file.to_str().expect("UTF-8");
            assert_eq!(told.code(), 1, "{command}: {sentence}");
            assert!(sentence.contains(name) && sentence.contains(what), "{command}: {sentence}");
        }
    }
}

#[test]
fn what_is_no_file_is_told_what_to_do() {
    let outcome = run(&mut heaptape(["info", "/dev/stdin"]));
    assert_eq!(outcome.code(), 1);
    assert!(one_sentence(&outcome).contains("write it to a file first"));
}

#[test]
fn man_pages_that_cannot_be_written_say_what_was_tried() {
    for (directory, what) in [("/dev/full", "make the directory"), ("/proc", "write the man pages")]
    {
        let outcome = run(&mut heaptape(["man", directory]));
        let sentence = one_sentence(&outcome);
        assert_eq!(outcome.code(), 1, "{sentence}");
        assert!(sentence.contains(what) && sentence.contains(directory), "{sentence}");
    }
}

#[test]
fn help_is_had_in_every_way_and_must_be_written() {
    let ways: [&[&str]; 4] = [&["help"], &["--help"], &["help", "--help"], &["help", "-h"]];
    for words in ways {
        let outcome = run(&mut heaptape(words));
        assert_eq!(outcome.code(), 0, "{words:?}: {}", outcome.stderr_text());
        assert!(String::from_utf8_lossy(&outcome.stdout).contains("Usage:"), "{words:?}");
    }
    let outcome = run(&mut heaptape(["help", "live", "--help"]));
    assert!(String::from_utf8_lossy(&outcome.stdout).contains("--at"), "of a command too");
    for words in [&["--help"][..], &["--version"], &["help", "live"]] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >/dev/full", harness::HEAPTAPE]).args(words);
        let outcome = run(&mut command);
        assert_eq!(outcome.code(), 1, "{words:?}");
        assert!(one_sentence(&outcome).contains("cannot write to stdout"), "{words:?}");
    }
}

#[test]
fn several_tapes_are_told_one_after_the_other_and_a_bad_one_hides_no_other() {
    let folder = scratch();
    let (good, missing) = (early(folder.path()), folder.path().join("missing.tape"));
    let outcome = run(heaptape(["info"]).args([&good, &missing, &good]));
    assert_eq!(outcome.code(), 1, "{}", outcome.stderr_text());
    assert!(one_sentence(&outcome).contains("missing.tape"));
    let words = String::from_utf8(outcome.stdout).expect("text");
    assert_eq!(words.matches("is a recording of").count(), 2, "{words}");
    let outcome = run(heaptape(["info", "--json"]).args([&good, &good]));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let documents = serde_json::Deserializer::from_slice(&outcome.stdout).into_iter();
    let documents: Vec<serde_json::Value> = documents.map(|d| d.expect("JSON")).collect();
    assert_eq!(documents.len(), 2);
    assert!(documents.iter().all(|d| d["schema"] == "heaptape.tape/1" && d["events"] == 4));
}

/// A tape of events whose numbers are no program's.
fn impossible(file: &Path, seed: u64) {
    const NUMBERS: [u64; 7] = [0, 1, 1 << 20, 1 << 47, i64::MAX as u64, u64::MAX - 1, u64::MAX];
    let mut state = seed;
    let mut below = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x5851_f42d);
        (state >> 33) % n
    };
    let mut tape = begin(file);
    for _ in 0..2 {
        start(&mut tape);
    }
    for _ in 0..100 {
        let mut number = || NUMBERS[below(7) as usize];
        let (size, slack, thread, time, caller) =
            (number(), number(), number() as u32, number(), number());
        let call = Call::ALL[below(Call::ALL.len() as u64) as usize];
        let old = if call.is_reallocation() { 16 * below(5) } else { 0 };
        let (address, align) = (16 * below(5), 0);
        let event = Event { call, thread, time, caller, address, size, slack, align, old };
        tape.event(ProcessNumber(below(2) as u32), &event).expect("an event");
    }
    end(tape);
}

#[test]
fn what_no_program_can_have_done_is_read_without_a_panic() {
    let folder = scratch();
    let (file, picture) = (folder.path().join("x.tape"), folder.path().join("x.svg"));
    let picture = picture.to_str().expect("a path");
    for seed in 0..12 {
        impossible(&file, seed);
        for words in [
            &["report"][..],
            &["report", "--markdown", "--process", "#0"],
            &["report", "--json"],
            &["report", "--plot", picture],
            &["report", "--plot", picture, "--over", "index", "--log"],
            &["leaks"],
            &["leaks", "--json", "--ignore-last", "10%"],
            &["live", "--at", "peak", "--by", "caller"],
            &["events", "--histogram"],
            &["export", "--to", "csv", "--table", "blocks"],
            &["export", "--to", "parquet"],
            &["info"],
        ] {
            let outcome = run(heaptape(words).arg(&file));
            assert_eq!(outcome.code(), 0, "{words:?} of {seed}: {}", outcome.stderr_text());
        }
    }
}
