//! Waiting for the collector, with an end to it.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::{self, syscall};
use crate::arena::arena;
use crate::lifecycle::{STATE, is_sleepless};

/// Ticks in a millisecond. No processor has more than these: a program may have written over the word, and nobody waits
/// longer for that.
pub fn ticks_per_ms() -> u64 {
    const MOST: u32 = 10_000_000;
    u64::from(arena().session().tsc_per_ms.load(Ordering::Relaxed).min(MOST))
}

/// A time that must pass before something is tried again.
pub struct Pause {
    ms: u64,
    /// When it began; 0 for not yet.
    began: AtomicU64,
}

impl Pause {
    pub const fn of_ms(ms: u64) -> Pause {
        Pause { ms, began: AtomicU64::new(0) }
    }

    /// Whether it has passed, or there was none.
    pub fn is_over(&self) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        began == 0 || arch::stamp().saturating_sub(began) > self.ms * ticks_per_ms()
    }

    pub fn begin(&self) {
        self.began.store(arch::stamp(), Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.began.store(0, Ordering::Relaxed);
    }
}

/// How long to wait for the collector: 0.2 s once it is dead, 2 s once it has stopped. It counts among
/// those who wait as long as it lives.
pub struct Patience {
    rounds: u32,
    beat: u32,
    last: u64,
    /// Ticks waited in all, and since the collector last gave a sign of life.
    waited: u64,
    silent: u64,
    ticks_per_ms: u64,
    spins: bool,
}

impl Patience {
    const DEAD_MS: u64 = 200;
    const STOPPED_MS: u64 = 2000;
    /// What one round counts beyond its pause at the most: the program itself may have been stopped
    /// meanwhile.
    const ROUND_MS: u64 = 20;
    /// Rounds without a pause, where few wait.
    const SPINS: u32 = 16;
    const FEW: u32 = 8;
    /// The first pause. The next ones are longer, up to so much for each who waits: all together
    /// then ask no more often than one would, and leave the processors to the collector.
    const PAUSE_US: u64 = 50;
    const LONGEST_US: u64 = 500_000;

    /// Begins to wait.
    pub fn new() -> Patience {
        let session = arena().session();
        session.waiting.fetch_add(1, Ordering::Relaxed);
        let spins = is_sleepless();
        session.spinning.fetch_add(u32::from(spins), Ordering::Relaxed);
        Patience {
            spins,
            rounds: 0,
            beat: session.heartbeat(),
            last: arch::stamp(),
            waited: 0,
            silent: 0,
            ticks_per_ms: ticks_per_ms(),
        }
    }

    /// Waits a moment; false when there is nobody to wait for.
    pub fn wait(&mut self) -> bool {
        let session = arena().session();
        let pause_us = self.pause_us(session.waiting.load(Ordering::Relaxed));
        self.rounds += 1;
        if pause_us == 0 {
            arch::relax();
        } else {
            const EPERM: isize = -1;
            const ENOSYS: isize = -38;
            let moment: [u64; 2] = [0, pause_us * 1000];
            // SAFETY: reads the two words; the remainder is not asked for.
            let slept =
                unsafe { syscall(arch::SYS_NANOSLEEP, [moment.as_ptr() as usize, 0, 0, 0, 0, 0]) };
            // A sandbox that came with the process.
            if matches!(slept, EPERM | ENOSYS) {
                STATE.sleepless.store(1, Ordering::Relaxed);
            }
        }
        let now = arch::stamp();
        let most = (Self::ROUND_MS + pause_us / 1000) * self.ticks_per_ms;
        let round = now.saturating_sub(self.last).min(most);
        self.last = now;
        self.waited += round;
        self.silent += round;
        let beat = session.heartbeat();
        if beat != self.beat {
            (self.beat, self.silent) = (beat, 0);
        }
        if session.is_orphaned() && self.has_waited(Self::DEAD_MS) {
            return false;
        }
        self.silent < Self::STOPPED_MS * self.ticks_per_ms
    }

    /// How long the next pause is, with so many who wait; 0 for none.
    fn pause_us(&self, crowd: u32) -> u64 {
        let spins = if crowd > Self::FEW { 0 } else { Self::SPINS };
        if self.rounds < spins || is_sleepless() {
            return 0;
        }
        let doubled = Self::PAUSE_US << (self.rounds - spins).min(16);
        doubled.min(Self::PAUSE_US * u64::from(crowd.max(1))).min(Self::LONGEST_US)
    }

    /// Whether the wait has lasted so long.
    pub fn has_waited(&self, ms: u64) -> bool {
        self.waited >= ms * self.ticks_per_ms
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        let session = arena().session();
        session.waiting.fetch_sub(1, Ordering::Relaxed);
        session.spinning.fetch_sub(u32::from(self.spins), Ordering::Relaxed);
    }
}
