//! Children inherit without copies, whatever their parent does meanwhile.

use heaptape_tape::*;

const BLOCKS: u64 = 100_000;
const CHILDREN: u64 = 200;

fn start(parent: Option<(ProcessNumber, ForkPoint)>) -> ProcessStart {
    ProcessStart {
        pid: 1,
        parent: parent.map(|parent| parent.0),
        origin: parent.map_or(Origin::Exec, |parent| Origin::Fork { point: parent.1 }),
        time: 0,
        rank: None,
        command: Vec::new(),
    }
}

fn event(call: Call, address: u64, size: u64) -> Event {
    Event { call, thread: 0, time: 0, caller: 0, address, size, slack: 8, align: 0, old: 0 }
}

fn address(block: u64) -> u64 {
    0x5000_0000 + block * 32
}

#[test]
fn many_children_of_a_large_parent_end_what_they_inherited() {
    let mut writer =
        Writer::new(FrameWriter::new(Vec::new()).unwrap(), &Header::default()).unwrap();
    let parent = writer.start_process(&start(None)).unwrap();
    for block in 0..BLOCKS {
        writer.event(parent, &event(Call::Malloc, address(block), block % 16)).unwrap();
    }
    let total = |from: u64| (from..BLOCKS).map(|block| block % 16).sum::<u64>();
    let mut children = Vec::new();
    for n in 0..CHILDREN {
        let point = writer.fork_point(parent).unwrap();
        // The parent frees a block before the child does, and puts another there.
        writer.event(parent, &event(Call::Free, address(n), 0)).unwrap();
        writer.event(parent, &event(Call::New, address(n), 1000)).unwrap();
        let child = writer.start_process(&start(Some((parent, point)))).unwrap();
        writer.drop_fork_point(point).unwrap();
        children.push(child);
    }
    writer.end_process(parent, &ProcessEnd::default()).unwrap();
    for (n, &child) in children.iter().enumerate() {
        let n = n as u64;
        for block in n..n + 50 {
            writer.event(child, &event(Call::Free, address(block), 0)).unwrap();
        }
        // A grandchild inherits what is left, and frees the last of it.
        let point = writer.fork_point(child).unwrap();
        let grandchild = writer.start_process(&start(Some((child, point)))).unwrap();
        writer.drop_fork_point(point).unwrap();
        writer.end_process(child, &ProcessEnd::default()).unwrap();
        writer.event(grandchild, &event(Call::Free, address(n), 0)).unwrap();
        writer.event(grandchild, &event(Call::Free, address(n + 50), 0)).unwrap();
        writer.end_process(grandchild, &ProcessEnd::default()).unwrap();
    }
    let tape = Tape::from_bytes(writer.finish(None).unwrap().into_inner()).unwrap();
    let summary = tape.summary();
    assert_eq!((summary.order_faults, summary.unknown_frees), (0, CHILDREN));
    for (n, &child) in children.iter().enumerate() {
        let n = n as u64;
        let process = &summary.processes[child.0 as usize];
        assert_eq!(process.inherited_blocks, BLOCKS);
        assert_eq!(process.inherited_bytes, total(n) + 1000 * n);
        assert_eq!(process.end_requested, total(n + 50) + 1000 * n);
        assert_eq!(process.end_blocks, BLOCKS - 50);
        assert_eq!((process.peak_requested, process.peak_at), (process.inherited_bytes, 0));
        assert_eq!(process.forked_at, Some(BLOCKS + 2 * n));
    }
    let last = children[children.len() - 1];
    let live = tape.live_at(last, u64::MAX).unwrap();
    assert_eq!(live.len() as u64, BLOCKS - 50);
    assert!(live.iter().all(|block| block.process == parent));
    assert_eq!(verify(&tape, last).unwrap(), Verdict { events: 50, ..Verdict::default() });
}
