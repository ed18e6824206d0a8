//! Every interleaving of the lock-free parts, under a model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p heaptape-wire --release --test model`
#![cfg(loom)]

use heaptape_wire::budget::{Budget, Machine};
use heaptape_wire::chunk::{ChunkHeader, FREE, Owner, claim};
use heaptape_wire::purse::Purse;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

const CAPACITY: usize = 64;

fn owner(thread: u16) -> Owner {
    Owner { slot: 0, generation: 1, thread }
}

/// A chunk is never given to two threads, also not when the collector offers it again meanwhile.
#[test]
fn a_chunk_has_one_owner_at_a_time() {
    loom::model(|| {
        let owners = Arc::new([AtomicU64::new(FREE), AtomicU64::new(0)]);
        let users = Arc::new(AtomicU64::new(0));
        let claimants: Vec<_> = (0..2)
            .map(|i| {
                let (owners, users) = (owners.clone(), users.clone());
                thread::spawn(move || {
                    if let Some(index) = claim(&owners[..], owner(i)) {
                        assert_eq!(users.fetch_add(1, Ordering::Relaxed), 0);
                        users.fetch_sub(1, Ordering::Relaxed);
                        // Drained at once: offered again.
                        owners[index].store(FREE, Ordering::Release);
                    }
                })
            })
            .collect();
        for claimant in claimants {
            claimant.join().unwrap();
        }
    });
}

/// What is published is whole: a reader never sees a length before the words that it covers.
#[test]
fn a_published_length_covers_whole_words() {
    loom::model(|| {
        let header = Arc::new(ChunkHeader::default());
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let writer = {
            let (header, words) = (header.clone(), words.clone());
            thread::spawn(move || {
                header.open(7, 0, 0);
                words[0].store(1, Ordering::Relaxed);
                header.publish(8);
                words[1].store(2, Ordering::Relaxed);
                header.publish(16);
                header.seal();
            })
        };
        if let Some(view) = header.view(CAPACITY) {
            assert_eq!(view.tid, 7);
            for (i, word) in words.iter().enumerate().take(view.published / 8) {
                assert_eq!(word.load(Ordering::Relaxed), i as u64 + 1);
            }
            // A seal is the last word: the length that comes with it is final.
            assert!(!view.sealed || view.published == 16);
        }
        writer.join().unwrap();
    });
}

/// A chunk that changes hands shows nothing of its former owner.
#[test]
fn a_chunk_that_is_offered_again_is_blank() {
    loom::model(|| {
        let owners = Arc::new([AtomicU64::new(owner(0).to_word())]);
        let header = Arc::new(ChunkHeader::default());
        header.open(1, 0, 0);
        header.publish(8);
        header.seal();
        let next = {
            let (owners, header) = (owners.clone(), header.clone());
            thread::spawn(move || {
                if claim(&owners[..], owner(1)).is_some() {
                    header.open(2, 0, 64);
                }
            })
        };
        header.reset();
        owners[0].store(FREE, Ordering::Release);
        let word = owners[0].load(Ordering::Acquire);
        if Owner::from_word(word) == Some(owner(1))
            && let Some(view) = header.view(CAPACITY)
        {
            assert_eq!((view.tid, view.first, view.published), (2, 64, 0));
            assert!(!view.sealed);
        }
        next.join().unwrap();
    });
}

/// Two looks a round: whoever sees an allocation in the first look sees the release that it depends
/// on in the second, although the two come from different threads.
#[test]
fn the_second_look_has_every_predecessor_of_the_first() {
    loom::model(|| {
        let lanes = Arc::new([ChunkHeader::default(), ChunkHeader::default()]);
        let block = Arc::new(AtomicU64::new(0));
        lanes[0].open(1, 0, 0);
        lanes[1].open(2, 0, 0);
        let releaser = {
            let (lanes, block) = (lanes.clone(), block.clone());
            thread::spawn(move || {
                lanes[0].publish(8); // the release is written …
                block.store(1, Ordering::Release); // … before the allocator may hand the block out
            })
        };
        let allocator = {
            let (lanes, block) = (lanes.clone(), block.clone());
            thread::spawn(move || {
                if block.load(Ordering::Acquire) == 1 {
                    lanes[1].publish(8); // the allocation is written after it was made
                }
            })
        };
        let first = lanes[1].view(CAPACITY).unwrap().published;
        let second = lanes[0].view(CAPACITY).unwrap().published;
        assert!(first == 0 || second == 8);
        releaser.join().unwrap();
        allocator.join().unwrap();
    });
}

/// A budget near its limit, and a purse for each of three threads. With batches of one byte something is drawn ahead
/// while 64 are left.
#[derive(Default)]
struct Job {
    budget: Budget,
    purses: [Purse; 3],
}

impl Machine for Job {
    fn barrier(&self) -> bool {
        fence(Ordering::SeqCst);
        true
    }

    fn wait(&self, _: u32) -> bool {
        thread::yield_now();
        true
    }

    fn purses(&self) -> impl Iterator<Item = &Purse> {
        self.purses.iter()
    }
}

impl Job {
    fn new(limit: u64) -> Job {
        let job = Job::default();
        job.budget.open(limit, 1);
        job
    }

    fn spend(&self, purse: usize, bytes: u64) -> bool {
        self.budget.spend(&self.purses[purse], bytes, self).is_ok()
    }

    fn refund(&self, purse: usize, bytes: u64) {
        self.budget.refund(&self.purses[purse], bytes, self);
    }

    /// Nothing is left when all is refunded.
    fn is_empty(&self) -> bool {
        for purse in &self.purses {
            self.budget.close(purse, self);
        }
        let drawn: i64 = self.purses.iter().map(Purse::drawn).sum();
        (self.budget.granted(), drawn, self.budget.thieves()) == (0, 0, 0)
    }
}

/// Runs two calls at a time, with all that a few preemptions can do.
fn explore(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

/// One thread draws ahead what the other needs: both fit, so both are granted.
#[test]
fn what_is_drawn_ahead_is_no_reason_to_refuse() {
    explore(5, || {
        let job = Arc::new(Job::new(70));
        let other = job.clone();
        let small = thread::spawn(move || other.spend(0, 2));
        assert!(job.spend(1, 68));
        assert!(small.join().unwrap());
        job.refund(1, 70);
        assert!(job.is_empty());
    });
}

/// Of two that do not fit together one is granted and one refused.
#[test]
fn one_of_two_is_granted_at_the_edge() {
    explore(5, || {
        let job = Arc::new(Job::new(70));
        let other = job.clone();
        let first = thread::spawn(move || other.spend(0, 36));
        let second = job.spend(1, 36);
        assert!(first.join().unwrap() != second);
        job.refund(2, 36);
        assert!(job.is_empty());
    });
}

/// Two thieves go for the credit of a third: it is in one's hands while the other looks, and one of them gets it.
#[test]
fn one_of_two_thieves_is_granted() {
    explore(4, || {
        let job = Arc::new(Job::new(70));
        assert!(job.spend(2, 2));
        assert!(job.spend(2, 66) && job.purses[2].credit() == 1);
        let other = job.clone();
        let first = thread::spawn(move || other.spend(0, 2));
        let second = job.spend(1, 2);
        assert!(first.join().unwrap() != second);
        job.refund(0, 70);
        assert!(job.is_empty());
    });
}

/// A spend from the purse, and a theft: nothing is spent that was taken.
#[test]
fn credit_is_spent_or_taken() {
    explore(5, || {
        let job = Arc::new(Job::new(70));
        assert!(job.spend(0, 2) && job.purses[0].credit() == 1);
        let other = job.clone();
        let quick = thread::spawn(move || other.spend(0, 1));
        let large = job.spend(1, 68);
        let quick = quick.join().unwrap();
        assert!(quick != large, "{quick} {large}");
        job.refund(0, if large { 70 } else { 3 });
        assert!(job.is_empty());
    });
}

/// What was refunded before a request began is there for it.
#[test]
fn a_refund_counts_at_once() {
    explore(5, || {
        let job = Arc::new(Job::new(70));
        let done = Arc::new(AtomicU64::new(0));
        assert!(job.spend(0, 2));
        let (other, told) = (job.clone(), done.clone());
        let refunder = thread::spawn(move || {
            other.refund(0, 2);
            told.store(1, Ordering::Release);
        });
        let in_time = done.load(Ordering::Acquire) == 1;
        let granted = job.spend(1, 70);
        assert!(granted || !in_time);
        refunder.join().unwrap();
        job.refund(1, if granted { 70 } else { 0 });
        assert!(job.is_empty());
    });
}
