//! Pictures of recorded programs, from `report --plot`: what kind of file they are, and what is on them.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::{Outcome, run};
use harness::{heaptape, one_sentence, record, scratch};
use heaptape_analyze::curves::{self, Drawing, Figure, Source, Wish};
use heaptape_analyze::timeline::Axis;
use heaptape_tape::{FrameWriter, Header, Origin, ProcessEnd, ProcessStart, Tape, Writer};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

fn recorded(folder: &Path, name: &str) -> PathBuf {
    let tape = folder.join(name);
    let outcome = run(&mut record(&tape, &[], &[program("peak").as_os_str()]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    tape
}

fn plot(tapes: &[&Path], out: &Path, options: &[&str]) -> Outcome {
    run(heaptape(["report"]).args(tapes).arg("--plot").arg(out).args(options))
}

fn picture(tapes: &[&Path], out: &Path, options: &[&str]) -> Vec<u8> {
    let outcome = plot(tapes, out, options);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    assert!(outcome.stdout.is_empty(), "a picture is all that is asked for");
    fs::read(out).expect("a picture")
}

fn svg(tapes: &[&Path], out: &Path, options: &[&str]) -> String {
    let text = String::from_utf8(picture(tapes, out, options)).expect("text");
    assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"), "{text}");
    text
}

fn drawing(tape: &Path, axis: Axis, window: Option<&str>) -> Drawing {
    let tape = Tape::open(tape).expect("a tape");
    let processes = tape.summary().processes.iter().collect();
    let window = window.map(|window| window.parse().expect("a window"));
    let sources = [Source { tape: &tape, processes }];
    curves::draw(&sources, &Wish { axis, window, columns: 500 }, &mut |_| {}).expect("curves")
}

#[test]
fn a_recorded_program_is_drawn_with_its_own_peak() {
    let folder = scratch();
    let tape = recorded(folder.path(), "x.tape");
    let text = svg(&[&tape], &folder.path().join("x.svg"), &[]);
    let summary = Tape::open(&tape).expect("a tape").summary().clone();
    let process = &summary.processes[0];
    let peak = heaptape_report::size::Size(process.peak_requested);
    let at = heaptape_report::size::Count(process.peak_at);
    assert!(text.contains(&format!("peak {peak} at call {at}")), "{text}");
    for word in [
        "requested bytes",
        "usable bytes",
        "system bytes: kernel",
        "index of the call",
        "MiB",
        "/peak",
    ] {
        assert!(text.contains(word), "{word}");
    }
    assert!(!text.contains("the whole run"));
}

#[test]
fn a_png_is_one_that_decodes() {
    let folder = scratch();
    let tape = recorded(folder.path(), "x.tape");
    let bytes = picture(&[&tape], &folder.path().join("x.PNG"), &["--log"]);
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("pixels");
    assert_eq!(info.width, 2400);
    let blue = pixels.chunks_exact(3).filter(|pixel| *pixel == [0x08, 0x45, 0x94]).count();
    assert!(blue > 1000, "{blue} pixels of the curve of requested bytes");
}

#[test]
fn curves_end_at_what_the_tape_says() {
    let folder = scratch();
    let tape = recorded(folder.path(), "x.tape");
    let summary = Tape::open(&tape).expect("a tape").summary().clone();
    let process = &summary.processes[0];
    for axis in [Axis::Index, Axis::Time] {
        let drawing = drawing(&tape, axis, None);
        let run = &drawing.runs[0];
        let requested = run.near.of(Figure::Requested).expect("a curve");
        let most = requested.columns.iter().map(|column| column.most).max();
        assert_eq!(most, Some(process.peak_requested), "{axis:?}");
        assert_eq!(run.near.summit.expect("a summit").bytes.known(), Some(process.peak_requested));
        if axis == Axis::Index {
            let last = requested.columns.last().expect("a column");
            assert_eq!(last.ended, process.end_requested);
            assert_eq!(drawing.whole, 0..process.events);
        }
    }
}

#[test]
fn a_part_shows_the_levels_that_the_whole_run_has_there() {
    let folder = scratch();
    let tape = recorded(folder.path(), "x.tape");
    let part = drawing(&tape, Axis::Index, Some("1000..1400"));
    assert_eq!(part.part, 1000..1400);
    let near = part.runs[0].near.of(Figure::Requested).expect("a curve");
    assert_eq!(near.columns.len(), 400);
    let tape = Tape::open(&tape).expect("a tape");
    let live = |index| -> u64 {
        let blocks = tape.live_at(heaptape_tape::ProcessNumber(0), index).expect("blocks");
        blocks.iter().map(|block| block.size).sum()
    };
    for column in near.columns.iter().step_by(57) {
        assert_eq!(column.ended, live(column.at), "after event {}", column.at);
        assert_eq!(column.began, live(column.at - 1), "before event {}", column.at);
    }
    assert_eq!(part.runs[0].whole.as_ref().map(|whole| whole.curves.is_empty()), Some(false));
}

#[test]
fn processes_are_added_up_over_time() {
    let folder = scratch();
    let tape = folder.path().join("job.tape");
    let script = format!("{0} & {0}; wait", program("peak").display());
    let words = ["sh", "-c", &script].map(OsStr::new);
    assert_eq!(run(&mut record(&tape, &[], &words)).code(), 0);
    let text = svg(&[&tape], &folder.path().join("job.svg"), &[]);
    for word in ["processes of job.tape, added up", "time since", "shared pages in each"] {
        assert!(text.contains(word), "{word}");
    }
    let summary = Tape::open(&tape).expect("a tape").summary().clone();
    let peaks = || summary.processes.iter().map(|process| process.peak_requested);
    let whole = drawing(&tape, Axis::Time, None);
    let summit = whole.runs[0].near.summit.expect("a summit");
    assert!(summit.bytes.lower <= summit.bytes.upper);
    assert!((peaks().max().unwrap()..=peaks().sum()).contains(&summit.bytes.upper), "{summit:?}");
    let end = whole.whole.end;
    // What comes after a part is no part of it.
    let start = drawing(&tape, Axis::Time, Some("0..1ms"));
    let requested = start.runs[0].near.of(Figure::Requested).expect("a curve");
    assert!(requested.columns.iter().all(|column| column.most < peaks().max().unwrap()));
    let last = drawing(&tape, Axis::Time, Some(&format!("{}ms..", end - 1)));
    assert_eq!(last.part, end - 1..end);
}

#[test]
fn two_tapes_and_a_range_stand_in_one_picture() {
    let folder = scratch();
    let (before, after) =
        (recorded(folder.path(), "before.tape"), recorded(folder.path(), "after.tape"));
    let out = folder.path().join("both.svg");
    let text = svg(&[&before, &after], &out, &["--range", "0..1s"]);
    for word in ["before.tape, requested", "after.tape, resident", "time since the recording began"]
    {
        assert!(text.contains(word), "{word}");
    }
    let text = svg(
        &[&before, &after],
        &out,
        &["--over", "index", "--range", "5000..9000", "--curves", "usable"],
    );
    for word in ["before.tape, usable", "index of the call", "the whole run", ">\n6,000\n"] {
        assert!(text.contains(word), "{word}");
    }
    assert!(!text.contains("resident"));
}

#[test]
fn what_cannot_be_drawn_is_one_sentence() {
    let folder = scratch();
    let tape = recorded(folder.path(), "x.tape");
    let whole = fs::read(&tape).expect("a tape");
    let link = folder.path().join("x.svg");
    fs::hard_link(&tape, &link).expect("a link");
    let nowhere = folder.path().join("no/such/x.png");
    let other = folder.path().join("y.svg");
    for (out, options, word) in [
        (&folder.path().join("x.gif"), &[][..], ".svg or .png"),
        (&folder.path().join("svg"), &[], ".svg or .png"),
        (&link, &[], "is the tape itself"),
        (&nowhere, &[], "cannot write"),
        (&other, &["--over", "index", "--range", "1s..2s"], "one of time"),
        (&other, &["--over", "index", "--range", "1.5..2"], "whole numbers"),
        (&other, &["--process", "1"], "no process 1"),
    ] {
        let outcome = plot(&[&tape], out, options);
        assert_eq!(outcome.code(), 1, "{word}");
        let sentence = one_sentence(&outcome);
        assert!(sentence.contains(word), "{word}: {sentence}");
    }
    assert!(!other.exists());
    assert_eq!(fs::read(&tape).expect("a tape"), whole);
    let printed = run(&mut heaptape([OsStr::new("report"), tape.as_os_str(), tape.as_os_str()]));
    assert!(one_sentence(&printed).contains("about one tape"));
}

/// A tape of one process with so many events, and of none with `None`.
fn written(file: &Path, command: &str, events: Option<u64>) {
    let sink = FrameWriter::new(File::create(file).expect("a file")).expect("a sink");
    let header = Header { command: vec![command.to_owned()], ..Header::default() };
    let mut tape = Writer::new(sink, &header).expect("a writer");
    if let Some(events) = events {
        let (parent, rank, origin) = (None, None, Origin::Exec);
        let command = vec![command.to_owned()];
        let start = ProcessStart { pid: 7, parent, origin, time: 0, rank, command };
        let process = tape.start_process(&start).expect("a process");
        for n in 0..events {
            let event = heaptape_tape::Event {
                call: heaptape_tape::Call::Malloc,
                thread: 0,
                time: n,
                caller: 0,
                address: 0x1000 * (n + 1),
                size: 100,
                slack: 4,
                align: 0,
                old: 0,
            };
            tape.event(process, &event).expect("an event");
        }
        tape.end_process(process, &ProcessEnd { time: events, ..ProcessEnd::default() })
            .expect("an end");
    }
    tape.finish(None).expect("a tape");
}

#[test]
fn tapes_with_nothing_or_one_event_or_hostile_names_are_drawn() {
    let folder = scratch();
    let tape = folder.path().join("a\u{1b}[31m<&>\n.tape");
    let long = format!("{}\u{1b}[2J<script>&\0\u{ffff}", "x".repeat(10_000));
    for events in [None, Some(0), Some(1), Some(2)] {
        written(&tape, &long, events);
        for (name, options) in
            [("x.svg", &[][..]), ("x.svg", &["--over", "time"]), ("x.png", &["--log"])]
        {
            let bytes = picture(&[&tape], &folder.path().join(name), options);
            let text = String::from_utf8_lossy(&bytes);
            if name.ends_with("svg") {
                assert!(!text.contains(['\u{1b}', '\0', '\u{ffff}']) && !text.contains("<script"));
                assert!(text.contains("xxx…"), "a name is cut");
            }
        }
    }
}
