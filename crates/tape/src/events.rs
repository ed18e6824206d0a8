//! The stream over the items of one process.

use crate::column::Unpacker;
use crate::index::ProcessContents;
use crate::item::{Columns, Item, Lent, Resolved};
use crate::keyframe::Keyframe;
use crate::live_set::Moment;
use crate::marks::unpack_notes;
use crate::notes::{Marked, Place};
use crate::resolve::{self, Resolver};
use crate::unpacked::{KnownCallers, UnpackedBlock};
use crate::{Error, ProcessNumber, Tape};
use std::collections::VecDeque;
use std::ops::Range;

/// A stream over the events of one process. Its memory is bounded by the live set.
///
/// After an error it ends.
pub struct Events<'a> {
    tape: &'a Tape,
    contents: &'a ProcessContents,
    columns: Columns,
    range: Range<u64>,
    /// Items after which it ends.
    item_limit: u64,
    state: Resolver,
    block: UnpackedBlock,
    callers: KnownCallers,
    current: Resolved,
    /// The last item that was no event.
    other: Option<Item>,
    /// The block that comes after the current one, and where the current one lies.
    next_block: usize,
    frame: u64,
    next_notes: usize,
    notes: VecDeque<(Place, Marked)>,
    done: bool,
}

impl<'a> Events<'a> {
    pub(crate) fn new(
        tape: &'a Tape,
        process: ProcessNumber,
        range: Range<u64>,
        columns: Columns,
    ) -> Result<Events<'a>, Error> {
        let contents = tape.process(process)?;
        let state = Resolver::new(contents.base, columns);
        let mut events = Events {
            tape,
            contents,
            columns,
            item_limit: u64::MAX,
            state,
            block: UnpackedBlock::default(),
            callers: match columns.caller {
                true => KnownCallers::of(tape, contents)?,
                false => KnownCallers::default(),
            },
            current: Resolved::EMPTY,
            other: None,
            next_block: 0,
            frame: 0,
            next_notes: 0,
            notes: VecDeque::new(),
            done: range.is_empty(),
            range,
        };
        let start = events.range.start;
        // Early releases that belong to `start` may stand before a keyframe with as many events.
        events.seek(|events, _| events < start)?;
        Ok(events)
    }

    /// A stream to a moment, for the state that it leaves. It gives no item before the moment.
    pub(crate) fn until(
        tape: &'a Tape,
        process: ProcessNumber,
        moment: Moment,
    ) -> Result<Events<'a>, Error> {
        let columns = Columns { slack: true, address: true, ..Columns::REPLAY };
        let mut events = Events::new(tape, process, 0..u64::MAX, columns)?;
        match moment {
            Moment::Event(index) => {
                events.range.end = index.saturating_add(1);
                events.seek(|events, _| events <= index)?;
            }
            Moment::Items(items) => {
                events.item_limit = items;
                events.seek(|_, at| at <= items)?;
            }
        }
        Ok(events)
    }

    /// The state after the items that were read.
    pub(crate) fn state(&self) -> &Resolver {
        &self.state
    }

    /// Goes to the last keyframe for which `before` (events, items) holds.
    fn seek(&mut self, before: impl Fn(u64, u64) -> bool) -> Result<(), Error> {
        let usable = |at: &crate::keyframe::KeyframeHeader| {
            before(at.events, at.items) && self.block_from(at.items).is_some()
        };
        let keyframes = &self.contents.keyframes;
        let Some(last) = keyframes.iter().rposition(|k| usable(&k.header)) else { return Ok(()) };
        let mut state = Resolver::new(self.contents.base, self.columns);
        for located in keyframes.iter().take(last + 1) {
            let from = Unpacker { source: self.tape.payload(located), streams: &located.streams };
            let keyframe = Keyframe::unpack(&from).map_err(|why| why.at(located.frame))?;
            state.fold(&located.header, keyframe);
        }
        state.folded();
        self.next_block = self.block_from(state.items).unwrap_or(0);
        self.state = state;
        Ok(())
    }

    /// The block whose first item has this number; the one after the last, if it is the end.
    fn block_from(&self, items: u64) -> Option<usize> {
        let blocks = &self.contents.blocks;
        let at = blocks.partition_point(|block| block.header.first_item < items);
        match blocks.get(at) {
            Some(block) => (block.header.first_item == items).then_some(at),
            None => (self.contents.tally.items == items).then_some(at),
        }
    }

    /// The next item, without copying it: for passes over whole tapes. `None` at the end, and
    /// after an error.
    #[inline]
    pub fn lend(&mut self) -> Result<Option<Lent<'_>>, Error> {
        while !self.done {
            match self.step() {
                Ok(Step::Event) => {
                    let index = self.current.index;
                    if index >= self.range.start && index < self.range.end {
                        return Ok(Some(Lent::Event(&self.current)));
                    }
                }
                Ok(Step::Other(index)) => {
                    if self.range.contains(&index) {
                        return Ok(self.other.as_ref().map(Lent::Other));
                    }
                }
                Ok(Step::End) => self.done = true,
                Err(error) => {
                    self.done = true;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// The next item, whether or not it lies in the range; an event goes to `current`, else it goes to
    /// `other`.
    #[inline]
    fn step(&mut self) -> Result<Step, Error> {
        loop {
            if self.columns.notes
                && let Some(marked) = self.marked()?
            {
                return Ok(self.keep(marked));
            }
            if self.state.items >= self.item_limit || self.state.index >= self.range.end {
                return Ok(Step::End);
            }
            let step = self.state.step(&mut self.block, &mut self.current);
            match step.map_err(|what| Error::Damaged { offset: self.frame, what })? {
                resolve::Step::Event => return Ok(Step::Event),
                resolve::Step::Release(release) => return Ok(self.keep(Item::Release(release))),
                resolve::Step::End if !self.open_block()? => return Ok(Step::End),
                resolve::Step::End => {}
            }
        }
    }

    fn keep(&mut self, item: Item) -> Step {
        let index = item.index();
        self.other = Some(item);
        Step::Other(index)
    }

    /// Unpacks the next block; `false` if there is none.
    fn open_block(&mut self) -> Result<bool, Error> {
        let Some(located) = self.contents.blocks.get(self.next_block) else { return Ok(false) };
        let header = &located.header;
        let damaged = |what| Error::Damaged { offset: located.frame, what };
        let from = Unpacker { source: self.tape.payload(located), streams: &located.streams };
        let has_sites = self.tape.has_sites();
        let block = UnpackedBlock::unpack(&from, self.columns, header.first_ordinal, has_sites);
        let mut block = block.map_err(|why| why.at(located.frame))?;
        self.callers.number(&mut block.callers).map_err(|why| why.at(located.frame))?;
        let at = (self.state.index, self.state.items, self.state.births.next());
        if at != (header.first_event, header.first_item, header.first_ordinal) {
            return Err(damaged("a block does not begin where the one before it ended"));
        }
        if block.operations.len() as u64 != header.end.items - header.first_item {
            return Err(damaged("a block has not as many events as its header says"));
        }
        self.state.begin_block();
        self.block = block;
        self.frame = located.frame;
        self.next_block += 1;
        Ok(true)
    }

    /// Whether all events have been read.
    fn at_end(&self) -> bool {
        self.next_block >= self.contents.blocks.len()
            && self.block.item >= self.block.operations.len()
    }

    /// The next note or sample, if it stands before the next event or release.
    #[inline]
    fn marked(&mut self) -> Result<Option<Item>, Error> {
        while self.notes.is_empty() {
            let Some(located) = self.contents.notes.get(self.next_notes) else { return Ok(None) };
            if located.header.first.1 > self.state.items && !self.at_end() {
                return Ok(None);
            }
            self.next_notes += 1;
            if located.header.last.0 < self.range.start {
                continue;
            }
            self.notes.extend(unpack_notes(self.tape, located)?);
        }
        let (items, end) = (self.state.items, self.at_end());
        if !self.notes.front().is_some_and(|(at, _)| end || at.1 <= items) {
            return Ok(None);
        }
        Ok(self.notes.pop_front().map(|((index, _), marked)| match marked {
            Marked::Note(note) => Item::Note { index, note },
            Marked::Sample(sample) => Item::Sample(sample),
        }))
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Item, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.lend().map(|lent| lent.map(Item::from)).transpose()
    }
}

/// What was read last.
enum Step {
    End,
    Event,
    /// Something else, which stands before the event with this index.
    Other(u64),
}
