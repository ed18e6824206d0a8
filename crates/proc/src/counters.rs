//! How far the kernel's cheap counters of resident pages (`statm`, `status`) are behind the truth
//! (`smaps_rollup`, which looks at every page).
//!
//! Kernels add pages up per thread or per processor and tell the sum now and then. How much that is
//! depends on the kernel, so it is measured, with pages and threads of this process.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use crate::read;

/// Threads that touch pages, at most.
const THREADS: u64 = 8;
/// Rounds; in each every thread touches a few pages more.
const ROUNDS: usize = 40;
/// Pages that a thread touches in a round: no divisor of the batches that kernels have.
const STEP: usize = 7;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The largest difference between counter and truth, in pages.
    pub pages: u64,
    /// Bytes of a page.
    pub page_size: u64,
    /// Threads that touched pages.
    pub threads: u64,
    /// Pages that were touched.
    pub touched: u64,
    /// How often both were read.
    pub readings: u64,
}

/// Measures it. `None` where the kernel has no `smaps_rollup`, where that does not show the pages that
/// were touched, or where threads can't be started.
pub fn measure() -> Option<Lag> {
    let page_size = rustix::param::page_size();
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let workers: Vec<Worker> =
        (0..processors.min(THREADS)).map_while(|_| Worker::start(page_size)).collect();
    if workers.is_empty() {
        return None;
    }
    // What reading takes in memory is there before the first comparison.
    let before = Reading::now(page_size)?.truth;
    let (mut pages, mut last) = (0, before);
    for _ in 0..ROUNDS {
        workers.iter().for_each(Worker::touch);
        workers.iter().for_each(Worker::wait);
        let reading = Reading::now(page_size)?;
        pages = pages.max(reading.counted.abs_diff(reading.truth));
        last = reading.truth;
    }
    let touched = (workers.len() * ROUNDS * STEP) as u64;
    (last >= before + touched).then_some(Lag {
        pages,
        page_size: page_size as u64,
        threads: workers.len() as u64,
        touched,
        readings: ROUNDS as u64,
    })
}

/// Resident pages, while nothing changes them.
struct Reading {
    counted: u64,
    truth: u64,
}

impl Reading {
    fn now(page_size: usize) -> Option<Reading> {
        let (pid, bytes) = (std::process::id(), page_size as u64);
        let counted = read::statm(pid, bytes).ok()?.resident / bytes;
        Some(Reading { counted, truth: read::smaps_rollup(pid).ok()?.rss? / bytes })
    }
}

/// A thread that touches pages when told, and stays, so that nothing it counted is told by its end.
struct Worker {
    tell: Option<Sender<()>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(page_size: usize) -> Option<Worker> {
        let (tell, told) = channel::<()>();
        let (say, done) = channel();
        let work = move || {
            // Fresh memory: the kernel has given no page of it yet.
            let mut memory = vec![0u8; (ROUNDS * STEP + 1) * page_size];
            // The allocator's own words before it are in the first.
            let mut places =
                (page_size..memory.len()).step_by(page_size).collect::<Vec<_>>().into_iter();
            let _ = say.send(());
            while told.recv().is_ok() {
                for place in places.by_ref().take(STEP) {
                    if let Some(byte) = memory.get_mut(place) {
                        *byte = 1;
                    }
                }
                black_box(&memory);
                let _ = say.send(());
            }
        };
        let thread = Builder::new().spawn(work).ok()?;
        let worker = Worker { tell: Some(tell), done, thread: Some(thread) };
        worker.wait();
        Some(worker)
    }

    fn touch(&self) {
        if let Some(tell) = &self.tell {
            let _ = tell.send(());
        }
    }

    fn wait(&self) {
        let _ = self.done.recv();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tell = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_measured_where_the_truth_is_known() {
        if read::smaps_rollup(std::process::id()).is_err() {
            return;
        }
        // Other tests of this process come and go, and may take pages with them.
        let lag = (0..10).find_map(|_| measure()).unwrap();
        assert!(lag.threads > 0 && lag.touched == lag.threads * 280, "{lag:?}");
    }
}
