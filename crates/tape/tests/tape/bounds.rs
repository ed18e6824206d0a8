//! Tapes whose sites were made to do harm: an error or what is there, in little memory.

use crate::model::play_with;
use crate::reseal::reseal;
use crate::story::story_with_sites;
use heaptape_tape::*;
use proptest::prelude::*;
use std::sync::LazyLock;

const SITES: u8 = 10;
const CODES: u8 = 11;
const HEAD: usize = 24;

fn tape() -> Vec<u8> {
    play_with(&story_with_sites(), 500, true).0
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// The tape up to its first frame of a kind, and that with these numbers and streams: id, unpacked length, bytes that are packed.
fn forged(kind: u8, numbers: &[u64], streams: &[(u64, usize, &[u8])]) -> Vec<u8> {
    let bytes = tape();
    let mut at = 16;
    while bytes[at] != kind {
        at += HEAD + word(&bytes, at + 8) + word(&bytes, at + 12);
    }
    let mut header: Vec<u8> = numbers.iter().flat_map(|&number| varint(number)).collect();
    header.extend(varint(streams.len() as u64));
    let mut payload = Vec::new();
    for (id, length, packed) in streams {
        header.extend(varint(*id));
        header.push(1);
        header.extend([varint(*length as u64), varint(packed.len() as u64), vec![0; 4]].concat());
        payload.extend_from_slice(packed);
    }
    let mut forged = bytes[..at + HEAD].to_vec();
    forged[at + 8..at + 12].copy_from_slice(&(header.len() as u32).to_le_bytes());
    forged[at + 12..at + 20].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    forged.extend([header, payload].concat());
    reseal(&mut forged);
    forged
}

/// What reading the sites says of the process whose are wrong.
fn error(bytes: Vec<u8>) -> String {
    let tape = Tape::from_bytes(bytes).unwrap();
    let mut errors = tape.summary().processes.iter().filter_map(|p| tape.sites(p.number).err());
    errors.next().expect("an error").to_string()
}

#[test]
fn more_sites_or_code_than_are_ever_recorded_are_refused_before_they_are_read() {
    let most = 1 << 24;
    let too_many = "more call stacks, or code of scripts, than are ever recorded";
    for new in [most + 1, u64::MAX] {
        for (sites, nodes) in [(new, 1), (1, new)] {
            let told = error(forged(SITES, &[0, 0, sites, nodes, 0, 0, 0], &[]));
            assert!(told.contains(too_many), "{told}");
        }
        let told = error(forged(CODES, &[0, new], &[]));
        assert!(told.contains(too_many), "{told}");
    }
    let told = error(forged(SITES, &[0, 0, most, most, 0, 0, 0], &[]));
    assert!(told.contains("not as many as their header says"), "{told}");
}

#[test]
fn columns_that_unpack_to_more_than_the_header_says_are_not_unpacked() {
    let long = 250 << 20;
    let bomb = zstd::bulk::compress(&vec![0; long], 1).unwrap();
    assert!(bomb.len() < 100_000);
    for column in [21, 22, 23, 24, 25, 26] {
        let told = error(forged(SITES, &[0, 0, 1, 1, 0, 0, 0], &[(column * 4, long, &bomb)]));
        assert!(told.contains("not as many as their header says"), "{told}");
    }
    let told = error(forged(CODES, &[0, 1], &[(108, long, &bomb)]));
    assert!(told.contains("than are ever recorded"), "{told}");
}

#[test]
fn stacks_that_are_deeper_than_any_recorded_are_refused() {
    let deep = 129u64;
    let pack = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    let nodes = vec![0; deep as usize];
    let (one, added, many) = (pack(&[0]), pack(&[deep as u8]), pack(&nodes));
    let read = |added: &[u8], many: &[u8], count: u64| {
        let streams = [
            (84, 1, &one[..]),
            (88, 1, added),
            (92, count as usize, many),
            (96, count as usize, many),
            (100, count as usize, many),
            (104, 1, &one[..]),
        ];
        let bytes = forged(SITES, &[0, 0, 1, count, 0, 0, 0], &streams);
        let tape = Tape::from_bytes(bytes).unwrap();
        let with = tape.summary().processes.iter().rfind(|p| p.sites.sites == 1).unwrap().number;
        tape.sites(with).map(|sites| sites.len()).map_err(|error| error.to_string())
    };
    let told = read(&added, &many, deep).unwrap_err();
    assert!(told.contains("not as many as their header says"), "{told}");
    assert_eq!(read(&pack(&[128]), &pack(&nodes[1..]), 128), Ok(1));
}

/// Each stream and each list of live blocks needs them; read anew, they would take as much memory each.
#[test]
fn sites_that_are_held_are_not_read_anew() {
    let tape = Tape::from_bytes(tape()).unwrap();
    let process = tape.summary().processes.iter().find(|p| p.sites.codes > 0).unwrap().number;
    let (one, other) = (tape.sites(process).unwrap(), tape.sites(process).unwrap());
    assert!(std::ptr::eq(one.codes(), other.codes()));
    assert!(one.iter().eq(other.iter()) && !one.is_empty());
    let codes = one.codes().to_vec();
    drop((one, other));
    assert_eq!(tape.sites(process).unwrap().codes(), codes);
}

static TAPE: LazyLock<Vec<u8>> = LazyLock::new(tape);

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Of frames of sites and codes any bytes may be wrong, under checksums that are right.
    #[test]
    fn any_bytes_of_sites_may_be_wrong(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        which in any::<prop::sample::Index>(),
    ) {
        let mut bytes = TAPE.clone();
        let (mut at, mut frames) = (16, Vec::new());
        while at + HEAD < bytes.len() - 20 {
            let end = at + HEAD + word(&bytes, at + 8) + word(&bytes, at + 12);
            if [SITES, CODES].contains(&bytes[at]) {
                frames.push(at + HEAD..end);
            }
            at = end;
        }
        // Without the index, which has the headers too.
        bytes.truncate(bytes.len() - 20);
        let frame = which.get(&frames).clone();
        for (place, byte) in changes {
            bytes[frame.start + place.index(frame.len())] = byte;
        }
        reseal(&mut bytes);
        if let Ok(tape) = Tape::from_bytes(bytes) {
            for process in &tape.summary().processes {
                if let Ok(sites) = tape.sites(process.number) {
                    prop_assert!(sites.iter().all(|(_, site)| site.frames.len() <= 128));
                    prop_assert_eq!(sites.len() as u64, process.sites.sites);
                }
                let _ = tape.events(process.number, 0..u64::MAX).map(|events| events.count());
            }
        }
    }
}
