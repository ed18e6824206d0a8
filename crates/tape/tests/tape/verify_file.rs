//! Every byte of a file is held against what was written.

use crate::model::{Step, play};
use crate::story::story;
use heaptape_tape::*;

fn small() -> Vec<u8> {
    let often = |(n, step)| [step].into_iter().chain((n % 8 == 0).then_some(Step::Flush));
    let steps: Vec<_> = story().into_iter().take(40).enumerate().flat_map(often).collect();
    play(&steps, 10).0
}

/// Where the index begins, as the trailer says.
fn index_of(bytes: &[u8]) -> usize {
    let trailer = bytes.len() - 20;
    u64::from_le_bytes(*bytes[trailer..].first_chunk().unwrap()) as usize
}

/// `None` if the file is no tape; else whether it says that it is complete, and what the check says.
fn check(bytes: Vec<u8>) -> Option<(bool, Result<(), Error>)> {
    let tape = Tape::from_bytes(bytes).ok()?;
    Some((tape.summary().complete, verify_file(&tape)))
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let bytes = small();
    assert!(check(bytes.clone()).is_some_and(|(complete, checked)| complete && checked.is_ok()));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Some((_, checked)) = check(damaged) {
            assert!(checked.is_err(), "bit {} of byte {}", bit % 8, bit / 8);
        }
    }
}

#[test]
fn bytes_behind_the_end_are_found() {
    let bytes = small();
    for more in [&b"\0"[..], &bytes[..7], &bytes, &bytes[bytes.len() - 20..]] {
        let (complete, checked) = check([&bytes, more].concat()).unwrap();
        assert!(!complete, "{} bytes more", more.len());
        assert!(matches!(checked, Err(Error::Damaged { .. })), "{} bytes more", more.len());
    }
}

#[test]
fn bytes_between_the_frames_are_found() {
    let bytes = small();
    let index = index_of(&bytes);
    for at in [16, index] {
        for between in [&b"\0"[..], &[0; 24], &bytes[16..index]] {
            let damaged = [&bytes[..at], between, &bytes[at..]].concat();
            let (complete, checked) = check(damaged).unwrap();
            assert!(!complete && checked.is_err(), "{} bytes at {at}", between.len());
        }
    }
}

#[test]
fn a_frame_that_was_taken_out_is_found() {
    let bytes = small();
    let index = index_of(&bytes);
    let lengths = |at: usize| {
        let number =
            |from: usize| u32::from_le_bytes(*bytes[at + from..].first_chunk().unwrap()) as usize;
        24 + number(8) + number(12)
    };
    let (mut at, mut frames) = (16, 0);
    while at < index {
        let end = at + lengths(at);
        let (complete, checked) = check([&bytes[..at], &bytes[end..]].concat()).unwrap();
        assert!(!complete && checked.is_err(), "frame at {at}");
        (at, frames) = (end, frames + 1);
    }
    assert!(frames > 5, "{frames} frames");
}

#[test]
fn a_tape_that_was_cut_is_sound_up_to_there() {
    let bytes = small();
    for len in 1..bytes.len() {
        let (complete, checked) = check(bytes[..len].to_vec()).unwrap();
        assert!(!complete && checked.is_ok(), "{len} bytes: {checked:?}");
    }
}
