//! Return addresses as places in files, for every process of a tape.
//!
//! Each process's modules come from its own notes. A forked child begins with those of its parent at
//! the fork, until it lists its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use heaptape_tape::{Columns, Item, LiveBlock, ProcessNumber, Tape};

use crate::Error;
use crate::modules::{Modules, Place};

/// The modules of those processes that were asked for so far.
#[derive(Debug, Default)]
pub struct Callers {
    known: HashMap<ProcessNumber, Modules>,
}

/// The modules that a process has as it begins: none, or its parent's if it was forked.
pub fn at_start(tape: &Tape, process: ProcessNumber) -> Result<Modules, Error> {
    let found = tape.summary().processes.iter().find(|p| p.number == process);
    let Some((parent, forked_at)) = found.and_then(|p| Some((p.parent?, p.forked_at?))) else {
        return Ok(Modules::default());
    };
    // Parents come before their children, so this ends; a tape that says otherwise is not followed.
    if parent >= process {
        return Ok(Modules::default());
    }
    Ok(before(tape, parent, forked_at)?.inherited())
}

/// The modules of a process before event number `index`, with all that were unloaded until then.
pub fn before(tape: &Tape, process: ProcessNumber, index: u64) -> Result<Modules, Error> {
    let mut modules = at_start(tape, process)?;
    let columns = Columns { notes: true, ..Columns::REPLAY };
    for item in tape.events_with(process, 0..index, columns)? {
        if let Item::Note { index, note } = item? {
            modules.note(index, &note);
        }
    }
    Ok(modules)
}

impl Callers {
    /// Where the call that made a live block was.
    pub fn of_block(&mut self, tape: &Tape, block: &LiveBlock) -> Result<Option<Place>, Error> {
        let modules = match self.known.entry(block.process) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(before(tape, block.process, u64::MAX)?),
        };
        Ok(modules.find(block.caller, block.birth))
    }
}
