//! Where the bytes of a tape are read from: a file, or memory.

use crate::column::PayloadSource;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bytes of a tape.
pub(crate) enum Source {
    File { file: File, len: u64 },
    Memory(Vec<u8>),
}

impl Source {
    pub(crate) fn file(file: File) -> io::Result<Source> {
        let len = file.metadata()?.len();
        Ok(Source::File { file, len })
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Source::File { len, .. } => *len,
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Exactly `len` bytes from `offset`.
    pub(crate) fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= self.len());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        match self {
            Source::File { file, .. } => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes)
            }
            Source::Memory(bytes) => {
                let range = offset as usize..end as usize;
                bytes.get(range).map(<[u8]>::to_vec).ok_or(io::ErrorKind::UnexpectedEof.into())
            }
        }
    }
}

/// The payload of one frame.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) source: &'a Source,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl PayloadSource for Payload<'_> {
    fn stored(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.source.read(self.offset.wrapping_add(offset), len)
    }
}
