//! A payload is a row of streams: each compressed by itself, with its lengths and checksum in
//! the frame's header, so that a reader takes only those that it wants.
//!
//! Numbers lie in up to three streams of a column: one byte a value in the first, the rest of
//! larger values in the second and third.

use crate::Error;
use crate::field::{FieldReader, FieldWriter, Truncated};
use crate::numbers::Numbers;
use std::hint::select_unpredictable;
use std::io;

/// Zstandard's level. Levels 2 and 3 save about one part in thirty and take a third longer.
const LEVEL: i32 = 1;
/// The level for a column that is worth it: the sites of events, which take a seventh less.
const HIGHER_LEVEL: i32 = 3;
/// The longest stream that a reader unpacks, in bytes.
const MAX_STREAM: u64 = 1 << 28;
/// Streams shorter than this are stored as they are.
const WORTH_PACKING: usize = 24;

/// A column of a payload; its streams have the ids 4·column + 0, 1, 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Column {
    Operation = 1,
    Size = 2,
    Align = 3,
    Age = 4,
    Thread = 5,
    Unknown = 6,
    Inherited = 7,
    Fault = 8,
    Slack = 9,
    Address = 10,
    Caller = 11,
    CallerName = 12,
    Time = 13,
    Notes = 14,
    Ordinal = 15,
    Birth = 16,
    Ended = 17,
    Pending = 18,
    Frames = 19,
    CallerAddress = 20,
    Branch = 21,
    Added = 22,
    Place = 23,
    Frame = 24,
    FrameAddress = 25,
    SiteEnd = 26,
    Code = 27,
    Names = 32,
}

impl Column {
    fn stream(self, part: u64) -> u64 {
        self as u64 * 4 + part
    }
}

/// Builds a payload and the directory of its streams.
pub(crate) struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    higher: zstd::bulk::Compressor<'static>,
    streams: Vec<u8>,
    count: u64,
    directory: FieldWriter,
}

impl Packer {
    pub(crate) fn new() -> io::Result<Packer> {
        Ok(Packer {
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            higher: zstd::bulk::Compressor::new(HIGHER_LEVEL)?,
            streams: Vec::new(),
            count: 0,
            directory: FieldWriter::new(),
        })
    }

    /// Adds a column of bytes.
    pub(crate) fn bytes(&mut self, column: Column, bytes: &[u8]) -> io::Result<()> {
        self.stream(column.stream(0), bytes, false)
    }

    /// Adds a column of numbers as fields in one stream, packed as far as it goes. What repeats is a row of numbers, which is
    /// found once where their bytes stand together.
    pub(crate) fn fields(&mut self, column: Column, numbers: &Numbers) -> io::Result<()> {
        let mut fields = FieldWriter::new();
        fields.bytes.reserve(numbers.streams.iter().map(Vec::len).sum());
        let [first, second, third] = &numbers.streams;
        let apart = || io::Error::other("the parts of a column do not belong together");
        for number in join(first, second, third).ok_or_else(apart)? {
            fields.number(number);
        }
        self.stream(column.stream(0), &fields.bytes, true)
    }

    /// Adds a column of numbers.
    pub(crate) fn numbers(&mut self, column: Column, numbers: &Numbers) -> io::Result<()> {
        for (part, bytes) in (0..).zip(&numbers.streams) {
            self.stream(column.stream(part), bytes, false)?;
        }
        Ok(())
    }

    /// Adds a column of numbers that come one by one.
    pub(crate) fn list(
        &mut self,
        column: Column,
        numbers: impl IntoIterator<Item = u64>,
    ) -> io::Result<()> {
        let mut all = Numbers::default();
        all.extend(numbers);
        self.numbers(column, &all)
    }

    fn stream(&mut self, id: u64, raw: &[u8], is_worth_it: bool) -> io::Result<()> {
        if raw.is_empty() {
            return Ok(());
        }
        let start = self.streams.len();
        let bound = zstd::zstd_safe::compress_bound(raw.len());
        self.streams.resize(start + bound, 0);
        let mut stored = raw.len();
        let mut packed = false;
        if raw.len() >= WORTH_PACKING {
            let room = &mut self.streams[start..];
            let compressor = if is_worth_it { &mut self.higher } else { &mut self.compressor };
            let len = compressor.compress_to_buffer(raw, room)?;
            if len < raw.len() {
                (stored, packed) = (len, true);
            }
        }
        if !packed {
            self.streams[start..start + raw.len()].copy_from_slice(raw);
        }
        self.streams.truncate(start + stored);
        self.count += 1;
        self.directory.number(id).number(u64::from(packed)).number(raw.len() as u64);
        self.directory.number(stored as u64).checksum(crc32fast::hash(&self.streams[start..]));
        Ok(())
    }

    /// Appends the directory to a header and gives the payload; the packer is empty after it.
    pub(crate) fn finish(&mut self, header: &mut FieldWriter) -> Vec<u8> {
        header.number(self.count).raw(&self.directory.bytes);
        self.count = 0;
        self.directory.bytes.clear();
        std::mem::take(&mut self.streams)
    }
}

/// The first value that does not fit in the first stream alone.
const MIDDLE: u64 = 0xc0;
/// The first byte of values that lie in the third stream: this plus their length in bytes.
const WIDE: u64 = 0xf0;
const MIDDLE_END: u64 = MIDDLE + ((WIDE - MIDDLE) << 8);

/// Streams that a column of numbers has at the most.
pub(crate) const WIDTHS: usize = 3;

/// Appends a number to the streams of its column.
#[inline]
pub(crate) fn split(value: u64, parts: &mut [Vec<u8>; WIDTHS]) {
    if value < MIDDLE {
        parts[0].push(value as u8);
    } else {
        split_large(value, parts);
    }
}

/// The same without a branch, for columns whose values are large as often as not: a branch on that would be foreseen
/// wrongly each other time.
#[inline]
pub(crate) fn split_any(value: u64, [first, second, third]: &mut [Vec<u8>; WIDTHS]) {
    let (is_larger, is_wide) = (value >= MIDDLE, value >= MIDDLE_END);
    let (rest, len) = (value.wrapping_sub(MIDDLE), length(value));
    let larger = select_unpredictable(is_wide, WIDE + len as u64, MIDDLE + (rest >> 8));
    first.push(select_unpredictable(is_larger, larger, value) as u8);
    // Each of the other streams gets what it would have, and keeps it if it has.
    let (seconds, thirds) = (second.len(), third.len());
    second.push(rest as u8);
    second.truncate(seconds + usize::from(is_larger & !is_wide));
    third.extend_from_slice(&value.to_le_bytes());
    third.truncate(thirds + select_unpredictable(is_wide, len, 0));
}

/// Bytes of a number without those that are 0 at its upper end.
#[inline]
fn length(value: u64) -> usize {
    8 - value.leading_zeros() as usize / 8
}

#[cold]
fn split_large(value: u64, parts: &mut [Vec<u8>; WIDTHS]) {
    if value < MIDDLE_END {
        let rest = value - MIDDLE;
        parts[0].push((MIDDLE + (rest >> 8)) as u8);
        parts[1].push(rest as u8);
    } else {
        let len = length(value);
        parts[0].push((WIDE as usize + len) as u8);
        parts[2].extend_from_slice(&value.to_le_bytes()[..len]);
    }
}

/// One stream of a payload, as its directory tells of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u64,
    packed: bool,
    raw_len: u64,
    pub(crate) offset: u64,
    pub(crate) stored_len: u64,
    checksum: u32,
}

/// Reads the directory that ends a header.
pub(crate) fn directory(fields: &mut FieldReader<'_>) -> Result<Vec<Stream>, Truncated> {
    let mut streams = Vec::new();
    let mut offset = 0u64;
    for _ in 0..fields.number()? {
        let stream = Stream {
            id: fields.number()?,
            packed: fields.number()? != 0,
            raw_len: fields.number()?,
            stored_len: fields.number()?,
            checksum: fields.checksum()?,
            offset,
        };
        offset = offset.checked_add(stream.stored_len).ok_or(Truncated)?;
        if stream.raw_len > MAX_STREAM {
            return Err(Truncated);
        }
        streams.push(stream);
    }
    Ok(streams)
}

/// Where the stored bytes of a payload come from.
pub(crate) trait PayloadSource {
    /// The bytes of the payload from `offset`; an error if it has not so many.
    fn stored(&self, offset: u64, len: usize) -> io::Result<Vec<u8>>;
}

/// Why a stream could not be unpacked.
pub(crate) enum Unpack {
    Read(io::Error),
    Damaged(&'static str),
}

impl Unpack {
    /// The same for the user, who learns where the frame begins.
    pub(crate) fn at(self, offset: u64) -> Error {
        match self {
            Unpack::Read(source) => Error::Read(source),
            Unpack::Damaged(what) => Error::Damaged { offset, what },
        }
    }
}

/// Unpacks the streams of one payload.
pub(crate) struct Unpacker<'a, P> {
    pub(crate) source: P,
    pub(crate) streams: &'a [Stream],
}

impl<P: PayloadSource> Unpacker<'_, P> {
    /// A column of bytes; empty if there is none.
    pub(crate) fn bytes(&self, column: Column) -> Result<Vec<u8>, Unpack> {
        self.stream(column.stream(0))
    }

    /// A column of numbers.
    pub(crate) fn numbers(&self, column: Column) -> Result<Vec<u64>, Unpack> {
        let first = self.stream(column.stream(0))?;
        let second = self.stream(column.stream(1))?;
        let third = self.stream(column.stream(2))?;
        join(&first, &second, &third).ok_or(Unpack::Damaged("a column of numbers is too short"))
    }

    /// How many bytes, or numbers, a column has, as far as the directory is right; 0 if there is none.
    pub(crate) fn length(&self, column: Column) -> u64 {
        let first = self.streams.iter().find(|stream| stream.id == column.stream(0));
        first.map_or(0, |stream| stream.raw_len)
    }

    /// A column of fields.
    pub(crate) fn fields(&self, column: Column) -> Result<Vec<u64>, Unpack> {
        let bytes = self.bytes(column)?;
        let mut fields = FieldReader::new(&bytes);
        let mut all = Vec::with_capacity(bytes.len());
        while !fields.is_empty() {
            let number = fields.number();
            all.push(number.map_err(|_| Unpack::Damaged("a column of fields is too short"))?);
        }
        Ok(all)
    }

    /// Holds all streams against their checksums, unpacking none; gives the bytes that they take.
    pub(crate) fn check(&self) -> Result<u64, Unpack> {
        let lengths = self.streams.iter().map(|stream| Ok(self.stored(stream)?.len() as u64));
        lengths.sum()
    }

    fn stored(&self, stream: &Stream) -> Result<Vec<u8>, Unpack> {
        let len = usize::try_from(stream.stored_len).map_err(|_| TOO_LONG)?;
        let stored = self.source.stored(stream.offset, len).map_err(Unpack::Read)?;
        if crc32fast::hash(&stored) != stream.checksum {
            return Err(Unpack::Damaged("a column does not match its checksum"));
        }
        Ok(stored)
    }

    fn stream(&self, id: u64) -> Result<Vec<u8>, Unpack> {
        let Some(stream) = self.streams.iter().find(|s| s.id == id) else { return Ok(Vec::new()) };
        let stored = self.stored(stream)?;
        if !stream.packed {
            let is_whole = stored.len() as u64 == stream.raw_len;
            return if is_whole { Ok(stored) } else { Err(WRONG_LENGTH) };
        }
        let raw_len = usize::try_from(stream.raw_len).map_err(|_| TOO_LONG)?;
        match zstd::bulk::decompress(&stored, raw_len) {
            Ok(raw) if raw.len() == raw_len => Ok(raw),
            _ => Err(Unpack::Damaged("a column cannot be unpacked")),
        }
    }
}

const WRONG_LENGTH: Unpack = Unpack::Damaged("a column has another length than its directory says");
const TOO_LONG: Unpack = Unpack::Damaged("a column is longer than memory");

fn join(first: &[u8], second: &[u8], third: &[u8]) -> Option<Vec<u64>> {
    let mut values = Vec::with_capacity(first.len());
    let (mut second, mut third) = (second.iter(), third);
    for &byte in first {
        let byte = u64::from(byte);
        values.push(if byte < MIDDLE {
            byte
        } else if byte < WIDE {
            MIDDLE + (((byte - MIDDLE) << 8) | u64::from(*second.next()?))
        } else {
            let (bytes, rest) = third.split_at_checked((byte - WIDE) as usize)?;
            third = rest;
            let mut word = [0; 8];
            word.get_mut(..bytes.len())?.copy_from_slice(bytes);
            u64::from_le_bytes(word)
        });
    }
    Some(values)
}

/// Signed as unsigned, small magnitudes small.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The difference of two numbers that wrap around, small magnitudes small.
pub(crate) fn delta(from: u64, to: u64) -> u64 {
    zigzag(to.wrapping_sub(from) as i64)
}

/// The number that lies a [`delta`] from another.
pub(crate) fn undelta(from: u64, delta: u64) -> u64 {
    from.wrapping_add(unzigzag(delta) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_split_as_the_page_says() {
        let page = include_str!("../../../docs/tape-format.md");
        let (_, from) = page.split_once("```columns\n").unwrap();
        let (examples, _) = from.split_once("```").unwrap();
        for example in examples.lines() {
            let (number, streams) = example.split_once(" = ").unwrap();
            let streams: Vec<Vec<u8>> = streams
                .split('|')
                .map(|stream| stream.split_whitespace())
                .map(|bytes| bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect())
                .collect();
            let mut parts = <[Vec<u8>; WIDTHS]>::default();
            split(number.parse().unwrap(), &mut parts);
            assert_eq!(parts.as_slice(), streams);
            let mut same = <[Vec<u8>; WIDTHS]>::default();
            split_any(number.parse().unwrap(), &mut same);
            assert_eq!(same, parts);
            let [first, second, third] = &parts;
            assert_eq!(join(first, second, third), Some(vec![number.parse().unwrap()]));
        }
    }

    #[test]
    fn numbers_are_split_the_same_with_and_without_a_branch() {
        let edges = (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        let edges = edges.chain([MIDDLE_END - 1, MIDDLE_END, MIDDLE_END + 1, u64::MAX, 0]);
        let (mut one, mut other) = <([Vec<u8>; WIDTHS], [Vec<u8>; WIDTHS])>::default();
        for value in edges.chain(0..70_000) {
            split(value, &mut one);
            split_any(value, &mut other);
            assert_eq!(one, other, "{value}");
            one.iter_mut().chain(&mut other).for_each(Vec::clear);
        }
    }

    #[test]
    fn a_difference_comes_back_from_either_end() {
        for from in [0, 1, u64::MAX, 1 << 63] {
            for to in [0, 1, u64::MAX, 1 << 63] {
                assert_eq!(undelta(from, delta(from, to)), to);
            }
        }
    }
}
