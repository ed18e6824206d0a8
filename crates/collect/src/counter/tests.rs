//! A job whose processes are played: what is told of them, and what the budget gets back.

use super::*;
use crate::namespace::{Found, Sought, Who};
use crate::process::Identity;
use heaptape_ledger::Bounds;
use heaptape_tape::{Origin, ProcessNumber, ProcessStart};
use heaptape_wire::budget::Machine;
use heaptape_wire::ledger::{OnLimit, Wanted};
use heaptape_wire::purse::Purse;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

const LIMIT: u64 = 100 << 20;

/// A job whose processes are played by the test, each in the slot with its number.
struct Played {
    arena: SharedArena,
    counter: Counter,
    processes: Vec<Process>,
    live: Vec<usize>,
}

impl Machine for Played {
    fn barrier(&self) -> bool {
        true
    }

    fn wait(&self, _round: u32) -> bool {
        false
    }

    fn purses(&self) -> impl Iterator<Item = &Purse> {
        (0..16).map(|sheet| self.counter.ledger.purse(sheet))
    }
}

impl Played {
    fn new() -> Played {
        let on_limit = OnLimit::Fail;
        let (mpi_runtime, usable) = (true, false);
        let wanted = Wanted { on_limit, details: true, launchers: false, mpi_runtime, usable };
        let prepare = |ledger: Ledger| {
            ledger.header().want(wanted);
            ledger.budget().open(LIMIT, BATCH);
        };
        let arena = SharedArena::create_counting(prepare).unwrap();
        let ledger = arena.ledger().unwrap();
        let counter = Counter::new(ledger, Basis::Requested, false, "here".into());
        Played { arena, counter, processes: Vec::new(), live: Vec::new() }
    }

    /// A process begins, with one thread whose sheet has its number.
    fn start(&mut self, parent: Option<usize>) -> usize {
        let place = self.processes.len();
        let start = ProcessStart {
            pid: 0,
            parent: parent.map(|parent| ProcessNumber(parent as u32)),
            origin: Origin::Exec,
            time: 0,
            rank: None,
            command: Vec::new(),
        };
        let who = Who { namespace: 1, pid: 1 + place as u32 };
        let sought = Sought { who, proof: None };
        let identity = Identity { said: who, sought, found: Found::Absent, job: None };
        let number = ProcessNumber(place as u32);
        self.processes.push(Process::new(number, start, identity, (place as u16, 1), 0));
        self.live.push(place);
        let header = self.counter.ledger.header();
        header.sheets_taken.store(place as u32 + 1, Ordering::Relaxed);
        self.counter.ledger.sheet(place).open(place as u32, 1, 0, 100 + place as u32);
        if let Some(parent) = parent {
            self.counter.forked(parent, place);
            let live = self.counter.ledger.sheet(parent).allocated.load(Ordering::Relaxed);
            self.counter.ledger.account(place).inherit(live);
        }
        place
    }

    fn allocate(&self, place: usize, bytes: u64) -> bool {
        let (ledger, sheet) = (self.counter.ledger, self.counter.ledger.sheet(place));
        if ledger.budget().spend(ledger.purse(place), bytes, self).is_err() {
            return false;
        }
        let allocated = sheet.allocated.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let live = allocated - sheet.freed.load(Ordering::Relaxed);
        sheet.peak.fetch_max(live, Ordering::Relaxed);
        true
    }

    fn release(&self, place: usize, bytes: u64) {
        let ledger = self.counter.ledger;
        ledger.sheet(place).freed.fetch_add(bytes, Ordering::Relaxed);
        ledger.budget().refund(ledger.purse(place), bytes, self);
    }

    fn look(&mut self) {
        self.counter.look(&mut self.arena, &self.processes, &self.live);
    }

    fn end(&mut self, place: usize) {
        self.live.retain(|&other| other != place);
        // The kernel's mark: the owner of the mutex is gone.
        let word = self.counter.ledger.knell(place).mutex().cast::<AtomicU32>();
        // SAFETY: the first word of the mutex, in memory that stays.
        unsafe { (*word).store(0x4000_0000, Ordering::Relaxed) };
        let others = (place, &self.live[..]);
        self.counter.end(&mut self.arena, &self.processes, others, 7);
        self.arena.offer_again(place as u16, 1);
        self.processes[place].ended = Some(Instant::now());
    }
}

#[test]
fn the_peak_of_one_thread_is_known_and_that_of_two_processes_is_enclosed() {
    let mut job = Played::new();
    let (first, second) = (job.start(None), job.start(None));
    // One after another, between two looks.
    for place in [first, second] {
        assert!(job.allocate(place, 60 << 20));
        job.release(place, 60 << 20);
    }
    assert!(job.allocate(first, 10 << 20) && job.allocate(second, 20 << 20));
    job.look();
    job.end(first);
    job.end(second);
    let most = job.counter.most;
    assert_eq!((most.charged, most.requested), (30 << 20, 30 << 20));
    assert_eq!(job.counter.charged.heap, 30 << 20);
    let sure = job.counter.sure();
    assert!(sure <= 60 << 20 && sure > (60 << 20) - 5 * BATCH, "{sure}");
    let figures = job.counter.take_processes();
    for (process, end) in figures.iter().zip([10 << 20, 20 << 20]) {
        assert_eq!((process.requested, process.end), (Bounds::exact(60 << 20), end));
        assert_eq!((process.peak, process.threads), (Bounds::exact(60 << 20), 1));
    }
    assert_eq!(job.arena.ledger().unwrap().budget().granted(), 0);
}

#[test]
fn a_charge_outlives_its_process_with_its_heir_and_no_longer() {
    let mut job = Played::new();
    let parent = job.start(None);
    assert!(job.allocate(parent, 60 << 20));
    let child = job.start(Some(parent));
    job.look();
    job.end(parent);
    assert!(job.allocate(child, 40 << 20) && !job.allocate(child, 1));
    job.look();
    assert_eq!((job.counter.most.charged, job.counter.now.1), (LIMIT, LIMIT));
    job.counter.ledger.account(child).release_inherited(25 << 20);
    job.look();
    assert!(job.allocate(child, 25 << 20) && !job.allocate(child, 1));
    job.end(child);
    let next = job.start(None);
    assert!(job.allocate(next, LIMIT) && !job.allocate(next, 1));
    assert_eq!(job.counter.ledger.budget().peak(), LIMIT);
    assert_eq!(job.counter.ledger.account(parent).generation(), 2);
    assert_eq!(job.counter.ledger.sheet(parent).owner(), None);
}

#[test]
fn what_goes_on_when_the_counting_ends_keeps_what_it_has() {
    let mut job = Played::new();
    let place = job.start(None);
    assert!(job.allocate(place, 1 << 20));
    job.counter.is_closing = true;
    job.end(place);
    assert_eq!(job.counter.ledger.purse(place).drawn() as u64, (1 << 20) + BATCH);
    assert!(job.counter.ledger.sheet(place).owner().is_some());
    assert_eq!(job.counter.take_processes()[0].end, 1 << 20);
}

#[test]
fn what_exempt_modules_have_is_requested_and_not_charged() {
    let mut job = Played::new();
    assert!(job.counter.is_all_held());
    let name = b"libfoo.so.1";
    assert!(job.counter.ledger.header().exempt.set([&name[..]].into_iter()));
    assert!(!job.counter.is_all_held());
    let place = job.start(None);
    assert!(job.allocate(place, 10 << 20));
    let (account, sheet) = (job.counter.ledger.account(place), job.counter.ledger.sheet(place));
    account.set_uncharged(300 << 20);
    sheet.allocated.fetch_add(300 << 20, Ordering::Relaxed);
    sheet.peak.fetch_max(310 << 20, Ordering::Relaxed);
    job.look();
    let most = job.counter.most;
    assert_eq!((most.charged, most.requested), (10 << 20, 310 << 20));
    assert_eq!(job.counter.charged.heap, 10 << 20);
    job.end(place);
    let figures = &job.counter.take_processes()[0];
    assert_eq!(figures.requested, Bounds::exact(310 << 20));
    let least_and_most = Bounds { lower: 10 << 20, upper: (10 << 20) + BATCH };
    assert_eq!((figures.peak, figures.end), (least_and_most, 10 << 20));
}

#[test]
fn what_was_charged_ahead_was_not_certainly_held() {
    let mut job = Played::new();
    let place = job.start(None);
    let (header, account) = (job.counter.ledger.header(), job.counter.ledger.account(place));
    account.charge_ahead(40 << 20);
    header.ahead.begin(40 << 20);
    assert!(job.allocate(place, 60 << 20));
    job.look();
    assert!(job.counter.sure() <= 20 << 20);
    // It dies in the middle of that, and nobody waits for it any longer.
    assert!(!header.ahead.look().is_nothing());
    job.end(place);
    assert!(header.ahead.look().is_nothing());
}
