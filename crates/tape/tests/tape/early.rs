//! A reallocation that gave its block's address up before its own event: what a reader is told of it.

use heaptape_tape::*;

type Tested = Writer<FrameWriter<Vec<u8>>>;

fn call(writer: &mut Tested, call: Call, thread: u32, address: u64, size: u64, old: u64) -> u64 {
    let (time, caller, slack, align) = (0, 0, 8, 0);
    let event = Event { call, thread, time, caller, address, size, slack, align, old };
    writer.event(ProcessNumber(0), &event).unwrap()
}

/// What becomes of the block of event 0 of 24 bytes at 0x1000, which thread 1 gives up after event 2.
/// Thread 0 makes `between` blocks before the reallocation's event, the first of them at that place.
fn tape(between: u64, keyframes: u64, size: u64, address: u64) -> Tape {
    let sink = FrameWriter::new(Vec::new()).unwrap();
    let mut writer = Writer::new(sink, &Header::default()).unwrap().keyframe_every(keyframes);
    let (parent, rank, command) = (None, None, Vec::new());
    let start = ProcessStart { pid: 7, parent, origin: Origin::Exec, time: 0, rank, command };
    writer.start_process(&start).unwrap();
    for n in 0..3 {
        call(&mut writer, Call::Malloc, 0, 0x1000 + n * 0x100, 24, 0);
    }
    writer.release(ProcessNumber(0), 1, 0, 0x1000).unwrap();
    for n in 0..between {
        let place = if n == 0 { 0x1000 } else { 0x8000 + n * 0x100 };
        call(&mut writer, Call::Malloc, 0, place, 8, 0);
        writer.flush().unwrap();
    }
    if address == 0 && size > 0 {
        call(&mut writer, Call::Free, 0, 0x1000, 0, 0);
    }
    call(&mut writer, Call::Realloc, 1, address, size, 0x1000);
    writer.end_process(ProcessNumber(0), &ProcessEnd::default()).unwrap();
    Tape::from_bytes(writer.finish(None).unwrap().into_inner()).unwrap()
}

/// The reallocations from an index on.
fn reallocations(tape: &Tape, from: u64) -> Vec<Resolved> {
    let items = tape.events(ProcessNumber(0), from..u64::MAX).unwrap();
    let events = items.filter_map(|item| match item.unwrap() {
        Item::Event(event) if event.event.call == Call::Realloc => Some(event),
        _ => None,
    });
    events.collect()
}

#[test]
fn the_age_of_a_block_given_up_early_counts_what_came_between() {
    for keyframes in [1, 3, u64::MAX] {
        // Moved, freed, failed.
        for (size, address) in [(100, 0x2_0000), (0, 0), (100, 0)] {
            for between in [1, 2, 9] {
                let tape = tape(between, keyframes, size, address);
                for from in 0..between + 3 {
                    let found = reallocations(&tape, from);
                    let old = found[0].block.unwrap();
                    assert!(found[0].early, "{size} at {address:#x}");
                    // Two blocks are made after it before it is given up.
                    assert_eq!((old.ordinal, old.age), (0, 2 + between), "{size} at {address:#x}");
                }
            }
        }
    }
}

fn at_0x1000(tape: &Tape, process: u32, index: u64) -> Vec<(u64, bool)> {
    let live = tape.live_at(ProcessNumber(process), index).unwrap();
    let there = live.iter().filter(|block| block.address == 0x1000);
    there.map(|block| (block.ordinal, block.released)).collect()
}

#[test]
fn a_live_block_whose_address_is_given_up_says_so() {
    for keyframes in [1, 3, u64::MAX] {
        let tape = tape(4, keyframes, 100, 0x2_0000);
        assert_eq!(at_0x1000(&tape, 0, 2), [(0, false)]);
        for index in 3..7 {
            assert_eq!(at_0x1000(&tape, 0, index), [(0, true), (3, false)], "after {index}");
        }
        assert_eq!(at_0x1000(&tape, 0, 7), [(3, false)]);
    }
}

#[test]
fn an_inherited_block_whose_address_is_given_up_says_so() {
    let sink = FrameWriter::new(Vec::new()).unwrap();
    let mut writer = Writer::new(sink, &Header::default()).unwrap();
    let mut start = ProcessStart {
        pid: 7,
        parent: None,
        origin: Origin::Exec,
        time: 0,
        rank: None,
        command: Vec::new(),
    };
    let parent = writer.start_process(&start).unwrap();
    call(&mut writer, Call::Malloc, 0, 0x1000, 24, 0);
    let before = writer.fork_point(parent).unwrap();
    writer.release(parent, 1, 0, 0x1000).unwrap();
    let while_waiting = writer.fork_point(parent).unwrap();
    start.parent = Some(parent);
    for point in [before, while_waiting] {
        start.origin = Origin::Fork { point };
        writer.start_process(&start).unwrap();
    }
    writer.release(ProcessNumber(1), 0, 0, 0x1000).unwrap();
    let (slack, align, old) = (8, 0, 0);
    let (time, caller, size) = (0, 0, 8);
    for process in [1, 2] {
        let address = 0x4000;
        let call = Call::Malloc;
        let event = Event { call, thread: 1, time, caller, address, size, slack, align, old };
        writer.event(ProcessNumber(process), &event).unwrap();
    }
    let tape = Tape::from_bytes(writer.finish(None).unwrap().into_inner()).unwrap();
    assert_eq!(at_0x1000(&tape, 1, 0), [(0, true)], "the child's own reallocation");
    assert_eq!(at_0x1000(&tape, 2, 0), [(0, true)], "its parent's");
}
