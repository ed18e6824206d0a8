//! What `diff` says of two moments is what the tapes say of each, and every sum is the sum of its rows.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, program};
use harness::running::{Outcome, run};
use harness::tape::{info, number};
use harness::{heaptape, one_sentence, record, scratch};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// tests/programs/leaky.c with this plugin and way to end, recorded.
fn recorded(folder: &Path, name: &str, plugin: &Path, how: &str) -> PathBuf {
    let tape = folder.join(name);
    let program = program("leaky");
    let command = [program.as_os_str(), plugin.as_os_str(), OsStr::new(how)];
    let outcome = run(&mut record(&tape, &[], &command));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    tape
}

fn diff(before: &str, after: &str, options: &[&str]) -> Outcome {
    run(heaptape(["diff", "--top", "0"]).args([before, after]).args(options))
}

fn json(before: &str, after: &str, options: &[&str]) -> Value {
    let outcome = diff(before, after, &[&["--json"], options].concat());
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let json = outcome.json();
    assert_eq!(json["schema"], "heaptape.diff/1");
    assert_sums_agree(&json);
    json
}

/// All figures of a row or a sum: live bytes and blocks before and after, made ones, and the differences.
fn figures(row: &Value) -> [i64; 10] {
    [
        "/before/live/bytes",
        "/before/live/blocks",
        "/after/live/bytes",
        "/after/live/blocks",
        "/before/made/bytes",
        "/before/made/blocks",
        "/after/made/bytes",
        "/after/made/blocks",
        "/difference/bytes",
        "/difference/blocks",
    ]
    .map(|path| row.pointer(path).and_then(Value::as_i64).unwrap_or(0))
}

fn assert_sums_agree(json: &Value) {
    let list = json["list"].as_array().expect("a list");
    let mut sum = [0; 10];
    for row in list.iter().chain([&json["unchanged"], &json["others"]]) {
        let row = figures(row);
        assert_eq!((row[8], row[9]), (row[2] - row[0], row[3] - row[1]), "{json}");
        sum.iter_mut().zip(row).for_each(|(sum, part)| *sum += part);
    }
    assert_eq!(sum, figures(&json["total"]), "{json}");
    let growths: Vec<i64> = list.iter().map(|row| figures(row)[8]).collect();
    assert!(growths.is_sorted_by(|a, b| a >= b), "what grew most comes first: {growths:?}");
    let rows = list.len() as u64 + number(json, "/unchanged/rows") + number(json, "/others/rows");
    assert_eq!(rows, number(json, "/total/rows"));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn what_came_between_two_moments_is_what_the_program_kept() {
    let folder = scratch();
    let tape = recorded(folder.path(), "x.tape", &library("plugin"), "");
    let events = number(&info(&tape), "/events");
    let (early, end) = (format!("{}@20", text(&tape)), format!("{}@end", text(&tape)));
    let json = json(&early, &end, &[]);
    let grown = |bytes: i64, blocks: i64| {
        let rows = json["list"].as_array().expect("a list").iter();
        rows.filter(|row| figures(row)[8..] == [bytes, blocks]).count()
    };
    // Of the growing list there are one or two by event 20.
    assert!(grown(79_900, 799) + grown(79_800, 798) == 1, "{json}");
    assert_eq!((grown(21_000, 7), grown(1920, 3)), (1, 1), "{json}");
    assert!(number(&json, "/unchanged/before/live/bytes") >= 50_000);
    assert_eq!((number(&json, "/before/at"), number(&json, "/after/at")), (20, events - 1));
    assert_eq!(json["total"]["before"]["made"], Value::Null);
    // Backwards it is the same with other signs.
    let back = self::json(&end, &early, &[]);
    assert_eq!(figures(&back["total"])[8], -figures(&json["total"])[8]);
    // Of one moment nothing differs.
    let same = self::json(&end, &end, &[]);
    assert_eq!(same["list"].as_array().map(Vec::len), Some(0));
    let text = String::from_utf8(diff(&end, &end, &[]).stdout).expect("text");
    assert!(text.contains("Nothing differs: "), "{text}");
}

#[test]
fn two_runs_by_caller_bin_and_module_have_the_sums_of_their_tapes() {
    let folder = scratch();
    let first = recorded(folder.path(), "a.tape", &library("plugin"), "");
    let second = recorded(folder.path(), "b.tape", &library("plugin"), "fork");
    let peaks = [&first, &second].map(|tape| number(&info(tape), "/processes/0/peak/requested"));
    let ends = [&first, &second].map(|tape| number(&info(tape), "/processes/0/end/requested"));
    let at_end = |tape: &Path| format!("{}@end", text(tape));
    let mut totals = Vec::new();
    for by in ["caller", "bin", "module"] {
        let json = json(text(&first), text(&second), &["--by", by]);
        let total = figures(&json["total"]);
        assert_eq!([total[0], total[2]], peaks.map(|n| n as i64), "{by}");
        assert!(total[4] > 800_000, "what was made is told: {json}");
        totals.push(total);
        let json = self::json(&at_end(&first), &at_end(&second), &["--by", by]);
        let total = figures(&json["total"]);
        assert_eq!([total[0], total[2]], ends.map(|n| n as i64), "{by}");
    }
    assert!(totals.iter().all(|total| *total == totals[0]), "{totals:?}");
    let few = run(heaptape(["diff", "--top", "1", "--json"])
        .args([at_end(&first), format!("{}@9", text(&second))]));
    assert_sums_agree(&few.json());
    assert_eq!(few.json()["list"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_library_that_was_moved_is_the_same() {
    let folder = scratch();
    let moved = folder.path().join("elsewhere/plugin.so");
    fs::create_dir(moved.parent().expect("a folder")).expect("a folder");
    fs::copy(library("plugin"), &moved).expect("a copy");
    let first = recorded(folder.path(), "a.tape", &library("plugin"), "");
    let second = recorded(folder.path(), "b.tape", &moved, "");
    for by in ["caller", "module"] {
        let json = json(
            &format!("{}@end", text(&first)),
            &format!("{}@end", text(&second)),
            &["--by", by],
        );
        let rows = json["list"].as_array().expect("a list");
        let named = |row: &&Value| row["module"].as_str().is_some_and(|m| m.contains("plugin"));
        assert_eq!(rows.iter().filter(named).count(), 0, "{json}");
        assert!(number(&json, "/unchanged/before/live/bytes") >= 1920);
    }
}

#[test]
fn the_process_is_chosen_in_both() {
    let folder = scratch();
    let tape = recorded(folder.path(), "x.tape", &library("plugin"), "fork");
    let (start, end) = (format!("{}@0ms", text(&tape)), format!("{}@end", text(&tape)));
    let json = json(&start, &end, &["--process", "#1"]);
    assert_eq!(
        (number(&json, "/before/process/number"), number(&json, "/after/process/number")),
        (1, 1)
    );
    let child = &info(&tape)["processes"][1]["end"];
    assert_eq!(number(&json, "/total/after/live/bytes"), number(child, "/requested"));
}

#[test]
fn files_whose_names_have_an_at_and_moments_that_are_none() {
    let folder = scratch();
    let tape = recorded(folder.path(), "x.tape", &library("plugin"), "");
    let strange = folder.path().join("x.tape@5");
    fs::copy(&tape, &strange).expect("a copy");
    let json = json(text(&strange), &format!("{}@7", text(&strange)), &[]);
    assert_eq!((&json["before"]["moment"], number(&json, "/after/at")), (&"peak".into(), 7));
    for (moment, words) in [("@soon", "'soon' is no moment"), ("@", "'' is no moment")] {
        let outcome = diff(&format!("{}{moment}", text(&tape)), text(&tape), &[]);
        assert_eq!(outcome.code(), 1);
        assert!(one_sentence(&outcome).contains(words), "{moment}");
    }
    let missing = diff("/no/such.tape@5", text(&tape), &[]);
    assert_eq!(missing.code(), 1);
    assert!(one_sentence(&missing).contains("/no/such.tape"));
    let beyond = diff(&format!("{}@999999", text(&tape)), text(&tape), &[]);
    assert_eq!(beyond.code(), 0);
    assert!(one_sentence(&beyond).contains("this is after the last"));
    let nobody = diff(text(&tape), text(&tape), &["--process", "rank:5"]);
    assert_eq!(nobody.code(), 1);
    assert!(one_sentence(&nobody).contains("no process rank:5"));
}

#[test]
fn a_cut_tape_is_compared_as_far_as_it_goes_and_told_once() {
    let folder = scratch();
    let tape = recorded(folder.path(), "x.tape", &library("plugin"), "");
    let whole = fs::read(&tape).expect("a tape");
    let cut = folder.path().join("cut.tape");
    fs::write(&cut, &whole[..whole.len() / 2]).expect("a file");
    let outcome = diff(text(&cut), &format!("{}@end", text(&cut)), &["--json"]);
    assert_eq!(outcome.code(), 0);
    assert!(one_sentence(&outcome).contains("incomplete"));
    let json = outcome.json();
    assert_eq!(json["complete"], false);
    assert_sums_agree(&json);
}

#[test]
fn of_another_build_functions_of_one_name_are_the_same() {
    let folder = scratch();
    let path = folder.path().canonicalize().expect("the folder");
    let source =
        fs::read_to_string(harness::compile::sources().join("leaky.c")).expect("the source");
    // In the second build everything lies elsewhere, and the growing list has blocks of 120.
    let more = "#define FILL __asm__ volatile(\".fill 999, 1, 0x90\");\nvoid fill(void) { FILL }\n";
    let later = format!("{more}{}", source.replace("malloc(100)", "malloc(120)"));
    let tapes = [("a", source), ("b", later)].map(|(name, source)| {
        let (place, tape) = (path.join(name), path.join(format!("{name}.tape")));
        fs::create_dir(&place).expect("a folder");
        let (file, program) = (place.join("leaky.c"), place.join("leaky"));
        fs::write(&file, source).expect("a source");
        let flags = ["-O1", "-fno-builtin", "-fno-optimize-sibling-calls", "-o"];
        let output = std::process::Command::new("cc")
            .args(flags)
            .arg(&program)
            .arg(&file)
            .arg("-ldl")
            .output();
        let output = output.expect("cc");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let outcome = run(&mut record(&tape, &[], &[program.as_os_str()]));
        assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
        tape
    });
    let [before, after] = tapes.map(|tape| format!("{}@end", text(&tape)));
    let json = json(&before, &after, &[]);
    let rows = json["list"].as_array().expect("a list");
    let in_program = |row: &&Value| row["module"].as_str().is_some_and(|m| m.ends_with("/leaky"));
    let rows: Vec<_> = rows.iter().filter(in_program).collect();
    assert_eq!(rows.len(), 1, "{json}");
    assert_eq!(rows[0]["function"], "growing_list");
    assert_eq!(figures(rows[0])[..4], [80_000, 800, 96_000, 800]);
    assert!(number(&json, "/unchanged/before/live/bytes") >= 71_000, "{json}");
}
