//! Opens a tape and tells what is on it.

use crate::events::Events;
use crate::index::{Contents, Located, ProcessContents};
use crate::item::Columns;
use crate::live_set::{LiveBlock, Moment, live_at};
use crate::source::{Payload, Source};
use crate::summary::Summary;
use crate::{Error, ProcessNumber};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// An open tape.
pub struct Tape {
    source: Source,
    contents: Contents,
    summary: Summary,
}

impl Tape {
    /// Opens a file. A cut one opens, with `summary().complete` false.
    pub fn open(path: impl AsRef<Path>) -> Result<Tape, Error> {
        let path = path.as_ref();
        let opened = File::open(path).and_then(Source::file);
        let source = opened.map_err(|source| Error::Open { path: path.to_owned(), source })?;
        Tape::from_source(source)
    }

    /// Opens a tape that is in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Tape, Error> {
        Tape::from_source(Source::Memory(bytes))
    }

    fn from_source(source: Source) -> Result<Tape, Error> {
        let contents = Contents::read(&source)?;
        let summary = contents.summary(source.len());
        Ok(Tape { source, contents, summary })
    }

    /// What the tape says about itself; no event is read.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The items of a process whose index lies in `range`, everything resolved. A range that
    /// goes beyond the end stops there.
    pub fn events(&self, process: ProcessNumber, range: Range<u64>) -> Result<Events<'_>, Error> {
        self.events_with(process, range, Columns::ALL)
    }

    /// The same with only some columns read.
    pub fn events_with(
        &self,
        process: ProcessNumber,
        range: Range<u64>,
        columns: Columns,
    ) -> Result<Events<'_>, Error> {
        Events::new(self, process, range, columns)
    }

    /// The blocks that are alive after the event `index` (the last one, if it is beyond the
    /// end), inherited ones included, by address.
    pub fn live_at(&self, process: ProcessNumber, index: u64) -> Result<Vec<LiveBlock>, Error> {
        live_at(self, process, Moment::Event(index))
    }

    /// What a forked process inherited, by address; nothing for others.
    pub fn inherited(&self, process: ProcessNumber) -> Result<Vec<LiveBlock>, Error> {
        live_at(self, process, Moment::Items(0))
    }

    pub(crate) fn process(&self, process: ProcessNumber) -> Result<&ProcessContents, Error> {
        let count = self.contents.processes.len();
        let contents = self.contents.processes.get(process.0 as usize);
        contents.ok_or(Error::NoProcess { process, count })
    }

    pub(crate) fn payload<H>(&self, located: &Located<H>) -> Payload<'_> {
        Payload { source: &self.source, offset: located.payload, len: located.payload_len }
    }
}
