//! Folded stacks: a line for each call stack, its calls from the outermost between semicolons, then a blank and the figure.
//!
//! That is what the flame graph tools read. Functions go by their names, those of Python with the line; a name can neither
//! end its line nor its frame.

use std::collections::BTreeMap;
use std::io::{self, Write};

use heaptape_analyze::profile::{Frame, FrameKind};

use crate::stacks::Subject;
use crate::text;

/// Writes the stacks in alphabetic order, each once.
pub fn write(out: &mut impl Write, subject: Subject<'_>) -> io::Result<()> {
    let names: Vec<String> = subject.profile.frames.iter().map(name).collect();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, weight) in subject.stacks() {
        let frames = stack.frames.iter().rev();
        let frames = frames.filter_map(|frame| names.get(frame.0 as usize).map(String::as_str));
        let line = frames.collect::<Vec<_>>().join(";");
        let sum = lines.entry(line).or_default();
        *sum = sum.saturating_add(weight);
    }
    for (stack, weight) in lines {
        writeln!(out, "{stack} {weight}")?;
    }
    Ok(())
}

/// A call by a name that is one frame of one line.
pub(crate) fn name(frame: &Frame) -> String {
    let source = frame.source().filter(|_| frame.kind == FrameKind::Python);
    let label = frame.label();
    let name = match source {
        Some(source) => format!("{label} ({source})"),
        None => label.into_owned(),
    };
    let name = text::plain(&name).replace(';', ":");
    match name.trim() {
        "" => "?".to_owned(),
        // A line that begins so is a comment to some readers.
        name if name.starts_with('#') => format!("_{name}"),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::sample::{SERVICE, subject};
    use heaptape_analyze::profile::Profile;

    fn folded(text: &str) -> String {
        let profile: Profile = text.parse().unwrap();
        let mut out = Vec::new();
        write(&mut out, subject(&profile)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_a_stack() {
        assert_eq!(
            folded(SERVICE),
            "main;malloc_wrapper 104857600\n\
             main;test1;malloc_wrapper 104857600\n\
             main;test2;malloc_wrapper 209715200\n"
        );
        assert_eq!(folded("main;run (job.py:7);f [inlined] 5"), "main;run (job.py:7);f 5\n");
        assert_eq!(folded("nothing 0"), "");
    }

    #[test]
    fn a_name_is_one_frame_of_one_line() {
        for (given, safe) in [
            ("f<[u8; 8]>", "f<[u8: 8]>"),
            ("a\nb 7", "a\\nb 7"),
            (" \t ", "\\t"),
            ("", "0x0"),
            (" ", "?"),
            ("# note", "_# note"),
        ] {
            assert_eq!(name(&Frame::named(given)), safe, "{given:?}");
        }
    }
}
