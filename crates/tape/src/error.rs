//! What can go wrong with a tape, as whole sentences for the user.

use crate::ProcessNumber;
use std::path::PathBuf;

/// Why a tape cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened.
    #[error("cannot open {path}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Reading failed.
    #[error("cannot read the tape: {0}")]
    Read(std::io::Error),
    /// Writing failed.
    #[error("cannot write the tape: {0}")]
    Write(#[source] std::io::Error),
    /// The file does not begin as a tape does.
    #[error("this file is not a heaptape tape")]
    Foreign,
    /// The file is a tape of a later format.
    #[error(
        "this tape has format version {found}, but this heaptape reads only up to {known}; use a newer heaptape"
    )]
    Future {
        /// The version in the file.
        found: u16,
        /// The newest version that this reader knows.
        known: u16,
    },
    /// A part of the file contradicts itself or its checksum.
    #[error("the tape is damaged at byte {offset}: {what}")]
    Damaged {
        /// Where the damaged frame starts.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// There is no such process on the tape.
    #[error("there is no process number {process} on this tape; it has {count}")]
    NoProcess {
        /// The number asked for.
        process: ProcessNumber,
        /// How many there are.
        count: usize,
    },
    /// A process that has ended, or was never started, was given something to write.
    #[error("process number {0} is not being recorded")]
    NotRunning(ProcessNumber),
    /// A fork point that was dropped, or never made, was used.
    #[error("the fork point {0} does not exist")]
    NoForkPoint(u32),
}
