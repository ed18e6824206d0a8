//! Names on tapes: what was put there is read back, and everything else stays as it was.

use crate::model::play_with;
use crate::reseal::reseal;
use crate::story::story_with_sites;
use heaptape_tape::*;
use std::sync::Arc;

fn tape() -> Vec<u8> {
    play_with(&story_with_sites(), 500, true).0
}

fn with_names(bytes: &[u8], names: &[ModuleNames]) -> Vec<u8> {
    let mut out = Vec::new();
    Tape::from_bytes(bytes.to_vec()).unwrap().copy_with(names, &mut out).unwrap();
    out
}

/// A module with so many places, whose names are as long as is said.
fn module(path: &str, places: u64, length: usize) -> ModuleNames {
    let file: Arc<str> = "/src/a.cpp".into();
    let place = |n: u64| NamedPlace {
        offset: n * 16 + 5,
        frames: (0..n % 4)
            .map(|depth| NamedFrame {
                function: format!("f{n}.{depth}{}", "x".repeat(length)).into(),
                file: (!n.is_multiple_of(3)).then(|| Arc::clone(&file)),
                line: (!n.is_multiple_of(5)).then_some(n as u32),
                is_inlined: depth + 1 < n % 4,
            })
            .collect(),
    };
    ModuleNames {
        path: path.to_owned(),
        build_id: vec![0, 255, 7],
        places: (0..places).map(place).collect(),
    }
}

fn items(tape: &Tape) -> Vec<Item> {
    let all = tape.summary().processes.iter();
    all.flat_map(|p| tape.events(p.number, 0..u64::MAX).unwrap().map(|item| item.unwrap()))
        .collect()
}

#[test]
fn what_was_put_there_is_read_back_and_the_rest_is_as_it_was() {
    let bytes = tape();
    let names =
        vec![module("/bin/a", 300, 0), ModuleNames { build_id: Vec::new(), ..module("/b", 3, 2) }];
    let named = with_names(&bytes, &names);
    let (old, new) =
        (Tape::from_bytes(bytes.clone()).unwrap(), Tape::from_bytes(named.clone()).unwrap());
    assert_eq!((old.names().unwrap(), new.names().unwrap()), (Vec::new(), names));
    assert!(new.summary().complete && verify_file(&new).is_ok());
    assert_eq!(items(&old), items(&new));
    // Others take their place, and none leaves the tape as it was.
    let other = vec![module("/c", 9, 9)];
    let again = Tape::from_bytes(with_names(&named, &other)).unwrap();
    assert_eq!(again.names().unwrap(), other);
    assert!(with_names(&named, &[]) == bytes, "no more names, the same bytes");
}

#[test]
fn many_names_go_into_several_frames() {
    let names = vec![module("/bin/a", 4_000, 4_000), module("/bin/b", 10, 0)];
    let tape = Tape::from_bytes(with_names(&tape(), &names)).unwrap();
    let read = tape.names().unwrap();
    assert!(read.len() > 2, "one module in several frames");
    let joined = |path: &str| {
        let places = read.iter().filter(|m| m.path == path).flat_map(|m| m.places.clone());
        places.collect::<Vec<_>>()
    };
    assert_eq!(
        (joined("/bin/a"), joined("/bin/b")),
        (names[0].places.clone(), names[1].places.clone())
    );
    assert!(verify_file(&tape).is_ok());
}

#[test]
fn a_cut_tape_is_copied_up_to_the_cut() {
    let (bytes, names) = (tape(), vec![module("/bin/a", 20, 3)]);
    for length in [16, 17, bytes.len() / 3, bytes.len() / 2, bytes.len() - 21, bytes.len() - 1] {
        let cut = Tape::from_bytes(bytes[..length].to_vec()).unwrap();
        let copy = Tape::from_bytes(with_names(&bytes[..length], &names)).unwrap();
        assert!(copy.summary().cut, "at {length}");
        assert_eq!(copy.names().unwrap(), names);
        assert_eq!(items(&copy), items(&cut));
    }
}

#[test]
fn damaged_names_are_an_error_or_names() {
    let named = with_names(&tape(), &[module("/bin/a", 40, 3)]);
    let from = tape().len() / 2;
    let mut random = 0x9e37_79b9u64;
    for _ in 0..3_000 {
        let mut bad = named.clone();
        for _ in 0..3 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = from + (random >> 33) as usize % (bad.len() - from);
            bad[at] = (random >> 20) as u8;
        }
        reseal(&mut bad);
        if let Ok(tape) = Tape::from_bytes(bad) {
            let _ = tape.names();
            let _ = tape.copy_with(&[], &mut Vec::new());
        }
    }
}
