//! Words that several reports need: callers, commands, ends of processes, lines of notes.

use std::path::Path;

use heaptape_analyze::modules::{Module, Place};
use heaptape_analyze::overview::Member;
use heaptape_analyze::profile;
use heaptape_analyze::sites::Origin;
use heaptape_analyze::{Ended, Note, ProcessSummary, SiteEnd, Summary};
use heaptape_ledger::Bounds;

use crate::size::Size;

/// The longest command line in a sentence, in characters.
const COMMAND_WIDTH: usize = 60;

/// No function's name is cut to less than this, in characters.
const FUNCTION_WIDTH: usize = 16;

/// A caller as `function (module+0xoffset)`, or `module+0xoffset` where the function is not known; the
/// bare address where no module was known, `-` for none at all.
pub fn caller(place: Option<&Place>, address: u64) -> String {
    match place {
        Some(place) => match &place.function {
            // As many callers are printed as there are events: no more is built than the text itself.
            Some(function) => {
                format!("{function} ({}+{:#x})", file_name(&place.module.path), place.offset)
            }
            None => in_module(place),
        },
        None if address == 0 => "-".to_owned(),
        None => format!("{address:#x}"),
    }
}

/// A caller for a column that is `width` wide: a function's name that is too long for it is cut in its
/// middle, as its scope stands before and what tells overloads apart behind. The module never is.
pub fn short_caller(place: Option<&Place>, address: u64, width: usize) -> String {
    let whole = caller(place, address);
    let Some((place, function)) = place.and_then(|p| Some((p, p.function.as_deref()?))) else {
        return whole;
    };
    // Characters are no more than bytes, and most names are short.
    if whole.len() <= width || whole.chars().count() <= width {
        return whole;
    }
    let module = in_module(place);
    let taken = module.chars().count() + " ()".len();
    let room = width.saturating_sub(taken).max(FUNCTION_WIDTH);
    format!("{} ({module})", without_middle(&plain(function), room))
}

fn in_module(place: &Place) -> String {
    format!("{}+{:#x}", file_name(&place.module.path), place.offset)
}

/// Why a call stack has no more frames; `None` where it is whole.
pub fn stack_end(end: SiteEnd) -> Option<&'static str> {
    match end {
        SiteEnd::Outermost => None,
        SiteEnd::Depth => Some("cut here: no more frames were to be recorded (--depth)"),
        SiteEnd::Foreign => {
            Some("cut here: the next frame is of code that does not say how to go on")
        }
        SiteEnd::Unreadable => Some("cut here: the stack can't be read any further"),
    }
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|n| n.to_str()).unwrap_or(path)
}

/// Text for a terminal: what would move the cursor, start another line or turn the direction of
/// writing is written out, such as `\n` or `\u{1b}`.
pub fn plain(text: &str) -> String {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain
}

/// Text of at most `width` characters: of what is longer, the middle is left out.
pub fn without_middle(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let (kept, last) = (width.saturating_sub(1), width.saturating_sub(1) / 2);
    let start: String = text.chars().take(kept - last).collect();
    let end: String = text.chars().skip(count - last).collect();
    format!("{start}…{end}")
}

/// A command line as a shell would read it.
pub fn command(words: &[String]) -> String {
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

/// A command line within a sentence: one line, cut when it is long.
pub fn short_command(words: &[String]) -> String {
    let whole = plain(&command(words));
    if whole.chars().count() <= COMMAND_WIDTH {
        return whole;
    }
    let cut: String = whole.chars().take(COMMAND_WIDTH - 1).collect();
    format!("{cut}…")
}

/// How a process ended, in a word or two.
pub fn exit(member: &Member) -> String {
    let process = &member.process;
    match (process.code, process.signal) {
        _ if member.replaced => "exec".to_owned(),
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => code.to_string(),
        (None, None) if process.ended.is_some() => "unknown".to_owned(),
        (None, None) => "not ended".to_owned(),
    }
}

/// A call on a stack: `function (file:line)` where the line is known, else `function (module+0xoffset)`, or
/// `module+0xoffset` where no function is.
pub fn named_frame(frame: &profile::Frame) -> String {
    let label = frame.label();
    let module = || format!("{}+{:#x}", frame.module_name(), frame.offset);
    let place = match frame.source() {
        Some(source) => source,
        None if frame.function.is_empty() || frame.module.is_empty() => return label.into_owned(),
        None => module(),
    };
    let inlined = if frame.kind == profile::FrameKind::Inlined { ", inlined" } else { "" };
    format!("{label} ({place}{inlined})")
}

/// A function: with the file that it is written in, or the module where no file is known.
pub fn function(frame: &profile::Frame) -> String {
    let label = frame.label();
    let file = frame.file.as_deref().map_or(frame.module_name(), file_name);
    if frame.function.is_empty() || file.is_empty() {
        return label.into_owned();
    }
    format!("{label} ({file})")
}

/// A text in which the part before the last parenthesis is cut in its middle, so that it is at most `width` wide: what
/// stands in the parenthesis tells where it is.
pub fn short_frame(text: &str, width: usize) -> String {
    if text.len() <= width || text.chars().count() <= width {
        return text.to_owned();
    }
    let (name, place) = text.rfind(" (").map_or((text, ""), |at| text.split_at(at));
    let room = width.saturating_sub(place.chars().count()).max(FUNCTION_WIDTH);
    format!("{}{place}", without_middle(&plain(name), room))
}

/// A process by name, for the line that says which one a report is about.
pub fn process(process: &ProcessSummary) -> String {
    let rank = process.rank.map(|r| format!(", rank {r}")).unwrap_or_default();
    let command = short_command(&process.command);
    format!("process {} (#{}{rank}), {command}", pid(process), process.number)
}

/// A number in a table; a dash where it is not known.
pub(crate) fn or_dash(number: Option<u32>) -> String {
    number.map_or_else(|| "-".to_owned(), |n| n.to_string())
}

/// The process id, or a word for one that is not known.
pub fn pid(process: &ProcessSummary) -> String {
    process.known_pid().map_or_else(|| "of an unknown pid".to_owned(), |pid| pid.to_string())
}

/// Why a tape is not complete; `None` when it is.
pub fn incomplete(summary: &Summary) -> Option<String> {
    if summary.complete {
        return None;
    }
    Some(match &summary.ended {
        Some(ended) => early_end(ended),
        None if summary.cut => {
            "the file ends without its index: it is still being recorded, was cut or damaged, or the recorder was killed; what came before is here"
                .to_owned()
        }
        None if summary.lost > 0 => format!("{} events were lost", summary.lost),
        None => "the recording ended before the job did".to_owned(),
    })
}

/// Why a recording ended before its job, as a sentence without its end.
pub fn early_end(ended: &Ended) -> String {
    match ended.as_str() {
        "max-size" => "the recording ended at its largest size (--max-size)".to_owned(),
        "disk-full" => "the recording ended because the disk was full".to_owned(),
        "processes-went-on" => {
            "the recording ended with its command, and other processes went on".to_owned()
        }
        "heaptape-stood-still" => {
            "heaptape was stopped, or too busy, for more than 2 s, and the job went on without it"
                .to_owned()
        }
        "shared-memory-full" => "the recording ended because shared memory was full".to_owned(),
        "output-stalled" => "the recording ended because the tape could not be written".to_owned(),
        "no-chunks-left" => {
            "the recording ended because the job has more threads at once than heaptape can record"
                .to_owned()
        }
        other => format!("the recording ended early: {}", plain(other)),
    }
}

/// A note in one line, like a call with its arguments.
pub fn note(note: &Note) -> String {
    plain(&note_words(note))
}

fn note_words(note: &Note) -> String {
    if let Some(module) = Module::of_note(note) {
        let Module { path, start, end, bias, .. } = &module;
        let path = if path.is_empty() { "the executable" } else { path };
        let id = module.build_id_text().map_or(String::new(), |id| format!(", build id {id}"));
        return format!("module {path} at {start:#x}..{end:#x}, bias {bias:#x}{id}");
    }
    let text = String::from_utf8_lossy(&note.text);
    let mut parts: Vec<String> = note.args.iter().map(|a| format!("{a:#x}")).collect();
    if !text.is_empty() {
        parts.push(format!("{text:?}"));
    }
    format!("{} {}", note.kind.name(), parts.join(", ")).trim_end().to_owned()
}

/// A size that may not be known.
pub fn size_or_na(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "n/a".to_owned(), |b| Size(b).to_string())
}

/// A figure that is known, or the two that it lies between.
pub fn bounds(bounds: Bounds) -> String {
    match bounds.known() {
        Some(bytes) => Size(bytes).to_string(),
        None => {
            let (lower, upper) = (Size(bounds.lower).to_string(), Size(bounds.upper).to_string());
            match (lower.split_once(' '), upper.split_once(' ')) {
                _ if lower == upper => upper,
                (Some((number, unit)), Some((_, same))) if unit == same => {
                    format!("{number} to {upper}")
                }
                _ => format!("{lower} to {upper}"),
            }
        }
    }
}

/// A part of a whole in percent: `12.5 %`, `100 %`, `<0.1 %`.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "n/a".to_owned();
    }
    let tenths = (u128::from(part) * 2000 / u128::from(whole)).div_ceil(2);
    match tenths {
        0 if part > 0 => "<0.1 %".to_owned(),
        tenths if tenths % 10 == 0 => format!("{} %", tenths / 10),
        tenths => format!("{}.{} %", tenths / 10, tenths % 10),
    }
}

/// Who made blocks.
pub fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Caller { address, place } => caller(place.as_ref(), *address),
        Origin::Inherited => "(inherited by fork)".to_owned(),
    }
}

/// `1 process`, `2 processes`; the plural is given.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", crate::size::Count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_analyze::NoteKind;
    use std::sync::Arc;

    #[test]
    fn callers() {
        let module = Module {
            path: "/usr/lib/libx.so.1".into(),
            build_id: Vec::new(),
            bias: 0,
            start: 0,
            end: 0,
        };
        let mut place = Place { module: Arc::new(module), offset: 0x1a, function: None };
        assert_eq!(caller(Some(&place), 5), "libx.so.1+0x1a");
        assert_eq!(short_caller(Some(&place), 5, 3), "libx.so.1+0x1a");
        place.function = Some("parse".into());
        assert_eq!(caller(Some(&place), 5), "parse (libx.so.1+0x1a)");
        assert_eq!(short_caller(Some(&place), 5, 3), "parse (libx.so.1+0x1a)");
        place.function = Some(format!("ns::{}\x1b\n(int)", "f<char>::".repeat(9)).into());
        assert_eq!(caller(Some(&place), 5).chars().count(), 4 + 81 + 7 + 17);
        let short = short_caller(Some(&place), 5, 50);
        assert_eq!(short, "ns::f<char>::f<c…>::\\u{1b}\\n(int) (libx.so.1+0x1a)");
        assert_eq!(short.chars().count(), 50);
        assert_eq!(short_caller(Some(&place), 5, 0).chars().count(), 16 + 17);
        assert_eq!((caller(None, 0x10), caller(None, 0)), ("0x10".into(), "-".into()));
    }

    #[test]
    fn named_frames() {
        let known = profile::Frame {
            module: "/lib/libx.so".into(),
            offset: 0x1a,
            ..profile::Frame::named("f<(a)>")
        };
        assert_eq!(named_frame(&known), "f<(a)> (libx.so+0x1a)");
        assert_eq!(function(&known), "f<(a)> (libx.so)");
        let unknown = profile::Frame { function: "".into(), ..known.clone() };
        assert_eq!(
            (named_frame(&unknown), function(&unknown)),
            ("libx.so+0x1a".into(), "libx.so+0x1a".into())
        );
        let file = Some("/src/x.c".into());
        let source =
            profile::Frame { file, line: Some(7), kind: profile::FrameKind::Inlined, ..known };
        assert_eq!(named_frame(&source), "f<(a)> (x.c:7, inlined)");
        assert_eq!(function(&source), "f<(a)> (x.c)");
        assert_eq!(
            named_frame(&profile::Frame::named("(inherited by fork)")),
            "(inherited by fork)"
        );
        assert_eq!(
            short_frame("a long name of a function (x.c:7)", 25),
            "a long n…function (x.c:7)"
        );
        assert_eq!(short_frame("f (x.c:7)", 25), "f (x.c:7)");
    }

    #[test]
    fn every_early_end_is_told_in_words() {
        let mut summary = crate::sample::overview().summary;
        summary.complete = false;
        for token in [
            "max-size",
            "disk-full",
            "heaptape-stood-still",
            "shared-memory-full",
            "output-stalled",
            "no-chunks-left",
        ] {
            summary.ended = Some(Ended::from_text(token));
            let why = incomplete(&summary).unwrap_or_default();
            assert!(!why.contains(token) || token == "max-size", "{why}");
        }
        summary.ended = Some(Ended::from_text("a fault"));
        assert_eq!(incomplete(&summary).unwrap(), "the recording ended early: a fault");
    }

    #[test]
    fn commands_are_quoted_and_cut() {
        let words = ["sh", "-c", "a b"].map(String::from);
        assert_eq!(command(&words), "sh -c 'a b'");
        let long = short_command(&["x\n".repeat(80)]);
        assert_eq!(long.chars().count(), 60);
        assert!(long.ends_with('…') && !long.contains('\n'));
    }

    #[test]
    fn nothing_acts_on_the_terminal() {
        assert_eq!(plain("a b\tä…"), "a b\\tä…");
        assert_eq!(plain("\n\x1b[31m\r\u{9b}\u{202e}"), r"\n\u{1b}[31m\r\u{9b}\u{202e}");
    }

    #[test]
    fn notes() {
        let note = |kind, args: &[u64], text: &[u8]| {
            let (args, text) = (args.to_vec(), text.to_vec());
            super::note(&Note { thread: 0, time: 0, caller: 0, kind, args, text })
        };
        assert_eq!(note(NoteKind::Brk, &[0x10, 0], b""), "brk 0x10, 0x0");
        assert_eq!(note(NoteKind::Setting, &[], b"A=1"), "setting \"A=1\"");
        assert_eq!(note(NoteKind::Exit, &[], b""), "exit");
        let mut text = vec![0; 21];
        text.extend_from_slice(b"/lib/a");
        assert_eq!(
            note(NoteKind::Module, &[1, 2, 3], &text),
            "module /lib/a at 0x2..0x3, bias 0x1"
        );
        text[..2].copy_from_slice(&[0xfe, 0x0a]);
        text[20] = 2;
        let module = note(NoteKind::Module, &[1, 2, 3], &text);
        assert_eq!(module, "module /lib/a at 0x2..0x3, bias 0x1, build id fe0a");
    }
}
