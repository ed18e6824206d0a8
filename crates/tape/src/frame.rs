//! Frames on their way to the file: from the writer's raw columns to bytes.

use crate::codes::RawCodes;
use crate::column::{Column, Packer};
use crate::event::{Ended, Header, Placement, ProcessEnd, ProcessStart, Uncovered};
use crate::family::Inheritance;
use crate::field::FieldWriter;
use crate::format::{FrameHead, FrameKind, PLAIN, WITH_SITES, opening, trailer};
use crate::keyframe::RawKeyframe;
use crate::names::RawNames;
use crate::notes::RawNotes;
use crate::pool::Pooled;
use crate::sites::RawSites;
use crate::{BlockSink, Error};
use std::io::{self, Write};

/// A frame before compression: columns of events, or a small record.
#[derive(Debug)]
pub struct RawFrame {
    pub(crate) process: u32,
    pub(crate) content: Content,
}

/// What a frame holds.
#[derive(Debug)]
pub(crate) enum Content {
    Job(Header),
    Start(ProcessStart, Inheritance),
    Block(Box<Pooled>),
    Notes(RawNotes),
    Keyframe(Box<RawKeyframe>),
    Rank(Placement),
    End(ProcessEnd),
    Uncovered(Uncovered),
    Index(Option<Ended>),
    Sites(Box<RawSites>),
    Codes(RawCodes),
    Names(RawNames),
}

impl RawFrame {
    /// Compresses the frame and appends its bytes to `out`. Frames must be encoded in the order
    /// in which the sink got them, with one `encoder`: it knows the offsets for the index.
    pub fn encode(self, encoder: &mut Encoder, out: &mut Vec<u8>) -> Result<(), Error> {
        encoder.frame(self, out).map_err(Error::Write)
    }

    /// Whether this is the last frame of a tape, which says why it ended and where everything is.
    pub fn is_last(&self) -> bool {
        matches!(self.content, Content::Index(_))
    }

    /// The same last frame for a tape that had to end because of `why`.
    pub fn last(why: Ended) -> RawFrame {
        RawFrame { process: 0, content: Content::Index(Some(why)) }
    }

    /// The last frame of a tape that ended so.
    pub(crate) fn end(why: Option<Ended>) -> RawFrame {
        RawFrame { process: 0, content: Content::Index(why) }
    }

    /// Events and early releases in it; 0 unless it is a block of events.
    pub fn items(&self) -> u64 {
        match &self.content {
            Content::Block(block) => block.items() as u64,
            _ => 0,
        }
    }
}

/// The state of encoding: compression contexts, the offset reached, what the index needs.
pub struct Encoder {
    packer: Packer,
    bytes: u64,
    index: Vec<u8>,
    /// `bytes` and the length of `index` before the last frame.
    before: (u64, usize),
}

impl Encoder {
    /// A fresh one, for one file.
    pub fn new() -> Result<Encoder, Error> {
        let packer = Packer::new().map_err(Error::Write)?;
        Ok(Encoder { packer, bytes: 0, index: Vec::new(), before: (0, 0) })
    }

    /// One that goes on with a file of which so many bytes are written, before its first frame.
    pub(crate) fn going_on(bytes: u64) -> Result<Encoder, Error> {
        Ok(Encoder { bytes, ..Encoder::new()? })
    }

    /// A frame of so many bytes was written that stood elsewhere.
    pub(crate) fn pass(&mut self, head: &[u8], header: &[u8], bytes: u64) {
        self.before = (self.bytes, self.index.len());
        self.bytes += bytes;
        self.index.extend_from_slice(head);
        self.index.extend_from_slice(header);
    }

    /// The last frame could not be written: the file ends before it.
    pub fn take_back(&mut self) {
        self.bytes = self.before.0;
        self.index.truncate(self.before.1);
    }

    /// About how many bytes the last frame will take at the most.
    pub fn last_frame_bytes(&self) -> u64 {
        self.index.len() as u64 + 4096
    }

    /// Bytes encoded so far: the length of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn frame(&mut self, frame: RawFrame, out: &mut Vec<u8>) -> io::Result<()> {
        let before = out.len();
        self.before = (self.bytes, self.index.len());
        if self.bytes == 0 {
            let has_sites = matches!(&frame.content, Content::Job(job) if job.stacks().is_some());
            out.extend_from_slice(&opening(if has_sites { WITH_SITES } else { PLAIN }));
        }
        let mut header = FieldWriter::new();
        let kind = self.fill(frame.content, &mut header)?;
        let payload = self.packer.finish(&mut header);
        let head = FrameHead {
            kind: kind as u8,
            process: frame.process,
            header_len: u32::try_from(header.bytes.len()).map_err(io::Error::other)?,
            payload_len: payload.len() as u64,
        };
        let offset = self.bytes + (out.len() - before) as u64;
        let head_bytes = head.to_bytes(&header.bytes);
        out.extend_from_slice(&head_bytes);
        out.extend_from_slice(&header.bytes);
        out.extend_from_slice(&payload);
        if kind == FrameKind::Index {
            out.extend_from_slice(&trailer(offset));
        } else {
            self.index.extend_from_slice(&head_bytes);
            self.index.extend_from_slice(&header.bytes);
        }
        self.bytes += (out.len() - before) as u64;
        Ok(())
    }

    /// Writes the header of a frame and packs its payload.
    fn fill(&mut self, content: Content, header: &mut FieldWriter) -> io::Result<FrameKind> {
        let packer = &mut self.packer;
        Ok(match content {
            Content::Job(job) => {
                write_job(&job, header);
                FrameKind::Job
            }
            Content::Start(start, inherited) => {
                write_start(&start, &inherited, header);
                FrameKind::Start
            }
            Content::Block(block) => {
                block.pack(packer, header)?;
                FrameKind::Block
            }
            Content::Notes(notes) => {
                notes.pack(packer, header)?;
                FrameKind::Notes
            }
            Content::Keyframe(mut keyframe) => {
                keyframe.pack(packer, header)?;
                FrameKind::Keyframe
            }
            Content::Rank(placement) => {
                write_placement(&placement, header);
                FrameKind::Rank
            }
            Content::End(end) => {
                header.number(end.time).signed(end.code).signed(end.signal);
                header.numbers(&[end.threads, end.free_null, end.lost]);
                FrameKind::End
            }
            Content::Uncovered(uncovered) => {
                header.number(u64::from(uncovered.pid)).texts(&uncovered.command);
                header.text(uncovered.why.as_bytes());
                FrameKind::Uncovered
            }
            Content::Index(ended) => {
                header.number(u64::from(ended.is_some()));
                header.text(ended.as_ref().map_or("", Ended::as_str).as_bytes());
                packer.bytes(Column::Frames, &self.index)?;
                FrameKind::Index
            }
            Content::Sites(sites) => {
                sites.pack(packer, header)?;
                FrameKind::Sites
            }
            Content::Codes(codes) => {
                codes.pack(packer, header)?;
                FrameKind::Codes
            }
            Content::Names(names) => {
                names.pack(packer)?;
                FrameKind::Names
            }
        })
    }
}

fn write_job(job: &Header, fields: &mut FieldWriter) {
    fields.number(job.started).texts(&job.command).text(job.host.as_bytes());
    fields.number(u64::from(job.page_size)).number(job.settings.len() as u64);
    for (name, value) in &job.settings {
        fields.text(name.as_bytes()).text(value.as_bytes());
    }
}

fn write_start(start: &ProcessStart, inherited: &Inheritance, fields: &mut FieldWriter) {
    let forked = matches!(start.origin, crate::Origin::Fork { .. });
    fields.number(u64::from(start.pid)).option(start.parent.map(|p| u64::from(p.0)));
    fields.number(start.time).option(start.rank.map(u64::from)).texts(&start.command);
    fields.number(u64::from(forked)).numbers(&[
        inherited.events,
        inherited.items,
        inherited.ordinal,
        inherited.blocks,
        inherited.requested,
    ]);
}

fn write_placement(placement: &Placement, fields: &mut FieldWriter) {
    fields.number(u64::from(placement.rank)).option(placement.size.map(u64::from));
    for text in [&placement.job, &placement.host, &placement.launcher] {
        fields.text(text.as_bytes());
    }
}

/// A sink that encodes and writes each frame at once.
pub struct FrameWriter<W: Write> {
    out: W,
    encoder: Encoder,
    buffer: Vec<u8>,
}

impl<W: Write> FrameWriter<W> {
    /// Writes to `out`, from the beginning of the file.
    pub fn new(out: W) -> Result<FrameWriter<W>, Error> {
        Ok(FrameWriter { out, encoder: Encoder::new()?, buffer: Vec::new() })
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.encoder.bytes()
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write> BlockSink for FrameWriter<W> {
    fn frame(&mut self, frame: RawFrame) -> Result<(), Error> {
        self.buffer.clear();
        frame.encode(&mut self.encoder, &mut self.buffer)?;
        self.out.write_all(&self.buffer).map_err(Error::Write)
    }
}
