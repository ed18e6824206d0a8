//! The samples of a counted job: one look at each process several times a second, for what is resident in it, what of
//! its stacks is touched, and what no row stands for.

use std::time::Instant;

use heaptape_wire::atomic::Ordering;
use heaptape_wire::ledger::{Account, Kind, Ledger};

use super::Counter;
use crate::process::Process;
use crate::resident::{self, Known, Resident};
use crate::unaccounted::Books;
use crate::usage::Sampled;

/// So many samples on end tell that a process is another program now, and not just about to say so.
const STRANGE: u32 = 3;

/// What is unaccounted, of the samples so far.
#[derive(Debug, Default)]
pub(crate) struct Unaccounted {
    /// The most at one time, in all processes together.
    most: Option<u64>,
    /// What was shared beyond all objects, in the last sample.
    shared: u64,
}

/// The sums of one sample, over all processes that are held against the limit.
#[derive(Default)]
struct Sum {
    private: Option<u64>,
    shared: u64,
}

impl Counter {
    /// Takes the samples that are due.
    pub(super) fn sample(
        &mut self,
        processes: &[Process],
        live: &[usize],
        taken: usize,
        beat: impl Fn(),
    ) {
        let started = Instant::now();
        if !self.usage.is_due(started) {
            return;
        }
        let all: Vec<Sampled> =
            live.iter().filter_map(|&place| self.sampled(&processes[place], place)).collect();
        if all.is_empty() {
            return;
        }
        let is_detailed = self.is_detailed();
        for sampled in &all {
            self.row(sampled.place);
        }
        let objects = self.ledger.bytes_of_objects();
        let mut sum = Sum::default();
        let (ledger, session) = (self.ledger, self.session);
        let Counter { usage, treasury, rows, replaced, .. } = self;
        let threads = usage.sample(&all, started, |sampled| {
            beat();
            let sheets = sheets_of(ledger, taken, sampled);
            let account = ledger.account(sampled.slot as usize);
            let heaps = account.heaps.ranges().collect();
            let break_at = account.break_at();
            let tops = tops(ledger, account, &sheets);
            let known = Known { tops, heaps, session, break_at };
            let books = Books { ledger, account, sheets: &sheets, is_detailed };
            let (seen, beyond) = books.look(|| resident::look(sampled.pid, &known))?;
            let row = &mut rows[sampled.place];
            row.strange = if seen.is_joined { 0 } else { row.strange + 1 };
            if row.strange == STRANGE {
                replaced.push(sampled.place);
            }
            if sampled.is_counted {
                row.stacks.touch(seen.stacks, account, treasury, taken);
                let charged = account.charged[Kind::Stacks as usize].load(Ordering::Relaxed);
                let charged = charged.saturating_sub(account.stacks.bytes());
                let beyond =
                    beyond.map(|beyond| beyond.saturating_add(seen.stacks.saturating_sub(charged)));
                let before = std::mem::replace(&mut row.beyond, beyond);
                sum.add(&seen, beyond.zip(before).map(|(now, before)| now.min(before)));
            }
            Some(seen.shares)
        });
        self.tasks.note(threads);
        let objects = objects.max(self.ledger.bytes_of_objects());
        self.unaccounted.raise(&sum, objects);
    }

    /// How a process is sampled, unless it is gone or nowhere to be seen.
    fn sampled(&self, process: &Process, place: usize) -> Option<Sampled> {
        let pid = process.pid.filter(|_| process.gone.is_none())?;
        let is_counted = !self.ledger.account(process.slot as usize).is_exempt();
        let (slot, generation) = (process.slot, process.generation);
        Some(Sampled { place, pid, slot, generation, is_counted })
    }
}

impl Sum {
    fn add(&mut self, seen: &Resident, private: Option<u64>) {
        if let Some(private) = private {
            self.private = Some(self.private.unwrap_or(0).saturating_add(private));
        }
        self.shared = self.shared.saturating_add(seen.shared);
    }
}

impl Unaccounted {
    /// Takes in a sample, in which so many bytes were charged for objects. (What is unmapped while the processes are
    /// looked at one after another is seen in one of two samples only.)
    fn raise(&mut self, sum: &Sum, objects: u64) {
        let beyond = sum.shared.saturating_sub(objects);
        let shared = beyond.min(std::mem::replace(&mut self.shared, beyond));
        self.most = self.most.max(sum.private.map(|private| private.saturating_add(shared)));
    }

    /// The most at one time; `None` where nobody could tell.
    pub(crate) fn most(&self) -> Option<u64> {
        self.most
    }
}

/// The sheets of a process.
fn sheets_of(ledger: Ledger, taken: usize, sampled: &Sampled) -> Vec<usize> {
    let its = Some((u32::from(sampled.slot), sampled.generation));
    (0..taken).filter(|&sheet| ledger.sheet(sheet).owner() == its).collect()
}

/// Where the stacks of its threads end that are there, but for those that are charged whole.
fn tops(ledger: Ledger, account: &Account, sheets: &[usize]) -> Vec<u64> {
    let whole: Vec<u32> = account.stacks.all().map(|(thread, _)| thread).collect();
    let sheets = sheets.iter().map(|&sheet| ledger.sheet(sheet));
    let live = sheets.filter(|sheet| {
        sheet.idle.load(Ordering::Acquire) == 0
            && !whole.contains(&sheet.thread.load(Ordering::Relaxed))
    });
    live.map(|sheet| sheet.stack.load(Ordering::Relaxed)).filter(|&top| top != 0).collect()
}
