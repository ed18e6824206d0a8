//! Shared objects of a job: charged once, whoever maps them first and unmaps them last, and whoever dies.
#![cfg(not(loom))]

use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::{AtomicI64, Ordering};

use heaptape_wire::budget::Machine;
use heaptape_wire::ledger::{Kind, LEDGER_BYTES, Ledger};
use heaptape_wire::objects::{Actor, Key, OBJECTS, Outside};
use heaptape_wire::purse::Purse;

struct Patient;

impl Machine for Patient {
    fn barrier(&self) -> bool {
        false
    }

    fn wait(&self, round: u32) -> bool {
        std::thread::yield_now();
        round < 100_000
    }

    fn purses(&self) -> impl Iterator<Item = &Purse> {
        std::iter::empty()
    }
}

/// A job, and the bytes that are charged in it.
struct Job {
    ledger: Ledger,
    charged: AtomicI64,
}

fn key(number: u64) -> Key {
    Key { place: 7, number }
}

fn actor(slot: u32) -> Actor<'static, Patient> {
    Actor { slot, generation: 1, kind: Kind::Shared, machine: &Patient }
}

impl Job {
    fn new() -> Job {
        let layout = Layout::from_size_align(LEDGER_BYTES, 4096).expect("a layout");
        // SAFETY: zeros of that size, which stay for the life of the test.
        let ledger = unsafe { Ledger::new(alloc_zeroed(layout)) };
        (0..8).for_each(|slot| ledger.account(slot).open(1));
        Job { ledger, charged: AtomicI64::new(0) }
    }

    fn enter(&self, slot: u32, number: u64, bytes: u64, fits: bool) -> Result<usize, Outside> {
        self.ledger.enter(key(number), bytes, &actor(slot), |_, more| {
            self.charged.fetch_add(if fits { more as i64 } else { 0 }, Ordering::SeqCst);
            fits
        })
    }

    fn refund(&self, bytes: u64) {
        self.charged.fetch_sub(bytes as i64, Ordering::SeqCst);
    }

    fn leave(&self, slot: u32, index: usize) {
        self.ledger.leave(index, &actor(slot), |_, bytes| self.refund(bytes));
    }

    fn bury(&self, slot: u32) {
        self.ledger.bury(slot, &Patient, |_, bytes| self.refund(bytes));
    }

    fn charged(&self) -> i64 {
        self.charged.load(Ordering::SeqCst)
    }

    fn row(&self, slot: usize) -> u64 {
        self.ledger.account(slot).charged[Kind::Shared as usize].load(Ordering::SeqCst)
    }
}

#[test]
fn an_object_is_charged_once_as_far_as_it_is_mapped() {
    let job = Job::new();
    let index = job.enter(0, 5, 4096, true).expect("room");
    assert_eq!(job.enter(1, 5, 4096, true), Ok(index));
    assert_eq!((job.charged(), job.row(0), job.row(1)), (4096, 4096, 0));
    assert_eq!(job.enter(2, 5, 8192, false), Err(Outside::Refused));
    assert_eq!(job.enter(1, 5, 8192, true), Ok(index));
    assert_eq!((job.charged(), job.row(0)), (8192, 8192));
    assert_ne!(job.enter(1, 6, 100, true), Ok(index));
    job.leave(0, index);
    assert_eq!(job.charged(), 8292);
    job.leave(1, index);
    assert_eq!((job.charged(), job.row(0), job.ledger.charged_for_objects()), (100, 0, 100));
}

#[test]
fn one_that_is_refused_or_left_makes_place() {
    let job = Job::new();
    for number in 0..3 * OBJECTS as u64 {
        assert_eq!(job.enter(0, number, 10, false), Err(Outside::Refused));
        let index = job.enter(0, number, 10, true).expect("room");
        job.leave(0, index);
    }
    assert_eq!(job.charged(), 0);
    let all: Vec<_> = (0..=OBJECTS as u64).map(|number| job.enter(0, number, 1, true)).collect();
    assert!(all[..OBJECTS].iter().all(Result::is_ok));
    assert_eq!(all[OBJECTS], Err(Outside::Unknown));
    job.bury(0);
    assert_eq!(job.charged(), 0);
}

#[test]
fn what_a_dead_process_had_goes_on_with_the_others() {
    let job = Job::new();
    let index = job.enter(0, 5, 4096, true).expect("room");
    assert_eq!(job.enter(1, 5, 4096, true), Ok(index));
    job.bury(0);
    assert_eq!((job.charged(), job.ledger.object(index).has_user(0)), (4096, false));
    job.bury(1);
    job.bury(1);
    assert_eq!(job.charged(), 0);
}

#[test]
fn one_that_dies_in_the_middle_of_a_change_is_not_waited_for_once_it_is_buried() {
    let job = Job::new();
    let index = job.enter(1, 5, 4096, true).expect("room");
    let dead = std::thread::scope(|scope| {
        let panics = || {
            let _ = job.ledger.enter(key(5), 8192, &actor(0), |_, _| panic!("it dies"));
        };
        scope.spawn(panics).join()
    });
    assert!(dead.is_err());
    job.bury(0);
    assert_eq!(job.enter(2, 5, 8192, true), Ok(index));
    assert_eq!(job.charged(), 8192);
    job.bury(2);
    job.leave(1, index);
    assert_eq!(job.charged(), 0);
}

#[test]
fn processes_that_come_and_go_at_once_charge_it_once() {
    const BYTES: u64 = 4096;
    let job = Job::new();
    std::thread::scope(|scope| {
        for slot in 0..4 {
            let job = &job;
            scope.spawn(move || {
                for round in 0..20_000u64 {
                    let index = job.enter(slot, round / 100 % 3, BYTES, true).expect("room");
                    assert!((BYTES as i64..=3 * BYTES as i64).contains(&job.charged()));
                    job.leave(slot, index);
                }
            });
        }
    });
    assert_eq!((job.charged(), job.ledger.charged_for_objects()), (0, 0));
}
