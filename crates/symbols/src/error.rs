//! Why a file gives no names.

use std::path::PathBuf;

/// What went wrong, as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A place to search is no directory.
    #[error("{} is no directory that modules could be searched in.", path.display())]
    NoDirectory {
        /// What was named.
        path: PathBuf,
    },
    /// What lies at a path is a pipe, a device or a directory.
    #[error("{} is no regular file.", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// The system does not let the file be read.
    #[error("{} could not be read: {source}.", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// It is no ELF file of 64 bits with the low byte first.
    #[error("{} is no ELF file of a machine that is recorded on.", path.display())]
    NoElf {
        /// The file.
        path: PathBuf,
    },
    /// A part of the file is larger than any linker makes it.
    #[error("{} says that {what} has {count} entries, and no more than {most} are read.", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The part.
        what: &'static str,
        /// How many entries it has.
        count: u64,
        /// The limit.
        most: u64,
    },
}
