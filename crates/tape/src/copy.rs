//! A tape written once more, with other names on it.
//!
//! Tapes are never changed. All frames are copied byte by byte but those of names, and the index is made anew.

use crate::format::{FrameKind, HEAD, OPENING};
use crate::frame::{Encoder, RawFrame};
use crate::index::read_head;
use crate::names::{ModuleNames, RawNames};
use crate::source::Source;
use crate::{Error, Tape};
use std::io::Write;

/// What is copied at a time, in bytes.
const PIECE: u64 = 1 << 20;

impl Tape {
    /// Writes this tape with these names in place of those that are on it. A cut tape stays one: what it has is
    /// copied up to the cut, and the names follow.
    pub fn copy_with(&self, names: &[ModuleNames], out: &mut impl Write) -> Result<(), Error> {
        let source = self.source();
        let start = source.len().min(OPENING as u64);
        copy(source, 0..start, out)?;
        let mut encoder = Encoder::going_on(start)?;
        let (mut offset, mut has_end) = (start, false);
        while let Some((head, header)) = read_head(source, offset).map_err(Error::Read)? {
            let end = head.frame_len().and_then(|len| offset.checked_add(len));
            let Some(end) = end.filter(|&end| end <= source.len()) else { break };
            match FrameKind::from_code(head.kind) {
                Some(FrameKind::Index) => {
                    has_end = true;
                    break;
                }
                Some(FrameKind::Names) => {}
                _ => {
                    copy(source, offset..end, out)?;
                    encoder.pass(
                        &source.read(offset, HEAD).map_err(Error::Read)?,
                        &header,
                        end - offset,
                    );
                }
            }
            offset = end;
        }
        let summary = self.summary();
        if !summary.cut && !has_end {
            let what = "a frame's head or header does not match its checksum";
            return Err(Error::Damaged { offset, what });
        }
        let last = (!summary.cut).then(|| RawFrame::end(summary.ended.clone()));
        for frame in RawNames::frames(names).into_iter().chain(last) {
            let mut bytes = Vec::new();
            frame.encode(&mut encoder, &mut bytes)?;
            out.write_all(&bytes).map_err(Error::Write)?;
        }
        Ok(())
    }
}

fn copy(source: &Source, range: std::ops::Range<u64>, out: &mut impl Write) -> Result<(), Error> {
    let mut at = range.start;
    while at < range.end {
        let length = PIECE.min(range.end - at);
        let bytes = source.read(at, length as usize).map_err(Error::Read)?;
        out.write_all(&bytes).map_err(Error::Write)?;
        at += length;
    }
    Ok(())
}
