//! A tape of each format version is kept and must stay readable.
//!
//! `cargo test -p heaptape-tape --test tape -- --ignored` writes it anew, which is right only
//! while its format version has not been released.

use crate::model::play;
use crate::story::story;
use heaptape_tape::*;
use std::path::PathBuf;

/// Events between two keyframes of the golden tape.
const KEYFRAMES: u64 = 500;

fn golden() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tapes/v1.tape"))
}

#[test]
fn the_tape_of_version_1_tells_its_story() {
    let (_, model) = play(&story(), KEYFRAMES);
    let tape = Tape::open(golden()).unwrap();
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
#[ignore = "writes the golden tape"]
fn write_the_golden_tape() {
    let (bytes, _) = play(&story(), KEYFRAMES);
    std::fs::write(golden(), bytes).unwrap();
}
