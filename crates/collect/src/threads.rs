//! Threads that are gone: their chunks are given back, and their numbers to their process, for later ones.
//!
//! A thread of a counted job mostly holds no chunk, and is known by its sheet in the ledger. Its number is
//! free when it holds neither any more; the sheet stays, for the next thread with that number.

use std::collections::BTreeSet;

use heaptape_proc::read;
use heaptape_wire::atomic::Ordering;
use heaptape_wire::ledger::{Ledger, Sheet};

use crate::drain::Source;
use crate::process::Process;
use crate::recorder::Recorder;

impl Recorder {
    /// Looks which threads are gone whose stacks are charged whole, and gives those back.
    pub(crate) fn find_stacks(&mut self) {
        let sheets = self.arena.sheets();
        let Some(counter) = &mut self.counter else { return };
        for &i in &self.live {
            let process = &self.processes[i];
            let Some(pid) = process.pid.filter(|_| process.gone.is_none()) else { continue };
            let account = counter.ledger.account(process.slot as usize);
            if account.stacks.all().next().is_none() || !read::has_task(pid, pid) {
                continue;
            }
            if self.namespaces.is_here(process.who) {
                counter.find_stacks(process, sheets, |tid| read::has_task(pid, tid));
            } else if let Some(inner) = read::inner_tasks(pid) {
                counter.find_stacks(process, sheets, |tid| inner.contains(&tid));
            }
        }
    }

    /// Looks which threads are gone.
    pub(crate) fn close_threads(&mut self) {
        let sheets = self.arena.sheets();
        for &i in &self.live {
            let process = &mut self.processes[i];
            let Some(pid) = process.pid else { continue };
            let own = self.arena.ledger().map(|ledger| sheets_of(ledger, sheets, process));
            let own = own.unwrap_or_default();
            // Where the process is gone, that is found out elsewhere.
            if (own.is_empty() && !process.holds_chunks()) || !read::has_task(pid, pid) {
                continue;
            }
            self.arena.arena().session().beat();
            let slot = self.arena.arena().slot(process.slot as usize);
            let source = &mut Source::new(&self.arena, &mut self.done);
            // Threads of another namespace know themselves by other numbers.
            let numbers = if self.namespaces.is_here(process.who) {
                close(process, &own, |tid| read::has_task(pid, tid), source)
            } else if let Some(inner) = read::inner_tasks(pid) {
                close(process, &own, |tid| inner.contains(&tid), source)
            } else {
                continue;
            };
            for number in numbers {
                slot.recycle_thread(number);
            }
        }
        self.forget_done();
        self.find_stacks();
    }
}

/// The sheets of a process.
fn sheets_of(ledger: Ledger, sheets: usize, process: &Process) -> Vec<&'static Sheet> {
    let its = Some((u32::from(process.slot), process.generation));
    (0..sheets).map(|index| ledger.sheet(index)).filter(|sheet| sheet.owner() == its).collect()
}

/// Closes what the threads held that are gone; the numbers that nobody has any more.
fn close(
    process: &mut Process,
    sheets: &[&Sheet],
    lives: impl Fn(u32) -> bool,
    source: &mut Source<'_>,
) -> BTreeSet<u16> {
    let mut numbers: BTreeSet<u16> = process.close_gone(&lives, source).into_iter().collect();
    for sheet in sheets.iter().filter(|sheet| !is_idle(sheet)) {
        let Ok(number) = u16::try_from(sheet.number.load(Ordering::Relaxed)) else { continue };
        let is_gone = !lives(sheet.thread.load(Ordering::Relaxed));
        if is_gone && !process.has_open_lane(number) {
            sheet.idle.store(1, Ordering::Relaxed);
            numbers.insert(number);
        } else {
            numbers.remove(&number);
        }
    }
    numbers
}

fn is_idle(sheet: &Sheet) -> bool {
    sheet.idle.load(Ordering::Relaxed) != 0
}
