//! The passes that read a tape, on one that is written here: a process that loads a library, forks
//! a child and is replaced by another program.

use heaptape_analyze::bins::Histogram;
use heaptape_analyze::callers::Callers;
use heaptape_analyze::choice::{Moment, ProcessChoice};
use heaptape_analyze::filter::Filter;
use heaptape_analyze::overview::Overview;
use heaptape_analyze::{live, moment, processes};
use heaptape_ledger::Bounds;
use heaptape_tape::{
    Call, Columns, Event, FrameWriter, Header, Item, Note, NoteKind, Origin, ProcessEnd,
    ProcessNumber, ProcessStart, Tape, Writer,
};

const FIRST: ProcessNumber = ProcessNumber(0);
const CHILD: ProcessNumber = ProcessNumber(1);

fn event(call: Call, time: u64, caller: u64, address: u64, size: u64) -> Event {
    Event { call, thread: 0, time, caller, address, size, slack: 8, align: 0, old: 0 }
}

fn note(kind: NoteKind, args: &[u64], text: &[u8]) -> Note {
    Note { thread: 0, time: 0, caller: 0, kind, args: args.to_vec(), text: text.to_vec() }
}

fn module(start: u64, path: &str) -> Note {
    let mut text = vec![0; 21];
    text.extend_from_slice(path.as_bytes());
    note(NoteKind::Module, &[start, start, start + 0x1000], &text)
}

fn start(pid: u32, parent: Option<ProcessNumber>, origin: Origin) -> ProcessStart {
    let command = vec!["prog".into()];
    ProcessStart { pid, parent, origin, time: 0, rank: None, command }
}

/// First: two blocks, a fork, a library loaded and called, one block freed. The child frees an
/// inherited block and makes one.
fn tape() -> Tape {
    Tape::from_bytes(bytes()).unwrap()
}

fn bytes() -> Vec<u8> {
    let header = Header { settings: vec![("aslr".into(), "on".into())], ..Header::default() };
    let mut writer = Writer::new(FrameWriter::new(Vec::new()).unwrap(), &header).unwrap();
    let first = writer.start_process(&start(77, None, Origin::Exec)).unwrap();
    for note in [
        note(NoteKind::Setting, &[], b"MALLOC_ARENA_MAX=1"),
        module(0x10_0000, ""),
        note(NoteKind::ModulesEnd, &[], b""),
    ] {
        writer.note(first, &note).unwrap();
    }
    writer.event(first, &event(Call::Malloc, 10, 0x10_0010, 0x5000, 100)).unwrap();
    writer.event(first, &event(Call::Malloc, 20, 0x10_0020, 0x6000, 1000)).unwrap();
    let point = writer.fork_point(first).unwrap();
    let child = writer.start_process(&start(78, Some(first), Origin::Fork { point })).unwrap();
    writer.drop_fork_point(point).unwrap();
    // The library is called before a list shows it.
    writer.event(first, &event(Call::New, 30, 0x20_0030, 0x7000, 50)).unwrap();
    for note in [
        module(0x10_0000, ""),
        module(0x20_0000, "/lib/x.so"),
        note(NoteKind::ModulesEnd, &[], b""),
    ] {
        writer.note(first, &note).unwrap();
    }
    writer.event(first, &event(Call::Free, 40, 0x10_0040, 0x6000, 0)).unwrap();
    writer.event(child, &event(Call::Free, 50, 0x10_0050, 0x6000, 0)).unwrap();
    writer.event(child, &event(Call::Malloc, 60, 0x10_0060, 0x6000, 10)).unwrap();
    for process in [child, first] {
        let end = ProcessEnd { time: 70, code: Some(0), threads: 1, ..ProcessEnd::default() };
        writer.end_process(process, &end).unwrap();
    }
    writer.finish(None).unwrap().into_inner()
}

fn sizes(tape: &Tape, process: ProcessNumber, made: u64) -> Vec<u64> {
    live::after(tape, process, made).unwrap().iter().map(|b| b.size).collect()
}

#[test]
fn moments_are_counts_of_events() {
    let tape = tape();
    let made = |process, at: &str| {
        let process = processes::one(tape.summary(), Some(process)).unwrap();
        moment::events_made(&tape, process, at.parse::<Moment>().unwrap()).unwrap()
    };
    let first = ProcessChoice::Pid(77);
    for (at, count) in [
        ("peak", 3),
        ("end", 4),
        ("0", 1),
        ("3", 4),
        ("99", 4),
        ("9ms", 0),
        ("10ms", 1),
        ("0.035s", 3),
        ("1s", 4),
    ] {
        assert_eq!(made(first, at), count, "{at}");
    }
    // The child never had more than it inherited.
    assert_eq!(made(ProcessChoice::Pid(78), "peak"), 0);
}

#[test]
fn live_sets_before_and_after_a_fork() {
    let tape = tape();
    assert_eq!(sizes(&tape, FIRST, 0), []);
    assert_eq!(sizes(&tape, FIRST, 3), [100, 1000, 50]);
    assert_eq!(sizes(&tape, FIRST, 4), [100, 50]);
    assert_eq!(sizes(&tape, CHILD, 0), [100, 1000]);
    assert_eq!(sizes(&tape, CHILD, 2), [100, 10]);
}

#[test]
fn callers_are_found_where_the_module_was_listed_late_or_inherited() {
    let tape = tape();
    let mut callers = Callers::new(&tape);
    let mut place = |process, address, index| {
        let place = callers.modules(process).unwrap().find_call(address, index)?;
        Some((place.module.path.clone(), place.offset))
    };
    assert_eq!(place(FIRST, 0x10_0010, 0), Some(("prog".into(), 0x10)));
    assert_eq!(place(FIRST, 0x20_0030, 2), Some(("/lib/x.so".into(), 0x30)));
    assert_eq!(place(CHILD, 0x10_0060, 1), Some(("prog".into(), 0x60)));
    assert_eq!(place(FIRST, 0x30_0000, 1), None);
    let inherited = live::after(&tape, CHILD, 2).unwrap()[0];
    assert_eq!(inherited.process, FIRST);
    assert_eq!(callers.of_block(&inherited).unwrap().map(|p| p.offset), Some(0x10));
}

#[test]
fn an_overview_has_settings_and_parents() {
    let tape = tape();
    let overview = Overview::of(&tape, ProcessChoice::All, true).unwrap();
    let settings: Vec<_> = overview.settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(settings, ["MALLOC_ARENA_MAX=1", "aslr=on"]);
    let parents: Vec<_> = overview.members.iter().map(|m| m.parent_pid).collect();
    assert_eq!(parents, [None, Some(77)]);
    assert_eq!((overview.summary.events, overview.faults()), (6, Some(0)));
    assert_eq!(overview.duration(), Some(70));
    assert!(overview.bytes_per_event().is_some_and(|b| b > 1.0));
}

/// Whether everything on the tape can be read.
fn reads(tape: &Tape) -> bool {
    tape.summary().processes.iter().all(|p| {
        tape.events(p.number, 0..u64::MAX).is_ok_and(|mut items| items.all(|i| i.is_ok()))
            && tape.marks(p.number).is_ok_and(|mut marks| marks.all(|m| m.is_ok()))
    })
}

#[test]
fn what_a_check_has_passed_can_be_read() {
    let whole = bytes();
    let mut found = 0;
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        let Ok(tape) = Tape::from_bytes(damaged) else { continue };
        if !reads(&tape) {
            found += 1;
            assert!(Overview::of(&tape, ProcessChoice::All, true).is_err(), "byte {at}");
        }
    }
    assert!(found > 50, "{found} bytes of columns");
}

#[test]
fn a_file_with_a_flipped_bit_is_not_said_to_be_sound() {
    let whole = bytes();
    let is_sound = |bytes: Vec<u8>| {
        let Ok(tape) = Tape::from_bytes(bytes) else { return false };
        let checked = Overview::of(&tape, ProcessChoice::All, true);
        checked.is_ok_and(|overview| overview.summary.complete && overview.faults() == Some(0))
    };
    assert!(is_sound(whole.clone()));
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_sound(damaged), "bit {} of byte {}", bit % 8, bit / 8);
    }
}

#[test]
fn a_histogram_of_a_part_begins_with_what_lived() {
    let tape = tape();
    let mut histogram = Histogram::new();
    for size in sizes(&tape, FIRST, 2) {
        histogram.begin(size);
    }
    for item in tape.events_with(FIRST, 2..4, Columns::REPLAY).unwrap() {
        if let Item::Event(event) = item.unwrap() {
            histogram.call(&event, &Filter::default());
        }
    }
    let all = histogram.all();
    assert_eq!(
        (all.peak, all.total, all.freed, all.current, all.count),
        (Bounds::exact(1150), 50, 1000, 150, 1)
    );
}
