//! Return addresses as places in files, for every process of a tape.
//!
//! Each process's modules come from its own notes, read once. A forked child begins with those of
//! its parent at the fork, until it lists its own.

use std::collections::HashMap;

use heaptape_tape::{LiveBlock, Mark, ProcessNumber, ProcessSummary, Sites, Tape};

use crate::Error;
use crate::live::{Caller, Trace};
use crate::modules::{Modules, Place};
use crate::sites::Standing;
use crate::stack::Stack;

/// The modules of those processes of a tape that were asked for so far.
pub struct Callers<'a> {
    tape: &'a Tape,
    known: HashMap<ProcessNumber, Modules>,
    /// The call stacks, and the changes of modules, of those that were asked for these.
    stacks: HashMap<ProcessNumber, (Sites, Vec<u64>)>,
}

impl<'a> Callers<'a> {
    /// Those of the processes of this tape.
    pub fn new(tape: &'a Tape) -> Callers<'a> {
        Callers { tape, known: HashMap::new(), stacks: HashMap::new() }
    }

    /// The modules of a process over its life.
    pub fn modules(&mut self, process: ProcessNumber) -> Result<&Modules, Error> {
        for ancestor in self.unknown_line(process) {
            let start = match ancestor.parent.zip(ancestor.forked_at) {
                Some((parent, at)) => {
                    self.known.get(&parent).map(|m| m.inherited(at, name(ancestor)))
                }
                None => None,
            };
            let mut modules = start.unwrap_or_else(|| Modules::new(name(ancestor)));
            take_notes(self.tape, ancestor.number, &mut modules)?;
            self.known.insert(ancestor.number, modules);
        }
        Ok(self.known.entry(process).or_default())
    }

    /// Where the call that made a live block was.
    pub fn of_block(&mut self, block: &LiveBlock) -> Result<Option<Place>, Error> {
        Ok(self.modules(block.process)?.find_call(block.caller, block.birth))
    }

    /// The same with the call stack, where that is known.
    pub fn site_of_block(&mut self, block: &LiveBlock) -> Result<Caller, Error> {
        let place = self.of_block(block)?;
        self.load_stacks(block.process)?;
        let (stacks, modules) = (self.stacks.get(&block.process), self.known.get(&block.process));
        let stack =
            stacks.zip(modules).zip(block.site).and_then(|(((stacks, _), modules), site)| {
                Stack::of(stacks, site, modules, block.birth)
            });
        Ok(Caller::at(block.caller, place, block.process, stack))
    }

    /// The call stack of a site, where that is known.
    pub fn trace(&mut self, standing: &Standing) -> Result<Option<Trace>, Error> {
        let Standing { process, stack: Some(number), met } = *standing else { return Ok(None) };
        self.load_stacks(process)?;
        let (stacks, modules) = (self.stacks.get(&process), self.known.get(&process));
        let stack = stacks
            .zip(modules)
            .and_then(|((stacks, _), modules)| Stack::of(stacks, number, modules, met));
        Ok(stack.map(|stack| Trace::of(process, stack)))
    }

    /// How many times modules of a process had been unloaded before the event `index`.
    pub(crate) fn changes_before(
        &mut self,
        process: ProcessNumber,
        index: u64,
    ) -> Result<usize, Error> {
        self.load_stacks(process)?;
        let changes = self.stacks.get(&process).map_or(&[][..], |(_, changes)| changes);
        Ok(changes.partition_point(|&change| change <= index))
    }

    fn load_stacks(&mut self, process: ProcessNumber) -> Result<(), Error> {
        if !self.stacks.contains_key(&process) {
            let changes = self.modules(process)?.changes();
            self.stacks.insert(process, (self.tape.sites(process)?, changes));
        }
        Ok(())
    }

    /// The process and those whose forks it descends from, as far as they are not known yet; the
    /// eldest first.
    fn unknown_line(&self, process: ProcessNumber) -> Vec<&'a ProcessSummary> {
        let mut line: Vec<&ProcessSummary> = Vec::new();
        let mut next = Some(process);
        while let Some(number) = next.filter(|n| !self.known.contains_key(n)) {
            let Some(found) = self.find(number) else { break };
            line.push(found);
            // A parent has started before its child; a tape that says otherwise is not followed.
            next = found.parent.filter(|&p| found.forked_at.is_some() && p < number);
        }
        line.reverse();
        line
    }

    fn find(&self, number: ProcessNumber) -> Option<&'a ProcessSummary> {
        self.tape.summary().processes.get(usize::try_from(number.0).ok()?)
    }
}

fn name(process: &ProcessSummary) -> &str {
    process.command.first().map_or("", String::as_str)
}

fn take_notes(tape: &Tape, process: ProcessNumber, modules: &mut Modules) -> Result<(), Error> {
    for mark in tape.marks(process)? {
        match mark? {
            Mark::Note { index, note } => modules.note(index, &note),
            Mark::Sample(sample) => modules.sample(&sample),
        }
    }
    Ok(())
}
