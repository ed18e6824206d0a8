//! What an ELF file is read from: a file on disk, or one that was unpacked into memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The bytes of an ELF file.
pub(crate) enum Source {
    File { file: File, length: u64 },
    Memory(Arc<[u8]>),
}

impl Source {
    /// An open file.
    pub(crate) fn file(file: File) -> io::Result<Source> {
        let length = file.metadata()?.len();
        Ok(Source::File { file, length })
    }

    /// The same bytes again.
    pub(crate) fn again(&self) -> io::Result<Source> {
        Ok(match self {
            Source::File { file, length } => {
                Source::File { file: file.try_clone()?, length: *length }
            }
            Source::Memory(bytes) => Source::Memory(Arc::clone(bytes)),
        })
    }

    /// How many there are.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Source::File { length, .. } => *length,
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// `length` bytes from `offset` on. No room is made for what is not there.
    pub(crate) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let end = offset.checked_add(length as u64).filter(|&end| end <= self.length());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        match self {
            Source::File { file, .. } => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes)
            }
            Source::Memory(bytes) => {
                let part = bytes.get(offset as usize..end as usize);
                part.map(<[u8]>::to_vec).ok_or(io::ErrorKind::UnexpectedEof.into())
            }
        }
    }
}
