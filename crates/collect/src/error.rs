//! What keeps a recording from starting or from ending well, as sentences for the user.

use std::io;
use std::path::PathBuf;

/// Why a recording could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such command.
    #[error("cannot run {}: there is no such command", named(command))]
    NotFound {
        /// The command as it was given.
        command: String,
    },
    /// The command is there but can't be run.
    #[error("cannot run {}: {why}", named(command))]
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
    /// No tape can be created in the directory that is taken where no file is named.
    #[error("cannot write a tape in the directory {directory}: {source}; nothing was started")]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another recording writes the tape.
    #[error("cannot write the tape {path}: another recording is writing it; nothing was started")]
    Taken {
        /// Where it was to be.
        path: PathBuf,
    },
    /// The tape may not become large enough to tell anything.
    #[error(
        "cannot write a tape of at most {allowed} bytes: one of this command needs {least}; nothing was started"
    )]
    TooSmall {
        /// The bytes that it may have.
        allowed: u64,
        /// The fewest that are of use.
        least: u64,
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
    /// The command could not enter the control group of its job.
    #[error("the command could not enter the control group of its job; nothing was started")]
    Outside,
    /// No memory that can be shared with the program.
    #[error("{}; nothing was started", few(source).unwrap_or_else(|| format!(
        "cannot set up shared memory ({what}): {source}{}", limit(source)
    )))]
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
    #[error("{}; nothing was started", few(source).unwrap_or_else(|| format!(
        "{what} failed: {source}{}", limit(source)
    )))]
    System {
        /// The call.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// A command's name as it may stand in a sentence.
fn named(command: &str) -> &str {
    if command.is_empty() { "a command whose name is empty" } else { command }
}

/// The limit that such an error comes from, as the shell names it.
fn limit(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EFBIG) => " (the limit on the size of files, ulimit -f, is too low)",
        Some(libc::EAGAIN) => " (the limit on processes, ulimit -u, is too low)",
        _ => "",
    }
}

/// Where descriptors have run out it is no matter which call wanted the next one.
fn few(error: &io::Error) -> Option<String> {
    if error.raw_os_error() != Some(libc::EMFILE) {
        return None;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let current = limit.current.map_or_else(|| "unlimited".to_owned(), |files| files.to_string());
    Some(format!(
        "too few files may be open: the limit is {current}, and heaptape needs about 20 beside those that are open already; raise it (ulimit -n 64)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_shell_is_named_and_not_the_call_that_has_met_it() {
        let system = |code| {
            let source = io::Error::from_raw_os_error(code);
            Error::System { what: "sigaction", source }.to_string()
        };
        let text = system(libc::EMFILE);
        assert!(text.contains("ulimit -n") && !text.contains("sigaction"), "{text}");
        assert!(system(libc::EFBIG).contains("ulimit -f"));
        assert!(system(libc::EAGAIN).contains("ulimit -u"));
        assert_eq!(
            system(libc::EPERM),
            "sigaction failed: Operation not permitted (os error 1); nothing was started"
        );
    }
}
