//! Why something about a process or an executable could not be told.

use std::path::PathBuf;

/// What went wrong, as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process has ended, or never was.
    #[error("There is no process {pid}.")]
    NoProcess {
        /// Its id.
        pid: u32,
    },
    /// The kernel does not let us look.
    #[error("{} may not be read: permission denied.", path.display())]
    Permission {
        /// The file.
        path: PathBuf,
    },
    /// The process lives, but this kernel has no such file.
    #[error("This kernel has no {}.", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The text is not what the kernel documents.
    #[error("{what} has an unexpected form: {found:?}.")]
    Malformed {
        /// What was read, such as `a line of /proc/PID/maps`.
        what: &'static str,
        /// The text, at most its first 200 characters.
        found: String,
    },
    /// Anything else that reading a file may meet.
    #[error("{} could not be read: {source}.", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// The file begins like an ELF file and then is none.
    #[error("{} is a damaged ELF file: {reason}.", path.display())]
    Elf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    pub(crate) fn malformed(what: &'static str, found: &[u8]) -> Error {
        let found = String::from_utf8_lossy(found).chars().take(200).collect();
        Error::Malformed { what, found }
    }
}
