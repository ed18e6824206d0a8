//! `heaptape.events/1`: the calls of a process.

use std::io::{self, Write};

use heaptape_analyze::Effect;
use heaptape_analyze::calls::Row;
use heaptape_analyze::modules::Module;
use heaptape_analyze::stack::Named;
use heaptape_analyze::{Note, ProcessSummary, Release, Sample, SiteEnd};
use serde::Serialize;

use super::parts::ProcessName;
use super::stacks::FramePart;
use crate::text;

#[derive(Serialize)]
struct EventPart<'a> {
    index: u64,
    time_ms: u64,
    thread: u32,
    call: &'static str,
    address: u64,
    size: u64,
    slack: u64,
    align: u64,
    old_address: Option<u64>,
    old_size: Option<u64>,
    birth: Option<u64>,
    age: Option<u64>,
    moved: Option<bool>,
    early: Option<bool>,
    effect: &'static str,
    caller: Option<String>,
    module: Option<&'a str>,
    offset: Option<u64>,
    function: Option<&'a str>,
    site: Option<u32>,
    stack: Option<StackPart<'a>>,
}

#[derive(Serialize)]
struct StackPart<'a> {
    frames: Vec<FramePart<'a>>,
    end: &'static str,
}

impl<'a> StackPart<'a> {
    fn of(stack: &'a Named) -> StackPart<'a> {
        let end = match stack.end {
            SiteEnd::Outermost => "outermost",
            SiteEnd::Depth => "depth",
            SiteEnd::Foreign => "foreign",
            SiteEnd::Unreadable => "unreadable",
        };
        StackPart { frames: stack.frames.iter().map(FramePart::of).collect(), end }
    }
}

#[derive(Serialize)]
struct NotePart<'a> {
    note: &'static str,
    before: u64,
    time_ms: u64,
    thread: u32,
    args: &'a [u64],
    text: String,
    build_id: Option<String>,
}

#[derive(Serialize)]
struct ReleasePart {
    release: u64,
    before: u64,
    time_ms: u64,
    thread: u32,
}

#[derive(Serialize)]
struct SamplePart {
    sample: &'static str,
    before: u64,
    time_ms: u64,
    system: Option<u64>,
    resident: Option<u64>,
    pss: Option<u64>,
    pss_anon: Option<u64>,
    pss_file: Option<u64>,
    pss_shmem: Option<u64>,
    swap: Option<u64>,
    mappings: usize,
}

/// Writes calls as one document with each call on a line of its own, so that a
/// long listing need not be held in memory.
pub struct Events<W: Write> {
    out: W,
    empty: bool,
}

impl<W: Write> Events<W> {
    /// Begins the document.
    pub fn new(mut out: W, complete: bool, process: &ProcessSummary) -> io::Result<Events<W>> {
        write!(out, "{{\"schema\":\"heaptape.events/1\",\"complete\":{complete},\"process\":")?;
        serde_json::to_writer(&mut out, &ProcessName::of(process))?;
        write!(out, ",\"events\":[")?;
        Ok(Events { out, empty: true })
    }

    /// Writes a call, with its stack if that is wanted.
    pub fn row(&mut self, row: &Row, stack: Option<&Named>) -> io::Result<()> {
        let caller = (row.caller != 0).then(|| text::caller(row.place.as_ref(), row.caller));
        self.line(&EventPart {
            index: row.index,
            time_ms: row.time,
            thread: row.thread,
            call: row.call.name(),
            address: row.address,
            size: row.size,
            slack: row.slack,
            align: row.align,
            old_address: row.old_address,
            old_size: row.old_size,
            birth: row.birth,
            age: row.age,
            moved: row.moved(),
            early: row.old_address.map(|_| row.early),
            effect: effect(row.effect),
            caller,
            module: row.place.as_ref().map(|p| p.module.path.as_str()),
            offset: row.place.as_ref().map(|p| p.offset),
            function: row.place.as_ref().and_then(|p| p.function.as_deref()),
            site: row.site.map(|site| site.0),
            stack: stack.map(StackPart::of),
        })
    }

    /// Writes a note that stands before the call with this index.
    ///
    /// A module's text is its path (empty for the executable), its build id a field of its own.
    pub fn note(&mut self, before: u64, note: &Note) -> io::Result<()> {
        let module = Module::of_note(note);
        let build_id = module.as_ref().and_then(Module::build_id_text);
        let text = module.map(|module| module.path);
        self.line(&NotePart {
            note: note.kind.name(),
            before,
            time_ms: note.time,
            thread: note.thread,
            args: &note.args,
            text: text.unwrap_or_else(|| String::from_utf8_lossy(&note.text).into_owned()),
            build_id,
        })
    }

    /// Writes that a realloc, whose call comes later, has given its old address up.
    pub fn release(&mut self, release: &Release) -> io::Result<()> {
        self.line(&ReleasePart {
            release: release.address,
            before: release.index,
            time_ms: release.time,
            thread: release.thread,
        })
    }

    /// Writes a sample.
    pub fn sample(&mut self, s: &Sample) -> io::Result<()> {
        self.line(&SamplePart {
            sample: "kernel",
            before: s.index,
            time_ms: s.time,
            system: s.system,
            resident: s.resident,
            pss: s.pss,
            pss_anon: s.pss_anon,
            pss_file: s.pss_file,
            pss_shmem: s.pss_shmem,
            swap: s.swap,
            mappings: s.vmas.len(),
        })
    }

    /// Ends the document.
    pub fn finish(mut self) -> io::Result<()> {
        writeln!(self.out, "\n]}}")
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if self.empty { b"\n" } else { b",\n" })?;
        self.empty = false;
        serde_json::to_writer(&mut self.out, value)?;
        Ok(())
    }
}

const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Made => "made",
        Effect::Freed => "freed",
        Effect::InPlace => "in place",
        Effect::Moved => "moved",
        Effect::Failed => "failed",
        Effect::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::process;
    use serde_json::Value;

    #[test]
    fn events_are_one_document_with_a_line_each() {
        let row = Row {
            index: 3,
            time: 1,
            thread: 0,
            call: heaptape_analyze::Call::Free,
            address: 4096,
            size: 0,
            slack: 0,
            align: 0,
            old_address: None,
            old_size: Some(24),
            birth: Some(1),
            age: Some(2),
            early: false,
            effect: Effect::Freed,
            caller: 0,
            site: None,
            place: None,
        };
        for rows in 0..3 {
            let mut out = Vec::new();
            let mut events = Events::new(&mut out, true, &process()).unwrap();
            for _ in 0..rows {
                events.row(&row, None).unwrap();
            }
            events.finish().unwrap();
            let value: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(value["schema"], "heaptape.events/1");
            assert_eq!(value["events"].as_array().map(Vec::len), Some(rows));
            assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), rows + 2);
        }
    }
}
