//! What is written to, by name, so that an error says where it happened.

use std::io::{self, Write};

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
            kind => io::Error::new(kind, format!("cannot write to {}: {error}", self.name)),
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
