//! The worked example of `docs/tape-format.md` is a tape, byte by byte.

use heaptape_tape::*;
use heaptape_wire::site::{interpreted, site_word};

const PAGE: &str = include_str!("../../../../docs/tape-format.md");

/// The bytes of all blocks of the page with this mark: hexadecimal pairs up to a `|` in each line.
fn bytes_of_the_page(mark: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut inside = false;
    for line in PAGE.lines() {
        if line.starts_with("```") {
            inside = line.strip_prefix("```") == Some(mark);
        } else if inside {
            let pairs = line.split('|').next().unwrap_or_default().split_whitespace();
            bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
        }
    }
    bytes
}

fn events() -> Vec<Event> {
    let event = Event {
        call: Call::Malloc,
        thread: 0,
        time: 1,
        caller: 0x40_1136,
        address: 0x5010,
        size: 20,
        slack: 4,
        align: 0,
        old: 0,
    };
    vec![
        event,
        Event { address: 0x5030, ..event },
        Event { call: Call::Free, address: 0x5010, size: 0, slack: 0, caller: 0x40_1150, ..event },
        Event {
            call: Call::Realloc,
            thread: 1,
            time: 3,
            address: 0x5050,
            size: 400,
            slack: 8,
            old: 0x5030,
            ..event
        },
    ]
}

fn note() -> Note {
    let (args, text) = (vec![0x1000, 0x6000], Vec::new());
    Note { thread: 1, time: 3, caller: 0x40_1160, kind: NoteKind::Sbrk, args, text }
}

/// The tape that the page describes.
fn example() -> Vec<u8> {
    let header = Header {
        started: 1_700_000_000_000_000_000,
        command: vec!["./demo".into()],
        host: "box".into(),
        page_size: 4096,
        settings: vec![("MALLOC_ARENA_MAX".into(), "1".into())],
    };
    let mut writer = Writer::new(FrameWriter::new(Vec::new()).unwrap(), &header).unwrap();
    let start = ProcessStart {
        pid: 4711,
        parent: None,
        origin: Origin::Exec,
        time: 0,
        rank: None,
        command: vec!["./demo".into()],
    };
    let process = writer.start_process(&start).unwrap();
    for (index, event) in events().iter().enumerate() {
        if index == 3 {
            writer.note(process, &note()).unwrap();
        }
        writer.event(process, event).unwrap();
    }
    let end = ProcessEnd { time: 5, code: Some(0), threads: 2, ..ProcessEnd::default() };
    writer.end_process(process, &end).unwrap();
    writer.finish(None).unwrap().into_inner()
}

#[test]
fn the_bytes_of_the_page_are_read_as_it_says() {
    let tape = Tape::from_bytes(bytes_of_the_page("tape")).unwrap();
    let summary = tape.summary();
    assert!(summary.complete);
    assert_eq!(summary.header.command, ["./demo"]);
    let process = &summary.processes[0];
    assert_eq!((process.pid, process.events, process.threads), (4711, 4, 2));
    assert_eq!((process.peak_requested, process.peak_at), (400, 3));
    assert_eq!((process.end_requested, process.end_blocks, process.code), (400, 1, Some(0)));
    let mut read = Vec::new();
    let mut notes = Vec::new();
    for item in tape.events(process.number, 0..u64::MAX).unwrap() {
        match item.unwrap() {
            Item::Event(resolved) => read.push(resolved.event),
            Item::Note { index, note } => notes.push((index, note)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read, events());
    assert_eq!(notes, [(3, note())]);
}

#[test]
fn the_bytes_of_the_page_are_those_that_are_written() {
    let (page, written) = (bytes_of_the_page("tape"), example());
    // The index is packed, and another version of the packer may choose other bytes.
    let trailer = page.len() - 20;
    let index = u64::from_le_bytes(*page[trailer..].first_chunk().unwrap()) as usize;
    assert_eq!(page[..index], written[..index]);
    let of_the_page = Tape::from_bytes(page).unwrap();
    let of_the_writer = Tape::from_bytes(written).unwrap();
    assert_eq!(of_the_page.summary().processes, of_the_writer.summary().processes);
}

/// The call stacks that the page's tape with sites describes.
fn sites() -> [Site; 2] {
    let site = |frames: &[u64], end| Site { frames: frames.into(), end };
    [
        site(&[0x40_1136, interpreted(0, 5), 0x40_11a0], SiteEnd::Outermost),
        site(&[0x40_1150, 0x40_11a0], SiteEnd::Foreign),
    ]
}

/// That tape, up to where the process goes on.
fn example_with_sites() -> Vec<u8> {
    let settings = vec![("stacks".into(), "3".into())];
    let header = Header { command: vec!["./demo".into()], settings, ..Header::default() };
    let mut writer = Writer::new(FrameWriter::new(Vec::new()).unwrap(), &header).unwrap();
    let (origin, command) = (Origin::Exec, Vec::new());
    let start = ProcessStart { pid: 4711, parent: None, origin, time: 0, rank: None, command };
    let process = writer.start_process(&start).unwrap();
    let code = Code { file: "job.py".into(), function: "step".into(), line: 3 };
    writer.code(process, 77, code).unwrap();
    let [first, second] = sites();
    let mut as_told = first.frames.clone();
    // The program has a number of its own for the code.
    as_told[1] = interpreted(77, 5);
    writer.site(process, 8, first.end, &as_told).unwrap();
    writer.site(process, 9, second.end, &second.frames).unwrap();
    for (event, id) in events().iter().zip([Some(8), Some(9), None]) {
        let caller = id.map_or(event.caller, site_word);
        writer.event(process, &Event { caller, ..*event }).unwrap();
    }
    writer.flush().unwrap();
    let length = writer.sink().bytes() as usize;
    let mut bytes = writer.finish(None).unwrap().into_inner();
    bytes.truncate(length);
    bytes
}

#[test]
fn the_sites_of_the_page_are_read_as_it_says_and_are_those_that_are_written() {
    let page = bytes_of_the_page("sites");
    assert_eq!(page, example_with_sites());
    let tape = Tape::from_bytes(page).unwrap();
    assert!(tape.summary().cut);
    let process = &tape.summary().processes[0];
    assert_eq!((process.events, process.sites.sites, process.sites.foreign), (3, 2, 1));
    let read = tape.sites(process.number).unwrap();
    assert!(read.iter().map(|(_, site)| site).eq(sites()));
    assert_eq!(read.code(0).map(|code| (code.function.as_str(), code.line)), Some(("step", 3)));
    let callers = tape.events(process.number, 0..3).unwrap().map(|item| match item.unwrap() {
        Item::Event(resolved) => (resolved.event.caller, resolved.site.map(|site| site.0)),
        other => panic!("{other:?}"),
    });
    let should = [(0x40_1136, Some(0)), (0x40_1150, Some(1)), (0x40_1150, None)];
    assert!(callers.eq(should));
    assert_eq!(verify(&tape, process.number).unwrap().faults, 0);
}

#[test]
#[ignore = "prints the examples' bytes, for the page"]
#[allow(clippy::print_stdout)]
fn print_the_examples() {
    let both = [example(), example_with_sites()].concat();
    for (at, row) in both.chunks(16).enumerate() {
        let hex: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        println!("{:04x}  {}", at * 16, hex.join(" "));
    }
}
