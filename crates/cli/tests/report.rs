//! What `report` says of real programs and of tapes of every size and kind, held against what is known of them.
#![forbid(unsafe_code)]

mod harness;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use harness::compile::{program, sources};
use harness::running::{Outcome, run};
use harness::tape::{info, number, rows};
use harness::{has_stacks, heaptape, record, scratch, skip};
use heaptape_tape::{
    Call, Event, FrameWriter, Header, Origin, ProcessEnd, ProcessNumber, ProcessStart, Writer,
};
use serde_json::Value;

fn recorded(folder: &Path, name: &str, arguments: &[&str]) -> (PathBuf, Outcome) {
    let tape = folder.join(format!("{name}{}.tape", arguments.concat()));
    let program = program(name);
    let command: Vec<_> =
        [program.as_os_str()].into_iter().chain(arguments.iter().map(|a| a.as_ref())).collect();
    let outcome = run(&mut record(&tape, &[], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    (tape, outcome)
}

fn report(tape: &Path) -> Value {
    let outcome = run(heaptape(["report", "--json"]).arg(tape));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    outcome.json()
}

/// The text for a terminal of so many columns.
fn text(tape: &Path, width: u16) -> String {
    let outcome = run(heaptape(["report"]).arg(tape).env("COLUMNS", width.to_string()));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    String::from_utf8(outcome.stdout).expect("text")
}

/// The finding of a kind.
fn finding<'a>(report: &'a Value, kind: &str) -> Option<&'a Value> {
    report["findings"].as_array().expect("a list").iter().find(|f| f["kind"] == kind)
}

#[test]
fn a_planted_fault_is_found_with_its_caller_and_no_other_is() {
    let folder = scratch();
    for (fault, kind, caller_has) in [
        ("none", None, ""),
        ("leak", Some("growth"), "left"),
        ("spike", Some("spike"), "at_peak"),
        ("storm", Some("temporary"), "made"),
    ] {
        let (tape, outcome) = recorded(folder.path(), "planted", &[fault]);
        let truth = outcome.stderr_text();
        let truth: Vec<u64> =
            truth.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        let report = report(&tape);
        for other in ["growth", "spike", "temporary"] {
            assert_eq!(
                finding(&report, other).is_some(),
                Some(other) == kind,
                "{other} in {fault}"
            );
        }
        let Some(found) = kind.and_then(|kind| finding(&report, kind)) else { continue };
        let caller = &report["callers"][found["caller"].as_u64().expect("a caller") as usize];
        let load = &caller[caller_has];
        let told = (number(load, "/bytes"), number(load, "/blocks"));
        assert_eq!(told, (truth[0], truth[1]), "{fault}: {caller}");
        assert!(text(&tape, 80).contains(caller["caller"].as_str().expect("a name")));
    }
}

#[test]
fn the_line_of_python_that_allocates_stands_below_the_caller() {
    let script = sources().join("lines.py");
    let folder = scratch();
    let tape = folder.path().join("x.tape");
    if !has_stacks() || !Path::new("/usr/bin/python3.11").exists() {
        return skip("no stacks, or no Python whose lines are known to be read");
    }
    let command = ["/usr/bin/python3.11".as_ref(), script.as_os_str()];
    let outcome = run(&mut record(&tape, &["--stacks"], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let text = text(&tape, 200);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let line = lines.iter().position(|line| *line == "build (lines.py:7)").expect(&text);
    assert_eq!(lines[line + 1..line + 3], ["main (lines.py:23)", "<module> (lines.py:35)"]);

    let selected = |focus: &str| {
        let outcome = run(heaptape(["sites", "--json", "--focus", focus]).arg(&tape));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        outcome.json()["rows"].as_array().expect("rows").len()
    };
    // As `--by module` and `--by file` print it.
    let path = script.display().to_string();
    assert!(selected(&format!("^{path}$")) > 0 && selected(&format!("^{path}x")) == 0);
}

#[test]
fn views_of_stacks_say_why_a_tape_has_none() {
    let folder = scratch();
    let hint = "heaptape record --stacks takes them down";
    let (tape, _) = recorded(folder.path(), "peak", &[]);
    let without = run(heaptape(["events", "--stacks"]).arg(&tape));
    assert!(without.code() == 0 && without.stderr_text().contains(hint), "{without:?}");
    let unasked = run(heaptape(["events"]).arg(&tape));
    assert!(!unasked.stderr_text().contains(hint), "{unasked:?}");

    let empty = folder.path().join("empty.tape");
    let command = ["prog".to_owned()];
    let mut written = begin(&empty, &command);
    let process = start(&mut written, 7, &command);
    end(&mut written, process, 5);
    written.finish(None).expect("a tape");
    for command in ["tree", "sites"] {
        let outcome = run(heaptape([command]).arg(&empty));
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let is_told = said.contains("No allocations were recorded.") && !said.contains(hint);
        assert!(outcome.code() == 0 && is_told, "{command}: {said}");
    }
}

/// What is counted anew from every call of a tape, for one process.
#[derive(Default)]
struct Recount {
    live: BTreeMap<u64, (u64, u64)>,
    made: (u64, u64),
    freed: u64,
    peak: u64,
    requested: u64,
    copied: u64,
    by_module: BTreeMap<String, (u64, u64)>,
}

impl Recount {
    fn of(tape: &Path) -> Vec<Recount> {
        let mut processes: Vec<Recount> = Vec::new();
        rows(tape, |row| {
            processes.resize_with(processes.len().max(row.process + 1), Recount::default);
            let p = &mut processes[row.process];
            if row.failed() {
                return;
            }
            // By its birth: an address may be another block's before the realloc that gave it up has its event.
            if let Some((size, _)) = row.birth.and_then(|birth| p.live.remove(&birth)) {
                p.requested -= size;
                p.freed += size;
                if row.is_resize() && row.address != row.old_address && row.address != 0 {
                    p.copied += size.min(row.size);
                }
            }
            if !row.is_release() && row.address != 0 {
                p.live.insert(row.index, (row.size, row.slack));
                p.requested += row.size;
                p.made = (p.made.0 + row.size, p.made.1 + 1);
                let module = p.by_module.entry(row.module.clone()).or_default();
                *module = (module.0 + row.size, module.1 + 1);
            }
            p.peak = p.peak.max(p.requested);
        });
        processes
    }
}

#[test]
fn the_figures_of_real_programs_are_those_counted_anew_from_their_calls() {
    let folder = scratch();
    for name in ["peak", "threads8", "exceptions", "news", "odd"] {
        let (tape, _) = recorded(folder.path(), name, &[]);
        let (report, counted) = (report(&tape), Recount::of(&tape));
        let [counted] = &counted[..] else { panic!("{name} is one process") };
        let usable: u64 = counted.live.values().map(|(size, slack)| size + slack).sum();
        let is =
            |path: &str, value: u64| assert_eq!(number(&report, path), value, "{name}: {path}");
        is("/peak/requested/upper", counted.peak);
        is("/peak/requested/lower", counted.peak);
        is("/end/requested", counted.requested);
        is("/end/usable", usable);
        is("/end/blocks", counted.live.len() as u64);
        is("/all/total", counted.made.0);
        is("/all/count", counted.made.1);
        is("/all/freed", counted.freed);
        is("/reallocs/copied", counted.copied);
        is("/lives/made/bytes", counted.made.0);
        let modules = report["modules"].as_array().expect("a list").iter().map(|m| {
            let made = (number(m, "/made/bytes"), number(m, "/made/blocks"));
            (m["module"].as_str().unwrap_or("").to_owned(), made)
        });
        assert_eq!(modules.collect::<BTreeMap<_, _>>(), counted.by_module, "{name}");
        sums_agree(&report);
    }
}

/// Callers, modules, bins and groups add up to the same.
fn sums_agree(report: &Value) {
    let sum = |list: &str, path: &str| -> u64 {
        report[list].as_array().expect("a list").iter().map(|row| number(row, path)).sum()
    };
    for list in ["callers", "modules"] {
        assert_eq!(sum(list, "/made/bytes"), number(report, "/all/total"));
        assert_eq!(sum(list, "/made/blocks"), number(report, "/all/count"));
        assert_eq!(sum(list, "/left/bytes"), number(report, "/all/current"));
        assert_eq!(sum(list, "/at_peak/bytes"), number(report, "/peak/requested/upper"));
    }
    for list in ["bins", "groups"] {
        for figure in ["/total", "/freed", "/current", "/count"] {
            assert_eq!(sum(list, figure), number(report, &format!("/all{figure}")));
        }
    }
    assert_eq!(sum("threads", "/events"), number(report, "/events"));
}

#[test]
fn a_job_adds_up_its_processes() {
    let folder = scratch();
    let (tape, _) = recorded(folder.path(), "children64", &[]);
    let (report, info) = (report(&tape), info(&tape));
    sums_agree(&report);
    assert_eq!(report["processes"].as_array().expect("a list").len(), 65);
    assert_eq!(number(&report, "/events"), number(&info, "/events"));
    let highest = info["processes"].as_array().expect("a list").iter();
    let highest =
        highest.map(|p| number(p, "/peak/requested") - number(p, "/inherited/requested")).max();
    assert!(number(&report, "/peak/requested/upper") >= highest.expect("processes"));
    assert!(number(&report, "/peak/requested/lower") <= number(&report, "/peak/requested/upper"));
    let text = text(&tape, 80);
    assert!(text.contains("\nProcesses\n") && text.contains("more processes; --top 0 shows all"));
}

type Tape = Writer<FrameWriter<File>>;

fn begin(file: &Path, command: &[String]) -> Tape {
    let sink = FrameWriter::new(File::create(file).expect("a file")).expect("a sink");
    let header = Header { command: command.to_vec(), ..Header::default() };
    Writer::new(sink, &header).expect("a writer")
}

fn start(tape: &mut Tape, pid: u32, command: &[String]) -> ProcessNumber {
    let (parent, rank, origin) = (None, None, Origin::Exec);
    let start = ProcessStart { pid, parent, origin, time: 0, rank, command: command.to_vec() };
    tape.start_process(&start).expect("a process")
}

fn event(time: u64, address: u64, size: u64) -> Event {
    let (call, thread, caller, slack, align, old) = (Call::Malloc, 0, 0x1234, 8, 0, 0);
    Event { call, thread, time, caller, address, size, slack, align, old }
}

fn end(tape: &mut Tape, process: ProcessNumber, time: u64) {
    let end = ProcessEnd { time, code: Some(0), ..ProcessEnd::default() };
    tape.end_process(process, &end).expect("an end");
}

/// Every line fits, and none moves the cursor.
fn assert_harmless(tape: &Path) {
    for width in [80, 132] {
        let text = text(tape, width);
        let wide = text.lines().find(|line| line.chars().count() > usize::from(width));
        assert_eq!(wide, None);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    let markdown = run(heaptape(["report", "--markdown"]).arg(tape));
    let markdown = String::from_utf8(markdown.stdout).expect("text");
    assert!(!markdown.chars().any(|c| c.is_control() && c != '\n'));
}

#[test]
fn tapes_of_every_size_are_told_of() {
    let folder = scratch();
    let name = |name: &str| folder.path().join(name);
    let word = ["prog".to_owned()];
    // Nobody on it, nothing done, one call.
    begin(&name("empty"), &word).finish(None).expect("a tape");
    let mut tape = begin(&name("idle"), &word);
    let process = start(&mut tape, 7, &word);
    end(&mut tape, process, 0);
    tape.finish(None).expect("a tape");
    let mut tape = begin(&name("one"), &word);
    let process = start(&mut tape, 7, &word);
    tape.event(process, &event(5, 0x1000, 100)).expect("an event");
    end(&mut tape, process, 9);
    tape.finish(None).expect("a tape");
    // A thousand processes, each with the same call.
    let mut tape = begin(&name("crowd"), &word);
    for pid in 0..1000 {
        let process = start(&mut tape, 100 + pid, &word);
        tape.event(process, &event(5, 0x1000, 100)).expect("an event");
        end(&mut tape, process, 9);
    }
    tape.finish(None).expect("a tape");
    for (tape, requested) in [("empty", 0), ("idle", 0), ("one", 100), ("crowd", 100_000)] {
        assert_harmless(&name(tape));
        let report = report(&name(tape));
        assert_eq!(number(&report, "/end/requested"), requested, "{tape}");
        assert_eq!(number(&report, "/peak/requested/upper"), requested, "{tape}");
        sums_agree(&report);
    }
}

#[test]
fn a_cut_tape_is_told_of_as_far_as_it_goes() {
    let folder = scratch();
    let (tape, _) = recorded(folder.path(), "peak", &[]);
    let bytes = fs::read(&tape).expect("a tape");
    let cut = folder.path().join("cut.tape");
    for part in [1, 2, 3] {
        fs::write(&cut, &bytes[..bytes.len() * part / 4]).expect("a file");
        let outcome = run(heaptape(["report", "--json"]).arg(&cut));
        assert_eq!(outcome.code(), 0);
        assert_eq!(outcome.stderr_text().lines().count(), 1, "{}", outcome.stderr_text());
        assert_eq!(outcome.json()["complete"], false);
        assert_harmless(&cut);
    }
}

#[test]
fn names_of_any_kind_do_no_harm_to_a_terminal() {
    let folder = scratch();
    let file = folder.path().join("names.tape");
    let names =
        ["\x1b[2J\x07\n|<b>`_*".to_owned(), "x".repeat(10_000), "\u{202e}\u{fffd}".to_owned()];
    let mut tape = begin(&file, &names);
    for (pid, name) in (1..).zip(&names) {
        let process = start(&mut tape, pid, std::slice::from_ref(name));
        tape.event(process, &event(1, 0x1000, 50)).expect("an event");
        end(&mut tape, process, 3);
    }
    tape.finish(None).expect("a tape");
    assert_harmless(&file);
}

#[test]
fn growth_and_spikes_are_those_of_the_time_where_the_run_is_long_enough() {
    let folder = scratch();
    for (how, growth, spike) in
        [("startup", false, false), ("slow", true, false), ("burst", false, true)]
    {
        let (tape, _) = recorded(folder.path(), "paced", &[how]);
        let report = report(&tape);
        assert_eq!(finding(&report, "growth").is_some(), growth, "{how}");
        assert_eq!(finding(&report, "spike").is_some(), spike, "{how}");
        if let Some(spike) = finding(&report, "spike") {
            let caller = &report["callers"][spike["caller"].as_u64().expect("a caller") as usize];
            assert_eq!(caller["function"], "burst");
            assert_eq!(number(caller, "/at_peak/bytes"), 20_000_000);
        }
    }
}

#[test]
fn processes_that_follow_one_another_do_not_live_together_for_certain() {
    let folder = scratch();
    let (tape, _) = recorded(folder.path(), "paced", &["turns"]);
    let report = report(&tape);
    let (lower, upper) =
        (number(&report, "/peak/requested/lower"), number(&report, "/peak/requested/upper"));
    // The block of one child, and what the parent and libc have.
    assert!((1_000_000..1_200_000).contains(&lower) && lower <= upper, "{lower} to {upper}");
    assert!(finding(&report, "spike").is_none(), "{report}");
    let usable = number(&report, "/peak/usable/lower");
    assert!(usable >= lower, "{usable}");
    assert_eq!(report["all"]["peak"], report["peak"]["requested"]);
}

#[test]
fn the_guide_shows_what_is_printed() {
    let example = harness::root().join("docs/example");
    let mut command =
        heaptape(["report", "docs/example/planted.tape", "--sysroot", "docs/example"]);
    let outcome = run(command.current_dir(harness::root()).env("COLUMNS", "100"));
    assert_eq!(outcome.code(), 0, "{}: {}", example.display(), outcome.stderr_text());
    let printed = String::from_utf8(outcome.stdout).expect("text");
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let guide = fs::read_to_string(harness::root().join("docs/guide.md")).expect("the guide");
    let section = guide.split("\n## ").find(|text| text.starts_with("Read a tape in a minute"));
    let shown = section.expect("a section").lines().filter_map(|line| line.strip_prefix("    "));
    let shown: Vec<&str> = shown
        .filter(|line| !line.starts_with("$ ") && !line.starts_with("heaptape ") && *line != "…")
        .collect();
    assert!(shown.len() > 30, "{shown:?}");
    for line in shown {
        assert!(printed.contains(&line), "{line:?} is in the guide, and not printed");
    }
}
