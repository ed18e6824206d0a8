//! A tape of each format version is kept and must stay readable.
//!
//! `cargo test -p heaptape-tape --test tape -- --ignored` writes it anew, which is right only
//! while its format version has not been released.

use crate::model::{Process, play, play_with};
use crate::story::{story, story_with_sites};
use heaptape_tape::*;
use std::path::PathBuf;

/// Events between two keyframes of the golden tape.
const KEYFRAMES: u64 = 500;

fn golden(version: u32) -> PathBuf {
    let tapes = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tapes"));
    tapes.join(format!("v{version}.tape"))
}

#[test]
fn the_tape_of_version_1_tells_its_story() {
    let (bytes, model) = play(&story(), KEYFRAMES);
    tells(1, model);
    // A tape without sites is still one of version 1.
    assert_eq!(bytes[..16], std::fs::read(golden(1)).unwrap()[..16]);
}

#[test]
fn the_tape_of_version_2_tells_its_story() {
    let (_, model) = play_with(&story_with_sites(), KEYFRAMES, true);
    let tape = Tape::open(golden(2)).unwrap();
    let mut ends = std::collections::BTreeSet::new();
    for process in &model {
        let sites = tape.sites(ProcessNumber(process.number)).unwrap();
        assert!(sites.iter().map(|(_, site)| site).eq(process.sites.iter().cloned()));
        assert_eq!(sites.codes(), process.codes);
        ends.extend(process.sites.iter().map(|site| site.end));
    }
    assert_eq!(ends.len(), 4);
    tells(2, model);
}

/// The tape of this version says what the model does.
fn tells(version: u32, model: Vec<Process>) {
    let tape = Tape::open(golden(version)).unwrap();
    let summary = tape.summary();
    assert!(summary.complete);
    assert_eq!(summary.processes.len(), model.len());
    assert!(summary.order_faults > 0 && summary.unknown_frees > 0);
    for (process, should) in summary.processes.iter().zip(model) {
        let items = tape.events(process.number, 0..u64::MAX).unwrap();
        let items: Vec<_> = items.map(|item| item.unwrap()).collect();
        let all = should.items.clone();
        assert_eq!(items, all);
        assert_eq!((process.peak_requested, process.peak_at), (should.peak, should.peak_at));
        assert_eq!(tape.live_at(process.number, u64::MAX).unwrap(), should.all());
        let marks = |item: &&Item| matches!(item, Item::Note { .. } | Item::Sample(_));
        let read = tape.marks(process.number).unwrap().map(|mark| match mark.unwrap() {
            Mark::Note { index, note } => Item::Note { index, note },
            Mark::Sample(sample) => Item::Sample(sample),
        });
        assert!(read.eq(all.iter().filter(marks).cloned()));
    }
    assert!(summary.processes.iter().any(|process| process.inherited_blocks > 0));
}

#[test]
#[ignore = "writes the golden tape of version 2"]
fn write_the_golden_tape() {
    let (bytes, _) = play_with(&story_with_sites(), KEYFRAMES, true);
    std::fs::write(golden(2), bytes).unwrap();
}
