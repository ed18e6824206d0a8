//! What `leaks` says is never freed is what the program knows it keeps, and its sums agree with those of the tape.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::leaks::{caller_of, dripping, growth, json, leaks, recorded, text};
use harness::running::run;
use harness::tape::{info, number};
use harness::{has_stacks, heaptape, one_sentence, record, scratch};
use heaptape_tape::{
    Call, Event, FrameWriter, Header, Note, NoteKind, Origin, ProcessEnd, ProcessNumber,
    ProcessStart, Sample, Writer,
};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;

#[test]
fn the_planted_leaks_are_found_with_their_sizes_and_their_growth() {
    let recorded = recorded("");
    let json = json(&recorded.tape, &[]);
    assert_eq!(
        (json["processes"][0]["end"].as_str(), number(&json, "/ignored/blocks")),
        (Some("exit"), 0)
    );
    let list = caller_of(&json, 100, 800);
    assert_eq!(growth(&list), ("growing", 1));
    let at: Vec<u64> = (0..8).map(|n| number(&list, &format!("/at/{n}/blocks"))).collect();
    assert!(at.windows(2).all(|two| (95..=105).contains(&(two[1] - two[0]))), "{at:?}");
    let start = caller_of(&json, 5000, 10);
    assert_eq!(growth(&start), ("steady", 1));
    assert_eq!(number(&start, "/newest/index") - number(&start, "/oldest/index"), 9);
    let late = caller_of(&json, 3000, 7);
    assert_eq!(growth(&late), ("late", 8));
    let events = number(&info(&recorded.tape), "/events");
    assert!(number(&late, "/oldest/index") > events * 95 / 100);
    let plugin = caller_of(&json, 640, 3);
    assert_eq!(growth(&plugin).0, "steady");
    assert!(plugin["module"].as_str().is_some_and(|path| path.ends_with("/plugin")), "{plugin}");
    let functions = [&list, &start, &late, &plugin].map(|caller| caller["function"].as_str());
    let planted = ["growing_list", "at_start", "near_the_end", "plugin_make"];
    assert_eq!(functions, planted.map(Some));
    for (caller, unloaded) in [(&list, 0), (&start, 0), (&late, 0), (&plugin, 3)] {
        assert_eq!(number(caller, "/unloaded/blocks"), unloaded, "{caller}");
    }
    // What it frees again is no leak, and there is nothing else but what the loader keeps.
    let others = number(&json, "/left/bytes") - 80_000 - 50_000 - 21_000 - 1920;
    assert!(others < 10_000, "{json}");
    let text = text(&recorded.tape);
    assert!(text.contains("grows all through the calls"), "{text}");
    assert!(text.contains("library was unloaded afterwards"), "{text}");
}

#[test]
fn only_what_grows() {
    let recorded = recorded("");
    let json = json(&recorded.tape, &["--growing"]);
    assert_eq!(number(&json, "/callers_in_all"), 1);
    caller_of(&json, 100, 800);
}

#[test]
fn the_last_part_of_the_run_can_be_left_out() {
    let recorded = recorded("");
    let events = number(&info(&recorded.tape), "/events");
    for part in ["5%", &(events / 20).to_string()] {
        let json = json(&recorded.tape, &["--ignore-last", part]);
        let sizes = json["callers"].as_array().expect("callers").iter();
        let sizes: Vec<u64> = sizes.map(|caller| number(caller, "/oldest/size")).collect();
        assert!(sizes.contains(&100) && !sizes.contains(&3000), "{part}: {sizes:?}");
        let from = number(&json, "/processes/0/ignored_from");
        assert!(from.abs_diff(events - events / 20) <= 1, "{part}");
        assert!(number(&json, "/ignored/bytes") >= 21_000);
    }
    for (part, all) in [("0", true), ("0%", true), ("100%", false), ("1000s", false)] {
        let json = json(&recorded.tape, &["--ignore-last", part]);
        let sum = if all { "/ignored/blocks" } else { "/left/blocks" };
        assert_eq!(number(&json, sum), 0, "{part}");
    }
    let outcome = leaks(&recorded.tape, &["--ignore-last", "some"]);
    assert_eq!(outcome.code(), 2);
    assert!(outcome.stderr_text().contains("no part of a run"));
}

#[test]
fn what_a_child_inherits_is_its_parents() {
    let recorded = recorded("fork");
    let json = json(&recorded.tape, &[]);
    caller_of(&json, 2000, 5);
    caller_of(&json, 100, 800);
    let child = &json["processes"][1];
    assert_eq!((number(child, "/left/blocks"), number(child, "/left/bytes")), (5, 10_000));
    let parent = &json["processes"][0];
    assert_eq!(child["inherited"], parent["left"]);
    let alone = self::json(&recorded.tape, &["--process", "#1"]);
    assert_eq!(number(&alone, "/callers_in_all"), 1);
    let text = text(&recorded.tape);
    assert!(text.contains("they are their parents'"), "{text}");
}

#[test]
fn of_a_killed_process_it_is_said_and_its_last_part_is_no_leak() {
    let recorded = recorded("kill");
    let json = json(&recorded.tape, &[]);
    assert_eq!(json["processes"][0]["end"], "signal");
    let events = number(&info(&recorded.tape), "/events");
    assert_eq!(number(&json, "/processes/0/ignored_from"), events - events / 10);
    let text = text(&recorded.tape);
    assert!(text.contains("was ended by signal 9: what is left is what lived then."), "{text}");
    assert!(text.contains("last 10 % of the events"), "{text}");
    caller_of(&self::json(&recorded.tape, &["--ignore-last", "0"]), 3000, 7);
}

#[test]
fn a_leak_is_seen_over_time_whatever_calls_came_before() {
    // A machine that stands still for a quarter of the run may keep it from growing then.
    let mut tries = (0..10).map(|_| dripping(&["leak"]));
    let recorded = tries.find(|recorded| {
        let drip = caller_of(&json(&recorded.tape, &[]), 5000, 150);
        assert_eq!(drip["axis"], "time");
        growth(&drip).0 == "growing"
    });
    let recorded = recorded.expect("a leak that grows");
    assert_eq!(number(&json(&recorded.tape, &["--growing"]), "/callers_in_all"), 1);
    assert_eq!(leaks(&recorded.tape, &["--growing", "--check"]).code(), 3);
    let text = text(&recorded.tape);
    assert!(text.contains("of the run") || text.contains("all through the run"), "{text}");
}

#[test]
fn a_table_that_is_made_at_once_does_not_grow_however_few_calls_come_after() {
    let recorded = dripping(&["table"]);
    let json = json(&recorded.tape, &[]);
    let table = caller_of(&json, 100, 2000);
    assert_eq!(table["axis"], "time");
    assert!(["steady", "until"].contains(&growth(&table).0), "{table}");
    let checked = leaks(&recorded.tape, &["--growing", "--check"]);
    assert_eq!((checked.code(), checked.stderr_text().as_str()), (0, ""));
}

#[test]
fn growth_is_that_of_the_process_which_left_most() {
    let recorded = dripping(&["children", "12"]);
    let json = json(&recorded.tape, &[]);
    let kept = caller_of(&json, 700, 40 + 11 * 8);
    assert_eq!((growth(&kept).0, number(&kept, "/at_process")), ("steady", 1), "{kept}");
    assert_eq!(number(&kept, "/at_left/blocks"), 40);
    let text = text(&recorded.tape);
    let pid = number(&json, "/processes/1/pid");
    assert!(text.contains(&format!("in process {pid} (#1), which left 27.3 KiB of it")), "{text}");
    let alone = self::json(&recorded.tape, &["--process", "#2"]);
    let other = caller_of(&alone, 700, 8);
    // Unless the machine was so busy that its few calls took a while.
    assert!(other["axis"] == "time" || growth(&other).0 == "growing", "{other}");
}

#[test]
fn what_is_ignored_is_said_where_it_is_seen_and_only_there() {
    let recorded = recorded("kill");
    let found = json(&recorded.tape, &[]);
    let list = found["callers"].as_array().expect("callers");
    let list = list.iter().find(|c| c["function"] == "growing_list").expect("the list");
    let ignored = 800 - number(list, "/blocks");
    assert!(ignored > 0 && number(list, "/at/7/blocks") == 800, "{list}");
    let text = text(&recorded.tape);
    let said = format!("in {ignored} blocks of work in progress");
    assert!(text.contains(&said), "{text}");
    let nothing = leaks(&recorded.tape, &["--ignore-last", "0ms"]);
    let nothing = String::from_utf8_lossy(&nothing.stdout).into_owned();
    assert!(!nothing.contains(" 0 B in 0 blocks") && !nothing.contains("in progress"), "{nothing}");
}

#[test]
fn two_calls_in_one_line_are_one_site_in_every_view() {
    if !has_stacks() {
        return;
    }
    let folder = scratch();
    let tape = folder.path().join("x.tape");
    let program = program("oneline");
    let outcome = run(&mut record(&tape, &["--stacks"], &[program.as_os_str()]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let both = |row: &Value, blocks: &str, bytes: &str| {
        assert_eq!((number(row, blocks), number(row, bytes)), (2, 2 << 20), "{row}");
    };
    let asked = |command: &str, list: &str, options: &[&str]| {
        let outcome = run(heaptape([command, "--json"]).arg(&tape).args(options));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        outcome.json()[list].as_array().expect("a list")[0].clone()
    };
    both(&asked("leaks", "callers", &["--top", "1"]), "/blocks", "/bytes");
    both(&asked("live", "list", &["--by", "site", "--top", "1"]), "/blocks", "/requested");
    let from = |at: &str| format!("{}@{at}", tape.display());
    let diff = run(heaptape(["diff", "--json", "--by", "site"]).args([from("0"), from("end")]));
    assert_eq!(diff.code(), 0, "{}", diff.stderr_text());
    both(&diff.json()["list"][0], "/after/live/blocks", "/after/live/bytes");
    let report = run(heaptape(["report"]).arg(&tape));
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("test2 (oneline.c:") && !report.contains("largest of 2"), "{report}");
}

// ---- tapes that are written here ----

type Written = Writer<FrameWriter<File>>;

fn begin(file: &Path) -> Written {
    let sink = FrameWriter::new(File::create(file).expect("a file")).expect("a sink");
    Writer::new(sink, &Header::default()).expect("a writer")
}

fn start(tape: &mut Written, command: &str) -> ProcessNumber {
    let (parent, rank, origin) = (None, None, Origin::Exec);
    let start =
        ProcessStart { pid: 77, parent, origin, time: 0, rank, command: vec![command.into()] };
    tape.start_process(&start).expect("a process")
}

fn malloc(tape: &mut Written, process: ProcessNumber, address: u64, caller: u64) {
    malloc_at(tape, process, address, caller, 50);
}

fn malloc_at(tape: &mut Written, process: ProcessNumber, address: u64, caller: u64, time: u64) {
    let (call, thread, size, slack, align, old) = (Call::Malloc, 0, 24, 8, 0, 0);
    let event = Event { call, thread, time, caller, address, size, slack, align, old };
    tape.event(process, &event).expect("an event");
}

fn end(mut tape: Written, process: ProcessNumber) {
    let end = ProcessEnd { time: 1234, code: Some(0), ..ProcessEnd::default() };
    tape.end_process(process, &end).expect("an end");
    tape.finish(None).expect("a tape");
}

#[test]
fn tapes_of_nothing_and_of_one_call() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    begin(&file).finish(None).expect("a tape");
    let checks_nothing = |file: &Path| {
        let empty = leaks(file, &["--check"]);
        assert_eq!(empty.code(), 3);
        assert!(one_sentence(&empty).contains("no event to be judged"), "{empty:?}");
        assert!(String::from_utf8_lossy(&empty.stdout).starts_with("Nothing is left."));
        json(file, &[]);
    };
    checks_nothing(&file);
    let mut tape = begin(&file);
    let process = start(&mut tape, "prog");
    end(tape, process);
    checks_nothing(&file);
    let mut tape = begin(&file);
    let process = start(&mut tape, "prog");
    malloc(&mut tape, process, 0x1000, 0);
    end(tape, process);
    let one = json(&file, &[]);
    let caller = caller_of(&one, 24, 1);
    assert_eq!((&caller["caller"], growth(&caller)), (&Value::Null, ("steady", 1)));
    assert_eq!(caller["oldest"], caller["newest"]);
}

#[test]
fn the_last_moment_is_the_end_whichever_clock_is_ahead() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    // A process is told to have ended at 1234 ms.
    for last in [800, 1233, 1234, 1235, 1300, 5000] {
        let mut tape = begin(&file);
        let process = start(&mut tape, "prog");
        for n in 1..=16 {
            malloc_at(&mut tape, process, n << 12, 0, last * n / 16);
        }
        end(tape, process);
        let caller = caller_of(&json(&file, &[]), 24, 16);
        let at: Vec<u64> = (0..8).map(|n| number(&caller, &format!("/at/{n}/blocks"))).collect();
        assert!(at.is_sorted() && at[0] > 0 && at[7] == 16, "{last}: {at:?}");
        let expected = if last == 800 { "until" } else { "growing" };
        assert_eq!((&caller["axis"], growth(&caller).0), (&"time".into(), expected), "{last}");
    }
}

#[test]
fn what_waits_where_the_tape_ends_was_there_all_the_time() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let mut tape = begin(&file);
    let process = start(&mut tape, "prog");
    for n in 1..=16 {
        malloc(&mut tape, process, n << 12, 0);
    }
    let sample = Sample { time: 5000, ..Sample::default() };
    tape.sample(process, &sample).expect("a sample");
    tape.finish(None).expect("a tape");
    let waiting = json(&file, &["--ignore-last", "0"]);
    assert_eq!(waiting["processes"][0]["end"], "unfinished");
    let caller = caller_of(&waiting, 24, 16);
    assert_eq!((&caller["axis"], growth(&caller)), (&"time".into(), ("steady", 1)), "{caller}");
}

#[test]
fn names_do_no_harm_to_a_terminal() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let long = "n".repeat(10_000);
    let mut tape = begin(&file);
    let process = start(&mut tape, &format!("p\u{1b}[2J\n{long}"));
    for (start, path) in
        [(0x10_000, b"/a/\x1b[2J\n\xff.so".to_vec()), (0x20_000, format!("/b/{long}").into_bytes())]
    {
        let text = [vec![0; 21], path].concat();
        let args = vec![start, start, start + 0x1000];
        let kind = NoteKind::Module;
        let note = Note { thread: 0, time: 0, caller: 0, kind, args, text };
        tape.note(process, &note).expect("a note");
    }
    malloc(&mut tape, process, 0x1000, 0x20_010);
    malloc(&mut tape, process, 0x2000, 0x10_010);
    end(tape, process);
    let strange = folder.path().join("s\u{1b}.tape");
    fs::rename(&file, &strange).expect("a name");
    let at = |moment: &str| format!("{}@{moment}", strange.display());
    let callers = run(heaptape(["leaks"]).arg(&strange));
    let between = run(heaptape(["diff"]).arg(at("0")).arg(at("end")));
    let modules = run(heaptape(["diff", "--by", "module"]).arg(at("0")).arg(at("end")));
    for outcome in [callers, between, modules] {
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        let text = String::from_utf8(outcome.stdout).expect("text");
        assert!(text.contains("\\u{1b}[2J\\n\u{fffd}.so"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    }
}
