//! `tree` and `sites` give each function what the program knows it made, by itself and below, whichever way it is asked.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{program, sources};
use harness::limited::{assert_told, documented_fields_of, fields};
use harness::running::run;
use harness::tape::{info, number};
use harness::{has_stacks, heaptape, one_sentence, record, scratch, skip};
use heaptape_tape::{Item, Tape};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// tests/programs/service.c, recorded with its call stacks or without.
fn service(options: &[&str], how: &str) -> (TempDir, PathBuf) {
    let folder = scratch();
    let tape = folder.path().join("x.tape");
    let program = program("service");
    let outcome = run(&mut record(&tape, options, &[program.as_os_str(), OsStr::new(how)]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    (folder, tape)
}

fn asked(command: &str, tape: &Path, options: &[&str]) -> Value {
    let outcome = run(heaptape([command]).arg(tape).args(options).arg("--json"));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let json = outcome.json();
    assert_eq!(json["schema"], format!("heaptape.{command}/1"));
    json
}

fn text(command: &str, tape: &Path, options: &[&str]) -> String {
    let outcome = run(heaptape([command]).arg(tape).args(options));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    String::from_utf8(outcome.stdout).expect("text")
}

/// The functions from the top of a tree down to a node.
fn path(nodes: &[Value], node: &Value) -> Vec<String> {
    let mut path = match node["parent"].as_u64() {
        Some(parent) => path(nodes, &nodes[parent as usize]),
        None => Vec::new(),
    };
    path.push(node["function"].as_str().unwrap_or("?").to_owned());
    path
}

/// What is below a path that ends so, and what is made at its end, in MiB.
fn sums(tree: &Value, end: &[&str]) -> (u64, u64) {
    let nodes = tree["nodes"].as_array().expect("nodes");
    let found = nodes.iter().filter(|node| path(nodes, node).ends_with(&end.map_strings()));
    let mut sums = (0, 0);
    for node in found {
        sums.0 += number(node, "/bytes") / MIB;
        sums.1 += number(node, "/own/bytes") / MIB;
    }
    sums
}

trait Strings {
    fn map_strings(&self) -> Vec<String>;
}

impl Strings for [&str] {
    fn map_strings(&self) -> Vec<String> {
        self.iter().map(|&text| text.to_owned()).collect()
    }
}

/// Programs that run one after the other have a peak of one of them, though the clock has the end of one and the start of the
/// next in one step.
#[test]
fn what_lived_one_after_the_other_is_not_added_up_to_a_peak() {
    let (folder, program) = (scratch(), program("service"));
    let peak = |times: &str| {
        let tape = folder.path().join("x.tape");
        let script = "for i in $1; do \"$0\" once; done; exit 0";
        let command =
            ["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_os_str(), times.as_ref()];
        assert_eq!(run(&mut record(&tape, &[], &command)).code(), 0);
        let tree = asked("tree", &tape, &[]);
        number(&tree, "/whole/bytes")
    };
    let (once, often) = (peak("1"), peak("1 2 3 4 5 6 7 8"));
    assert!(once > 300 * MIB && often < once + MIB, "{once} and {often}");
}

#[test]
fn a_quarter_a_quarter_and_a_half_of_all_that_main_has() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service(&["--stacks"], "");
    for at in ["peak", "end"] {
        let tree = asked("tree", &tape, &["--at", at, "--min", "0"]);
        assert!(tree["stacks"] == true && number(&tree, "/whole/bytes") == 400 * MIB, "{tree}");
        assert_eq!(sums(&tree, &["main"]), (400, 0));
        assert_eq!(sums(&tree, &["main", "malloc_wrapper"]), (100, 100));
        assert_eq!(sums(&tree, &["main", "test1", "malloc_wrapper"]), (100, 100));
        // It is called from two places.
        assert_eq!(sums(&tree, &["main", "test2", "malloc_wrapper"]), (200, 200));
        let own: u64 =
            tree["nodes"].as_array().unwrap().iter().map(|n| number(n, "/own/bytes")).sum();
        assert_eq!(own, 400 * MIB);
    }
    let shown = text("tree", &tape, &[]);
    let line = |name: &str| {
        let found = shown.lines().find(|line| line.contains(&format!("{name} (")));
        found.unwrap_or_else(|| panic!("{shown}")).to_owned()
    };
    for (name, share) in [("main", "100 %"), ("test1", "25 %"), ("test2", "50 %")] {
        assert!(line(name).contains(share), "{shown}");
    }
    let reversed = asked("tree", &tape, &["--reverse"]);
    assert_eq!(sums(&reversed, &["malloc_wrapper"]).0, 400);
    assert_eq!(sums(&reversed, &["malloc_wrapper", "test2", "main"]).0, 200);
    // After the second of the four.
    let then = asked("tree", &tape, &["--at", "1"]);
    assert_eq!((sums(&then, &["main"]).0, sums(&then, &["test2"]).0), (200, 0));
}

#[test]
fn a_recursion_counts_once_and_what_is_freed_at_once_is_known() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service(&["--stacks"], "more");
    let all = &["--metric", "total", "--min", "0"];
    let tree = asked("tree", &tape, all);
    assert_eq!(number(&tree, "/whole/bytes"), 403 * MIB);
    assert_eq!(sums(&tree, &["main", "descend", "descend", "descend", "descend"]), (1, 1));
    let temporary = asked("tree", &tape, &["--metric", "temporary"]);
    assert_eq!(sums(&temporary, &["main", "forgets", "malloc_wrapper"]), (2, 2));
    assert_eq!(number(&temporary, "/whole/bytes"), 2 * MIB);
    let counted = asked("tree", &tape, &["--metric", "count", "--min", "0"]);
    assert_eq!((number(&counted, "/whole/blocks"), &counted["metric"]), (7, &"count".into()));
    let functions = asked("sites", &tape, &["--by", "function", "--top", "0"]);
    let row = |name: &str| {
        let rows = functions["rows"].as_array().expect("rows").iter();
        let found: Vec<_> = rows.filter(|row| row["frames"][0]["function"] == name).collect();
        assert_eq!(found.len(), 1, "{name}: {functions}");
        let of = |field: &str| number(found[0], field) / MIB;
        (of("/total/bytes"), of("/own/total/bytes"))
    };
    assert_eq!(row("main"), (403, 0));
    assert_eq!(row("descend"), (1, 1));
    assert_eq!(row("test2"), (200, 0));
    assert_eq!(row("malloc_wrapper"), (402, 402));
}

#[test]
fn every_table_adds_up_to_all_there_is() {
    if !has_stacks() {
        return;
    }
    for options in [&["--stacks"][..], &[]] {
        let (_folder, tape) = service(options, "more");
        for by in ["site", "caller", "module", "file", "thread", "process", "rank"] {
            let table = asked("sites", &tape, &["--by", by, "--top", "0", "--at", "3"]);
            let sum = |field: &str| -> u64 {
                let rows = table["rows"].as_array().expect("rows").iter();
                rows.map(|row| number(row, field)).sum()
            };
            assert_eq!(sum("/total/bytes"), 403 * MIB, "{by}");
            assert_eq!((sum("/total/blocks"), sum("/temporary/blocks")), (7, 2), "{by}");
            assert_eq!(
                sum("/end/bytes"),
                number(&info(&tape), "/processes/0/end/requested"),
                "{by}"
            );
            assert_eq!(sum("/at/bytes"), 400 * MIB, "{by}");
        }
    }
}

/// What all processes made: bytes and blocks.
fn made(file: &Path) -> (u64, u64) {
    let tape = Tape::open(file).expect("a tape");
    let mut made = (0, 0);
    for process in &tape.summary().processes {
        for item in tape.events(process.number, 0..u64::MAX).expect("events") {
            let Item::Event(call) = item.expect("an event") else { continue };
            if !call.event.call.is_release() && call.event.address != 0 {
                made = (made.0 + call.event.size, made.1 + 1);
            }
        }
    }
    made
}

#[test]
fn tables_of_threads_and_forks_add_up_to_what_all_of_them_made() {
    if !has_stacks() {
        return;
    }
    for (name, kinds) in
        [("threads8", [("site", 2), ("thread", 8)]), ("forker", [("rank", 1), ("process", 5)])]
    {
        let (folder, program) = (scratch(), program(name));
        let tape = folder.path().join("x.tape");
        run(&mut record(&tape, &["--stacks"], &[program.as_os_str()]));
        let all = made(&tape);
        assert!(all.1 > 1000, "{name}: {all:?}");
        for (by, least) in kinds {
            let table = asked("sites", &tape, &["--by", by, "--top", "0"]);
            let rows = table["rows"].as_array().expect("rows");
            let sum = |field: &str| rows.iter().map(|row| number(row, field)).sum::<u64>();
            assert_eq!((sum("/total/bytes"), sum("/total/blocks")), all, "{name} by {by}");
            assert!(rows.len() >= least, "{name} by {by}: {}", rows.len());
        }
    }
}

#[test]
fn stacks_are_selected_by_what_is_on_them() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service(&["--stacks"], "");
    for (options, bytes) in [
        (&["--focus", "^test"][..], 300),
        (&["--ignore", "^test2$"], 200),
        (&["--focus", "^test", "--ignore", "^test1"], 200),
        (&["--focus", "^main$"], 400),
        (&["--focus", "nowhere"], 0),
    ] {
        let tree = asked("tree", &tape, options);
        assert_eq!(number(&tree, "/selected/bytes"), bytes * MIB, "{options:?}");
        assert_eq!(number(&tree, "/whole/bytes"), 400 * MIB);
    }
    let wrong = run(heaptape(["tree", "--focus", "("]).arg(&tape));
    assert!(
        wrong.code() == 2 && wrong.stderr_text().contains("--focus"),
        "{}",
        wrong.stderr_text()
    );
}

#[test]
fn what_is_selected_is_shown_however_little_of_the_whole_it_is() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service(&["--stacks"], "more");
    let options = ["--metric", "total", "--focus", "^descend$"];
    let tree = asked("tree", &tape, &options);
    assert_eq!(sums(&tree, &["descend", "descend", "descend", "descend"]), (1, 1), "{tree}");
    for format in ["dot", "callgraph", "flamegraph"] {
        let mut export = heaptape(["export", "--to", format]);
        let drawn = run(export.args(options).arg(&tape));
        assert_eq!(drawn.code(), 0, "{}", drawn.stderr_text());
        let drawn = String::from_utf8(drawn.stdout).expect("text");
        assert!(drawn.contains("descend"), "{format}: {drawn}");
    }
}

#[test]
fn a_moment_of_what_is_of_none_is_refused_and_one_beyond_the_end_is_told() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service(&["--stacks"], "");
    for metric in ["total", "count", "temporary"] {
        for command in [&["tree"][..], &["export", "--to", "folded"], &["export", "--to", "pprof"]]
        {
            let options = ["--metric", metric, "--at", "end"];
            let outcome = run(heaptape(command.iter().copied()).arg(&tape).args(options));
            assert_eq!(outcome.code(), 1, "{command:?} {metric}");
            let said = one_sentence(&outcome);
            assert!(said.contains("--at") && said.contains(metric), "{said}");
        }
    }
    for (at, note) in [("1", ""), ("1000", "after the last"), ("3600s", "after it")] {
        for command in [&["tree"][..], &["sites"], &["export", "--to", "folded"]] {
            let outcome = run(heaptape(command.iter().copied()).arg(&tape).args(["--at", at]));
            assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
            let said = outcome.stderr_text();
            assert!(said.contains(note) && said.is_empty() == note.is_empty(), "{at}: {said}");
        }
    }
}

#[test]
fn no_field_is_missing_where_there_are_no_stacks() {
    let (_folder, tape) = service(&[], "more");
    let at = format!("{}@1", tape.display());
    let mut diff = heaptape(["diff", &at, tape.to_str().expect("a path"), "--json"]);
    let mut events = heaptape(["events", "--json", "--notes"]);
    for (rows, field) in [
        (asked("leaks", &tape, &[])["callers"].clone(), "frames"),
        (asked("live", &tape, &["--by", "caller"])["list"].clone(), "frames"),
        (run(&mut diff).json()["list"].clone(), "frames"),
        (run(events.arg(&tape)).json()["events"].clone(), "stack"),
    ] {
        let rows = rows.as_array().expect("rows").iter();
        let calls = rows.filter(|row| row.get("note").or(row.get("sample")).is_none());
        let calls: Vec<_> = calls.collect();
        assert!(!calls.is_empty());
        assert!(calls.iter().all(|row| row.get(field) == Some(&Value::Null)), "{calls:?}");
    }
}

#[test]
fn the_documentation_has_each_field_and_no_other() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service(&["--stacks"], "more");
    for (command, by) in [("tree", &[][..]), ("sites", &["site", "function", "thread"])] {
        let known = documented_fields_of(&format!("heaptape.{command}/1"));
        let mut seen = BTreeSet::new();
        let mut take = |options: &[&str]| {
            let document = asked(command, &tape, options);
            assert_told(&known, &fields(&document));
            seen.extend(fields(&document));
        };
        take(&["--at", "3"]);
        by.iter().for_each(|by| take(&["--by", by, "--at", "3"]));
        let unseen: Vec<_> = known.difference(&seen).collect();
        assert!(unseen.is_empty(), "{command} has no {unseen:?}");
    }
}

/// A line of Python calls the allocator from many places of its interpreter.
#[test]
fn one_stack_of_python_is_one_row_of_every_view() {
    if !has_stacks() {
        return;
    }
    let (folder, script) = (scratch(), sources().join("lines.py"));
    let tape = folder.path().join("x.tape");
    let command = [OsStr::new("python3"), script.as_os_str()];
    let outcome = run(&mut record(&tape, &["--stacks"], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let at = format!("{}@0", tape.display());
    let mut diff = heaptape(["diff", &at, tape.to_str().expect("a path"), "--by", "site"]);
    let diff = run(diff.args(["--top", "0", "--json"])).json();
    let mut lines = 0;
    for rows in [
        asked("leaks", &tape, &["--top", "0"])["callers"].clone(),
        asked("live", &tape, &["--by", "site", "--top", "0"])["list"].clone(),
        diff["list"].clone(),
    ] {
        let mut met = HashSet::new();
        for row in rows.as_array().expect("rows") {
            let frames = row["frames"].as_array().expect("frames");
            if frames.iter().any(|frame| frame["kind"] == "python") {
                lines += 1;
                assert!(met.insert(row["frames"].to_string()), "twice: {row}");
                // Where its lines stand, the interpreter's own calls do not, or each place of them were a row.
                let is_its = |frame: &Value| {
                    let name = frame["module"].as_str().unwrap_or_default().rsplit('/').next();
                    name.is_some_and(|n| n.starts_with("python3") || n.starts_with("libpython"))
                };
                assert!(!frames.iter().any(is_its), "{row}");
            }
        }
    }
    if lines == 0 {
        skip("no Python of a version whose frames can be read");
    }
    let table = asked("sites", &tape, &["--by", "module", "--top", "0"]);
    let names = table["rows"].as_array().expect("rows").iter().map(|row| row["name"].to_string());
    let has_file = names.collect::<Vec<_>>().join(" ").contains("lines.py");
    assert!(lines == 0 || has_file, "{table}");
}

#[test]
fn what_is_folded_is_said_and_counted() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service(&["--stacks"], "more");
    let shown = text("tree", &tape, &["--min", "40"]);
    assert!(shown.contains("Folded: ") && !shown.contains("test1 ("), "{shown}");
    for options in [&["--min", "40"][..], &["--top", "3"], &["--depth", "2"]] {
        let tree = asked("tree", &tape, options);
        let nodes = tree["nodes"].as_array().expect("nodes").iter();
        let sum: u64 = nodes.map(|n| number(n, "/own/bytes") + number(n, "/folded/bytes")).sum();
        assert_eq!(sum + number(&tree, "/folded/bytes"), number(&tree, "/whole/bytes"));
    }
}

#[test]
fn a_tape_without_stacks_has_callers_and_says_so() {
    if !has_stacks() {
        return;
    }
    let (_folder, tape) = service(&[], "");
    let tree = asked("tree", &tape, &[]);
    assert!(tree["stacks"] == false, "{tree}");
    assert_eq!(sums(&tree, &["malloc_wrapper"]), (400, 400));
    for command in ["tree", "sites"] {
        assert!(text(command, &tape, &[]).contains("record --stacks"));
    }
}

#[test]
fn what_means_nothing_is_refused_in_a_sentence() {
    let (_folder, tape) = service(&[], "");
    for options in [&["--sort", "at"][..], &["--at", "peak"]] {
        let outcome = run(heaptape(["sites"]).arg(&tape).args(options));
        assert_eq!(outcome.code(), 1);
        assert!(one_sentence(&outcome).contains("--at"));
    }
    for min in ["-1", "101", "x", "nan"] {
        let outcome = run(heaptape(["tree"]).arg(&tape).args(["--min", min]));
        assert_eq!(outcome.code(), 2, "{min}");
    }
}

/// Rows of a document whose stacks have a function.
fn with<'a>(rows: &'a Value, function: &str) -> Vec<&'a Value> {
    let on_it = |row: &&Value| {
        let frames = row["frames"].as_array().expect("frames");
        frames.iter().any(|frame| frame["function"] == function)
    };
    rows.as_array().expect("rows").iter().filter(on_it).collect()
}

#[test]
fn leaks_live_blocks_and_differences_are_told_apart_by_stack() {
    if !has_stacks() {
        return;
    }
    let (folder, tape) = service(&["--stacks"], "more");
    let leaks = asked("leaks", &tape, &["--top", "0"]);
    let [one] = with(&leaks["callers"], "test1")[..] else { panic!("{leaks}") };
    assert_eq!(number(one, "/bytes"), 100 * MIB);
    assert_eq!(with(&leaks["callers"], "test2").len(), 2, "it was called from two places");
    let live = asked("live", &tape, &["--by", "site", "--top", "0"]);
    assert_eq!(with(&live["list"], "main").len(), 6, "{live}");
    assert!(with(&live["list"], "test2").iter().all(|row| row["largest"] == 100 * MIB));
    let at = |index: &str| format!("{}@{index}", tape.display());
    let diff = run(&mut heaptape(["diff", &at("1"), &at("end"), "--by", "site", "--json"]));
    let diff = diff.json();
    assert_eq!(with(&diff["list"], "test2").len(), 2, "{diff}");
    assert_eq!(with(&diff["list"], "test1").len(), 0, "it was there before");
    let known = folder.path().join("known.supp");
    std::fs::write(&known, "leak:^test2$\nleak:test1 (*\n").expect("a file");
    let left = asked("leaks", &tape, &["--suppress", known.to_str().expect("a path")]);
    assert_eq!(number(&left, "/suppressed/bytes"), 300 * MIB, "{left}");
    // For people, a few calls stand below each row.
    for (command, options) in
        [("leaks", &[][..]), ("live", &["--by", "site"]), ("report", &[]), ("leaks", &["--stacks"])]
    {
        let shown = text(command, &tape, options);
        assert!(shown.contains("main (service.c"), "{shown}");
        let is_whole = options == ["--stacks"];
        assert_eq!(shown.contains("more call"), !is_whole, "{shown}");
    }
}

#[test]
fn by_caller_a_tape_with_stacks_says_what_one_without_says() {
    if !has_stacks() {
        return;
    }
    let callers = |tape: &Path| -> Vec<(Value, Value)> {
        let live = asked("live", tape, &["--by", "caller", "--at", "end"]);
        let rows = live["list"].as_array().expect("rows").iter();
        rows.map(|row| (row["caller"].clone(), row["requested"].clone())).collect()
    };
    let (_one, with) = service(&["--stacks"], "more");
    let (_two, without) = service(&[], "more");
    assert_eq!(callers(&with), callers(&without));
    assert_eq!(callers(&with).len(), 2);
}
