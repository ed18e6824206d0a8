//! The first request that was refused: noticed in the ledger, described, and what has to follow from it.

use std::time::{Duration, Instant};

use heaptape_ledger::FirstRefusal;
use heaptape_proc::read;
use heaptape_wire::ledger::{Ledger, MODULES, OTHER_MODULES, OnLimit, Refused};

use crate::process::Process;

/// How long it may take to know whose refusal it was: who was refused waits meanwhile where the job is to be halted.
const UNKNOWN: Duration = Duration::from_secs(2);

/// What is known of refusals.
pub(crate) struct Refusals {
    on_limit: OnLimit,
    /// When the first one was seen.
    seen: Option<Instant>,
    first: Option<FirstRefusal>,
    /// It was not told yet.
    is_news: bool,
    /// The job is still to be killed or stopped.
    is_due: bool,
}

impl Refusals {
    pub(crate) fn new(on_limit: OnLimit) -> Refusals {
        Refusals { on_limit, seen: None, first: None, is_news: false, is_due: false }
    }

    /// Looks whether there was one. While its process is not known yet it may be known in the next round;
    /// `is_last`: there is none.
    pub(crate) fn look(&mut self, ledger: Ledger, processes: &[Process], is_last: bool) {
        if self.first.is_some() {
            return;
        }
        let Some(refused) = ledger.header().first_refusal() else { return };
        let is_its = |process: &Process| {
            (u32::from(process.slot), process.generation) == (refused.slot, refused.generation)
        };
        let process = processes.iter().rposition(is_its);
        let seen = *self.seen.get_or_insert_with(Instant::now);
        if process.is_none() && !is_last && seen.elapsed() < UNKNOWN {
            return;
        }
        let place = process.and_then(|place| place_of(ledger, &processes[place], &refused));
        self.first = Some(FirstRefusal {
            time: u64::from(refused.time),
            process,
            thread: refused.thread,
            bytes: refused.bytes,
            caller: refused.caller,
            place,
            job: refused.job,
            is_data: refused.is_data,
        });
        (self.is_news, self.is_due) = (true, self.on_limit != OnLimit::Fail);
    }

    pub(crate) fn first(&self) -> Option<&FirstRefusal> {
        self.first.as_ref()
    }

    /// Whether there is one that was not told yet.
    pub(crate) fn is_news(&self) -> bool {
        self.is_news
    }

    /// The first one, once.
    pub(crate) fn news(&mut self) -> Option<FirstRefusal> {
        std::mem::take(&mut self.is_news).then(|| self.first.clone()).flatten()
    }

    /// What has to be done to the job for it, once.
    pub(crate) fn due(&mut self) -> Option<OnLimit> {
        std::mem::take(&mut self.is_due).then_some(self.on_limit)
    }

    /// Whether the job is, or was, killed or stopped for it.
    pub(crate) fn is_halting(&self) -> bool {
        self.first.is_some() && self.on_limit != OnLimit::Fail
    }
}

/// The module of the caller, and the offset in it: as the process has told, else by its mappings.
fn place_of(ledger: Ledger, process: &Process, refused: &Refused) -> Option<(String, u64)> {
    let told = || {
        let number = refused.module as usize;
        let account = ledger.account(process.slot as usize);
        let is_told = number < MODULES && number != OTHER_MODULES;
        if !is_told || account.generation() != process.generation {
            return None;
        }
        let module = &account.modules[number];
        let path: Vec<u8> = module.path()?.collect();
        let offset = refused.caller.checked_sub(module.start())?;
        Some((String::from_utf8_lossy(&path).into_owned(), offset))
    };
    told().or_else(|| mapped(process.pid?, refused.caller))
}

/// The file that is mapped at an address, and the offset from where its first part is.
fn mapped(pid: u32, address: u64) -> Option<(String, u64)> {
    let mappings = read::maps(pid).ok()?;
    let at = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))?;
    at.path()?;
    let same = |mapping: &&heaptape_proc::Mapping| {
        (mapping.dev, mapping.inode) == (at.dev, at.inode) && mapping.offset == 0
    };
    let first = mappings.iter().filter(same).rev().find(|mapping| mapping.start <= address)?;
    Some((at.label().into_owned(), address - first.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_the_file_that_is_mapped_there() {
        let address = an_address_lies_in_the_file_that_is_mapped_there as *const () as u64;
        let (path, offset) = mapped(std::process::id(), address).unwrap();
        assert_eq!(path, std::env::current_exe().unwrap().to_string_lossy());
        assert!(offset > 0 && offset < address);
        assert_eq!(mapped(std::process::id(), 16), None);
    }
}
