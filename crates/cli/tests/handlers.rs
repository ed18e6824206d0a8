//! Signal handlers that call the allocator, in the middle of whatever the program and the library do: each call is on the
//! tape, once.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, program};
use harness::running::run;
use harness::tape::{FREE, Row, number, rows};
use harness::{heaptape, record, scratch, tape};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::Path;

/// What main or a handler did, as it knows itself: calls that returned, to those that began.
struct Told {
    size: u64,
    mallocs: RangeInclusive<u64>,
    frees: RangeInclusive<u64>,
    advices: RangeInclusive<u64>,
}

fn told(line: &str) -> Told {
    let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
    let &[size, begun, made, freeing, freed, advising, advised] = words.as_slice() else {
        panic!("{line}")
    };
    Told { size, mallocs: made..=begun, frees: freed..=freeing, advices: advised..=advising }
}

/// Mallocs and frees of blocks, by their size.
fn found(file: &Path) -> HashMap<u64, (u64, u64)> {
    let mut calls: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    rows(file, |row: Row| {
        assert_eq!(row.thread, 0, "{row:?}");
        if row.call == FREE {
            let size = sizes.remove(&row.old_address).unwrap_or(row.old_size);
            calls.entry(size).or_default().1 += 1;
        } else {
            let before = sizes.insert(row.address, row.size);
            assert_eq!(before, None, "an address was given once: {row:?}");
            calls.entry(row.size).or_default().0 += 1;
        }
    });
    calls
}

/// Records `torn HOW`, and compares; what main did.
fn torn(how: &str) -> Told {
    const TICKS: u64 = 6_000;
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let (torn, ticks) = (program("torn"), TICKS.to_string());
    let command = [torn.as_os_str(), OsStr::new(how), OsStr::new(&ticks)];
    let outcome = run(record(&file, &[], &command).env("LD_PRELOAD", library("bump")));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    assert_eq!(number(&info, "/processes/0/threads"), 1, "{info}");
    let text = String::from_utf8(outcome.stdout).expect("text");
    let all: Vec<Told> = text.lines().map(told).collect();
    let calls = found(&file);
    for told in &all {
        let (mallocs, frees) = calls.get(&told.size).copied().unwrap_or_default();
        let what = format!("{how}, size {}: {mallocs} mallocs, {frees} frees\n{text}", told.size);
        assert!(told.mallocs.contains(&mallocs) && told.frees.contains(&frees), "{what}");
    }
    let notes = run(heaptape(["events", "--notes", "--json"]).arg(&file)).json();
    let is_advice = |item: &&serde_json::Value| item["note"] == "madvise";
    let advices = notes["events"].as_array().expect("a list").iter().filter(is_advice).count();
    let bound = |end: fn(&Told) -> u64| all.iter().map(end).sum::<u64>();
    let (least, most) = (bound(|t| *t.advices.start()), bound(|t| *t.advices.end()));
    assert!((least..=most).contains(&(advices as u64)), "{advices} notes, {least} to {most}");
    assert!(*all[1].mallocs.start() >= TICKS, "{text}");
    all.into_iter().next().expect("main")
}

#[test]
fn a_handler_between_any_two_instructions_loses_no_event_and_repeats_none() {
    let main = torn("return");
    assert_eq!(main.mallocs.start(), main.mallocs.end());
}

#[test]
fn a_handler_that_jumps_out_of_a_record_loses_no_later_event() {
    let main = torn("jump");
    assert!(*main.mallocs.start() > 1000, "{:?}", main.mallocs);
}
