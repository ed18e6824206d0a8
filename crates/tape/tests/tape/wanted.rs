//! When the writer wants a sample: keyframes, blocks in memory that no sample has shown, forks.

use heaptape_tape::*;

type Tested = Writer<FrameWriter<Vec<u8>>>;

fn writer() -> Tested {
    Writer::new(FrameWriter::new(Vec::new()).unwrap(), &Header::default()).unwrap()
}

fn start(writer: &mut Tested, parent: Option<ProcessNumber>, origin: Origin) -> ProcessNumber {
    let start = ProcessStart { pid: 7, parent, origin, time: 0, rank: None, command: Vec::new() };
    writer.start_process(&start).unwrap()
}

fn malloc(writer: &mut Tested, process: ProcessNumber, address: u64, size: u64) {
    call(writer, process, Call::Malloc, address, size, 0);
}

fn call(
    writer: &mut Tested,
    process: ProcessNumber,
    call: Call,
    address: u64,
    size: u64,
    old: u64,
) {
    let (thread, time, caller, slack, align) = (0, 0, 0, 8, 0);
    let event = Event { call, thread, time, caller, address, size, slack, align, old };
    writer.event(process, &event).unwrap();
}

/// A sample of a process with this one piece of writable memory.
fn sample(writer: &mut Tested, process: ProcessNumber, start: u64, end: u64) {
    let vmas = vec![Vma { start, end, perms: 3, name: "[heap]".into() }];
    writer.sample(process, &Sample { vmas, ..Sample::default() }).unwrap();
}

#[test]
fn a_block_outside_of_known_memory_wants_one() {
    let mut writer = writer();
    let (a, b) = (start(&mut writer, None, Origin::Exec), start(&mut writer, None, Origin::Exec));
    assert!(!writer.wants_sample(a));
    malloc(&mut writer, a, 0x1000, 24);
    assert!(writer.wants_sample(a) && !writer.wants_sample(b));
    sample(&mut writer, a, 0x1000, 0x3000);
    assert!(!writer.wants_sample(a));
    malloc(&mut writer, a, 0x2000, 24);
    // A free, a failure and what stays inside change nothing.
    call(&mut writer, a, Call::Free, 0x9000, 0, 0);
    call(&mut writer, a, Call::Malloc, 0, 1 << 40, 0);
    call(&mut writer, a, Call::Realloc, 0x2000, 4096 - 8, 0x2000);
    assert!(!writer.wants_sample(a));
    // It grows in place, over the edge.
    call(&mut writer, a, Call::Realloc, 0x2000, 4096, 0x2000);
    assert!(writer.wants_sample(a));
    writer.end_process(a, &ProcessEnd::default()).unwrap();
    assert!(!writer.wants_sample(a) && !writer.wants_sample(ProcessNumber(9)));
}

#[test]
fn a_keyframe_wants_one() {
    let mut writer = writer().keyframe_every(100);
    let process = start(&mut writer, None, Origin::Exec);
    sample(&mut writer, process, 0x1000, 0x3000);
    for n in 0..250 {
        malloc(&mut writer, process, 0x1000 + n * 32, 24);
        writer.flush().unwrap();
        let is_after_keyframe = n == 99 || n == 199;
        assert_eq!(writer.wants_sample(process), is_after_keyframe, "after event {n}");
        if is_after_keyframe {
            sample(&mut writer, process, 0x1000, 0x3000);
        }
    }
}

#[test]
fn a_forked_child_knows_what_its_parent_knew() {
    let mut writer = writer();
    let parent = start(&mut writer, None, Origin::Exec);
    sample(&mut writer, parent, 0x1000, 0x3000);
    let point = writer.fork_point(parent).unwrap();
    malloc(&mut writer, parent, 0x5000, 24);
    let child = start(&mut writer, Some(parent), Origin::Fork { point });
    malloc(&mut writer, child, 0x1000, 24);
    assert!(writer.wants_sample(parent) && !writer.wants_sample(child));
    malloc(&mut writer, child, 0x5000, 24);
    assert!(writer.wants_sample(child));
}
