//! Notes and samples of a process, several to a frame, with their places between the events.

use crate::column::{Column, Packer};
use crate::event::{Note, Sample, Vma};
use crate::field::{FieldReader, FieldWriter, Truncated};
use heaptape_wire::note::NoteKind;
use std::io;

/// Bytes of notes after which the writer sends them on.
pub(crate) const NOTES_FULL: usize = 256 << 10;

/// Notes and samples as the writer gathers them.
#[derive(Debug, Default)]
pub(crate) struct RawNotes {
    pub(crate) fields: FieldWriter,
    notes: u64,
    samples: u64,
    /// Events, and events and early releases, before the first and the last of them.
    first: (u64, u64),
    last: (u64, u64),
}

/// Where a note stands: events before it, and events and early releases before it.
pub(crate) type Place = (u64, u64);

const TAG_NOTE: u64 = 0;
const TAG_SAMPLE: u64 = 1;

impl RawNotes {
    pub(crate) fn is_empty(&self) -> bool {
        self.notes + self.samples == 0
    }

    fn place(&mut self, at: Place) {
        if self.is_empty() {
            (self.first, self.last) = (at, at);
        }
        self.fields.number(at.0.wrapping_sub(self.last.0));
        self.fields.number(at.1.wrapping_sub(self.last.1));
        self.last = at;
    }

    pub(crate) fn note(&mut self, at: Place, note: &Note) {
        self.place(at);
        self.notes += 1;
        self.fields.numbers(&[TAG_NOTE, note.kind as u64, u64::from(note.thread), note.time]);
        self.fields.numbers(&[note.caller, note.args.len() as u64]).numbers(&note.args);
        self.fields.text(&note.text);
    }

    pub(crate) fn sample(&mut self, at: Place, sample: &Sample) {
        self.place(at);
        self.samples += 1;
        self.fields.numbers(&[TAG_SAMPLE, sample.time]);
        for value in [
            sample.system,
            sample.resident,
            sample.pss,
            sample.pss_anon,
            sample.pss_file,
            sample.pss_shmem,
            sample.swap,
        ] {
            self.fields.option(value);
        }
        self.fields.number(sample.vmas.len() as u64);
        let mut before = 0u64;
        for vma in &sample.vmas {
            self.fields.number(vma.start.wrapping_sub(before));
            self.fields.number(vma.end.wrapping_sub(vma.start)).number(u64::from(vma.perms));
            self.fields.text(vma.name.as_bytes());
            before = vma.end;
        }
    }

    pub(crate) fn pack(&self, packer: &mut Packer, header: &mut FieldWriter) -> io::Result<()> {
        header.numbers(&[self.notes, self.samples, self.first.0, self.first.1]);
        header.numbers(&[self.last.0, self.last.1]);
        packer.bytes(Column::Notes, &self.fields.bytes)
    }
}

/// The header of a frame of notes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotesHeader {
    pub(crate) first: Place,
    pub(crate) last: Place,
}

impl NotesHeader {
    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<NotesHeader, Truncated> {
        let (_notes, _samples) = (fields.number()?, fields.number()?);
        Ok(NotesHeader {
            first: (fields.number()?, fields.number()?),
            last: (fields.number()?, fields.number()?),
        })
    }
}

/// A note or a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    Note(Note),
    Sample(Sample),
}

/// Reads the payload of a frame of notes.
pub(crate) fn read_notes(
    header: &NotesHeader,
    bytes: &[u8],
) -> Result<Vec<(Place, Marked)>, Truncated> {
    let mut fields = FieldReader::new(bytes);
    let mut all = Vec::new();
    let mut at = header.first;
    while !fields.is_empty() {
        at.0 = at.0.wrapping_add(fields.number()?);
        at.1 = at.1.wrapping_add(fields.number()?);
        let marked = match fields.number()? {
            TAG_NOTE => read_note(&mut fields)?.map(Marked::Note),
            TAG_SAMPLE => Some(Marked::Sample(read_sample(at.0, &mut fields)?)),
            _ => return Err(Truncated),
        };
        all.extend(marked.map(|marked| (at, marked)));
    }
    Ok(all)
}

/// `None` for a kind that is not known: a later heaptape wrote it.
fn read_note(fields: &mut FieldReader<'_>) -> Result<Option<Note>, Truncated> {
    let code = fields.number()?;
    let kind = u8::try_from(code).ok().and_then(NoteKind::from_code);
    let (thread, time, caller) = (fields.narrow()?, fields.number()?, fields.number()?);
    let mut args = Vec::new();
    for _ in 0..fields.number()? {
        args.push(fields.number()?);
    }
    let text = fields.text()?.to_vec();
    Ok(kind.map(|kind| Note { thread, time, caller, kind, args, text }))
}

fn read_sample(index: u64, fields: &mut FieldReader<'_>) -> Result<Sample, Truncated> {
    let mut sample = Sample { index, time: fields.number()?, ..Sample::default() };
    for value in [
        &mut sample.system,
        &mut sample.resident,
        &mut sample.pss,
        &mut sample.pss_anon,
        &mut sample.pss_file,
        &mut sample.pss_shmem,
        &mut sample.swap,
    ] {
        *value = fields.option()?;
    }
    let mut before = 0u64;
    for _ in 0..fields.number()? {
        let start = before.wrapping_add(fields.number()?);
        let end = start.wrapping_add(fields.number()?);
        let perms = fields.number()? as u8;
        sample.vmas.push(Vma { start, end, perms, name: fields.string()? });
        before = end;
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_a_later_kind_is_passed_over() {
        let mut raw = RawNotes::default();
        let kind = NoteKind::Sbrk;
        let note = Note { thread: 1, time: 2, caller: 3, kind, args: vec![4], text: vec![5] };
        raw.note((6, 7), &note);
        raw.note((8, 9), &note);
        let mut bytes = raw.fields.bytes;
        // The first note's kind follows its place and its tag.
        bytes[3] = 99;
        let header = NotesHeader { first: (6, 7), last: (8, 9) };
        assert_eq!(read_notes(&header, &bytes), Ok(vec![((8, 9), Marked::Note(note))]));
    }
}
