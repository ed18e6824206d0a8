//! What is written to, by name, so that an error says where it happened; and stdout, which may be closed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, ensure};
use heaptape_collect::was_open;
use rustix::io::Errno;

/// A writer whose errors begin with its name; their kind stays.
pub(crate) struct Named<W> {
    name: String,
    inner: W,
}

impl<W: Write> Named<W> {
    /// Gives a writer a name.
    pub(crate) fn new(name: impl Into<String>, inner: W) -> Named<W> {
        Named { name: name.into(), inner }
    }

    fn named(&self, error: io::Error) -> io::Error {
        match error.kind() {
            // Writers try again after this one.
            io::ErrorKind::Interrupted => error,
            kind => {
                let why = by_limit(&error);
                io::Error::new(kind, format!("cannot write to {}: {error}{why}", self.name))
            }
        }
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes).map_err(|error| self.named(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().map_err(|error| self.named(error))
    }
}

/// The limit of the shell that an error comes from, as a remark behind it.
pub(crate) fn by_limit(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::FBIG) => " (the limit on the size of files, ulimit -f, is too low)",
        Some(Errno::MFILE) => " (the limit on open files, ulimit -n, is too low)",
        _ => "",
    }
}

/// Refuses to write over the tape that is being read, under whatever name.
pub(crate) fn check_other(output: &Path, input: &Path) -> Result<()> {
    let identity = |path| fs::metadata(path).map(|m| (m.dev(), m.ino()));
    let same = identity(output).is_ok_and(|o| identity(input).is_ok_and(|i| i == o));
    ensure!(!same, "{} is the tape itself and would be overwritten", output.display());
    Ok(())
}

/// Standard output. Where it was closed when heaptape started, nothing can be written to it: what the
/// Rust runtime has opened in its place would swallow all.
pub(crate) struct Stdout(io::Stdout);

impl Stdout {
    /// It, to be written to.
    pub(crate) fn get() -> Stdout {
        Stdout(io::stdout())
    }

    /// An error where stdout was closed.
    pub(crate) fn check() -> io::Result<()> {
        const STDOUT: i32 = 1;
        let closed = || io::Error::other("it was closed when heaptape started");
        was_open(STDOUT).then_some(()).ok_or_else(closed)
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Stdout::check()?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
