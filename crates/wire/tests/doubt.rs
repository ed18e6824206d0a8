//! What is granted for calls that may fail: held against the limit, and in the peak once they have succeeded.
#![cfg(not(loom))]

use heaptape_wire::budget::{Budget, Machine};
use heaptape_wire::purse::Purse;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

const BATCH: u64 = 1000;
const HUGE: u64 = 1 << 40;

/// Purses of a job whose threads never wait for each other.
struct Job(Budget, [Purse; 4]);

impl Job {
    fn new(batch: u64) -> Job {
        let job = Job(Budget::default(), Default::default());
        job.0.open(1 << 46, batch);
        job
    }
}

impl Machine for Job {
    fn barrier(&self) -> bool {
        false
    }

    fn wait(&self, round: u32) -> bool {
        thread::yield_now();
        round < 1000
    }

    fn purses(&self) -> impl Iterator<Item = &Purse> {
        self.1.iter()
    }
}

#[test]
fn what_fails_is_held_against_the_limit_and_does_not_stand_in_the_peak() {
    let job = Job::new(0);
    let Job(budget, purses) = &job;
    assert!(budget.spend(&purses[0], 500, &job).is_ok());
    let doubt = budget.spend_in_doubt(&purses[1], HUGE, &job).unwrap();
    assert_eq!((doubt, budget.granted(), budget.peak()), (HUGE, HUGE + 500, 500));
    assert!(budget.spend(&purses[0], 200, &job).is_ok());
    assert!(budget.spend(&purses[0], 1 << 46, &job).is_err());
    budget.doubt_no_more(doubt);
    budget.refund(&purses[1], HUGE, &job);
    assert_eq!((budget.granted(), budget.peak()), (700, 700));
    let doubt = budget.spend_in_doubt(&purses[1], 1000, &job).unwrap();
    budget.confirm(doubt);
    assert_eq!(budget.peak(), 1700);
    let lost = budget.spend_in_doubt(&purses[1], 1000, &job).unwrap();
    budget.give_up_doubts();
    assert_eq!((lost, budget.peak()), (1000, 2700));
    // From here on there is no doubt.
    assert_eq!(budget.spend_in_doubt(&purses[2], 300, &job), Ok(0));
    assert_eq!(budget.peak(), 3000);
}

/// Threads that fail and succeed in what is doubtful, among others that hold small things.
#[test]
fn the_peak_is_never_less_than_what_was_held() {
    for batch in [0, BATCH] {
        let (job, held, most) = (Job::new(batch), AtomicU64::new(0), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        let hold = |bytes: u64| {
            most.fetch_max(held.fetch_add(bytes, SeqCst) + bytes, SeqCst);
        };
        thread::scope(|scope| {
            for (at, purse) in job.1.iter().enumerate() {
                let (job, held, hold, is_over) = (&job, &held, &hold, &is_over);
                scope.spawn(move || {
                    let budget = &job.0;
                    for round in 0u64..50_000 {
                        let bytes = 1 + round % 700 * (at as u64 + 1);
                        let fails = round % 3 == 0;
                        if at < 2 && !is_over.load(SeqCst) {
                            let bytes = if fails { HUGE } else { bytes };
                            let doubt = budget.spend_in_doubt(purse, bytes, job).unwrap();
                            if fails {
                                budget.doubt_no_more(doubt);
                            } else {
                                budget.confirm(doubt);
                                hold(bytes);
                                held.fetch_sub(bytes, SeqCst);
                            }
                            budget.refund(purse, bytes, job);
                        } else if budget.spend(purse, bytes, job).is_ok() {
                            hold(bytes);
                            held.fetch_sub(bytes, SeqCst);
                            budget.refund(purse, bytes, job);
                        }
                    }
                    is_over.store(true, SeqCst);
                });
            }
        });
        let (peak, most) = (job.0.peak(), most.load(SeqCst));
        assert!(peak >= most, "{peak} is less than {most}");
        job.1.iter().for_each(|purse| job.0.close(purse, &job));
        assert_eq!(job.0.granted(), 0);
        // Nothing is left in doubt: what is spent now stands in the peak whole.
        assert!(job.0.spend(&job.1[0], 2 * HUGE, &job).is_ok());
        assert!(job.0.peak() >= 2 * HUGE);
    }
}
