//! `leaks --check` fails for what is left and is not suppressed, and passes no tape that can't tell; and the files and
//! tapes that it is given.
#![forbid(unsafe_code)]

mod harness;

use harness::leaks::{assert_sums_agree, json, leaks, recorded};
use harness::running::run;
use harness::tape::{info, number};
use harness::{heaptape, one_sentence, record_loop, scratch};
use serde_json::Value;
use std::fs;
use std::path::Path;

#[test]
fn suppressions_are_counted_and_the_rest_fails_a_check() {
    let recorded = recorded("");
    let file = recorded.folder.path().join("known.supp");
    let suppressed = |text: &str, options: &[&str]| {
        fs::write(&file, text).expect("a file");
        let options = [&["--suppress", file.to_str().expect("UTF-8")], options].concat();
        (
            json(&recorded.tape, &options),
            leaks(&recorded.tape, &[&options[..], &["--check"]].concat()),
        )
    };
    let (json, checked) = suppressed("# known\nleak:/plugin$\nleak:/no/such$\n", &[]);
    assert_eq!(
        (number(&json, "/suppressed/blocks"), number(&json, "/suppressed/bytes")),
        (3, 1920)
    );
    let list = &json["suppressions"];
    assert_eq!((&list[0]["pattern"], &list[0]["callers"]), (&"/plugin$".into(), &1.into()));
    assert_eq!((number(&list[1], "/line"), number(&list[1], "/callers")), (3, 0));
    assert_eq!(checked.code(), 3);
    assert!(one_sentence(&checked).contains("Never freed: "));
    let verbose = leaks(&recorded.tape, &["--suppress", file.to_str().unwrap(), "--verbose"]);
    assert!(String::from_utf8_lossy(&verbose.stdout).contains("/no/such$"));
    let (json, _) = suppressed("leak:^growing_*$\nleak:^at_start$\nleak:^start$\n", &[]);
    assert_eq!(
        (number(&json, "/suppressed/blocks"), number(&json, "/suppressed/bytes")),
        (810, 130_000)
    );
    let (json, checked) = suppressed("leak:*\n", &[]);
    assert_eq!(number(&json, "/left/blocks"), 0);
    assert_eq!((checked.code(), checked.stderr_text().as_str()), (0, ""));
    fs::write(&file, "leak:a\nthread:b\n").expect("a file");
    let wrong = leaks(&recorded.tape, &["--suppress", file.to_str().unwrap()]);
    assert_eq!(wrong.code(), 1);
    let sentence = one_sentence(&wrong);
    assert!(sentence.contains("known.supp") && sentence.contains("Line 2"), "{sentence}");
}

#[test]
fn several_tapes_are_checked_one_after_the_other() {
    let (first, second) = (recorded(""), recorded("kill"));
    let cut = first.folder.path().join("cut.tape");
    let whole = fs::read(&first.tape).expect("a tape");
    fs::write(&cut, &whole[..whole.len() / 2]).expect("a file");
    let all = |last: &Path, options: &[&str]| {
        run(heaptape(["leaks"]).args(options).args([&first.tape, &second.tape]).arg(last))
    };
    let printed = all(&cut, &[]);
    assert_eq!(printed.code(), 0);
    let text = String::from_utf8(printed.stdout).expect("text");
    for tape in [&first.tape, &second.tape, &cut] {
        let title = tape.display().to_string();
        assert_eq!(text.lines().filter(|line| *line == title).count(), 1, "{text}");
    }
    let json = String::from_utf8(all(&cut, &["--json"]).stdout).expect("text");
    let documents = serde_json::Deserializer::from_str(&json).into_iter::<Value>();
    let names: Vec<Value> = documents.map(|json| json.expect("JSON")["tape"].clone()).collect();
    assert_eq!(names, [&first.tape, &second.tape, &cut].map(|tape| tape.to_str().unwrap()));
    let checked = all(&cut, &["--check"]);
    assert_eq!((checked.code(), checked.stderr_text().lines().count()), (3, 3));
    let missing = all(Path::new("/no/such.tape"), &["--check"]);
    assert_eq!((missing.code(), missing.stderr_text().lines().count()), (1, 3));
}

#[test]
fn a_file_that_holds_no_suppressions_is_not_poured_out() {
    let recorded = recorded("");
    let file = recorded.folder.path().join("x.supp");
    let said = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("a file");
        let wrong = leaks(&recorded.tape, &["--suppress", file.to_str().expect("UTF-8")]);
        assert_eq!(wrong.code(), 1);
        one_sentence(&wrong)
    };
    assert!(said(&fs::read(&recorded.tape).expect("a tape")).contains("is a binary file"));
    let long = said(format!("\x1b[2J{}", "x".repeat(1 << 20)).as_bytes());
    assert!(long.contains("Line 1 is no suppression") && long.contains("…'"), "{long}");
    assert!(long.len() < file.as_os_str().len() + 250, "{long}");
}

#[test]
fn a_cut_tape_says_what_lived_there() {
    let recorded = recorded("");
    let whole = fs::read(&recorded.tape).expect("a tape");
    let file = recorded.folder.path().join("cut.tape");
    for length in [whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..length]).expect("a file");
        let outcome = leaks(&file, &["--json"]);
        assert_eq!(outcome.code(), 0);
        assert!(one_sentence(&outcome).contains("incomplete"));
        assert_eq!(outcome.json()["complete"], false);
        assert_sums_agree(&outcome.json(), &info(&file));
        let everything = recorded.folder.path().join("all.supp");
        fs::write(&everything, "leak:*\n").expect("a file");
        for options in [&["--suppress", everything.to_str().expect("UTF-8")][..], &["--growing"]] {
            let checked = leaks(&file, &[options, &["--check"]].concat());
            assert_eq!(checked.code(), 3);
            assert!(one_sentence(&checked).contains("incomplete and passes no check"));
            let quiet = leaks(&file, &[options, &["--check", "--quiet"]].concat());
            assert_eq!((quiet.code(), one_sentence(&quiet)), (3, one_sentence(&checked)));
        }
    }
}

#[test]
fn a_recording_that_ended_early_passes_no_check() {
    let folder = scratch();
    let tape = folder.path().join("x.tape");
    run(&mut record_loop(folder.path(), &["--max-size", "100K"], "0", "200000"));
    assert_eq!(info(&tape)["ended"], "max-size");
    let checked = leaks(&tape, &["--check", "--ignore-last", "100%"]);
    assert_eq!(checked.code(), 3);
    let sentence = one_sentence(&checked);
    assert!(sentence.contains("passes no check: the recording ended at its largest"), "{sentence}");
}
