//! A program with its arguments and environment, ready for exec between fork and exec.
//!
//! `execvp`, which the standard library calls, hands what the kernel refuses to a shell: an executable
//! of another machine would be read as a script.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What exec is given.
pub(crate) struct Image {
    path: CString,
    arguments: List,
    environment: List,
}

/// A null-terminated array of C strings.
struct List {
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

// SAFETY: the pointers lead into `_strings`, which nobody changes.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl List {
    fn new(strings: impl Iterator<Item = io::Result<CString>>) -> io::Result<List> {
        let strings: Vec<CString> = strings.collect::<io::Result<_>>()?;
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(List { pointers, _strings: strings })
    }
}

impl Image {
    /// Everything is laid out here, so that [`Image::exec`] need not allocate.
    pub(crate) fn new(
        path: &Path,
        command: &[OsString],
        environment: &BTreeMap<OsString, OsString>,
    ) -> io::Result<Image> {
        let entry = |(name, value): (&OsString, &OsString)| {
            text(&[name.as_os_str(), value.as_os_str()].join(OsStr::new("=")))
        };
        Ok(Image {
            path: text(path.as_os_str())?,
            arguments: List::new(command.iter().map(|word| text(word)))?,
            environment: List::new(environment.iter().map(entry))?,
        })
    }

    /// Becomes the program; gives the reason when it can't.
    pub(crate) fn exec(&self) -> io::Error {
        let (arguments, environment) = (&self.arguments.pointers, &self.environment.pointers);
        // SAFETY: a C string and two null-terminated arrays of them.
        unsafe { libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        io::Error::last_os_error()
    }
}

fn text(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::other)
}
