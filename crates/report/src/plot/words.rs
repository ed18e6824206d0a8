//! The words of a plot. Names from tapes may be long, hostile or not text at all: they are written out and cut.

use std::path::Path;

use heaptape_analyze::curves::{Figure, Summit};
use heaptape_analyze::timeline::Axis;

use super::{Picture, Tape};
use crate::size::{Count, Millis, Size};
use crate::text;

/// The longest name of a tape, in characters.
const NAME: usize = 36;
/// The longest title.
const TITLE: usize = 72;
/// The longest line below it.
const SUBTITLE: usize = 120;

/// What was recorded; of several tapes their names.
pub(super) fn title(tapes: &[Tape<'_>]) -> String {
    match tapes {
        [tape] => {
            let command = match tape.processes.as_slice() {
                [process] => &process.command,
                _ => tape.command,
            };
            head(&safe(&text::command(command)), TITLE)
        }
        _ => head(&names(tapes).join(", "), TITLE),
    }
}

/// The processes that are drawn.
pub(super) fn subtitle(picture: &Picture<'_>) -> String {
    let tapes = picture.tapes;
    let what = match tapes {
        [tape] => processes(tape, &names(tapes).concat()),
        _ => commands(tapes),
    };
    let events: u64 = tapes.iter().flat_map(|tape| &tape.processes).map(|p| p.events).sum();
    let events = text::counted(events, "event", "events");
    let whole = &picture.drawing.whole;
    let time = match picture.drawing.axis {
        Axis::Time => format!(" in {}", Millis(whole.end.saturating_sub(whole.start))),
        Axis::Index => String::new(),
    };
    head(&format!("{what}: {events}{time}"), SUBTITLE)
}

fn processes(tape: &Tape<'_>, name: &str) -> String {
    match tape.processes.as_slice() {
        [p] => {
            let rank = p.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
            format!("process {} (#{}{rank}) of {name}", p.pid, p.number)
        }
        all => {
            let count = text::counted(all.len() as u64, "process", "processes");
            format!("{count} of {name}, added up")
        }
    }
}

/// What was recorded on several tapes.
fn commands(tapes: &[Tape<'_>]) -> String {
    let command = |tape: &Tape<'_>| safe(&text::short_command(tape.command));
    let mut commands: Vec<String> = tapes.iter().map(command).collect();
    commands.dedup();
    commands.join("; ")
}

/// Names of the tapes: of the files where those differ, else the ends of the paths.
pub(super) fn names(tapes: &[Tape<'_>]) -> Vec<String> {
    let file = |path: &str| {
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path);
        safe(name)
    };
    let files: Vec<String> = tapes.iter().map(|tape| file(&tape.file)).collect();
    let mut distinct = files.clone();
    distinct.sort();
    distinct.dedup();
    if distinct.len() == files.len() {
        return files.iter().map(|name| head(name, NAME)).collect();
    }
    tapes.iter().map(|tape| tail(&safe(&tape.file), NAME)).collect()
}

/// What a curve shows and where it comes from.
pub(super) fn entry(picture: &Picture<'_>, tape: usize, name: &str, figure: Figure) -> String {
    let curve = picture.drawing.runs.get(tape).and_then(|run| run.near.of(figure));
    let exact = matches!(figure, Figure::Requested | Figure::Usable);
    let source = match curve {
        None if exact => "nothing here".to_owned(),
        None => "no samples here".to_owned(),
        Some(_) if exact => "exact, every call".to_owned(),
        Some(curve) => {
            let count = text::counted(curve.samples.len() as u64, "sample", "samples");
            let several = picture.tapes.get(tape).is_some_and(|tape| tape.processes.len() > 1);
            let shared =
                if several && figure == Figure::Resident { ", shared pages in each" } else { "" };
            format!("kernel, {count}{shared}")
        }
    };
    let name = if picture.tapes.len() > 1 { format!("{name}, ") } else { String::new() };
    format!("{name}{} bytes: {source}", figure.name())
}

/// The label of a peak.
pub(super) fn summit(summit: &Summit, axis: Axis) -> String {
    let (lower, upper) =
        (Size(summit.bytes.lower).to_string(), Size(summit.bytes.upper).to_string());
    let bytes = if lower == upper { upper } else { format!("{lower} to {upper}") };
    match axis {
        Axis::Index => format!("peak {bytes} at call {}", Count(summit.at)),
        Axis::Time => format!("peak {bytes} at {}", Millis(summit.at)),
    }
}

/// What the axis is.
pub(super) fn axis(axis: Axis) -> &'static str {
    match axis {
        Axis::Index => "index of the call",
        Axis::Time => "time since the recording began",
    }
}

/// Text that acts on nothing and that XML allows.
fn safe(text: &str) -> String {
    text::plain(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

fn head(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width - 1).collect();
    format!("{kept}…")
}

fn tail(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(count - width + 1).collect();
    format!("…{kept}")
}
