//! The budget's own code under random schedules of a simulated machine, held against a budget that does one thing after
//! another: no byte over the limit, no refusal of what fits.
//!
//! `HEAPTAPE_SCHEDULES=100000000` runs so many instead of a million.
#![cfg(not(loom))]
// The modules of the crate stand here as they are, and not all of them is called.
#![allow(dead_code, unreachable_pub)]

#[path = "schedules/arch.rs"]
mod arch;
#[path = "schedules/atomic.rs"]
mod atomic;
#[path = "../src/budget.rs"]
mod budget;
#[path = "../src/doubt.rs"]
mod doubt;
#[path = "schedules/history.rs"]
mod history;
#[path = "schedules/machine.rs"]
mod machine;
#[path = "../src/mend.rs"]
mod mend;
#[path = "../src/purse.rs"]
mod purse;
#[path = "../src/steal.rs"]
mod steal;

use atomic::{AtomicU64, Ordering};
use budget::{Budget, Machine};
use history::{Call, Deed, has_an_order};
use machine::{Fault, Thread, roll};
use purse::Purse;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How the budget is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scheme {
    Ours,
    /// Adds first and takes back what was too much: others are refused meanwhile.
    AddThenUndo,
    /// Looks first and adds then, without a look at what has changed.
    LookThenAdd,
}

struct World {
    scheme: Scheme,
    budget: Budget,
    naive: AtomicU64,
    purses: [Purse; 4],
    /// Live blocks of each process.
    blocks: RefCell<[Vec<i64>; 2]>,
    calls: RefCell<Vec<Call>>,
    limit: i64,
    batch: i64,
}

impl Machine for World {
    fn barrier(&self) -> bool {
        machine::barrier();
        true
    }

    fn wait(&self, round: u32) -> bool {
        machine::wait(round)
    }

    fn purses(&self) -> impl Iterator<Item = &Purse> {
        self.purses.iter()
    }
}

impl World {
    fn new(scheme: Scheme, limit: i64, batch: i64) -> World {
        let budget = Budget::default();
        budget.open(limit as u64, batch as u64);
        World {
            scheme,
            budget,
            naive: AtomicU64::default(),
            purses: Default::default(),
            blocks: RefCell::default(),
            calls: RefCell::default(),
            limit,
            batch,
        }
    }

    fn begin(&self, deed: Deed) -> usize {
        let call = Call { deed, begun: machine::tick(), ended: None, granted: false, in_hands: 0 };
        self.calls.borrow_mut().push(call);
        self.calls.borrow().len() - 1
    }

    fn end(&self, call: usize, granted: bool, in_hands: i64) {
        let dying = in_dead_hands(self);
        let call = &mut self.calls.borrow_mut()[call];
        (call.ended, call.granted, call.in_hands) = (Some(machine::tick()), granted, in_hands);
        if let Some((died, mended)) = machine::death()
            && (mended == 0 || call.begun < mended)
            && call.ended > Some(died)
        {
            call.in_hands = dying;
        }
    }

    fn ask(&self, thread: usize, bytes: i64) -> bool {
        match self.scheme {
            Scheme::Ours => self.budget.spend(&self.purses[thread], bytes as u64, self).is_ok(),
            Scheme::AddThenUndo => {
                let before = self.naive.fetch_add(bytes as u64, Ordering::SeqCst) as i64;
                if before + bytes > self.limit {
                    self.naive.fetch_sub(bytes as u64, Ordering::SeqCst);
                }
                before + bytes <= self.limit
            }
            Scheme::LookThenAdd => {
                let fits = self.naive.load(Ordering::SeqCst) as i64 + bytes <= self.limit;
                if fits {
                    self.naive.fetch_add(bytes as u64, Ordering::SeqCst);
                }
                fits
            }
        }
    }

    fn spend(&self, process: usize, thread: usize, in_hands: i64) {
        let bytes = self.size();
        let call = self.begin(Deed::Spend { process, bytes });
        let granted = self.ask(thread, bytes);
        self.end(call, granted, in_hands);
        if granted {
            self.blocks.borrow_mut()[process].push(bytes);
        }
    }

    fn refund(&self, process: usize, thread: usize) {
        let Some(bytes) = self.blocks.borrow_mut()[process].pop() else { return };
        let call = self.begin(Deed::Refund { process, bytes });
        match self.scheme {
            Scheme::Ours => self.budget.refund(&self.purses[thread], bytes as u64, self),
            _ => {
                self.naive.fetch_sub(bytes as u64, Ordering::SeqCst);
            }
        }
        self.end(call, true, 0);
    }

    /// Small ones, that a batch covers, and large ones, that leave little.
    fn size(&self) -> i64 {
        match roll(4) {
            0 => self.limit - roll(4 * self.batch as u64 + 4) as i64,
            1 => self.limit / 2 - roll(8) as i64,
            _ => roll(5) as i64,
        }
        .max(0)
    }

    fn act(&self, process: usize, thread: usize, deeds: u64) {
        for _ in 0..deeds {
            if roll(5) < 3 {
                self.spend(process, thread, 0);
            } else {
                self.refund(process, thread);
            }
        }
    }

    /// The supervisor's thread: waits for the death of process 0.
    fn bury(&self) {
        while !machine::is_dead(0) {
            machine::pause();
        }
        let call = self.begin(Deed::Reclaim { process: 0 });
        if self.budget.reclaim(self.purses[..2].iter()) {
            while !self.budget.mend(self) {}
        }
        machine::note_mended();
        self.end(call, true, 0);
    }
}

/// What one schedule showed, if it was not right.
fn schedule(seed: u64, scheme: Scheme, fault: Fault) -> Result<(), String> {
    let mut dice = seed.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95);
    let mut choose = |n: u64| {
        dice ^= dice >> 29;
        dice = dice.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (dice >> 33) % n
    };
    let batch = choose(4) as i64;
    let limit = 64 * batch + 4 + choose(20) as i64;
    let world = Rc::new(World::new(scheme, limit, batch));
    let deadly = scheme == Scheme::Ours && choose(3) == 0;
    let handled = !deadly && choose(3) == 0;
    let deeds = 2 + choose(3);
    // The purses of process 0 are the first two, those of process 1 the others.
    let owners: &[(usize, usize)] = match choose(3) {
        0 if !deadly => &[(0, 0), (0, 1)],
        1 => &[(0, 0), (0, 1), (1, 2)],
        2 => &[(0, 0), (1, 2), (1, 3)],
        _ => &[(0, 0), (1, 2)],
    };
    let mut threads: Vec<Thread> = owners
        .iter()
        .map(|&(process, purse)| {
            let actor = world.clone();
            let handler = (handled && purse == 0).then(|| {
                let world = world.clone();
                Box::new(move || {
                    let in_hands = 3 * world.batch + pending(&world);
                    world.spend(0, 0, in_hands);
                    world.refund(0, 0);
                }) as Box<dyn FnOnce()>
            });
            Thread { process, task: Box::new(move || actor.act(process, purse, deeds)), handler }
        })
        .collect();
    let kill_after = deadly.then(|| 1 + choose(60));
    if deadly {
        let world = world.clone();
        threads.push(Thread { process: 1, task: Box::new(move || world.bury()), handler: None });
    }
    machine::run(seed, fault, kill_after, threads);
    judge(&world, deadly)
}

/// What the threads of process 0 may have had in their hands when they were killed: their own request or refund, and
/// credit that they were taking back, which may be a refund by another thread.
fn in_dead_hands(world: &World) -> i64 {
    let calls = world.calls.borrow();
    let open = calls.iter().filter(|c| c.ended.is_none() && c.deed.process() == 0);
    let Some(first) = open.map(|c| c.begun).min() else { return 0 };
    let refunds = calls.iter().filter(|c| c.ended.is_none_or(|ended| ended > first));
    let refunded: i64 =
        refunds.map(|c| if let Deed::Refund { bytes, .. } = c.deed { bytes } else { 0 }).sum();
    pending(world) + refunded + 6 * world.batch
}

/// Bytes of requests by process 0 that are not answered, which can't be told from what is used when a handler came
/// between, or a death.
fn pending(world: &World) -> i64 {
    let calls = world.calls.borrow();
    let open = calls.iter().filter(|c| c.ended.is_none() && c.deed.process() == 0);
    open.map(|c| if let Deed::Spend { bytes, .. } = c.deed { bytes } else { 0 }).sum()
}

fn judge(world: &World, deadly: bool) -> Result<(), String> {
    let calls = world.calls.borrow();
    let tell = |what: &str| {
        Err(format!("{what}; limit {}, batch {}, {calls:?}", world.limit, world.batch))
    };
    if !has_an_order(world.limit, &calls) {
        return tell("no sequential budget answers so");
    }
    if world.scheme != Scheme::Ours {
        return Ok(());
    }
    if world.budget.peak() > world.limit as u64 {
        return tell("more was granted than the limit");
    }
    if !deadly && machine::given_up() > 0 {
        return tell("a wait was given up although all threads ran");
    }
    // All is given back, each block by some thread of its process.
    for process in 0..2 {
        for bytes in std::mem::take(&mut world.blocks.borrow_mut()[process]) {
            if !(deadly && process == 0) {
                world.budget.refund(&world.purses[2 * process], bytes as u64, world);
            }
        }
    }
    for purse in &world.purses {
        world.budget.close(purse, world);
    }
    let drawn: i64 = world.purses.iter().map(Purse::drawn).sum();
    let rest = (world.budget.granted(), drawn, world.budget.thieves());
    if rest != (0, 0, 0) {
        return tell(&format!("granted, drawn and thieves are {rest:?} at the end"));
    }
    Ok(())
}

/// The first schedule of so many that shows a fault.
fn first_fault(count: u64, scheme: Scheme, fault: Fault) -> Option<(u64, String)> {
    (0..count).find_map(|seed| schedule(seed, scheme, fault).err().map(|what| (seed, what)))
}

#[test]
fn a_million_schedules_have_nothing_over_and_no_false_refusal() {
    let asked = std::env::var("HEAPTAPE_SCHEDULES").ok().and_then(|n| n.parse().ok());
    let count: u64 = asked.unwrap_or(1_000_000);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || {
                for seed in (worker..count).step_by(workers as usize) {
                    if let Err(what) = schedule(seed, Scheme::Ours, Fault::None) {
                        panic!("schedule {seed}: {what}");
                    }
                }
            });
        }
    });
}

/// A spend by batch, a theft, refunds and a settlement, killed after each of their steps.
#[test]
fn a_process_killed_at_any_step_leaves_nothing() {
    let mut midway = 0;
    for kill_after in 1..400 {
        let world = Rc::new(World::new(Scheme::Ours, 200, 3));
        let (dying, burying) = (world.clone(), world.clone());
        // Another process holds 100 bytes and has credit that the dying thread may steal.
        assert!(world.ask(2, 100));
        assert!(world.ask(3, 0));
        let task = move || {
            for bytes in [1, 6, 90, 3, 100, 2] {
                if dying.ask(0, bytes) {
                    dying.budget.refund(&dying.purses[0], bytes as u64, &*dying);
                }
            }
        };
        let found = Rc::new(Cell::new(false));
        let found_by = found.clone();
        let bury = move || {
            while !machine::is_dead(0) {
                machine::pause();
            }
            if burying.budget.reclaim(burying.purses[..2].iter()) {
                found_by.set(true);
                assert!(burying.budget.mend(&*burying));
            }
        };
        let threads = vec![
            Thread { process: 0, task: Box::new(task), handler: None },
            Thread { process: 1, task: Box::new(bury), handler: None },
        ];
        machine::run_step_by_step(kill_after, threads);
        midway += u32::from(found.get());
        world.budget.close(&world.purses[2], &*world);
        world.budget.close(&world.purses[3], &*world);
        assert_eq!(world.budget.granted(), 100, "killed after {kill_after}");
        assert_eq!(world.budget.thieves(), 0, "killed after {kill_after}");
        assert!(world.ask(2, 100), "killed after {kill_after}");
    }
    assert!(midway > 50, "only {midway} died in the middle of a change");
}

/// A thread that stops at any step and never goes on: others wait for it once, and nothing is over.
#[test]
fn a_thread_that_never_comes_back_is_waited_for_once() {
    let mut waited = 0;
    for kill_after in 1..200 {
        let world = Rc::new(World::new(Scheme::Ours, 200, 3));
        let (stopped, other) = (world.clone(), world.clone());
        assert!(world.ask(1, 1));
        let stopping = move || {
            for bytes in [1, 6, 90, 1] {
                if stopped.ask(0, bytes) {
                    stopped.budget.refund(&stopped.purses[0], bytes as u64, &*stopped);
                }
            }
        };
        let asking = move || {
            while !machine::is_dead(0) {
                machine::pause();
            }
            for _ in 0..3 {
                assert!(!other.ask(2, 200));
            }
        };
        let threads = vec![
            Thread { process: 0, task: Box::new(stopping), handler: None },
            Thread { process: 1, task: Box::new(asking), handler: None },
        ];
        machine::run_step_by_step(kill_after, threads);
        assert!(machine::given_up() <= 1, "waited {} times", machine::given_up());
        assert!(world.budget.peak() <= 200);
        waited += machine::given_up();
    }
    assert!(waited > 20, "waited for {waited} only");
}

#[test]
fn a_budget_that_adds_and_undoes_is_caught() {
    assert!(first_fault(20_000, Scheme::AddThenUndo, Fault::None).is_some());
}

#[test]
fn a_budget_that_looks_and_adds_is_caught() {
    assert!(first_fault(20_000, Scheme::LookThenAdd, Fault::None).is_some());
}

#[test]
fn a_quick_path_that_is_blind_to_attention_is_caught() {
    assert!(first_fault(100_000, Scheme::Ours, Fault::Blind).is_some());
}

#[test]
fn a_barrier_that_reaches_nobody_is_caught() {
    assert!(first_fault(100_000, Scheme::Ours, Fault::NoBarrier).is_some());
}

#[test]
fn a_thief_that_does_not_wait_is_caught() {
    let found = first_fault(100_000, Scheme::Ours, Fault::Hasty);
    assert!(found.is_some_and(|(_, what)| what.starts_with("no sequential")));
}
