//! Holds every byte of a tape's file against its checksums, and the frames against the index.
//!
//! A reader takes the headers of the frames from the index, and goes by the columns that it needs.
//! Here the file is read from its first byte to its last: each frame with its own head, header and
//! payload, nothing between the frames, nothing behind the end. What the events say is the matter of
//! [`verify`](crate::verify).

use crate::column::{Column, Stream, Unpacker};
use crate::format::{FrameHead, FrameKind, HEAD, OPENING, TRAILER, index_offset, trailer};
use crate::index::{Contents, streams_of};
use crate::source::{Payload, Source};
use crate::{Error, Tape};

/// Reads the whole file. A file that was cut inside a frame, or between two, is sound up to there; one
/// with any other byte than those that were written is damaged.
pub fn verify_file(tape: &Tape) -> Result<(), Error> {
    let source = tape.source();
    let mut walk =
        Walk { source, at: OPENING as u64, listed: Vec::new(), read: Contents::default() };
    let ends = has_trailer(source)?;
    while let Some(frame) = walk.frame()? {
        walk.check_payload(&frame)?;
        if frame.kind() == Some(FrameKind::Index) {
            walk.check_index(&frame)?;
            return walk.check_end(&frame);
        }
        walk.pass(&frame)?;
    }
    if ends {
        return Err(damaged(walk.at, "a frame reaches beyond the end of the file"));
    }
    Ok(())
}

fn damaged(offset: u64, what: &'static str) -> Error {
    Error::Damaged { offset, what }
}

/// Whether the file ends as a whole tape does.
fn has_trailer(source: &Source) -> Result<bool, Error> {
    let Some(at) = source.len().checked_sub(TRAILER as u64) else { return Ok(false) };
    let bytes = source.read(at, TRAILER).map_err(Error::Read)?;
    Ok(bytes.first_chunk().and_then(index_offset).is_some())
}

/// A frame as it stands in the file.
struct Frame {
    head: FrameHead,
    bytes: [u8; HEAD],
    header: Vec<u8>,
    offset: u64,
    end: u64,
}

impl Frame {
    fn kind(&self) -> Option<FrameKind> {
        FrameKind::from_code(self.head.kind)
    }

    fn payload<'a>(&self, source: &'a Source) -> Payload<'a> {
        let offset = self.offset + (HEAD + self.header.len()) as u64;
        Payload { source, offset, len: self.head.payload_len }
    }

    /// What the directory says of the payload; `None` for a kind that is not known.
    fn streams(&self) -> Result<Option<Vec<Stream>>, Error> {
        let streams = streams_of(&self.head, &self.header);
        streams.map_err(|_| damaged(self.offset, "a header does not hold what its kind has"))
    }
}

/// The way through the file.
struct Walk<'a> {
    source: &'a Source,
    /// Where the next frame begins.
    at: u64,
    /// The heads and headers so far, as the index has to list them.
    listed: Vec<u8>,
    read: Contents,
}

impl Walk<'_> {
    /// The next frame; `None` if the file ends before the frame does.
    fn frame(&self) -> Result<Option<Frame>, Error> {
        let (source, offset) = (self.source, self.at);
        let room = source.len().saturating_sub(offset);
        if room < HEAD as u64 {
            return Ok(None);
        }
        let bytes = source.read(offset, HEAD).map_err(Error::Read)?;
        let Some(&bytes) = bytes.first_chunk() else { return Ok(None) };
        let (head, checksum) = FrameHead::from_bytes(&bytes);
        if u64::from(head.header_len) > room - HEAD as u64 {
            return Ok(None);
        }
        let header = source.read(offset + HEAD as u64, head.header_len as usize);
        let header = header.map_err(Error::Read)?;
        // The head as it would be written has its unused bytes too.
        if !head.matches(&header, checksum) || head.to_bytes(&header) != bytes {
            return Err(damaged(offset, "a frame's head or header does not match its checksum"));
        }
        let end = head.frame_len().and_then(|len| offset.checked_add(len));
        let end = end.filter(|&end| end <= source.len());
        Ok(end.map(|end| Frame { head, bytes, header, offset, end }))
    }

    /// Every byte of a payload must belong to a stream and match its checksum.
    fn check_payload(&self, frame: &Frame) -> Result<(), Error> {
        let Some(streams) = frame.streams()? else { return Ok(()) };
        let source = frame.payload(self.source);
        let from = Unpacker { source, streams: &streams };
        let len = from.check().map_err(|why| why.at(frame.offset))?;
        if len != frame.head.payload_len {
            return Err(damaged(frame.offset, "a payload is not as long as its columns"));
        }
        Ok(())
    }

    /// Goes behind a frame, which must follow from those before it.
    fn pass(&mut self, frame: &Frame) -> Result<(), Error> {
        let follows = self.read.add(frame.offset, frame.head, &frame.header);
        follows
            .map_err(|_| damaged(frame.offset, "a frame does not follow from those before it"))?;
        self.listed.extend_from_slice(&frame.bytes);
        self.listed.extend_from_slice(&frame.header);
        self.at = frame.end;
        Ok(())
    }

    /// The index must list the frames before it as they stand.
    fn check_index(&self, frame: &Frame) -> Result<(), Error> {
        let streams = frame.streams()?.unwrap_or_default();
        let from = Unpacker { source: frame.payload(self.source), streams: &streams };
        let listed = from.bytes(Column::Frames).map_err(|why| why.at(frame.offset))?;
        if listed != self.listed {
            return Err(damaged(frame.offset, "the index does not list the frames as they are"));
        }
        Ok(())
    }

    /// Behind the index comes the trailer, or what was left of it when the file was cut.
    fn check_end(&self, frame: &Frame) -> Result<(), Error> {
        let left = self.source.len() - frame.end;
        let len = left.min(TRAILER as u64 + 1) as usize;
        let rest = self.source.read(frame.end, len).map_err(Error::Read)?;
        if !trailer(frame.offset).starts_with(&rest) {
            return Err(damaged(frame.end, "what follows the index is not the end of a tape"));
        }
        Ok(())
    }
}
