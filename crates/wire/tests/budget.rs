//! The budget for real: threads of several processes at the edge of one limit, with the kernel's own barrier.
//!
//! What is true is counted beside it, by locked instructions: what is held for certain never exceeds the limit, and
//! what may be held at some moment of a refused call, with the request, does.
#![cfg(not(loom))]
#![allow(clippy::print_stderr)]

use heaptape_wire::budget::{Budget, Machine, TOO_LARGE};
use heaptape_wire::purse::Purse;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PURSES: usize = 6;
const LIMIT: u64 = 1 << 20;
const BATCH: u64 = 2 << 10;

/// What all processes share.
struct Job {
    budget: Budget,
    purses: [Purse; PURSES],
    /// Bytes that were granted and not refunded yet, for certain.
    held: AtomicU64,
    /// The same with all that may be granted already, or be refunded only now.
    perhaps: AtomicU64,
    /// The most of it since a thread last asked.
    highest: [AtomicU64; PURSES],
    faults: AtomicU32,
    granted: AtomicU64,
    refused: AtomicU64,
    stop: AtomicU32,
}

impl Machine for Job {
    fn barrier(&self) -> bool {
        membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
    }

    fn wait(&self, round: u32) -> bool {
        if round < 100 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(100));
        }
        round < 20_000
    }

    fn purses(&self) -> impl Iterator<Item = &Purse> {
        self.purses.iter()
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: a number and two zeros; it touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Fresh memory that forked processes share.
fn job(batch: u64) -> &'static Job {
    // SAFETY: a new mapping, which is never unmapped; zeroed memory is a valid job.
    let job = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let page = libc::mmap(std::ptr::null_mut(), size_of::<Job>(), protection, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &*page.cast::<Job>()
    };
    if !membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) {
        eprintln!("no membarrier here: locked instructions only");
    }
    job.budget.open(LIMIT, batch);
    job
}

/// A process that runs `work` and ends.
fn fork(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child uses what glibc keeps whole across fork, and ends without running anything of the parent's.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
            work();
            libc::_exit(0);
        }
        pid
    }
}

fn reap(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
}

impl Job {
    fn raise(&self, bytes: u64) {
        let now = self.perhaps.fetch_add(bytes, SeqCst) + bytes;
        for highest in &self.highest {
            highest.fetch_max(now, SeqCst);
        }
    }

    fn spend(&self, thread: usize, bytes: u64) -> bool {
        self.highest[thread].store(0, SeqCst);
        self.raise(bytes);
        let granted = self.budget.spend(&self.purses[thread], bytes, self).is_ok();
        let fault = if granted {
            self.granted.fetch_add(1, SeqCst);
            self.held.fetch_add(bytes, SeqCst) + bytes > LIMIT
        } else {
            self.refused.fetch_add(1, SeqCst);
            self.perhaps.fetch_sub(bytes, SeqCst);
            self.highest[thread].load(SeqCst) <= LIMIT
        };
        if fault {
            self.faults.fetch_add(1, SeqCst);
        }
        granted
    }

    fn refund(&self, thread: usize, bytes: u64) {
        self.held.fetch_sub(bytes, SeqCst);
        self.budget.refund(&self.purses[thread], bytes, self);
        self.perhaps.fetch_sub(bytes, SeqCst);
    }

    /// Spends and refunds until told to stop; blocks go from thread to thread.
    fn work(&self, thread: usize, blocks: &Mutex<Vec<u64>>) {
        let mut dice = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(thread as u64 + 1);
        while self.stop.load(SeqCst) == 0 {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            let bytes = match dice >> 20 & 7 {
                0 => LIMIT / 2 - (dice >> 30 & 0xfff),
                1 => dice >> 30 & 0x3_ffff,
                _ => dice >> 30 & 0x3ff,
            };
            let refused = !self.spend(thread, bytes);
            let mut blocks = blocks.lock().expect("nobody panics");
            if !refused {
                blocks.push(bytes);
            }
            let many = if refused { blocks.len() / 2 } else { usize::from(blocks.len() > 40) };
            let some: Vec<u64> = blocks.drain(..many).collect();
            drop(blocks);
            some.into_iter().for_each(|bytes| self.refund(thread, bytes));
        }
    }

    /// Two threads, with the purses from `first` on, that free all in the end.
    fn process(&self, first: usize) {
        let blocks = Mutex::default();
        std::thread::scope(|scope| {
            for thread in first..first + 2 {
                let blocks = &blocks;
                scope.spawn(move || self.work(thread, blocks));
            }
        });
        for bytes in blocks.into_inner().expect("nobody panics") {
            self.refund(first, bytes);
        }
        for purse in &self.purses[first..first + 2] {
            self.budget.close(purse, self);
        }
    }
}

fn three_processes(batch: u64) {
    let job = job(batch);
    let children = [fork(|| job.process(0)), fork(|| job.process(2))];
    std::thread::scope(|scope| {
        scope.spawn(|| job.process(4));
        std::thread::sleep(Duration::from_millis(800));
        job.stop.store(1, SeqCst);
    });
    children.into_iter().for_each(reap);
    let (granted, refused) = (job.granted.load(SeqCst), job.refused.load(SeqCst));
    eprintln!("{granted} granted, {refused} refused with batches of {batch}");
    assert_eq!(job.faults.load(SeqCst), 0, "of {granted} granted and {refused} refused");
    assert!(granted > 100 && refused > 10, "{granted} granted, {refused} refused");
    assert!(job.budget.peak() <= LIMIT);
    assert_eq!((job.budget.granted(), job.held.load(SeqCst), job.perhaps.load(SeqCst)), (0, 0, 0));
    assert_eq!(job.purses.iter().map(Purse::drawn).sum::<i64>(), 0);
    assert_eq!(job.budget.thieves(), 0);
}

#[test]
fn three_processes_share_a_limit_exactly() {
    three_processes(BATCH);
}

#[test]
fn three_processes_share_a_limit_exactly_without_batches() {
    three_processes(0);
}

/// Whatever a process is killed in, all it held is given back, and what others hold stays.
#[test]
fn a_killed_process_leaves_nothing() {
    let job = job(BATCH);
    assert!(job.spend(4, 1000));
    let begun = Instant::now();
    let mut midway = 0;
    for round in 0..200u64 {
        if begun.elapsed() > Duration::from_millis(1500) {
            break;
        }
        let pid = fork(|| job.process(0));
        std::thread::sleep(Duration::from_micros(300 + round * 37 % 1000));
        // SAFETY: a child of this process that is not reaped yet.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        reap(pid);
        if job.budget.reclaim(job.purses[..2].iter()) {
            midway += 1;
            assert!(job.budget.mend(job), "the only other thread is at rest");
        }
        job.budget.close(&job.purses[4], job);
        assert_eq!(job.budget.granted(), 1000, "round {round}");
        assert_eq!(job.budget.thieves(), 0);
    }
    eprintln!("{midway} died in the middle of a change");
    assert!(job.budget.spend(&job.purses[5], LIMIT - 1000, job).is_ok());
    assert!(job.budget.spend(&job.purses[5], 1, job).is_err());
}

/// The same while others are at work: they are held up for moments only, and lose nothing.
#[test]
fn a_process_killed_among_others_leaves_nothing() {
    let job = job(BATCH);
    let worker = fork(|| job.process(2));
    let begun = Instant::now();
    let (mut midway, mut mended) = (0, 0);
    while begun.elapsed() < Duration::from_millis(700) {
        let pid = fork(|| job.process(0));
        std::thread::sleep(Duration::from_millis(1));
        // SAFETY: a child of this process that is not reaped yet.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        reap(pid);
        if job.budget.reclaim(job.purses[..2].iter()) {
            midway += 1;
            mended += u32::from(job.budget.mend(job));
        }
    }
    job.stop.store(1, SeqCst);
    reap(worker);
    eprintln!("{midway} died in the middle of a change");
    assert_eq!(mended, midway);
    assert!(job.budget.peak() <= LIMIT);
    assert_eq!((job.budget.granted(), job.budget.thieves()), (0, 0));
}

#[test]
fn an_exempt_thread_is_never_refused_and_never_counted() {
    let job = job(BATCH);
    job.purses[0].set_exempt();
    for bytes in [1, 100, LIMIT, TOO_LARGE, u64::MAX] {
        assert!(job.budget.spend(&job.purses[0], bytes, job).is_ok());
    }
    job.budget.refund(&job.purses[0], 100, job);
    assert!(job.budget.spend(&job.purses[1], LIMIT, job).is_ok());
    assert!(job.budget.spend(&job.purses[1], 1, job).is_err());
    assert_eq!(job.budget.granted(), LIMIT);
}

#[test]
fn an_heir_keeps_what_the_dead_had() {
    let job = job(BATCH);
    assert!(job.spend(0, 5000));
    assert!(!job.budget.transfer(&job.purses[0], &job.purses[1], job));
    assert_eq!((job.budget.granted(), job.purses[1].drawn()), (5000, 5000));
    assert!(!job.budget.reclaim(job.purses[1..2].iter()));
    assert_eq!(job.budget.granted(), 0);
}

#[test]
fn what_no_machine_has_is_refused() {
    let job = job(BATCH);
    for bytes in [LIMIT + 1, TOO_LARGE, 1 << 63, u64::MAX] {
        assert!(job.budget.spend(&job.purses[0], bytes, job).is_err());
    }
    assert_eq!(job.budget.in_use(job), (0, 0));
}

#[test]
fn bytes_of_a_call_that_stays_away_are_taken_once() {
    let purse = Purse::default();
    let (outer, inner) = (purse.send_away(1000), purse.send_away(50));
    assert_eq!(purse.away(), 1050);
    assert!(purse.come_back(inner));
    assert_eq!((purse.away(), purse.take_away(), purse.away()), (1000, 1000, 0));
    // A later one of the same size is not taken for it.
    let later = purse.send_away(1000);
    assert!(!purse.come_back(outer) && purse.come_back(later));
    assert_eq!(purse.away(), 0);
}
