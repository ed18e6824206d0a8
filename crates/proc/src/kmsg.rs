//! The kernel's log, from a moment on.
//!
//! From `/dev/kmsg`, which gives one record a read and may be closed to users (dmesg_restrict); source is the kernel's
//! Documentation/ABI/testing/dev-kmsg. A plain file of the same records serves as well.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::Error;

/// Where the kernel's log is read.
pub const PATH: &str = "/dev/kmsg";

/// The longest record, and more.
const RECORD: usize = 16 << 10;
/// More records are not read at once: somebody may write as fast as we read.
const MOST: usize = 1 << 16;

/// An open log.
#[derive(Debug)]
pub struct Log(File);

/// What came into the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The messages, in order.
    pub messages: Vec<String>,
    /// Whether some were lost, since the log is a ring.
    pub has_gaps: bool,
}

impl Log {
    /// Opens a log at its end: what is in it already is no news.
    ///
    /// # Errors
    /// [`Error::Permission`] where it may not be read.
    pub fn open(path: &Path) -> Result<Log, Error> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
        let flags = i32::try_from(nonblocking).unwrap_or(0);
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let sought = opened.and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file));
        sought.map(Log).map_err(|source| match source.kind() {
            ErrorKind::PermissionDenied => Error::Permission { path: path.to_owned() },
            ErrorKind::NotFound => Error::Missing { path: path.to_owned() },
            _ => Error::Io { path: path.to_owned(), source },
        })
    }

    /// What came since it was opened, or since the last time.
    pub fn news(&mut self) -> News {
        let mut news = News::default();
        let mut record = vec![0; RECORD];
        for _ in 0..MOST {
            match self.0.read(&mut record) {
                Ok(0) => break,
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    news.messages.extend(text.lines().filter_map(message));
                }
                // What was to come next has been written over.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => news.has_gaps = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        news
    }
}

/// The message of a line: behind the first semicolon. Lines that go on begin with a blank.
fn message(line: &str) -> Option<String> {
    let (head, message) = line.split_once(';')?;
    head.starts_with(|c: char| c.is_ascii_digit()).then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_what_comes_afterwards_is_news() {
        let path = std::env::temp_dir().join(format!("heaptape-kmsg.{}", std::process::id()));
        std::fs::write(&path, "6,1,1,-;before\n").unwrap();
        let mut log = Log::open(&path).unwrap();
        assert_eq!(log.news(), News::default());
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"3,2,9,-;Out of memory; x\n SUBSYSTEM=a\n6,3,9,c;y\nnonsense\n").unwrap();
        assert_eq!(log.news().messages, ["Out of memory; x", "y"]);
        assert_eq!(log.news(), News::default());
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Log::open(&path), Err(Error::Missing { .. })));
    }

    #[test]
    fn the_kernels_own_is_read_without_waiting() {
        match Log::open(Path::new(PATH)) {
            Ok(mut log) => assert!(log.news().messages.len() < MOST),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
