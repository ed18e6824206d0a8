//! The budget of a job: how many bytes all its threads in all its processes may use together, to the byte.
//!
//! One [`Budget`] lies in the memory that the processes share, beside a [`Purse`] for each thread. Capture spends before
//! it hands memory out and refunds after it took memory back; the supervisor settles what the dead held. Nothing here
//! waits for a lock, allocates or makes a system call: what must be asked of the kernel goes through a [`Machine`].
//!
//! `granted` is what all use together with what they have drawn ahead; it is raised by compare-and-swap, never above
//! `limit`, before anything is handed out. So no byte is admitted over the limit. In the common case a thread touches
//! its purse only, by instructions that are not locked. Before a request is refused, `steal.rs` takes back all
//! that was drawn ahead; so no request is refused that fits. `mend.rs` has the rest: deaths.
//!
//! A request counts at the moment when it is granted or refused, a refund at some moment during the call, the memory
//! of a dead process as held until the supervisor has given it back. What is exact is exact but for two cases, both of
//! which only refuse: a thread that was killed or stopped in the middle of a call, or never came back to it, keeps what
//! it had in its hands out of use until it goes on or the supervisor mends (its own request or refund, and the
//! credit that it was taking back: three batches, or what another thread refunds just then); and a request by a
//! signal handler, while the call that the handler interrupted has as much in its hands.

use crate::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use crate::doubt::Doubts;
use crate::purse::{Purse, cap_word};

/// No request is as large, and no limit: sums are kept in 48 bits with a sign.
pub const TOO_LARGE: u64 = 1 << 47;
/// The limit of a budget that only counts.
pub const NO_LIMIT: u64 = u64::MAX;

/// What a quick spend may be at most, so that a few nested ones fit in the word with all that was spent.
const QUICK: u64 = 1 << 31;
/// Nothing is drawn ahead when less than so many batches are left.
const NEAR: u64 = 64;

/// In `attention`: locked instructions for ever.
pub(crate) const FENCED: u32 = 1 << 31;
/// In `attention`: the supervisor mends; changes wait at the door.
pub(crate) const MENDING: u32 = 1 << 30;
/// In `attention`: the number of threads that take back credit now.
pub(crate) const THIEVES: u32 = MENDING - 1;

/// What the budget asks of the system.
pub trait Machine {
    /// Makes every running thread of the job pass a memory fence, as `membarrier` with
    /// `MEMBARRIER_CMD_GLOBAL_EXPEDITED` does, for which each process must have registered; `false` if that can't be
    /// done. It is better found out before: see [`Budget::fence_for_ever`].
    fn barrier(&self) -> bool;

    /// Lets others run for a moment, the `round`th time on end; `false` when it was long enough.
    fn wait(&self, round: u32) -> bool;

    /// All purses that a thread has or had, the supervisor's too.
    fn purses(&self) -> impl Iterator<Item = &Purse>;
}

/// A request that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Bytes that the job used at that moment.
    pub granted: u64,
}

/// The words of the job. Zeroed memory is a budget of nothing.
#[repr(C)]
#[derive(Default)]
pub struct Budget {
    rules: Rules,
    sums: Sums,
}

/// What all read and few write.
#[repr(C, align(128))]
#[derive(Default)]
struct Rules {
    limit: AtomicU64,
    batch: AtomicU64,
    cap: AtomicU64,
    attention: AtomicU32,
}

/// What all write.
#[repr(C, align(128))]
#[derive(Default)]
struct Sums {
    granted: AtomicU64,
    peak: AtomicU64,
    doubts: Doubts,
}

impl Budget {
    /// Opens a budget of `limit` bytes, before any thread spends. A thread draws `batch` bytes ahead; with 0 nothing is
    /// drawn ahead, and what is granted is what is used at every moment.
    pub fn open(&self, limit: u64, batch: u64) {
        self.rules.batch.store(batch.min(QUICK), Relaxed);
        self.rules.limit.store(limit, SeqCst);
        if batch == 0 {
            self.fence_for_ever();
        }
        self.set_cap(self.ahead(0));
    }

    /// Spends, if that needs nothing but the thread's own purse; `false` is no refusal: then ask [`Budget::spend`].
    ///
    /// A signal handler may come between any two instructions, and spend itself.
    #[inline(always)]
    pub fn spend_now(&self, purse: &Purse, bytes: u64) -> bool {
        if bytes >= QUICK || self.rules.attention.load(Acquire) != 0 {
            return false;
        }
        purse.reserve(bytes);
        // In this order. Without attention, no thief has come yet, and the next one finds the spend; or it has left, and
        // `drawn` is as it left it.
        if self.rules.attention.load(Acquire) == 0 && purse.covers() {
            purse.confirm();
            return true;
        }
        purse.withdraw(bytes);
        false
    }

    /// Spends, or refuses what does not fit.
    pub fn spend(&self, purse: &Purse, bytes: u64, machine: &impl Machine) -> Result<(), Refused> {
        if purse.is_exempt() || self.spend_now(purse, bytes) {
            return Ok(());
        }
        if bytes >= TOO_LARGE || bytes > self.limit() {
            return Err(Refused { granted: self.granted() });
        }
        self.spend_slowly(purse, (bytes, 0), machine).map(drop)
    }

    /// Spends bytes, so many of which are in doubt; how many are now.
    pub(crate) fn spend_slowly(
        &self,
        purse: &Purse,
        bytes: (u64, u64),
        machine: &impl Machine,
    ) -> Result<u64, Refused> {
        self.enter(purse, machine);
        let drawn = self.draw(purse, bytes);
        purse.close_window();
        drawn.or_else(|_| self.steal(purse, bytes, machine))
    }

    /// Spends what nobody has drawn; `false` where that is not so much. Nothing is drawn ahead, and nothing taken back
    /// from others: for the supervisor.
    pub fn spend_rest(&self, purse: &Purse, bytes: u64, machine: &impl Machine) -> bool {
        if bytes >= TOO_LARGE || bytes > self.limit() {
            return false;
        }
        self.enter(purse, machine);
        let is_drawn = self.draw_with(purse, (bytes, 0), false).is_ok();
        purse.close_window();
        is_drawn
    }

    /// Refunds what the thread, or another, has spent. `false`: the refund is made, and [`Budget::settle`] must follow.
    #[inline(always)]
    pub fn refund_now(&self, purse: &Purse, bytes: u64) -> bool {
        let cap = self.rules.cap.load(Relaxed);
        purse.restore(bytes, cap) && self.rules.attention.load(Acquire) == 0
    }

    /// Refunds what the thread, or another, has spent.
    pub fn refund(&self, purse: &Purse, bytes: u64, machine: &impl Machine) {
        if !self.refund_now(purse, bytes) {
            self.settle(purse, machine);
        }
    }

    /// Gives back what the thread has too much.
    #[cold]
    pub fn settle(&self, purse: &Purse, machine: &impl Machine) {
        if purse.is_exempt() {
            return purse.forget_credit();
        }
        self.enter(purse, machine);
        let keep = if self.attention() == 0 { self.ahead(self.granted()) } else { 0 };
        self.give_back(purse, keep);
        self.set_cap(self.ahead(self.granted()));
        purse.close_window();
    }

    /// Gives back all credit of a thread that ends. What it has spent stays with its purse, which the next thread of the
    /// process may go on with.
    pub fn close(&self, purse: &Purse, machine: &impl Machine) {
        if purse.is_exempt() {
            return purse.forget_credit();
        }
        self.enter(purse, machine);
        self.give_back(purse, 0);
        purse.close_window();
    }

    /// Bytes that the job may use.
    pub fn limit(&self) -> u64 {
        self.rules.limit.load(Relaxed)
    }

    /// Whether nothing is drawn ahead.
    pub fn is_exact(&self) -> bool {
        self.rules.batch.load(Relaxed) == 0
    }

    /// Bytes that the job uses, with all that was drawn ahead.
    pub fn granted(&self) -> u64 {
        self.sums.granted.load(SeqCst)
    }

    /// The most that was ever granted.
    pub fn peak(&self) -> u64 {
        self.sums.peak.load(Relaxed)
    }

    /// Whether more would be granted than ever if a thread spent so many bytes, and drew a batch beside.
    pub fn would_rise(&self, bytes: u64) -> bool {
        let drawn = bytes.saturating_add(self.rules.batch.load(Relaxed));
        self.granted().saturating_add(drawn) > self.peak()
    }

    /// Bytes that the job uses, at least and at most. The upper figure holds at some moment during the call; the lower
    /// one too, if no thread draws or gives back meanwhile.
    pub fn in_use(&self, machine: &impl Machine) -> (u64, u64) {
        let granted = self.granted();
        let mut lower = granted;
        for purse in machine.purses().filter(|p| !p.is_exempt()) {
            lower = lower.saturating_sub(purse.credit().max(0) as u64);
        }
        (lower, granted)
    }

    /// Makes all threads use locked instructions from now on: for a job in which some process can't be reached by
    /// [`Machine::barrier`].
    pub fn fence_for_ever(&self) {
        self.rules.attention.fetch_or(FENCED, SeqCst);
    }

    /// Threads that take back what others have drawn ahead, at this moment.
    pub fn thieves(&self) -> u32 {
        self.attention() & THIEVES
    }

    pub(crate) fn attention(&self) -> u32 {
        self.rules.attention.load(SeqCst)
    }

    pub(crate) fn attention_word(&self) -> &AtomicU32 {
        &self.rules.attention
    }

    pub(crate) fn doubts(&self) -> &Doubts {
        &self.sums.doubts
    }

    pub(crate) fn peak_word(&self) -> &AtomicU64 {
        &self.sums.peak
    }

    pub(crate) fn granted_word(&self) -> &AtomicU64 {
        &self.sums.granted
    }

    /// Opens a window of changes, unless the supervisor mends just now. A window inside another one, or inside a theft,
    /// does not wait: the supervisor waits for the outer one.
    pub(crate) fn enter(&self, purse: &Purse, machine: &impl Machine) {
        let outermost = purse.still().is_some();
        for round in 0.. {
            purse.open_window();
            if !outermost || self.attention() & MENDING == 0 {
                return;
            }
            purse.close_window();
            if !machine.wait(round) {
                // The supervisor is gone. If it is not, it sees that it was not alone, and tries again.
                self.rules.attention.fetch_and(!MENDING, SeqCst);
            }
        }
    }

    /// Raises what is granted by the bytes asked for, so many of which are in doubt, and by a batch while nobody pays
    /// attention; how many bytes are in doubt now. In a window.
    pub(crate) fn draw(&self, purse: &Purse, bytes: (u64, u64)) -> Result<u64, Refused> {
        // Who asks for more than a batch each time must not heap up credit.
        let alone = self.attention() == 0 && purse.credit() < self.rules.batch.load(Relaxed) as i64;
        self.draw_with(purse, bytes, alone)
    }

    /// The same, with a batch if the thread is `alone`.
    fn draw_with(
        &self,
        purse: &Purse,
        (bytes, doubtful): (u64, u64),
        alone: bool,
    ) -> Result<u64, Refused> {
        let before = self.sums.doubts.look();
        let mut granted = self.granted();
        let drawn = loop {
            if bytes > self.limit().saturating_sub(granted) {
                return Err(Refused { granted });
            }
            let drawn = bytes + if alone { self.ahead(granted.saturating_add(bytes)) } else { 0 };
            match self.sums.granted.compare_exchange(granted, granted + drawn, SeqCst, SeqCst) {
                Ok(_) => break drawn,
                Err(now) => granted = now,
            }
        };
        let mut certain = granted + drawn;
        if before != 0 {
            certain = certain.saturating_sub(self.sums.doubts.since(before));
        }
        let is_in_doubt = doubtful > 0 && self.sums.doubts.begin(doubtful);
        let doubtful = if is_in_doubt { doubtful } else { 0 };
        self.raise_peak(certain.saturating_sub(doubtful));
        purse.receive(drawn, bytes);
        // A thief that came meanwhile may have looked into the purse before the credit was there, or when more was
        // spent than drawn.
        if self.attention() != 0 {
            self.give_back(purse, 0);
        }
        self.set_cap(self.ahead(granted + drawn));
        Ok(doubtful)
    }

    /// Gives the credit above `keep` back. In a window, by the owner.
    pub(crate) fn give_back(&self, purse: &Purse, keep: u64) {
        loop {
            let taken = purse.take_own(keep);
            if taken == 0 {
                return;
            }
            self.sums.granted.fetch_sub(taken, SeqCst);
        }
    }

    /// What a thread may draw ahead when so much is granted: nothing near the limit, where it would have to be taken
    /// back at once.
    fn ahead(&self, granted: u64) -> u64 {
        let batch = self.rules.batch.load(Relaxed);
        if self.limit().saturating_sub(granted) / NEAR >= batch { batch } else { 0 }
    }

    /// Sets what a thread may keep of what is refunded.
    fn set_cap(&self, ahead: u64) {
        let cap = cap_word(2 * ahead);
        if self.rules.cap.load(Relaxed) != cap {
            self.rules.cap.store(cap, Relaxed);
        }
    }
}
