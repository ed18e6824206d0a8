//! Every interleaving of the lock-free parts, under a model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p heaptape-wire --release --test model`
#![cfg(loom)]

use heaptape_wire::chunk::{ChunkHeader, FREE, Owner, claim};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
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
