//! Opening the tape that a command reads.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use heaptape_report::text;
use heaptape_tape::{Error, Tape};

use crate::terminal::Terminal;

/// Opens a tape. An incomplete one is good to read, but it is said.
pub(crate) fn tape(path: &Path, terminal: &Terminal) -> Result<Tape> {
    let name = path.display();
    // Before it is opened: opening a pipe would wait for a writer.
    let regular = fs::metadata(path).map_or(true, |found| found.is_file());
    ensure!(regular, "{name} is no regular file, and a tape must be one: write it to a file first");
    let tape = Tape::open(path);
    let tape = match tape {
        // It names the file itself.
        Err(error @ Error::Open { .. }) => return Err(anyhow!("{error}")),
        other => other.with_context(|| name.to_string())?,
    };
    if let Some(why) = text::incomplete(tape.summary()) {
        terminal.say(&format!("{name} is incomplete: {why}."));
    }
    Ok(tape)
}
