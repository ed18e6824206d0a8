//! What is written is what is read, for any stream of events; and a tape that is cut or damaged
//! is read as far as it goes.

use crate::arbitrary::step;
use crate::model::{Step, play, play_with};
use crate::reseal::reseal;
use heaptape_tape::*;
use proptest::prelude::*;

fn read(tape: &Tape, process: u32, from: u64, to: u64) -> Vec<Item> {
    let items = tape.events(ProcessNumber(process), from..to).unwrap();
    items.map(|item| item.unwrap()).collect()
}

/// An item without what depends on where the stream began.
fn without_makers(mut item: Item) -> Item {
    match &mut item {
        Item::Event(event) => {
            event.caller = None;
            event.block.iter_mut().chain(&mut event.displaced).for_each(|block| block.maker = None);
        }
        Item::Release(release) => {
            release.block.iter_mut().chain(&mut release.lost).for_each(|block| block.maker = None);
        }
        _ => {}
    }
    item
}

fn compare(steps: &[Step], keyframes: u64, has_sites: bool) {
    let (bytes, model) = play_with(steps, keyframes, has_sites);
    let tape = Tape::from_bytes(bytes).unwrap();
    let summary = tape.summary();
    assert!(summary.complete);
    assert_eq!(summary.processes.len(), model.len());
    for (is, should) in summary.processes.iter().zip(&model) {
        let number = is.number.0;
        let items = &should.items;
        assert_eq!(&read(&tape, number, 0, u64::MAX), items);
        assert_eq!(is.events, should.index);
        let sites = tape.sites(is.number).unwrap();
        assert!(sites.iter().map(|(_, site)| site).eq(should.sites.iter().cloned()));
        assert_eq!((sites.len(), sites.codes()), (should.sites.len(), &should.codes[..]));
        assert_eq!(is.sites.sites, sites.len() as u64);
        let cut = should.sites.iter().filter(|site| site.end == SiteEnd::Depth);
        assert_eq!(is.sites.cut, cut.count() as u64);
        assert_eq!(is.unknown_frees, should.unknown_frees);
        assert_eq!(is.order_faults, should.order_faults);
        assert_eq!(is.end_requested, should.requested());
        assert_eq!(is.end_blocks, should.all().len() as u64);
        assert_eq!((is.peak_requested, is.peak_at), (should.peak, should.peak_at));
        assert_eq!(is.ended.is_some(), should.ended);
        assert_eq!(verify(&tape, is.number).unwrap().events, is.events);
        let count = |call| {
            items
                .iter()
                .filter(|item| matches!(item, Item::Event(r) if r.event.call == call))
                .count()
        };
        for (call, calls) in is.calls.iter() {
            assert_eq!(calls, count(call) as u64);
        }
        for (index, live) in should.history.iter().enumerate().rev().step_by(7) {
            assert_eq!(&tape.live_at(is.number, index as u64).unwrap(), live);
            let from = index as u64 / 2;
            let some = items.iter().filter(|i| (from..index as u64).contains(&i.index()));
            let some: Vec<_> = some.cloned().map(without_makers).collect();
            let read = read(&tape, number, from, index as u64).into_iter().map(without_makers);
            assert_eq!(read.collect::<Vec<_>>(), some);
        }
    }
}

#[test]
fn the_place_in_a_parallel_job_comes_back() {
    let mut writer =
        Writer::new(FrameWriter::new(Vec::new()).unwrap(), &Header::default()).unwrap();
    let rank = Placement {
        rank: 3,
        size: Some(4),
        job: "77.1".into(),
        host: "node7".into(),
        launcher: "Open MPI".into(),
    };
    let places = [rank.clone(), Placement { rank: 0, ..Placement::default() }];
    for place in &places {
        let origin = Origin::Exec;
        let (pid, parent, command) = (7, None, Vec::new());
        let start = ProcessStart { pid, parent, origin, time: 0, rank: Some(place.rank), command };
        let process = writer.start_process(&start).unwrap();
        writer.place(process, place.clone()).unwrap();
    }
    let tape = Tape::from_bytes(writer.finish(None).unwrap().into_inner()).unwrap();
    let read: Vec<_> = tape.summary().processes.iter().map(|p| p.placement.clone()).collect();
    assert_eq!(read, places.map(Some));
    assert_eq!(tape.summary().processes[0].rank, Some(3));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_what_was_written(
        steps in prop::collection::vec(step(), 0..400),
        keyframes in prop_oneof![Just(1u64), Just(20), Just(u64::MAX)],
        has_sites: bool,
    ) {
        compare(&steps, keyframes, has_sites);
    }
}

/// All items of all processes, as far as they can be read; must not panic.
fn read_all(tape: &Tape) -> (Vec<Vec<Item>>, bool) {
    let mut whole = true;
    let processes = tape.summary().processes.iter().map(|process| {
        let items = tape.events(process.number, 0..u64::MAX).map(|events| {
            let items = events.map_while(|item| item.inspect_err(|_| whole = false).ok());
            items.collect()
        });
        items.unwrap_or_default()
    });
    (processes.collect(), whole)
}

/// Everything else that a reader may ask; must not panic.
fn ask_all(tape: &Tape) {
    let _ = verify_file(tape);
    for process in &tape.summary().processes {
        let middle = process.events / 2;
        let _ = tape.live_at(process.number, middle);
        let _ = tape.live_at(process.number, u64::MAX);
        let _ = verify(tape, process.number);
        let _ = tape.events(process.number, middle..u64::MAX).map(|events| events.count());
        let _ = tape.marks(process.number).map(|marks| marks.count());
        let _ = tape.index_at(process.number, 20);
        let _ = tape.sites(process.number).map(|sites| sites.iter().count());
    }
}

fn is_prefix(of: &[Vec<Item>], these: &[Vec<Item>]) -> bool {
    // A mark whose events were cut off stands at the end.
    let events = |items: &[Item]| {
        items.iter().filter(|i| matches!(i, Item::Event(_))).cloned().collect::<Vec<_>>()
    };
    these.len() <= of.len()
        && these.iter().zip(of).all(|(these, all)| events(all).starts_with(&events(these)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tape_cut_anywhere_is_read_up_to_its_last_whole_frame(
        steps in prop::collection::vec(step(), 20..60),
        has_sites: bool,
    ) {
        let (bytes, _) = play_with(&steps, 20, has_sites);
        let (all, whole) = read_all(&Tape::from_bytes(bytes.clone()).unwrap());
        prop_assert!(whole);
        let mut events = 0;
        for len in 0..bytes.len() {
            let cut = Tape::from_bytes(bytes[..len].to_vec());
            let Ok(cut) = cut else { prop_assert!(len == 0); continue };
            let summary = cut.summary();
            prop_assert!(!summary.complete || len + 20 >= bytes.len());
            prop_assert!(summary.events >= events);
            events = summary.events;
            let (read, whole) = read_all(&cut);
            prop_assert!(whole);
            prop_assert!(is_prefix(&all, &read));
            let count = |items: &[Item]| items.iter().filter(|i| matches!(i, Item::Event(_))).count();
            prop_assert_eq!(read.iter().map(|items| count(items) as u64).sum::<u64>(), events);
            if len % 97 == 0 {
                ask_all(&cut);
            }
        }
        prop_assert_eq!(events, all.iter().flatten().filter(|i| matches!(i, Item::Event(_))).count() as u64);
    }

    #[test]
    fn a_flipped_byte_is_noticed_and_never_panics(
        steps in prop::collection::vec(step(), 20..60),
        flip in 1u8..=255,
        has_sites: bool,
    ) {
        let (bytes, _) = play_with(&steps, 20, has_sites);
        let (all, _) = read_all(&Tape::from_bytes(bytes.clone()).unwrap());
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            let Ok(tape) = Tape::from_bytes(bytes) else { continue };
            let (read, _) = read_all(&tape);
            prop_assert!(is_prefix(&all, &read));
            if at % 7 == 0 {
                ask_all(&tape);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_behind_right_checksums_never_panics(
        steps in prop::collection::vec(step(), 20..60),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..=255), 20),
        has_sites: bool,
    ) {
        let (mut bytes, _) = play_with(&steps, 20, has_sites);
        // Without its index, the tape is read from its frames.
        let trailer = bytes.len() - 20;
        bytes.truncate(u64::from_le_bytes(*bytes[trailer..].first_chunk().unwrap()) as usize);
        for (at, flip) in flips {
            let mut damaged = bytes.clone();
            let at = at.index(bytes.len());
            damaged[at] ^= flip;
            reseal(&mut damaged);
            if let Ok(tape) = Tape::from_bytes(damaged) {
                read_all(&tape);
                ask_all(&tape);
            }
        }
    }
}

#[test]
fn what_is_no_tape_is_named_so() {
    let foreign = Tape::from_bytes(b"\x7fELF and so on, long enough to be a tape".to_vec());
    assert!(matches!(foreign, Err(Error::Foreign)));
    assert!(matches!(Tape::from_bytes(Vec::new()), Err(Error::Foreign)));
    let (mut bytes, _) = play(&[], 1);
    bytes[8] = 9;
    assert!(matches!(Tape::from_bytes(bytes), Err(Error::Damaged { offset: 0, .. })));
}

#[test]
fn a_later_version_is_named_so() {
    let mut bytes = b"HEAPTAPE\x07\0\0\0".to_vec();
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    let error = Tape::from_bytes(bytes).err().unwrap();
    assert!(matches!(error, Error::Future { found: 7, known: 2 }));
    assert!(error.to_string().contains("use a newer heaptape"));
}
