//! Keyframes are held against the events: one that says anything else is found.

use crate::model::{Step, play};
use crate::reseal::reseal;
use crate::story::story;
use heaptape_tape::*;
use std::ops::Range;

/// Where the frames with keyframes lie: their three numbers and their payload.
fn keyframes(bytes: &[u8]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut found = Vec::new();
    let mut at = 16;
    while at + 24 <= bytes.len() {
        let word = |from: usize| {
            let word = bytes[from..from + 4].first_chunk().unwrap();
            u32::from_le_bytes(*word) as usize
        };
        let header = at + 24..at + 24 + word(at + 8);
        let payload = header.end..header.end + word(at + 12);
        if bytes[at] == 5 {
            let ends = header.clone().filter(|&i| bytes[i] < 0x80);
            found.push((header.start..ends.take(3).last().unwrap() + 1, payload.clone()));
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

fn is_sound(bytes: Vec<u8>) -> bool {
    let tape = Tape::from_bytes(bytes).unwrap();
    let processes = tape.summary().processes.iter();
    processes.map(|process| verify(&tape, process.number)).all(|verdict| verdict.is_ok())
}

#[test]
fn a_keyframe_that_does_not_match_its_checksum_is_found() {
    let bytes = without_index();
    let all = keyframes(&bytes);
    assert!(all.len() > 5 && is_sound(bytes.clone()), "{} keyframes", all.len());
    for (_, payload) in all {
        let Some(at) = payload.clone().next() else { continue };
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(!is_sound(damaged), "{payload:?}");
    }
}

#[test]
fn a_keyframe_that_disagrees_with_the_events_is_found() {
    let bytes = without_index();
    for (numbers, payload) in keyframes(&bytes) {
        for at in numbers.chain(payload) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            reseal(&mut damaged);
            assert!(!is_sound(damaged), "byte {at}");
        }
    }
}
