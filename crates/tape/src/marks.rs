//! The notes and samples of a process by themselves, without its events.

use crate::column::{Column, Unpacker};
use crate::event::{Note, Sample};
use crate::index::{Located, ProcessContents};
use crate::notes::{Marked, NotesHeader, Place, read_notes};
use crate::{Error, Tape};
use std::collections::VecDeque;

/// A note or a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A note; it stands before the event `index`.
    Note {
        /// The index of the event that comes next.
        index: u64,
        /// The note.
        note: Note,
    },
    /// A sample.
    Sample(Sample),
}

/// A stream over the notes and samples of one process, in order. No event is read.
pub struct Marks<'a> {
    tape: &'a Tape,
    contents: &'a ProcessContents,
    next: usize,
    ready: VecDeque<(Place, Marked)>,
}

impl<'a> Marks<'a> {
    pub(crate) fn new(tape: &'a Tape, contents: &'a ProcessContents) -> Marks<'a> {
        Marks { tape, contents, next: 0, ready: VecDeque::new() }
    }
}

/// Unpacks one frame of notes.
pub(crate) fn unpack_notes(
    tape: &Tape,
    located: &Located<NotesHeader>,
) -> Result<Vec<(Place, Marked)>, Error> {
    let from = Unpacker { source: tape.payload(located), streams: &located.streams };
    let bytes = from.bytes(Column::Notes).map_err(|why| why.at(located.frame))?;
    let what = "its notes make no sense";
    let damaged = |_| Error::Damaged { offset: located.frame, what };
    read_notes(&located.header, &bytes).map_err(damaged)
}

impl Iterator for Marks<'_> {
    type Item = Result<Mark, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() {
            let located = self.contents.notes.get(self.next)?;
            self.next += 1;
            match unpack_notes(self.tape, located) {
                Ok(notes) => self.ready = notes.into(),
                Err(error) => {
                    self.next = usize::MAX;
                    return Some(Err(error));
                }
            }
        }
        let ((index, _), marked) = self.ready.pop_front()?;
        Some(Ok(match marked {
            Marked::Note(note) => Mark::Note { index, note },
            Marked::Sample(sample) => Mark::Sample(sample),
        }))
    }
}
