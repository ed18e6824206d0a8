//! Keyframes and counts are held against the events: one that says anything else is found.

use crate::model::{Step, play};
use crate::reseal::reseal;
use crate::story::story;
use heaptape_tape::*;
use std::ops::Range;

const BLOCK: u8 = 3;
const KEYFRAME: u8 = 5;

/// Where the frames of a kind lie: the first `count` numbers of their headers, and their payload.
fn frames(bytes: &[u8], kind: u8, count: usize) -> Vec<(Vec<Range<usize>>, Range<usize>)> {
    let mut found = Vec::new();
    let mut at = 16;
    while at + 24 <= bytes.len() {
        let word = |from: usize| {
            let word = bytes[from..from + 4].first_chunk().unwrap();
            u32::from_le_bytes(*word) as usize
        };
        let header = at + 24..at + 24 + word(at + 8);
        let payload = header.end..header.end + word(at + 12);
        if bytes[at] == kind {
            let mut start = header.start;
            let ends = header.clone().filter(|&i| bytes[i] < 0x80).take(count);
            let numbers = ends.map(|end| std::mem::replace(&mut start, end + 1)..end + 1);
            found.push((numbers.collect(), payload.clone()));
        }
        at = payload.end;
    }
    found
}

/// A tape that is read from its frames, as it has no index. Its keyframes are so small that none of
/// their columns is packed: a changed byte is another number.
fn without_index() -> Vec<u8> {
    let often = |(n, step)| [step].into_iter().chain((n % 12 == 0).then_some(Step::Flush));
    let steps: Vec<_> = story().into_iter().take(700).enumerate().flat_map(often).collect();
    let (mut bytes, _) = play(&steps, 1);
    let trailer = bytes.len() - 20;
    bytes.truncate(u64::from_le_bytes(*bytes[trailer..].first_chunk().unwrap()) as usize);
    bytes
}

/// Whether all events of a tape are read, and nothing is wrong with them. A frame that does not follow
/// the one before is taken for the end of a tape that was cut.
fn is_sound(bytes: Vec<u8>, events: u64) -> bool {
    let Ok(tape) = Tape::from_bytes(bytes) else { return false };
    let processes = tape.summary().processes.iter();
    let mut verdicts = processes.map(|process| verify(&tape, process.number));
    verdicts.all(|verdict| verdict.is_ok()) && tape.summary().events == events
}

#[test]
fn a_keyframe_that_does_not_match_its_checksum_is_found() {
    let bytes = without_index();
    let events = Tape::from_bytes(bytes.clone()).unwrap().summary().events;
    let all = frames(&bytes, KEYFRAME, 3);
    assert!(all.len() > 5 && is_sound(bytes.clone(), events), "{} keyframes", all.len());
    for (_, payload) in all {
        let Some(at) = payload.clone().next() else { continue };
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(!is_sound(damaged, events), "{payload:?}");
    }
}

#[test]
fn a_keyframe_that_disagrees_with_the_events_is_found() {
    let bytes = without_index();
    let events = Tape::from_bytes(bytes.clone()).unwrap().summary().events;
    for (numbers, payload) in frames(&bytes, KEYFRAME, 3) {
        for at in numbers.into_iter().flatten().chain(payload) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            reseal(&mut damaged);
            assert!(!is_sound(damaged, events), "byte {at}");
        }
    }
}

#[test]
fn counts_that_are_not_those_of_the_events_are_found() {
    let bytes = without_index();
    let events = Tape::from_bytes(bytes.clone()).unwrap().summary().events;
    let blocks = frames(&bytes, BLOCK, 27);
    assert!(blocks.len() > 5, "{} blocks", blocks.len());
    for (numbers, _) in blocks {
        assert_eq!(numbers.len(), 27);
        // Behind the times: events, items, allocations, calls, requested, blocks, peak, threads, faults.
        for number in &numbers[5..] {
            let mut damaged = bytes.clone();
            damaged[number.start] ^= 1;
            reseal(&mut damaged);
            let place = numbers.iter().position(|n| n == number);
            assert!(!is_sound(damaged, events), "number {place:?} at byte {}", number.start);
        }
    }
}
