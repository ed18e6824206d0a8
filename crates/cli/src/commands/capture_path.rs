//! `capture-path`: where the capture library is, which then knows where heaptape is.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use anyhow::Result;

use crate::library;
use crate::terminal::Terminal;

/// Prints the path, after the library is written if need be.
pub(crate) fn run(terminal: &Terminal) -> Result<ExitCode> {
    let path = library::path()?;
    library::leave_way_back(&path)?;
    let mut out = terminal.out();
    out.write_all(path.as_os_str().as_bytes())?;
    writeln!(out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
