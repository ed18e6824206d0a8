//! The table of contents: what every frame's header says, by process.
//!
//! It is filled from the index at the end of the file or, if the file was cut, from the headers
//! of the frames themselves; both go through [`Contents::add`].

use crate::codes::CodesHeader;
use crate::column::{Column, Stream, Unpacker, directory};
use crate::event::{Ended, Header, Placement, ProcessNumber, Uncovered};
use crate::field::{FieldReader, Truncated};
use crate::format::{
    FrameHead, FrameKind, HEAD, MAX_HEADER, OPENING, TRAILER, WITH_SITES, check_opening,
    index_offset,
};
use crate::keyframe::KeyframeHeader;
use crate::names::LocatedNames;
use crate::notes::NotesHeader;
use crate::site::SiteCounts;
use crate::site_tree::HeldSites;
use crate::sites::SitesHeader;
use crate::source::{Payload, Source};
use crate::summary::{ProcessSummary, Summary};
use crate::tally::Tally;
use crate::{CallCounts, Error};
use std::io;

/// Where a payload lies and what streams it has.
#[derive(Clone, Debug)]
pub(crate) struct Located<H> {
    pub(crate) header: H,
    /// The offset of the frame in the file.
    pub(crate) frame: u64,
    pub(crate) payload: u64,
    pub(crate) payload_len: u64,
    pub(crate) streams: Vec<Stream>,
}

/// The header of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHeader {
    pub(crate) first_event: u64,
    pub(crate) first_item: u64,
    pub(crate) first_ordinal: u64,
    pub(crate) first_time: u64,
    pub(crate) last_time: u64,
    pub(crate) end: Tally,
}

/// What a tape has of one process.
#[derive(Debug)]
pub(crate) struct ProcessContents {
    pub(crate) summary: ProcessSummary,
    /// The number of its first own allocation.
    pub(crate) base: u64,
    /// Events and early releases of the parent before the fork.
    pub(crate) forked_items: u64,
    pub(crate) tally: Tally,
    pub(crate) blocks: Vec<Located<BlockHeader>>,
    pub(crate) notes: Vec<Located<NotesHeader>>,
    pub(crate) keyframes: Vec<Located<KeyframeHeader>>,
    pub(crate) sites: Vec<Located<SitesHeader>>,
    pub(crate) codes: Vec<Located<CodesHeader>>,
    pub(crate) held_sites: HeldSites,
}

/// The table of contents of a tape.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    version: u16,
    job: Header,
    pub(crate) processes: Vec<ProcessContents>,
    pub(crate) names: Vec<LocatedNames>,
    uncovered: Vec<Uncovered>,
    ended: Option<Ended>,
    whole: bool,
}

impl Contents {
    /// Reads the index, or goes from frame to frame where there is none.
    pub(crate) fn read(source: &Source) -> Result<Contents, Error> {
        let start = source.read(0, source.len().min(OPENING as u64) as usize);
        let version = check_opening(&start.map_err(Error::Read)?)?;
        let contents = match Contents::from_index(source).map_err(Error::Read)? {
            Some(contents) => contents,
            None => Contents::from_frames(source).map_err(Error::Read)?,
        };
        Ok(Contents { version, ..contents })
    }

    /// `None` if there is no index, or if it makes no sense.
    fn from_index(source: &Source) -> io::Result<Option<Contents>> {
        let Some(at) = source.len().checked_sub(TRAILER as u64) else { return Ok(None) };
        let trailer = source.read(at, TRAILER)?;
        let Some(offset) = trailer.first_chunk().and_then(index_offset) else { return Ok(None) };
        let Some((head, header)) = read_head(source, offset)? else { return Ok(None) };
        // Another tape may follow, with an end of its own.
        if head.frame_len().and_then(|len| offset.checked_add(len)) != Some(at) {
            return Ok(None);
        }
        let mut contents = Contents::default();
        if contents.add(offset, head, &header).is_err() || !contents.whole {
            return Ok(None);
        }
        let mut fields = FieldReader::new(&header);
        let streams = match (fields.number(), fields.text(), directory(&mut fields)) {
            (Ok(_), Ok(_), Ok(streams)) => streams,
            _ => return Ok(None),
        };
        let payload = offset + (HEAD + header.len()) as u64;
        let source = Payload { source, offset: payload, len: head.payload_len };
        let Ok(frames) = (Unpacker { source, streams: &streams }).bytes(Column::Frames) else {
            return Ok(None);
        };
        Ok(contents.add_listed(&frames, offset).ok().map(|()| contents))
    }

    /// Adds the frames that the index lists; they must fill the file up to `end`.
    fn add_listed(&mut self, frames: &[u8], end: u64) -> Result<(), Truncated> {
        let mut fields = FieldReader::new(frames);
        let mut offset = OPENING as u64;
        while !fields.is_empty() {
            let bytes = fields.bytes(HEAD)?.first_chunk().ok_or(Truncated)?;
            let (head, checksum) = FrameHead::from_bytes(bytes);
            let header = fields.bytes(head.header_len as usize)?;
            if !head.matches(header, checksum) {
                return Err(Truncated);
            }
            self.add(offset, head, header)?;
            let len = head.frame_len().ok_or(Truncated)?;
            offset = offset.checked_add(len).ok_or(Truncated)?;
        }
        if offset == end { Ok(()) } else { Err(Truncated) }
    }

    /// Reads the headers of all frames that are whole.
    fn from_frames(source: &Source) -> io::Result<Contents> {
        let mut contents = Contents::default();
        let mut offset = OPENING as u64;
        while let Some((head, header)) = read_head(source, offset)? {
            let end = head.frame_len().and_then(|len| offset.checked_add(len));
            let Some(end) = end.filter(|&end| end <= source.len()) else { break };
            if contents.add(offset, head, &header).is_err() || contents.whole {
                break;
            }
            offset = end;
        }
        // The trailer is missing, so the file is cut, were it by its last byte alone.
        contents.whole = false;
        Ok(contents)
    }

    /// Whether calls have sites.
    pub(crate) fn has_sites(&self) -> bool {
        self.version >= WITH_SITES
    }

    /// Adds one frame.
    pub(crate) fn add(
        &mut self,
        offset: u64,
        head: FrameHead,
        header: &[u8],
    ) -> Result<(), Truncated> {
        let mut fields = FieldReader::new(header);
        let fields = &mut fields;
        match FrameKind::from_code(head.kind) {
            None => {}
            Some(FrameKind::Job) => self.job = read_job(fields)?,
            Some(FrameKind::Start) => self.start(head.process, fields)?,
            Some(FrameKind::Block) => {
                let header = read_block_header(fields)?;
                let located = locate(offset, head, header, fields)?;
                self.process(head.process)?.add_block(located)?;
            }
            Some(FrameKind::Notes) => {
                let header = NotesHeader::read(fields)?;
                let located = locate(offset, head, header, fields)?;
                self.process(head.process)?.notes.push(located);
            }
            Some(FrameKind::Keyframe) => {
                let header = KeyframeHeader::read(fields)?;
                let located = locate(offset, head, header, fields)?;
                self.process(head.process)?.keyframes.push(located);
            }
            Some(FrameKind::Sites) => {
                let header = SitesHeader::read(fields)?;
                let located = locate(offset, head, header, fields)?;
                self.process(head.process)?.add_sites(located)?;
            }
            Some(FrameKind::Codes) => {
                let header = CodesHeader::read(fields)?;
                let located = locate(offset, head, header, fields)?;
                self.process(head.process)?.add_codes(located)?;
            }
            Some(FrameKind::Names) => self.names.push(locate(offset, head, (), fields)?),
            Some(FrameKind::Rank) => {
                let placement = read_placement(fields)?;
                let summary = &mut self.process(head.process)?.summary;
                (summary.rank, summary.placement) = (Some(placement.rank), Some(placement));
            }
            Some(FrameKind::End) => self.process(head.process)?.end(fields)?,
            Some(FrameKind::Uncovered) => self.uncovered.push(Uncovered {
                pid: fields.narrow()?,
                command: fields.strings()?,
                why: fields.string()?,
            }),
            Some(FrameKind::Index) => {
                let early = fields.number()? != 0;
                let text = fields.string()?;
                self.ended = early.then(|| Ended::from_text(&text));
                self.whole = true;
            }
        }
        Ok(())
    }

    fn process(&mut self, number: u32) -> Result<&mut ProcessContents, Truncated> {
        self.processes.get_mut(number as usize).ok_or(Truncated)
    }

    fn start(&mut self, number: u32, fields: &mut FieldReader<'_>) -> Result<(), Truncated> {
        if number as usize != self.processes.len() {
            return Err(Truncated);
        }
        let process = read_start(number, fields)?;
        self.processes.push(process);
        Ok(())
    }

    /// What the tape says about itself.
    pub(crate) fn summary(&self, bytes: u64) -> Summary {
        let processes: Vec<_> = self.processes.iter().map(|p| p.summary.clone()).collect();
        let sum =
            |of: fn(&ProcessSummary) -> u64| processes.iter().map(of).fold(0, u64::saturating_add);
        Summary {
            header: self.job.clone(),
            complete: self.whole && self.ended.is_none(),
            cut: !self.whole,
            ended: self.ended.clone(),
            bytes,
            events: sum(|p| p.events),
            lost: sum(|p| p.lost),
            order_faults: sum(|p| p.order_faults),
            unknown_frees: sum(|p| p.unknown_frees),
            uncovered: self.uncovered.clone(),
            processes,
        }
    }
}

/// The head and header of the frame at `offset`, if there is a sound one.
pub(crate) fn read_head(source: &Source, offset: u64) -> io::Result<Option<(FrameHead, Vec<u8>)>> {
    let room = source.len().saturating_sub(offset);
    if room < HEAD as u64 {
        return Ok(None);
    }
    let bytes = source.read(offset, HEAD)?;
    let Some(bytes) = bytes.first_chunk() else { return Ok(None) };
    let (head, checksum) = FrameHead::from_bytes(bytes);
    if head.header_len > MAX_HEADER || u64::from(head.header_len) > room - HEAD as u64 {
        return Ok(None);
    }
    let header = source.read(offset + HEAD as u64, head.header_len as usize)?;
    Ok(head.matches(&header, checksum).then_some((head, header)))
}

fn locate<H>(
    frame: u64,
    head: FrameHead,
    header: H,
    fields: &mut FieldReader<'_>,
) -> Result<Located<H>, Truncated> {
    let payload = frame + HEAD as u64 + u64::from(head.header_len);
    let streams = directory(fields)?;
    Ok(Located { header, frame, payload, payload_len: head.payload_len, streams })
}

/// What the directory of a frame says of its payload; `None` for a kind that is not known.
pub(crate) fn streams_of(
    head: &FrameHead,
    header: &[u8],
) -> Result<Option<Vec<Stream>>, Truncated> {
    let Some(kind) = FrameKind::from_code(head.kind) else { return Ok(None) };
    let fields = &mut FieldReader::new(header);
    match kind {
        FrameKind::Block => read_block_header(fields).map(drop)?,
        FrameKind::Notes => NotesHeader::read(fields).map(drop)?,
        FrameKind::Keyframe => KeyframeHeader::read(fields).map(drop)?,
        FrameKind::Sites => SitesHeader::read(fields).map(drop)?,
        FrameKind::Codes => CodesHeader::read(fields).map(drop)?,
        FrameKind::Names => {}
        FrameKind::Index => fields.number().and_then(|_| fields.text()).map(drop)?,
        // They have none.
        _ => return Ok(Some(Vec::new())),
    }
    let streams = directory(fields)?;
    if fields.is_empty() { Ok(Some(streams)) } else { Err(Truncated) }
}

fn read_job(fields: &mut FieldReader<'_>) -> Result<Header, Truncated> {
    let mut job = Header {
        started: fields.number()?,
        command: fields.strings()?,
        host: fields.string()?,
        page_size: fields.narrow()?,
        settings: Vec::new(),
    };
    for _ in 0..fields.number()? {
        job.settings.push((fields.string()?, fields.string()?));
    }
    Ok(job)
}

fn read_start(number: u32, fields: &mut FieldReader<'_>) -> Result<ProcessContents, Truncated> {
    let pid = fields.narrow()?;
    let parent = fields.option()?;
    let parent = match parent.map(u32::try_from).transpose() {
        Ok(parent) if parent.is_none_or(|parent| parent < number) => parent.map(ProcessNumber),
        _ => return Err(Truncated),
    };
    let started = fields.number()?;
    let rank = fields.option()?.map(u32::try_from).transpose().map_err(|_| Truncated)?;
    let command = fields.strings()?;
    let forked = fields.number()? != 0;
    let (events, forked_items, base) = (fields.number()?, fields.number()?, fields.ordinal()?);
    let (blocks, requested) = (fields.number()?, fields.number()?);
    let tally = Tally::inheriting(base, blocks, requested);
    let summary = ProcessSummary {
        number: ProcessNumber(number),
        pid,
        parent,
        forked_at: forked.then_some(events),
        inherited_blocks: blocks,
        inherited_bytes: requested,
        started,
        ended: None,
        rank,
        placement: None,
        command,
        code: None,
        signal: None,
        events: 0,
        threads: 0,
        calls: CallCounts::default(),
        free_null: 0,
        lost: 0,
        order_faults: 0,
        unknown_frees: 0,
        peak_requested: requested,
        peak_at: 0,
        end_requested: requested,
        end_blocks: blocks,
        sites: SiteCounts::default(),
    };
    Ok(ProcessContents {
        summary,
        base,
        forked_items,
        tally,
        blocks: Vec::new(),
        notes: Vec::new(),
        keyframes: Vec::new(),
        sites: Vec::new(),
        codes: Vec::new(),
        held_sites: HeldSites::default(),
    })
}

fn read_placement(fields: &mut FieldReader<'_>) -> Result<Placement, Truncated> {
    Ok(Placement {
        rank: fields.narrow()?,
        size: fields.option()?.map(u32::try_from).transpose().map_err(|_| Truncated)?,
        job: fields.string()?,
        host: fields.string()?,
        launcher: fields.string()?,
    })
}

fn read_block_header(fields: &mut FieldReader<'_>) -> Result<BlockHeader, Truncated> {
    Ok(BlockHeader {
        first_event: fields.number()?,
        first_item: fields.number()?,
        first_ordinal: fields.number()?,
        first_time: fields.number()?,
        last_time: fields.number()?,
        end: Tally::read(fields)?,
    })
}

impl ProcessContents {
    /// Adds a block; it must begin where the last one ended.
    fn add_block(&mut self, block: Located<BlockHeader>) -> Result<(), Truncated> {
        let (header, before) = (&block.header, &self.tally);
        let joins = header.first_event == before.events
            && header.first_item == before.items
            && header.first_ordinal == before.ordinal;
        let grows = header.end.items > before.items && header.end.events >= before.events;
        if !joins || !grows {
            return Err(Truncated);
        }
        let tally = header.end;
        self.tally = tally;
        let summary = &mut self.summary;
        summary.events = tally.events;
        summary.threads = summary.threads.max(tally.threads);
        summary.calls = tally.calls;
        summary.order_faults = tally.order_faults;
        summary.unknown_frees = tally.unknown_frees;
        (summary.peak_requested, summary.peak_at) = (tally.peak, tally.peak_at);
        (summary.end_requested, summary.end_blocks) = (tally.requested, tally.blocks);
        self.blocks.push(block);
        Ok(())
    }

    /// Adds sites; they must go on behind those before.
    fn add_sites(&mut self, located: Located<SitesHeader>) -> Result<(), Truncated> {
        let (header, counts) = (&located.header, &mut self.summary.sites);
        if (header.sites, header.frames) != (counts.sites, counts.frames) {
            return Err(Truncated);
        }
        counts.join(&header.new);
        self.sites.push(located);
        Ok(())
    }

    /// The same for interpreted code.
    fn add_codes(&mut self, located: Located<CodesHeader>) -> Result<(), Truncated> {
        let (header, counts) = (&located.header, &mut self.summary.sites);
        if header.before != counts.codes {
            return Err(Truncated);
        }
        counts.codes = counts.codes.saturating_add(header.new);
        self.codes.push(located);
        Ok(())
    }

    fn end(&mut self, fields: &mut FieldReader<'_>) -> Result<(), Truncated> {
        let summary = &mut self.summary;
        summary.ended = Some(fields.number()?);
        (summary.code, summary.signal) = (fields.signed()?, fields.signed()?);
        summary.threads = summary.threads.max(fields.number()?);
        (summary.free_null, summary.lost) = (fields.number()?, fields.number()?);
        Ok(())
    }
}
