//! The figures of a counted job, as they come: looks at the ledger in every round, adds a process up when it
//! is gone, and settles its part of the budget.
//!
//! Upper bounds are what was drawn from the budget, which the programs keep; lower ones are what was
//! seen in the counters at one moment, and what was drawn less all that may have been unused.

mod ending;
mod finding;
mod sampling;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use heaptape_ledger::{Basis, Charged, Missed, Moment, Process as Figures, unaccounted_allowed};
use heaptape_tape::Uncovered;
use heaptape_wire::atomic::Ordering;
use heaptape_wire::budget::NO_LIMIT;
use heaptape_wire::ledger::{Kind, Ledger, RESERVED_MODULES};

use crate::arena::SharedArena;
use crate::count::BATCH;
use crate::heirs::Heirs;
use crate::holdings::{Held, Holder, Holdings};
use crate::patched::Patches;
use crate::process::Process;
use crate::recorder::Recorder;
use crate::refused::Refusals;
use crate::segments::Identity;
use crate::stacks::Stacks;
use crate::tasks::{Shown, Tasks};
use crate::treasury::Treasury;
use crate::usage::Usage;
use sampling::Unaccounted;

/// A call that maps memory and has not come back for so long never will.
const AWAY: Duration = Duration::from_millis(100);
/// A process in which large blocks are resized for so long is in a call that never comes back, or it is not known. (Of a
/// whole job that says nothing: in one of many processes there is such a call at nearly every time.)
const IN_DOUBT: Duration = Duration::from_secs(20);

/// What is known of a process beside its counters.
#[derive(Debug, Default)]
struct Row {
    /// The most that was seen.
    most: Most,
    /// The thread that each of its sheets was last seen with.
    threads: HashMap<usize, u32>,
    /// Threads that it ever had, as far as was seen.
    threads_seen: u64,
    /// Its stacks, as far as they are charged by the collector.
    stacks: Stacks,
    /// What was unaccounted in the last sample.
    beyond: Option<u64>,
    /// Samples on end in which it was no longer what it had been.
    strange: u32,
    /// Since when it is in calls that may fail.
    in_doubt: Option<Instant>,
    /// It is what another has become by an exec.
    is_next: bool,
    figures: Option<Figures>,
}

/// The most that was seen of several figures, each at a moment of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Most {
    pub(crate) charged: u64,
    pub(crate) requested: u64,
    pub(crate) usable: u64,
}

/// The figures of a job.
pub(crate) struct Counter {
    pub(crate) ledger: Ledger,
    pub(crate) basis: Basis,
    pub(crate) is_exact: bool,
    treasury: Treasury,
    heirs: Heirs,
    holdings: Holdings,
    /// By place in the job's list of processes.
    rows: Vec<Row>,
    /// Of the whole job.
    pub(crate) most: Most,
    /// What was charged to each process at the last look, by its place, and to all that are held against
    /// the limit.
    pub(crate) now: (Vec<(usize, u64)>, u64),
    /// The rows of the moment when most was seen to be charged.
    charged: Charged,
    /// What was charged beside blocks to all processes that have ended, each at its own peak.
    pub(crate) beside_peaks: u64,
    pub(crate) tasks: Tasks,
    pub(crate) unaccounted: Unaccounted,
    pub(crate) refusals: Refusals,
    pub(crate) usage: Usage,
    pub(crate) uncovered: Vec<Missed>,
    /// Functions that were patched in processes.
    pub(crate) patches: Option<Patches>,
    /// Processes that ended by SIGKILL, by their places, and what the job held when the first did.
    pub(crate) felled: (Vec<usize>, Moment),
    /// Since when purses have had bytes away, by sheet.
    away: HashMap<usize, Instant>,
    /// Processes that have become other programs, and did not say so.
    pub(crate) replaced: Vec<usize>,
    host: String,
    /// Our own file, which processes have mapped.
    pub(crate) session: Option<Identity>,
    /// The counting is ending: processes that go on keep what they have.
    pub(crate) is_closing: bool,
    /// Sheets that were taken at the last look.
    sheets: usize,
    /// The most that was ever granted, and when that was noticed.
    raised: (u64, Instant),
}

/// A process has not been dead for longer when that is noticed.
const NOTICED: Duration = Duration::from_secs(2);

impl Counter {
    pub(crate) fn new(ledger: Ledger, basis: Basis, is_exact: bool, host: String) -> Counter {
        Counter {
            ledger,
            basis,
            is_exact,
            treasury: Treasury::new(ledger),
            heirs: Heirs::default(),
            holdings: Holdings::default(),
            rows: Vec::new(),
            most: Most::default(),
            now: (Vec::new(), 0),
            charged: Charged::default(),
            beside_peaks: 0,
            tasks: Tasks::new(),
            unaccounted: Unaccounted::default(),
            refusals: Refusals::new(ledger.header().wanted().on_limit),
            usage: Usage::new(),
            uncovered: Vec::new(),
            patches: None,
            felled: Default::default(),
            away: HashMap::new(),
            replaced: Vec::new(),
            host,
            session: None,
            is_closing: false,
            sheets: 0,
            raised: (0, Instant::now()),
        }
    }

    fn is_detailed(&self) -> bool {
        self.ledger.header().wanted().details
    }

    /// Whether all that is counted is held against the limit.
    pub(crate) fn is_all_held(&self) -> bool {
        let header = self.ledger.header();
        header.wanted().mpi_runtime && header.exempt.first() == RESERVED_MODULES
    }

    fn row(&mut self, place: usize) -> &mut Row {
        if self.rows.len() <= place {
            self.rows.resize_with(place + 1, Row::default);
        }
        &mut self.rows[place]
    }

    /// Looks whether a request was refused.
    pub(crate) fn look_for_refusals(&mut self, processes: &[Process]) {
        self.refusals.look(self.ledger, processes, false);
    }

    /// Whether it is certain by now that the job does not stay within its limit, or is not counted whole.
    pub(crate) fn is_broken(&self) -> bool {
        let header = self.ledger.header();
        header.refusals.load(Ordering::Relaxed) > 0
            || header.uncounted.load(Ordering::Relaxed) > 0
            || !self.uncovered.is_empty()
            || self.has_unaccounted()
    }

    /// Whether more is unaccounted than may be.
    fn has_unaccounted(&self) -> bool {
        let limit = Some(self.ledger.budget().limit()).filter(|&limit| limit != NO_LIMIT);
        let allowed = limit.map(unaccounted_allowed);
        allowed.is_some_and(|allowed| self.unaccounted.most() > Some(allowed))
    }

    /// A process can't be counted.
    pub(crate) fn miss(&mut self, uncovered: &Uncovered) {
        let Uncovered { pid, command, why } = uncovered.clone();
        self.uncovered.push(Missed { pid, command, why });
    }

    /// This process is what another has become: its first thread was counted there.
    pub(crate) fn became(&mut self, place: usize) {
        self.row(place).is_next = true;
    }

    /// All threads of processes that have been added up.
    pub(crate) fn threads(&self) -> u64 {
        let threads = |row: &Row| {
            let threads = row.figures.as_ref().map_or(0, |figures| figures.threads);
            threads.saturating_sub(row.is_next.into())
        };
        self.rows.iter().map(threads).fold(0, u64::saturating_add)
    }

    /// A process was forked by another, whose blocks it shares.
    pub(crate) fn forked(&mut self, parent: usize, child: usize) {
        self.heirs.forked(parent, child);
    }

    /// Looks at all that runs.
    pub(crate) fn look(&mut self, arena: &mut SharedArena, processes: &[Process], live: &[usize]) {
        let taken = arena.sheets();
        self.look_at(taken, processes, live);
        self.settle(processes, taken);
        self.treasury.mend(taken);
        self.find_away(taken, AWAY);
        self.look_for_refusals(processes);
    }

    /// Keeps what these processes hold at this moment, and all together.
    fn look_at(&mut self, taken: usize, processes: &[Process], places: &[usize]) {
        let holders: Vec<Holder> = places.iter().map(|&i| holder(i, &processes[i])).collect();
        let held = self.holdings.look(self.ledger, taken, &holders);
        let pid = |holder: &Holder| processes[holder.place].known_pid();
        let shown = |(holder, held): (&Holder, &Held)| Shown {
            pid: pid(holder),
            sheets: held.threads,
            made: self.ledger.account(holder.slot as usize).threads(),
        };
        self.tasks.look(holders.iter().zip(&held).map(shown));
        let charged = |held: &Held| heap(held, self.basis).saturating_add(held.beside());
        let each = holders.iter().zip(&held).map(|(holder, held)| (holder.place, charged(held)));
        self.now.0 = each.collect();
        let peak = self.ledger.budget().peak();
        if peak != self.raised.0 {
            self.raised = (peak, Instant::now());
        }
        self.take_in(&holders, &held);
        self.look_at_doubts(&holders);
        self.raise(&held);
    }

    /// Keeps what was seen of each process.
    fn take_in(&mut self, holders: &[Holder], held: &[Held]) {
        let (ledger, basis) = (self.ledger, self.basis);
        for (holder, held) in holders.iter().zip(held) {
            let most = &mut self.row(holder.place).most;
            most.charged = most.charged.max(heap(held, basis).saturating_add(held.beside()));
            most.requested = most.requested.max(held.requested);
            most.usable = most.usable.max(held.usable);
        }
        let sheets: Vec<_> = self.holdings.sheets().collect();
        for (index, at) in sheets {
            let thread = ledger.sheet(index).thread.load(Ordering::Relaxed);
            let row = self.row(holders[at].place);
            if row.threads.insert(index, thread) != Some(thread) {
                row.threads_seen += 1;
            }
        }
    }

    /// Keeps what was seen of all together: of those that are held against the limit.
    fn raise(&mut self, held: &[Held]) {
        let counted = || held.iter().filter(|held| !held.is_exempt);
        let sum = |of: &dyn Fn(&Held) -> u64| counted().map(of).fold(0, u64::saturating_add);
        let kind = |kind: Kind| sum(&|held| held.kinds[kind as usize]);
        let left = self.heirs.charged();
        let charged = Charged {
            heap: sum(&|held| heap(held, self.basis)).saturating_add(left),
            mappings: kind(Kind::Mappings),
            // Some may be of processes that are gone.
            shared: self.ledger.charged_for_objects(),
            data: kind(Kind::Data),
            stacks: kind(Kind::Stacks),
            mpi_runtime: kind(Kind::MpiRuntime),
            mpi_excluded: !self.ledger.header().wanted().mpi_runtime,
            reserve: kind(Kind::Reserve),
        };
        let total = charged.total();
        self.now.1 = total;
        if total > self.most.charged {
            (self.most.charged, self.charged) = (total, charged);
        }
        // Of usable bytes that are left it is not known how many were asked for.
        let left = if self.basis == Basis::Usable { 0 } else { left };
        let requested = sum(&|held| held.requested).saturating_add(left);
        self.most.requested = self.most.requested.max(requested);
        self.most.usable = self.most.usable.max(sum(&|held| held.usable));
    }

    /// A call that might fail never comes back: what was granted for it stands in the peak.
    fn give_up_doubts(&self) {
        self.ledger.budget().give_up_doubts();
        self.ledger.header().blur();
    }

    /// Looks for calls that never come back.
    fn look_at_doubts(&mut self, holders: &[Holder]) {
        for holder in holders {
            let is_in_doubt = self.ledger.account(holder.slot as usize).is_in_doubt();
            let since = &mut self.row(holder.place).in_doubt;
            *since = since.filter(|_| is_in_doubt).or_else(|| is_in_doubt.then(Instant::now));
            if since.is_some_and(|since| since.elapsed() > IN_DOUBT) {
                self.give_up_doubts();
            }
        }
    }

    /// Gives back what nobody holds any more.
    fn settle(&mut self, processes: &[Process], taken: usize) {
        let (ledger, is_settled) = (self.ledger, self.heirs.is_settled());
        let legacy = &ledger.header().legacy;
        let released = legacy.keep(!is_settled);
        if is_settled {
            return legacy.settle(released);
        }
        let holds = |place: usize| {
            let process = &processes[place];
            let account = ledger.account(process.slot as usize);
            let is_its = process.ended.is_none() && account.generation() == process.generation;
            if is_its { account.inherited() } else { 0 }
        };
        let awaits = |place: usize| processes[place].awaits_child();
        let freed = self.heirs.settle(holds, awaits);
        self.treasury.give_back(freed, taken);
        legacy.settle(released);
    }

    /// The most that lived in blocks of all processes at one instant, where that is known.
    pub(crate) fn exact_blocks(&self) -> Option<u64> {
        let header = self.ledger.header();
        let is_counted = self.is_exact && self.basis != Basis::Usable && self.is_all_held();
        let is_known =
            is_counted && !header.is_blurred() && header.uncounted.load(Ordering::Relaxed) == 0;
        is_known.then(|| header.blocks.most()).flatten()
    }

    /// The name of this host.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// What the job certainly held at its peak: what was drawn, less all that may have been unused; nothing where
    /// some of it may have been held by the dead.
    pub(crate) fn sure(&self) -> u64 {
        let header = self.ledger.header();
        if header.is_blurred() {
            return 0;
        }
        let sheets = u64::from(header.sheets_taken.load(Ordering::Relaxed));
        let unused = unused(sheets, self.is_exact).saturating_add(header.ahead.most());
        let unused = unused.saturating_add(header.legacy.stale());
        self.ledger.budget().peak().saturating_sub(unused)
    }

    /// The rows when most was charged, of which at least `most` is known: as they were seen, unless the looks
    /// have missed that moment. Then blocks made up what was not beside them, as far as there were so many `blocks`
    /// at one time, and mappings the rest.
    pub(crate) fn rows_at(&self, most: u64, blocks: u64) -> Charged {
        let seen = self.charged;
        if seen.total() >= most {
            return seen;
        }
        let beside = seen.total().saturating_sub(seen.heap);
        let missed = self.ledger.header().beside_at_high().saturating_sub(beside);
        let heap = most.saturating_sub(beside.saturating_add(missed));
        let heap = heap.min(blocks).max(seen.heap.min(most));
        let rest = most.saturating_sub(beside.saturating_add(heap));
        Charged { heap, mappings: seen.mappings.saturating_add(rest.max(missed)), ..seen }
    }

    /// The figures of all processes, in order of start.
    pub(crate) fn take_processes(&mut self) -> Vec<Figures> {
        self.rows.drain(..).map(|row| row.figures.unwrap_or_default()).collect()
    }
}

impl Recorder {
    /// Looks at what is counted, where a job is; whether threads have come, and more may wait for sheets.
    pub(crate) fn count(&mut self) -> bool {
        let Some(counter) = &mut self.counter else { return false };
        counter.look(&mut self.arena, &self.processes, &self.live);
        let (processes, live) = (&self.processes, &self.live);
        let known = live.iter().filter_map(|&place| Some((place, processes[place].pid?)));
        counter.patches.iter_mut().for_each(|patches| patches.look(known.clone()));
        let taken = self.arena.sheets();
        let session = self.arena.arena().session();
        counter.sample(&self.processes, &self.live, taken, || session.beat());
        std::mem::replace(&mut counter.sheets, taken) < taken
    }
}

/// What so many threads may have drawn and not used, at the most.
fn unused(sheets: u64, is_exact: bool) -> u64 {
    if is_exact { 0 } else { sheets.saturating_mul(2 * BATCH) }
}

/// What is charged for blocks, but for those that stand in another row, or in none.
fn heap(held: &Held, basis: Basis) -> u64 {
    let blocks = match basis {
        Basis::Requested | Basis::Resident => held.requested,
        Basis::Usable => held.usable,
    };
    blocks.saturating_sub(held.apart)
}

fn holder(place: usize, process: &Process) -> Holder {
    Holder { place, slot: process.slot, generation: process.generation }
}

#[cfg(test)]
mod tests;
