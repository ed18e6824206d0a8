//! The frames of the file: kinds, headers, compression, checksums.

use crate::{BlockSink, Error};
use std::io::Write;

/// A frame before compression: columns of events, or a small record.
#[derive(Debug)]
pub struct RawFrame {}

#[allow(unused_variables)] // signatures first
impl RawFrame {
    /// Compresses the frame and appends its bytes to `out`. Frames must be encoded in the order
    /// in which the sink got them, with one `encoder`: it knows the offsets for the index.
    pub fn encode(self, encoder: &mut Encoder, out: &mut Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    /// About how many bytes the frame holds in memory.
    pub fn memory(&self) -> usize {
        0
    }
}

/// The state of encoding: compression contexts, the offset reached, what the index needs.
#[derive(Default)]
pub struct Encoder {}

impl Encoder {
    /// A fresh one, for one file.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Bytes encoded so far: the length of the file.
    pub fn bytes(&self) -> u64 {
        0
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
    pub fn new(out: W) -> FrameWriter<W> {
        FrameWriter { out, encoder: Encoder::new(), buffer: Vec::new() }
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
