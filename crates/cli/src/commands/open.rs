//! Opening the tape that a command reads.

use std::path::Path;

use anyhow::{Context, Result};
use heaptape_report::text;
use heaptape_tape::Tape;

use crate::terminal::Terminal;

/// Opens a tape. An incomplete one is good to read, but it is said.
pub(crate) fn tape(path: &Path, terminal: &Terminal) -> Result<Tape> {
    let name = path.display();
    let tape = Tape::open(path).with_context(|| name.to_string())?;
    if let Some(why) = text::incomplete(tape.summary()) {
        terminal.say(&format!("{name} is incomplete: {why}."));
    }
    Ok(tape)
}
