//! Moves the session's coarse clock, in a thread of its own so that it keeps going under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heaptape_wire::session::Arena;

use crate::Error;

/// How often the clock moves: the resolution of the times on a tape.
const TICK: Duration = Duration::from_millis(4);

/// The running clock; it stops when dropped.
pub(crate) struct Clock {
    started: Instant,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Clock {
    pub(crate) fn start(arena: Arena) -> Result<Clock, Error> {
        let started = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let tick = move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(TICK);
                arena.session().set_clock(started.elapsed().as_millis() as u32);
            }
        };
        let thread = crate::thread::start(tick)?;
        Ok(Clock { started, stop, thread: Some(thread) })
    }

    /// Milliseconds since the recording began.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
