//! The end of a process: what it held is added up, and what nobody holds any more goes back.

use std::collections::HashMap;

use heaptape_ledger::{Basis, Bounds, Ended, Module, Moment, Process as Figures, Sums};
use heaptape_wire::ledger::{Ledger, MODULES, OTHER_MODULES, RESERVED_MODULES};

use super::{Counter, NOTICED, Row};
use crate::arena::SharedArena;
use crate::process::Process;

impl Counter {
    /// A process is gone, or is another program now: adds it up, and takes back what it had. The `others`
    /// are running.
    pub(crate) fn end(
        &mut self,
        arena: &mut SharedArena,
        processes: &[Process],
        (place, others): (usize, &[usize]),
        time: u64,
    ) {
        // Its account is about to be another's.
        self.look_for_refusals(processes);
        let (taken, process) = (arena.sheets(), &processes[place]);
        let all: Vec<usize> = others.iter().copied().chain([place]).collect();
        self.look_at(taken, processes, &all);
        if process.exit.signal == Some(libc::SIGKILL) {
            self.fell(place, time);
        }
        let is_its = |sheet: &usize| {
            let owner = self.ledger.sheet(*sheet).owner();
            owner.is_some_and(|(slot, _)| slot == u32::from(process.slot))
        };
        let sheets: Vec<usize> = (0..taken).filter(is_its).collect();
        let figures = self.figures(process, place, &sheets, time);
        let (is_exempt, live) = (figures.launcher, figures.sums.live());
        let row = self.row(place);
        (row.figures, row.threads) = (Some(figures), HashMap::new());
        let stacks = row.stacks.paid();
        let account = self.ledger.account(process.slot as usize);
        if !is_exempt {
            self.beside_peaks = self.beside_peaks.saturating_add(account.beside_peak());
        }
        if self.is_closing {
            return;
        }
        // Of the end of one without a knell nobody knew who drew meanwhile.
        let has_rung = self.ledger.knell(process.slot as usize).has_rung();
        if !is_exempt && !has_rung && self.raised.1.elapsed() < NOTICED {
            self.ledger.header().blur();
        }
        if !is_exempt {
            self.ledger.header().note_beside(account.beside().wrapping_neg() as u64);
        }
        self.ledger.header().ahead.end(account.ahead());
        if account.is_in_doubt() {
            self.give_up_doubts();
        }
        self.treasury.give_back(stacks, taken);
        let is_idle = self.treasury.is_idle(&sheets);
        let bytes = self.treasury.take_over(account, &sheets, taken);
        self.treasury.bury(process.slot, taken);
        let bytes = if is_exempt { 0 } else { bytes };
        if !is_exempt {
            // What it paid itself: stacks beyond the first step the collector has.
            let beside = account.beside().saturating_sub(account.spent_for_objects());
            let beside = beside.saturating_sub(stacks as i64);
            let is_clear = is_idle && bytes as i64 == (live as i64).saturating_add(beside);
            self.end_blocks(live, is_clear);
        }
        self.heirs.ended(place, bytes, process.awaits_child());
        sheets.iter().for_each(|&sheet| self.ledger.sheet(sheet).clear());
        let slot = u32::from(process.slot);
        (0..taken).for_each(|sheet| self.ledger.sheet(sheet).let_go(slot));
        self.settle(processes, taken);
        if self.heirs.charged() > 0 {
            // Some of it are blocks that live on in its heirs.
            self.ledger.header().blocks.blur();
        }
        // Before the end is noted: all that it leaves is free then.
        self.treasury.mend(taken);
    }

    /// A process that is gone had so many bytes in blocks. Where that is not certain, the most of all is known no longer.
    fn end_blocks(&self, live: u64, is_clear: bool) {
        if !self.is_exact || self.basis == Basis::Usable {
            return;
        }
        let blocks = &self.ledger.header().blocks;
        if !is_clear {
            blocks.blur();
        }
        blocks.sub(live);
    }

    /// A process has ended by SIGKILL, just after a look at all.
    fn fell(&mut self, place: usize, time: u64) {
        let (victims, moment) = &mut self.felled;
        if victims.is_empty() {
            let (each, charged) = self.now.clone();
            let (time, charged) = (Some(time), Some(charged));
            *moment = Moment { time, charged, each, resident: self.usage.last() };
        }
        victims.push(place);
    }

    fn figures(&mut self, process: &Process, place: usize, sheets: &[usize], time: u64) -> Figures {
        let account = self.ledger.account(process.slot as usize);
        let mut sums = Sums::of_threads(sheets.iter().map(|&sheet| self.ledger.sheet(sheet)));
        let resident = self.usage.resident_of(place);
        let (is_detailed, is_exempt) = (self.is_detailed(), account.is_exempt());
        let end = if is_exempt { sums.live() } else { self.treasury.used(account, sheets) };
        let job = self.ledger.budget().peak();
        let basis = self.basis;
        let Row { most, stacks, threads_seen, .. } = *self.row(place);
        self.tasks.note(account.threads_most());
        let own = peak(sums.peak, most.requested);
        let usable = peak(sums.usable_peak, most.usable).at_least(own);
        let heap = if basis == Basis::Usable { usable } else { own };
        let lower = most.charged.max(if self.is_all_held() { heap.lower } else { 0 });
        let upper = match is_exempt {
            true => heap.upper,
            // The most of its blocks need not have come with the most of all else.
            false => heap.upper.saturating_add(account.beside_peak()).min(job),
        };
        let charged = Bounds { lower, upper: upper.max(lower) };
        let modules = modules(self.ledger, process, &sums);
        sums.trim();
        Figures {
            pid: process.known_pid(),
            parent: process.start.parent.map(|parent| parent.0 as usize),
            rank: process.start.rank,
            host: process.host().unwrap_or(&self.host).to_owned(),
            command: process.start.command.clone(),
            time: [process.start.time, time.max(process.start.time)],
            ended: Ended { code: process.exit.code, signal: process.exit.signal },
            launcher: is_exempt,
            peak: charged,
            end: end.saturating_add(stacks.paid()),
            requested: own,
            usable: is_detailed.then_some(usable),
            resident,
            // (Some of those that it has made may never have called the allocator.)
            threads: threads_seen.max(account.threads().saturating_add(1)),
            sums,
            modules,
        }
    }
}

/// The most of a figure that lived at one moment: what the threads know, and what was seen.
fn peak(known: Bounds, seen: u64) -> Bounds {
    let lower = known.lower.max(seen);
    Bounds { lower, upper: known.upper.max(lower) }
}

/// The modules that made calls.
fn modules(ledger: Ledger, process: &Process, sums: &Sums) -> Vec<Module> {
    let account = ledger.account(process.slot as usize);
    let name = |number: usize| {
        let path = account.modules[number].path().filter(|_| number != OTHER_MODULES)?;
        Some(String::from_utf8_lossy(&path.collect::<Vec<u8>>()).into_owned())
    };
    let exempt = ledger.header().exempt.first()..RESERVED_MODULES;
    (0..MODULES)
        .filter(|&number| sums.modules[number].is_used())
        .map(|number| Module {
            path: name(number),
            exempt: exempt.contains(&number),
            traffic: sums.modules[number],
        })
        .collect()
}
