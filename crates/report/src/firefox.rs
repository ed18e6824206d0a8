//! Profiles for the Firefox profiler (<https://profiler.firefox.com>): allocations in its processed format.
//!
//! Each call stack is one allocation of all the bytes that it has of what was asked for, and none is given back, so that the
//! page shows the same figures as allocated and as retained memory. The format counts bytes there, so blocks are shown as
//! bytes too.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile as fx;
use fxprof_processed_profile::{CategoryColor, CategoryPairHandle, FrameFlags, FrameInfo};
use heaptape_analyze::profile::{Frame, FrameKind};

use crate::folded;
use crate::stacks::Subject;
use crate::text;

/// Writes the profile.
pub fn write(out: &mut impl Write, subject: Subject<'_>) -> io::Result<()> {
    let profile = subject.profile;
    let started = fx::ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(
        profile.started,
    ));
    let what = if subject.measure.blocks { "blocks" } else { "bytes" };
    // The main thread is shown under its process's name.
    let name = text::short_command(&profile.command);
    let name = format!("{name}: {what} {}", subject.measured());
    let interval = fx::SamplingInterval::from_millis(1);
    let mut document = fx::Profile::new(&name, started, interval);
    let begin = fx::Timestamp::from_millis_since_reference(0.0);
    let end = fx::Timestamp::from_millis_since_reference(profile.duration as f64);
    let process = document.add_process(&name, 1, begin);
    document.set_process_end_time(process, end);
    let thread = document.add_thread(process, 1, begin, true);
    document.set_thread_end_time(thread, end);
    document.set_symbolicated(true);
    let mut groups = Groups::new(&mut document);
    let frames: Vec<FrameInfo> = profile
        .frames
        .iter()
        .map(|frame| FrameInfo {
            frame: fx::Frame::Label(document.intern_string(&folded::name(frame))),
            category_pair: groups.of(frame, &mut document),
            flags: FrameFlags::empty(),
        })
        .collect();
    for (number, (stack, weight)) in (1..).zip(subject.stacks()) {
        let calls = stack.frames.iter().rev().filter_map(|frame| frames.get(frame.0 as usize));
        let stack = document.intern_stack_frames(thread, calls.cloned());
        let size = i64::try_from(weight).unwrap_or(i64::MAX);
        document.add_allocation_sample(thread, begin, stack, number * 16, size);
    }
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

/// The categories: kinds of frames, and below them modules and files.
struct Groups {
    native: fx::CategoryHandle,
    python: fx::CategoryHandle,
    known: HashMap<(bool, String), CategoryPairHandle>,
}

impl Groups {
    fn new(document: &mut fx::Profile) -> Groups {
        let native = document.add_category("Native", CategoryColor::Blue);
        let python = document.add_category("Python", CategoryColor::Yellow);
        Groups { native, python, known: HashMap::new() }
    }

    fn of(&mut self, frame: &Frame, document: &mut fx::Profile) -> CategoryPairHandle {
        let is_python = frame.kind == FrameKind::Python;
        let (category, name) = match frame.kind {
            FrameKind::Python => (self.python, frame.file.as_deref().map_or("", text::file_name)),
            FrameKind::Native | FrameKind::Inlined => (self.native, frame.module_name()),
            FrameKind::Cut | FrameKind::Unknown => return fx::CategoryHandle::OTHER.into(),
        };
        // The page has room for so many, and the format for 65,535.
        if name.is_empty() || self.known.len() >= 1000 {
            return category.into();
        }
        let add = || document.add_subcategory(category, name);
        *self.known.entry((is_python, name.to_owned())).or_insert_with(add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::sample::{SERVICE, shares, subject};
    use heaptape_analyze::profile::Profile;
    use serde_json::Value;

    fn document(text: &str) -> Value {
        let profile: Profile = text.parse().unwrap();
        let mut out = Vec::new();
        write(&mut out, subject(&profile)).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    /// The number in a row of a column.
    fn at(table: &Value, column: &str, row: u64) -> Option<u64> {
        table[column].get(row as usize).and_then(Value::as_u64)
    }

    #[test]
    fn allocations_have_the_stacks_and_the_right_shares() {
        let document = document(SERVICE);
        let thread = &document["threads"][0];
        let strings = match &document["shared"]["stringArray"] {
            Value::Null => &thread["stringArray"],
            shared => shared,
        };
        let name = |frame: u64| {
            let function = at(&thread["frameTable"], "func", frame).unwrap();
            let name = at(&thread["funcTable"], "name", function).unwrap();
            strings[name as usize].as_str().unwrap().to_owned()
        };
        let table = &thread["nativeAllocations"];
        let count = table["length"].as_u64().unwrap();
        let stacks = (0..count).map(|row| {
            let mut names = Vec::new();
            let mut stack = at(table, "stack", row);
            while let Some(place) = stack {
                names.insert(0, name(at(&thread["stackTable"], "frame", place).unwrap()));
                stack = at(&thread["stackTable"], "prefix", place);
            }
            (names, at(table, "weight", row).unwrap())
        });
        shares(stacks);
        assert_eq!(thread["name"], ": bytes live at the peak");
        assert_eq!(table["weightType"], "bytes");
    }

    #[test]
    fn nothing_and_too_much_are_written() {
        for text in ["", "a 0", "a 18446744073709551615"] {
            assert!(document(text)["threads"].is_array());
        }
    }
}
