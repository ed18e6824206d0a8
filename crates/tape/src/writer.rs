//! Events in, columns out: resolves every address against the live set and counts as it goes.

use crate::Error;
use crate::block::BLOCK_ITEMS;
use crate::event::{
    Ended, Event, ForkPoint, Header, Note, Origin, Placement, ProcessEnd, ProcessNumber,
    ProcessStart, Sample, Uncovered,
};
use crate::family::{Family, Inheritance, Pending};
use crate::frame::{Content, RawFrame};
use crate::keyframe::{KEYFRAME_EVENTS, RawKeyframe};
use crate::notes::NOTES_FULL;
use crate::operation::Operation;
use crate::pool::Pool;
use crate::site::Code;
use crate::tally::Tally;
use crate::track::Track;
use heaptape_wire::site::SiteEnd;

/// Where finished frames go, in order. The collector's hands them to its writing thread.
pub trait BlockSink {
    /// Takes the next frame.
    fn frame(&mut self, frame: RawFrame) -> Result<(), Error>;

    /// About how many more events and early releases there is room for; `None` for any number. A
    /// block goes onto the tape whole or not at all, so blocks become smaller with the room.
    fn room(&self) -> Option<u64> {
        None
    }
}

/// The share of the room that a block takes at the most: one part in this many.
const ROOM_SHARE: u64 = 16;
/// Events and early releases that are a block's worth even where there is little room.
const LEAST_ITEMS: u64 = 1 << 10;

/// Events and early releases that make a block full when the sink has room for so many.
fn full_block(room: Option<u64>) -> usize {
    let items = room.map(|items| (items / ROOM_SHARE).clamp(LEAST_ITEMS, BLOCK_ITEMS as u64));
    items.map_or(BLOCK_ITEMS, |items| items as usize)
}

/// Writes a tape. One thread feeds it; frames leave through the sink.
///
/// ```
/// use heaptape_tape::{Call, Event, FrameWriter, Header, Origin, ProcessStart, Tape, Writer};
///
/// let mut writer = Writer::new(FrameWriter::new(Vec::new())?, &Header::default())?;
/// let start = ProcessStart {
///     pid: 42, parent: None, origin: Origin::Exec, time: 0, rank: None, command: vec!["ls".into()],
/// };
/// let ls = writer.start_process(&start)?;
/// let event = Event {
///     call: Call::Malloc, thread: 0, time: 0, caller: 0x1000, address: 0x5000, size: 20,
///     slack: 4, align: 0, old: 0,
/// };
/// writer.event(ls, &event)?;
/// let tape = Tape::from_bytes(writer.finish(None)?.into_inner())?;
/// assert_eq!(tape.summary().processes[0].end_requested, 20);
/// # Ok::<(), heaptape_tape::Error>(())
/// ```
pub struct Writer<S: BlockSink> {
    sink: S,
    family: Family,
    tracks: Vec<Option<Box<Track>>>,
    keyframe_events: u64,
    /// Events and early releases that make a block full at present.
    block_items: usize,
    pool: Pool,
    /// Whether calls have sites.
    has_sites: bool,
    /// Events and order faults of the processes that have ended.
    ended: (u64, u64),
}

impl<S: BlockSink> Writer<S> {
    /// Starts a tape: the header goes to the sink at once. It is a tape with sites if the header has the setting
    /// [`Header::STACKS`].
    pub fn new(sink: S, header: &Header) -> Result<Writer<S>, Error> {
        let mut writer = Writer {
            block_items: full_block(sink.room()),
            sink,
            family: Family::default(),
            tracks: Vec::new(),
            keyframe_events: KEYFRAME_EVENTS,
            pool: Pool::default(),
            has_sites: header.stacks().is_some(),
            ended: (0, 0),
        };
        writer.send(0, Content::Job(header.clone()))?;
        Ok(writer)
    }

    fn send(&mut self, process: u32, content: Content) -> Result<(), Error> {
        self.sink.frame(RawFrame { process, content })
    }

    /// Sets how many events of a process lie between two keyframes, at least. Fewer make a larger
    /// tape of which a reader can reach any place sooner.
    pub fn keyframe_every(mut self, events: u64) -> Writer<S> {
        self.keyframe_events = events;
        self
    }

    /// The sink that the frames go to.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Starts a process and gives it the next number.
    pub fn start_process(&mut self, start: &ProcessStart) -> Result<ProcessNumber, Error> {
        let point = match start.origin {
            Origin::Exec => None,
            Origin::Fork { point } => Some(point),
        };
        let inherited = self.family.start(point)?;
        let number = self.tracks.len() as u32;
        let tally = Tally::inheriting(inherited.ordinal, inherited.blocks, inherited.requested);
        let mut track = Box::new(Track::new(tally, &self.pool, self.has_sites));
        if let (Some(_), Some(parent)) = (point, start.parent)
            && let Ok(parent) = self::track(&mut self.tracks, parent)
        {
            track.regions.inherit(&parent.regions);
        }
        self.tracks.push(Some(track));
        self.send(number, Content::Start(start.clone(), inherited))?;
        Ok(ProcessNumber(number))
    }

    /// Remembers the live set of `parent` as it is now, until the point is dropped and the last
    /// child that was started from it (and its heirs) has ended.
    pub fn fork_point(&mut self, parent: ProcessNumber) -> Result<ForkPoint, Error> {
        let tally = track(&mut self.tracks, parent)?.tally;
        let now = Inheritance {
            events: tally.events,
            items: tally.items,
            ordinal: tally.ordinal,
            blocks: tally.blocks,
            requested: tally.requested,
        };
        self.family.open(parent.0, now).ok_or(Error::NotRunning(parent))
    }

    /// No more children will be started from `point`.
    pub fn drop_fork_point(&mut self, point: ForkPoint) -> Result<(), Error> {
        self.family.close(point)
    }

    /// Writes the next event of a process and returns its index.
    ///
    /// The size fields of a release, the `old` of what is no reallocation, the alignment of a
    /// reallocation and the slack of a failed call mean nothing and are not kept.
    #[inline]
    pub fn event(&mut self, process: ProcessNumber, event: &Event) -> Result<u64, Error> {
        let track = track(&mut self.tracks, process)?;
        let index = track.tally.events;
        track.event(&mut self.family, process.0, event);
        if track.block.items() >= self.block_items {
            self.flush_process(process)?;
        }
        Ok(index)
    }

    /// Says that an event will be written soon. What it needs is then fetched into the processor's caches, which
    /// takes as long as some ten events.
    #[inline]
    pub fn expect(&self, process: ProcessNumber, event: &Event) {
        self.family.fetch(process.0, event.looked_up());
    }

    /// Writes the next events of a process, which is quicker than one by one.
    pub fn events(&mut self, process: ProcessNumber, events: &[Event]) -> Result<(), Error> {
        let mut rest = events;
        while !rest.is_empty() {
            let track = track(&mut self.tracks, process)?;
            let room = self.block_items.saturating_sub(track.block.items()).max(1);
            let (now, later) = rest.split_at(room.min(rest.len()));
            rest = later;
            now.iter().for_each(|event| track.event(&mut self.family, process.0, event));
            if track.block.items() >= self.block_items {
                self.flush_process(process)?;
            }
        }
        Ok(())
    }

    /// Says which call stack the program calls `id`, before events that name it by
    /// [`site_word`](heaptape_wire::site::site_word). The innermost frame comes first; of more than
    /// [`MAX_DEPTH`](heaptape_wire::site::MAX_DEPTH) the outermost are left out. An id keeps its first meaning, and a
    /// stack that was told before is the same site. Events with an id that was not told have no caller.
    ///
    /// On a tape without sites nothing is kept.
    pub fn site(
        &mut self,
        process: ProcessNumber,
        id: u32,
        end: SiteEnd,
        frames: &[u64],
    ) -> Result<(), Error> {
        if let Some(stacks) = &mut track(&mut self.tracks, process)?.stacks {
            stacks.site(id, end, frames);
        }
        Ok(())
    }

    /// Says which interpreted code the program calls `id`, before sites with frames in it.
    pub fn code(&mut self, process: ProcessNumber, id: u32, code: Code) -> Result<(), Error> {
        if let Some(stacks) = &mut track(&mut self.tracks, process)?.stacks {
            stacks.code(id, code);
        }
        Ok(())
    }

    /// Writes that a reallocation by `thread` has given `address` up; its event comes later from
    /// the same thread. The old size counts until then.
    ///
    /// If the thread has another release waiting, that one's block ends here.
    pub fn release(
        &mut self,
        process: ProcessNumber,
        thread: u32,
        time: u64,
        address: u64,
    ) -> Result<(), Error> {
        let track = track(&mut self.tracks, process)?;
        let block = self.family.take(process.0, address, track.tally.items);
        match &block {
            Some(block) => track.leave(address, block),
            None => track.block.unknown.push(address),
        }
        if let Some(heap) = self.family.heap(process.0) {
            let before = heap.pending.insert(thread, Pending { address, block });
            if let Some(lost) = before.and_then(|pending| pending.block) {
                track.ended(&lost);
            }
        }
        track.item(Operation::early_release(block.is_some()), thread, time);
        track.tally.release(thread);
        if track.block.items() >= self.block_items {
            self.flush_process(process)?;
        }
        Ok(())
    }

    /// Writes a note; it stands before the next event.
    pub fn note(&mut self, process: ProcessNumber, note: &Note) -> Result<(), Error> {
        let track = track(&mut self.tracks, process)?;
        track.notes.note((track.tally.events, track.tally.items), note);
        self.send_full_notes(process)
    }

    /// Writes a sample; its index is set to the number of events so far.
    pub fn sample(&mut self, process: ProcessNumber, sample: &Sample) -> Result<(), Error> {
        let track = track(&mut self.tracks, process)?;
        track.notes.sample((track.tally.events, track.tally.items), sample);
        track.regions.learn(&sample.vmas);
        track.keyframe_unsampled = false;
        self.send_full_notes(process)
    }

    /// Whether a sample of a process would tell more than the last one: a keyframe was made since, or
    /// a block was born outside of the writable mappings that it listed. A forked child begins with
    /// what is known of its parent.
    pub fn wants_sample(&self, process: ProcessNumber) -> bool {
        let track = self.tracks.get(process.0 as usize).and_then(Option::as_deref);
        track.is_some_and(|track| track.keyframe_unsampled || track.regions.are_outgrown())
    }

    fn send_full_notes(&mut self, process: ProcessNumber) -> Result<(), Error> {
        let track = track(&mut self.tracks, process)?;
        if track.notes.fields.bytes.len() < NOTES_FULL {
            return Ok(());
        }
        let notes = std::mem::take(&mut track.notes);
        self.send(process.0, Content::Notes(notes))
    }

    /// Says where in a parallel job a process stands.
    pub fn place(&mut self, process: ProcessNumber, placement: Placement) -> Result<(), Error> {
        track(&mut self.tracks, process)?;
        self.send(process.0, Content::Rank(placement))
    }

    /// Ends a process.
    pub fn end_process(&mut self, process: ProcessNumber, end: &ProcessEnd) -> Result<(), Error> {
        self.flush_process(process)?;
        if let Some(track) = self.tracks.get_mut(process.0 as usize).and_then(Option::take) {
            self.ended.0 += track.tally.events;
            self.ended.1 += track.tally.order_faults;
        }
        self.family.end(process.0)?;
        self.send(process.0, Content::End(*end))
    }

    /// Names a process that could not be recorded.
    pub fn uncovered(&mut self, uncovered: &Uncovered) -> Result<(), Error> {
        self.send(0, Content::Uncovered(uncovered.clone()))
    }

    /// Sends what is buffered of every process to the sink, so that a tape cut here holds it.
    pub fn flush(&mut self) -> Result<(), Error> {
        for number in 0..self.tracks.len() {
            if self.tracks.get(number).is_some_and(Option::is_some) {
                self.flush_process(ProcessNumber(number as u32))?;
            }
        }
        Ok(())
    }

    /// Sends the new sites of a process, which the events that follow may name.
    fn send_sites(&mut self, process: ProcessNumber) -> Result<(), Error> {
        let Some(stacks) = &mut track(&mut self.tracks, process)?.stacks else { return Ok(()) };
        let (codes, sites) = (stacks.new_codes.follower(), stacks.new_sites.follower());
        let codes = std::mem::replace(&mut stacks.new_codes, codes);
        let sites = std::mem::replace(&mut stacks.new_sites, sites);
        if !codes.is_empty() {
            self.send(process.0, Content::Codes(codes))?;
        }
        if !sites.is_empty() {
            self.send(process.0, Content::Sites(Box::new(sites)))?;
        }
        Ok(())
    }

    /// Sends the sites, then the notes, then the events, then a keyframe if one is due.
    fn flush_process(&mut self, process: ProcessNumber) -> Result<(), Error> {
        self.send_sites(process)?;
        let track = track(&mut self.tracks, process)?;
        let notes = std::mem::take(&mut track.notes);
        let block = track.next_block(&self.pool);
        let due = track.tally.events - track.last_keyframe.events >= self.keyframe_events;
        let keyframe = if due { self.keyframe(process)? } else { None };
        if !notes.is_empty() {
            self.send(process.0, Content::Notes(notes))?;
        }
        if block.items() > 0 {
            self.send(process.0, Content::Block(block))?;
            self.block_items = full_block(self.sink.room());
        }
        match keyframe {
            Some(keyframe) => self.send(process.0, Content::Keyframe(Box::new(keyframe))),
            None => Ok(()),
        }
    }

    fn keyframe(&mut self, process: ProcessNumber) -> Result<Option<RawKeyframe>, Error> {
        let track = track(&mut self.tracks, process)?;
        let Some(heap) = self.family.heap(process.0) else { return Ok(None) };
        let since = std::mem::replace(&mut track.last_keyframe, track.tally);
        let made = std::mem::take(&mut track.made);
        track.keyframe_unsampled = true;
        let pending = heap.pending.iter();
        let pending: Vec<_> = pending.map(|(&t, p)| (t, p.address, p.block)).collect();
        let waiting = pending.iter().filter_map(|&(_, address, block)| Some((address, block?)));
        let born =
            heap.live.iter().chain(waiting).filter(|(_, b)| b.ordinal >= since.ordinal).collect();
        let ended = std::mem::take(&mut track.ended);
        Ok(Some(RawKeyframe { at: track.tally, since, made, born, ended, pending }))
    }

    /// Counts so far: events and order faults of all processes.
    pub fn counts(&self) -> (u64, u64) {
        let running = self.tracks.iter().flatten().map(|track| &track.tally);
        running.fold(self.ended, |(events, faults), tally| {
            (events + tally.events, faults + tally.order_faults)
        })
    }

    /// Ends the tape: the last blocks, the index and the trailer go to the sink, which is given
    /// back. `ended` says why the recording stopped before the job did.
    pub fn finish(mut self, ended: Option<Ended>) -> Result<S, Error> {
        self.flush()?;
        self.send(0, Content::Index(ended))?;
        Ok(self.sink)
    }
}

#[inline]
fn track(tracks: &mut [Option<Box<Track>>], process: ProcessNumber) -> Result<&mut Track, Error> {
    let slot = tracks.get_mut(process.0 as usize).and_then(Option::as_deref_mut);
    slot.ok_or(Error::NotRunning(process))
}
