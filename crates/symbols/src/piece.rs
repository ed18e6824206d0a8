//! A part of a debug section, as gimli reads it: in memory that is shared, and with a bound on all that is read.
//!
//! Debug information is foreign. Units may share one long list, strings may be repeated without end, and
//! nested entries are followed by recursion. So whatever is read is counted, and reading fails when a file
//! has taken more than it could need, or when the stack has grown by more than any real nesting makes it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use addr2line::gimli::{Error, LittleEndian, Reader, ReaderOffsetId, Result};

/// How far the stack may grow below a lookup, in bytes: the half of what a thread has that asked for none.
const STACK: usize = 1 << 20;

/// What a string costs beside its reading: it is likely to be kept.
const PER_STRING: u64 = 16;

/// What may still be read, for all sections of a module together.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    left: AtomicU64,
    /// The address of something on the stack where the lookup began; 0 before the first, where nothing is nested.
    stack: AtomicUsize,
}

impl Meter {
    /// Allows `reads` more.
    pub(crate) fn allow(&self, reads: u64) {
        self.left.store(self.left.load(Relaxed).saturating_add(reads), Relaxed);
    }

    /// To be called where a lookup begins.
    pub(crate) fn begin(&self) {
        self.stack.store(height(), Relaxed);
    }

    /// Whether all was read that may be.
    pub(crate) fn is_used_up(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    /// Only one thread reads at a time, so that nothing is lost between the two steps.
    #[inline]
    fn charge(&self, reads: u64) -> Result<()> {
        let left = self.left.load(Relaxed).saturating_sub(reads);
        self.left.store(left, Relaxed);
        let began = self.stack.load(Relaxed);
        let deep = began != 0 && began.abs_diff(height()) > STACK;
        if left == 0 || deep { Err(Error::UnexpectedEof(ReaderOffsetId(0))) } else { Ok(()) }
    }
}

/// About where the stack is.
#[inline]
fn height() -> usize {
    let here = 0u8;
    std::ptr::from_ref(&here) as usize
}

/// The bytes of a section, and the meter for reading them.
#[derive(Debug)]
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    meter: Arc<Meter>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    section: Arc<Bytes>,
    start: usize,
    length: usize,
}

impl Piece {
    /// A whole section.
    pub(crate) fn new(bytes: Vec<u8>, meter: &Arc<Meter>) -> Piece {
        let length = bytes.len();
        let section = Arc::new(Bytes { bytes, meter: Arc::clone(meter) });
        Piece { section, start: 0, length }
    }

    /// The bytes of this part.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.section.bytes.get(self.start..self.start + self.length).unwrap_or_default()
    }

    fn take(&mut self, length: usize) -> Result<&[u8]> {
        self.section.meter.charge(1)?;
        let start = self.start;
        self.advance(length)?;
        let end = start + length;
        self.section.bytes.get(start..end).ok_or(Error::UnexpectedEof(ReaderOffsetId(0)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let end = Error::UnexpectedEof(self.offset_id());
        self.take(N)?.first_chunk().copied().ok_or(end)
    }

    fn advance(&mut self, length: usize) -> Result<()> {
        let end = || Error::UnexpectedEof(ReaderOffsetId(0));
        self.length = self.length.checked_sub(length).ok_or_else(end)?;
        self.start += length;
        Ok(())
    }

    fn text(&self) -> Result<&[u8]> {
        self.section.meter.charge(PER_STRING + self.length as u64)?;
        Ok(self.bytes())
    }
}

impl Reader for Piece {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    fn len(&self) -> usize {
        self.length
    }

    fn empty(&mut self) {
        self.length = 0;
    }

    fn truncate(&mut self, length: usize) -> Result<()> {
        if length > self.length {
            return Err(Error::UnexpectedEof(self.offset_id()));
        }
        self.length = length;
        Ok(())
    }

    fn offset_from(&self, base: &Piece) -> usize {
        self.start.saturating_sub(base.start)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.start as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let offset = usize::try_from(id.0).ok()?.checked_sub(self.start)?;
        (offset <= self.length).then_some(offset)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let found = memchr::memchr(byte, self.bytes());
        let looked_at = found.unwrap_or(self.length) as u64;
        self.section.meter.charge(1 + looked_at / 8)?;
        found.ok_or(Error::UnexpectedEof(self.offset_id()))
    }

    fn skip(&mut self, length: usize) -> Result<()> {
        self.section.meter.charge(1)?;
        self.advance(length)
    }

    fn split(&mut self, length: usize) -> Result<Piece> {
        self.section.meter.charge(1)?;
        let start = self.start;
        self.advance(length)?;
        Ok(Piece { section: Arc::clone(&self.section), start, length })
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        self.text().map(Cow::from)
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        std::str::from_utf8(self.text()?).map(Cow::from).map_err(|_| Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        Ok(String::from_utf8_lossy(self.text()?))
    }

    fn read_slice(&mut self, room: &mut [u8]) -> Result<()> {
        let bytes = self.take(room.len())?;
        room.copy_from_slice(bytes);
        Ok(())
    }

    fn read_u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn read_u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn read_u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn read_u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
