//! `record`: runs a command and writes its heap calls onto a tape.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::args::Record;
use crate::terminal::Terminal;

/// Runs the command under the capture library.
pub(crate) fn run(args: Record, _terminal: &Terminal) -> Result<ExitCode> {
    let library = crate::capture::path()?;
    bail!("{} cannot be recorded with {} yet", args.command[0].display(), library.display())
}
