//! The outline of the file: the opening, the frames' fixed heads, the trailer.
//!
//! ```text
//! opening   "HEAPTAPE" · version u16 (1, or 2 with sites) · 0 u16 · CRC-32 of these 12 bytes u32
//! frame     head (24 bytes) · header (varint fields) · payload
//!   head    kind u8 · 0 u8 · 0 u16 · process u32 · header length u32 · payload length u64
//!           · CRC-32 of the first 20 bytes of the head and of the header u32
//! trailer   offset of the index frame u64 · CRC-32 of these 8 bytes u32 · "TAPE-END"
//! ```
//!
//! Whole numbers are little-endian. A payload has checksums of its own, in the header.

use crate::Error;

/// The version of a tape without sites.
pub(crate) const PLAIN: u16 = 1;
/// The version of a tape with sites, and the newest that is read.
pub(crate) const WITH_SITES: u16 = 2;
/// How every tape begins.
pub(crate) const MAGIC: &[u8; 8] = b"HEAPTAPE";
/// How every whole tape ends.
pub(crate) const END_MAGIC: &[u8; 8] = b"TAPE-END";
/// The length of the opening in bytes.
pub(crate) const OPENING: usize = 16;
/// The length of a frame's head in bytes.
pub(crate) const HEAD: usize = 24;
/// The length of the trailer in bytes.
pub(crate) const TRAILER: usize = 20;
/// The longest header that a reader accepts, in bytes; command lines are the longest in practice.
pub(crate) const MAX_HEADER: u32 = 64 << 20;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// What was known at the beginning; the first frame.
    Job = 1,
    /// A process starts.
    Start = 2,
    /// Events of one process.
    Block = 3,
    /// Notes and samples of one process.
    Notes = 4,
    /// What changed in a process's live set since its last keyframe.
    Keyframe = 5,
    /// The rank of a process.
    Rank = 6,
    /// A process ends.
    End = 7,
    /// A process that was not recorded.
    Uncovered = 8,
    /// The headers of all frames before, and why the recording ended; the last frame.
    Index = 9,
    /// New call stacks of one process.
    Sites = 10,
    /// New interpreted code of one process.
    Codes = 11,
    /// Names of places in files.
    Names = 12,
}

impl FrameKind {
    /// The kind with this code. A reader passes over frames of other kinds.
    pub(crate) fn from_code(code: u8) -> Option<FrameKind> {
        const ALL: [FrameKind; 12] = [
            FrameKind::Job,
            FrameKind::Start,
            FrameKind::Block,
            FrameKind::Notes,
            FrameKind::Keyframe,
            FrameKind::Rank,
            FrameKind::End,
            FrameKind::Uncovered,
            FrameKind::Index,
            FrameKind::Sites,
            FrameKind::Codes,
            FrameKind::Names,
        ];
        ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// The fixed head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    /// The code of its kind.
    pub(crate) kind: u8,
    /// The process it belongs to; 0 where it belongs to none.
    pub(crate) process: u32,
    /// Bytes of header.
    pub(crate) header_len: u32,
    /// Bytes of payload.
    pub(crate) payload_len: u64,
}

impl FrameHead {
    fn opening_bytes(&self) -> [u8; HEAD - 4] {
        let mut bytes = [0; HEAD - 4];
        bytes[0] = self.kind;
        bytes[4..8].copy_from_slice(&self.process.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.header_len.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes
    }

    /// The head's bytes, with the checksum over it and `header`.
    pub(crate) fn to_bytes(self, header: &[u8]) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let opening = self.opening_bytes();
        bytes[..20].copy_from_slice(&opening);
        bytes[20..].copy_from_slice(&head_checksum(&opening, header).to_le_bytes());
        bytes
    }

    /// Reads a head; also gives the checksum that [`FrameHead::matches`] wants.
    pub(crate) fn from_bytes(bytes: &[u8; HEAD]) -> (FrameHead, u32) {
        let head = FrameHead {
            kind: bytes[0],
            process: le32(&bytes[4..8]),
            header_len: le32(&bytes[8..12]),
            payload_len: le64(&bytes[12..20]),
        };
        (head, le32(&bytes[20..24]))
    }

    /// Whether the checksum is that of this head and `header`.
    pub(crate) fn matches(&self, header: &[u8], checksum: u32) -> bool {
        head_checksum(&self.opening_bytes(), header) == checksum
    }

    /// Bytes of the whole frame; `None` if the lengths make no sense.
    pub(crate) fn frame_len(&self) -> Option<u64> {
        (HEAD as u64 + u64::from(self.header_len)).checked_add(self.payload_len)
    }
}

fn head_checksum(opening: &[u8; HEAD - 4], header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(opening);
    hasher.update(header);
    hasher.finalize()
}

/// The first bytes of a tape.
pub(crate) fn opening(version: u16) -> [u8; OPENING] {
    let mut bytes = [0; OPENING];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Holds the first bytes of a file against those of a tape. A file that ends inside them is a
/// tape cut to nothing if what is there agrees. Gives the version.
pub(crate) fn check_opening(bytes: &[u8]) -> Result<u16, Error> {
    let bytes = bytes.get(..OPENING).unwrap_or(bytes);
    if bytes.is_empty() || !MAGIC.starts_with(bytes.get(..8).unwrap_or(bytes)) {
        return Err(Error::Foreign);
    }
    if bytes.len() < OPENING {
        return Ok(PLAIN);
    }
    if let Some(version) = [PLAIN, WITH_SITES].into_iter().find(|&v| bytes == opening(v)) {
        return Ok(version);
    }
    if le32(&bytes[12..]) != crc32fast::hash(&bytes[..12]) {
        return Err(Error::Damaged {
            offset: 0,
            what: "its first bytes do not match their checksum",
        });
    }
    Err(Error::Future { found: u16::from_le_bytes([bytes[8], bytes[9]]), known: WITH_SITES })
}

/// The last bytes of a whole tape, whose index frame stands at `offset`.
pub(crate) fn trailer(offset: u64) -> [u8; TRAILER] {
    let mut bytes = [0; TRAILER];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..8]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    bytes[12..].copy_from_slice(END_MAGIC);
    bytes
}

/// The offset of the index frame, if these are the last bytes of a whole tape.
pub(crate) fn index_offset(bytes: &[u8; TRAILER]) -> Option<u64> {
    let offset = le64(&bytes[..8]);
    (bytes[12..] == END_MAGIC[..] && le32(&bytes[8..12]) == crc32fast::hash(&bytes[..8]))
        .then_some(offset)
}

fn le32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}

fn le64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}
