//! Opens a tape and tells what is on it.

use crate::column::Unpacker;
use crate::events::Events;
use crate::index::{Contents, Located, ProcessContents};
use crate::item::{Columns, Item};
use crate::live_set::{LiveBlock, Moment, live_at};
use crate::marks::Marks;
use crate::names::LocatedNames;
use crate::site_tree::Sites;
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

    /// The notes and samples of a process, in order; no event is read.
    pub fn marks(&self, process: ProcessNumber) -> Result<Marks<'_>, Error> {
        Ok(Marks::new(self, self.process(process)?))
    }

    /// The call stacks of a process; none on a tape without.
    pub fn sites(&self, process: ProcessNumber) -> Result<Sites, Error> {
        Sites::read(self, self.process(process)?)
    }

    /// The index of the last event of a process that happened at or before `time` (milliseconds
    /// since the recording began) as the coarse clock has it; `None` if all came later.
    pub fn index_at(&self, process: ProcessNumber, time: u64) -> Result<Option<u64>, Error> {
        let blocks = &self.process(process)?.blocks;
        let Some(block) = blocks.iter().rev().find(|block| block.header.first_time <= time) else {
            return Ok(None);
        };
        let header = &block.header;
        if header.last_time <= time {
            return Ok(header.end.events.checked_sub(1));
        }
        let range = header.first_event..header.end.events;
        let columns = Columns { time: true, ..Columns::REPLAY };
        let mut last = header.first_event.checked_sub(1);
        for item in self.events_with(process, range, columns)? {
            match item? {
                Item::Event(resolved) if resolved.event.time <= time => last = Some(resolved.index),
                Item::Event(_) => break,
                _ => {}
            }
        }
        Ok(last)
    }

    pub(crate) fn process(&self, process: ProcessNumber) -> Result<&ProcessContents, Error> {
        let count = self.contents.processes.len();
        let contents = self.contents.processes.get(process.0 as usize);
        contents.ok_or(Error::NoProcess { process, count })
    }

    /// Whether calls have sites.
    pub(crate) fn has_sites(&self) -> bool {
        self.contents.has_sites()
    }

    pub(crate) fn located_names(&self) -> &[LocatedNames] {
        &self.contents.names
    }

    pub(crate) fn unpacker<'a, H>(&'a self, located: &'a Located<H>) -> Unpacker<'a, Payload<'a>> {
        Unpacker { source: self.payload(located), streams: &located.streams }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn payload<H>(&self, located: &Located<H>) -> Payload<'_> {
        Payload { source: &self.source, offset: located.payload, len: located.payload_len }
    }
}
