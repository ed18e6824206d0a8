//! Opening the tape that a command reads.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use heaptape_report::text;
use heaptape_tape::{Error, Tape};
use rustix::fs::FlockOperation;

use crate::terminal::Terminal;

/// How long the end of a tape is waited for, where its recorder is none that somebody waited for.
const ENDING: Duration = Duration::from_secs(1);

/// Opens a tape. An incomplete one is good to read, but it is said.
pub(crate) fn tape(path: &Path, terminal: &Terminal) -> Result<Tape> {
    let (tape, incomplete) = judged(path)?;
    if let Some(why) = incomplete {
        terminal.say(&format!("{} is incomplete: {why}.", path.display()));
    }
    Ok(tape)
}

/// Opens a tape, and tells why it is incomplete if it is.
pub(crate) fn judged(path: &Path) -> Result<(Tape, Option<String>)> {
    let name = path.display();
    // Before it is opened: opening a pipe would wait for a writer.
    let regular = fs::metadata(path).map_or(true, |found| found.is_file());
    ensure!(regular, "{name} is no regular file, and a tape must be one: write it to a file first");
    let mut tape = open(path)?;
    if tape.summary().cut && is_being_written(path) {
        // Its job may have ended just now.
        let end = Instant::now() + ENDING;
        while is_being_written(path) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        tape = open(path)?;
        if tape.summary().cut && is_being_written(path) {
            return Ok((tape, Some("it is still being recorded".to_owned())));
        }
    }
    let summary = tape.summary();
    let says_nothing =
        summary.cut && summary.header.command.is_empty() && summary.processes.is_empty();
    ensure!(!says_nothing, "{name} was cut before anything that it says: there is nothing to read");
    let incomplete = text::incomplete(summary);
    Ok((tape, incomplete))
}

fn open(path: &Path) -> Result<Tape> {
    match Tape::open(path) {
        // It names the file itself.
        Err(error @ Error::Open { .. }) => Err(anyhow!("{error}")),
        other => other.with_context(|| path.display().to_string()),
    }
}

/// Whether a recorder that goes on by itself, as with `record --join`, holds the file.
pub(super) fn is_being_written(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    let shared = FlockOperation::NonBlockingLockShared;
    rustix::fs::flock(&file, shared) == Err(rustix::io::Errno::WOULDBLOCK)
}
