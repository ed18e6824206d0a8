//! What keeps a recording from starting or from ending well, as sentences for the user.

use std::io;
use std::path::PathBuf;

/// Why a recording could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such command.
    #[error("cannot run {command}: there is no such command")]
    NotFound {
        /// The command as it was given.
        command: String,
    },
    /// The command is there but can't be run.
    #[error("cannot run {command}: {why}")]
    NotExecutable {
        /// The command as it was given.
        command: String,
        /// What the system says.
        why: String,
    },
    /// The tape can't be created.
    #[error("cannot write the tape {path}: {source}; nothing was started")]
    Output {
        /// Where it was to be.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The tape was to go to something that is no file.
    #[error("cannot write the tape {path}: it is not a regular file; nothing was started")]
    NoFile {
        /// Where it was to be.
        path: PathBuf,
    },
    /// The tapes of jobs were to go to something that is no directory.
    #[error(
        "cannot write tapes to {path}: with --join, -o names a directory, and this is none; nothing was started"
    )]
    NoDirectory {
        /// Where they were to be.
        path: PathBuf,
    },
    /// There is no recording to join, as a whole sentence.
    #[error("{0}")]
    Joined(String),
    /// No memory that can be shared with the program.
    #[error("cannot set up shared memory ({what}): {source}; nothing was started")]
    Arena {
        /// Which step failed.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The tape refused what it was given.
    #[error("the recording could not be written: {0}")]
    Tape(#[from] heaptape_tape::Error),
    /// A system call that does not fail on a working system failed.
    #[error("{what} failed: {source}")]
    System {
        /// The call.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}
