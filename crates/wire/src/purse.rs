//! A purse: what one thread has drawn from the budget of the job, and what it has spent of that.
//!
//! It lies in shared memory and so survives its process. The owner is one thread with its signal handlers; others look
//! into it, and take back what is unspent. Each word has a side that writes it, so that no unlocked instruction of the
//! owner can undo a change by another:
//!
//! | word | high bits | low bits | written by |
//! |---|---|---|---|
//! | `spent` | 48: net bytes that the owner uses | 16: spends that are not decided yet | the owner, unlocked |
//! | `drawn` | 48: net bytes taken from the job | 16: changes downwards | all, by locked instructions |
//! | `turn` | 32: changes finished | 16: thefts, 16: changes under way | the owner |
//! | `away` | 48: bytes spent for calls that are under way | 16: how often others took them | all, by locked instructions |
//!
//! What is drawn but not spent is the purse's *credit*. Both sums go below zero in a thread that frees what others have
//! allocated, and they wrap: only differences and sums over a process count, and these are below 2^47.

use crate::arch;
use crate::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

/// One byte in `spent` and `drawn`.
pub(crate) const BYTE: u64 = 1 << 16;
/// The low bits of `spent` and `drawn`.
pub(crate) const LOW: u64 = BYTE - 1;
/// A change that is under way, in `turn`; they nest, in signal handlers.
const WINDOW: u64 = 1;
/// A theft that is under way, in `turn`.
const THEFT: u64 = 1 << 16;
/// A change or a theft that is over, in `turn`.
const TURN: u64 = 1 << 32;

/// Bytes that were spent for a call which has not come back yet.
#[derive(Clone, Copy, Debug)]
pub struct Away {
    bytes: u64,
    taken: u64,
}

/// The words of one thread. Zeroed memory is an empty purse.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Purse {
    spent: AtomicU64,
    drawn: AtomicU64,
    turn: AtomicU64,
    away: AtomicU64,
    /// So many undecided spends, and changes under way, have been waited for in vain.
    stuck_spends: AtomicU32,
    stuck_windows: AtomicU32,
    exempt: AtomicU32,
}

impl Purse {
    /// Bytes drawn from the job, net; below zero for a thread that freed more of others than it allocated.
    pub fn drawn(&self) -> i64 {
        bytes(self.drawn.load(SeqCst))
    }

    /// Bytes drawn and not spent; below zero for moments.
    pub fn credit(&self) -> i64 {
        let drawn = self.drawn.load(SeqCst);
        unspent(drawn, self.spent.load(SeqCst))
    }

    /// Whether all spends succeed and nothing is charged.
    pub fn is_exempt(&self) -> bool {
        self.exempt.load(Relaxed) != 0
    }

    /// Makes the owner exempt, before its first spend.
    pub fn set_exempt(&self) {
        self.exempt.store(1, Release);
    }

    /// The owner has spent so many bytes for a call that is about to be made, and that may never come back; what ends
    /// it.
    pub fn send_away(&self, bytes: u64) -> Away {
        let before = self.away.fetch_add(bytes * BYTE, SeqCst);
        Away { bytes, taken: before & LOW }
    }

    /// The call has come back; false where others have given the bytes back meanwhile, so that it has to spend them
    /// once more.
    #[must_use]
    pub fn come_back(&self, away: Away) -> bool {
        let mut now = self.away.load(SeqCst);
        while now & LOW == away.taken && now / BYTE >= away.bytes {
            match self.away.compare_exchange(now, now - away.bytes * BYTE, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(newer) => now = newer,
            }
        }
        false
    }

    /// Bytes that were spent for calls which have not come back.
    pub fn away(&self) -> u64 {
        self.away.load(SeqCst) / BYTE
    }

    /// Takes them, for the caller to give them back.
    pub fn take_away(&self) -> u64 {
        let mut now = self.away.load(SeqCst);
        loop {
            let none = (now & LOW).wrapping_add(1) & LOW;
            match self.away.compare_exchange(now, none, SeqCst, SeqCst) {
                Ok(_) => return now / BYTE,
                Err(newer) => now = newer,
            }
        }
    }

    /// Notes a spend that may still fail.
    #[inline(always)]
    pub(crate) fn reserve(&self, bytes: u64) {
        arch::add(&self.spent, (bytes * BYTE) | 1);
        arch::light_fence();
    }

    /// Whether what is drawn covers all that was spent and is being spent.
    #[inline(always)]
    pub(crate) fn covers(&self) -> bool {
        let spent = self.spent.load(Acquire);
        ((self.drawn.load(Acquire) | LOW).wrapping_sub(spent) as i64) >= 0
    }

    /// The spend has succeeded.
    #[inline(always)]
    pub(crate) fn confirm(&self) {
        arch::count_down(&self.spent);
    }

    /// The spend has not succeeded.
    #[inline(always)]
    pub(crate) fn withdraw(&self, bytes: u64) {
        arch::add(&self.spent, ((bytes * BYTE) | 1).wrapping_neg());
    }

    /// Notes bytes that are used no longer; whether the credit is within `cap`, as [`cap_word`] has it.
    #[inline(always)]
    pub(crate) fn restore(&self, bytes: u64, cap: u64) -> bool {
        arch::add(&self.spent, bytes.wrapping_mul(BYTE).wrapping_neg());
        arch::light_fence();
        let spent = self.spent.load(Acquire);
        (self.drawn.load(Acquire).wrapping_sub(spent) as i64) <= cap as i64
    }

    /// Notes bytes that were taken from the job, of which so many are spent at once.
    pub(crate) fn receive(&self, drawn: u64, spent: u64) {
        // In this order, so that nobody sees the spent part as credit.
        arch::add(&self.spent, spent.wrapping_mul(BYTE));
        self.drawn.fetch_add(drawn.wrapping_mul(BYTE), SeqCst);
        arch::light_fence();
    }

    /// The credit, and `drawn` from which it may be taken; `None` when more than `undecided` spends are not decided, which
    /// may hide a part of it.
    pub(crate) fn surplus(&self, undecided: u32) -> Option<(u64, u64)> {
        // In this order: `spent` may only be newer, where the next step is a compare-and-swap of `drawn`.
        let drawn = self.drawn.load(SeqCst);
        let spent = self.spent.load(SeqCst);
        ((spent & LOW) as u32 <= undecided).then(|| (unspent(drawn, spent).max(0) as u64, drawn))
    }

    /// Takes bytes of the credit out, if `drawn` is still the same; the caller gives them back to the job.
    pub(crate) fn take(&self, bytes: u64, drawn: u64) -> bool {
        // A thief that looked at `spent` meanwhile must not take this for the `drawn` that it saw.
        let less =
            (drawn & !LOW).wrapping_sub(bytes.wrapping_mul(BYTE)) | (drawn.wrapping_add(1) & LOW);
        self.drawn.compare_exchange(drawn, less, SeqCst, SeqCst).is_ok()
    }

    /// The owner takes the credit above `keep` out; the bytes. Its signal handler may have spent from the credit between
    /// the look at it and the taking; that part is put back.
    pub(crate) fn take_own(&self, keep: u64) -> u64 {
        let (taken, drawn) = self.surplus(u32::MAX).unwrap_or_default();
        let taken = taken.saturating_sub(keep);
        if taken == 0 {
            return 0;
        }
        if !self.take(taken, drawn) {
            return self.take_own(keep);
        }
        let lacking = (-self.credit()).clamp(0, taken as i64) as u64;
        if lacking > 0 {
            self.drawn.fetch_add(lacking * BYTE, SeqCst);
        }
        taken - lacking
    }

    /// Empties the purse of a dead thread, which has no credit; what it had drawn. At no moment a thief sees credit.
    pub(crate) fn empty(&self) -> u64 {
        if bytes(self.spent.load(SeqCst)) < 0 {
            self.spent.store(0, SeqCst);
        }
        let mut drawn = self.drawn.load(SeqCst);
        while !self.take(bytes(drawn) as u64, drawn) {
            drawn = self.drawn.load(SeqCst);
        }
        self.spent.store(0, SeqCst);
        self.stuck_spends.store(0, Relaxed);
        self.stuck_windows.store(0, Relaxed);
        self.exempt.store(0, Relaxed);
        self.take_away();
        self.turn.store((self.turn.load(Relaxed) & !(TURN - 1)).wrapping_add(TURN), SeqCst);
        drawn & !LOW
    }

    /// Drops the credit of an exempt owner, which nobody gave.
    pub(crate) fn forget_credit(&self) {
        arch::add(&self.spent, (self.credit() as u64).wrapping_mul(BYTE));
    }

    /// Begins a change of more than one word.
    pub(crate) fn open_window(&self) {
        self.turn.fetch_add(WINDOW, SeqCst);
        arch::light_fence();
    }

    /// Ends it.
    pub(crate) fn close_window(&self) {
        // Signal handlers leave the number of windows as they found it.
        let outermost = windows(self.turn.load(Relaxed)) == 1;
        let done = if outermost { TURN } else { 0 };
        arch::add(&self.turn, done.wrapping_sub(WINDOW));
    }

    /// Begins a theft.
    pub(crate) fn begin_theft(&self) {
        self.turn.fetch_add(THEFT, SeqCst);
    }

    /// Ends it.
    pub(crate) fn end_theft(&self) {
        let done = if windows(self.turn.load(Relaxed)) == 0 { TURN } else { 0 };
        arch::add(&self.turn, done.wrapping_sub(THEFT));
    }

    /// The word that changes with every change that is finished, when none is under way, nor a theft.
    pub(crate) fn still(&self) -> Option<u64> {
        let turn = self.turn.load(SeqCst);
        turn.is_multiple_of(TURN).then_some(turn)
    }

    /// Spends that are not decided.
    pub(crate) fn undecided(&self) -> u32 {
        (self.spent.load(SeqCst) & LOW) as u32
    }

    /// Changes under way, and how many were finished.
    pub(crate) fn progress(&self) -> (u32, u64) {
        let turn = self.turn.load(SeqCst);
        (windows(turn), turn / TURN)
    }

    pub(crate) fn stuck_spends(&self) -> &AtomicU32 {
        &self.stuck_spends
    }

    pub(crate) fn stuck_windows(&self) -> &AtomicU32 {
        &self.stuck_windows
    }

    /// `drawn` as a word, for sums.
    pub(crate) fn drawn_word(&self) -> u64 {
        self.drawn.load(SeqCst) & !LOW
    }
}

/// The bound of [`Purse::restore`] for a credit of so many bytes.
pub(crate) fn cap_word(bytes: u64) -> u64 {
    (bytes * BYTE) | LOW
}

/// The bytes in a word or in a sum of words.
pub(crate) fn bytes(word: u64) -> i64 {
    (word as i64) >> BYTE.trailing_zeros()
}

fn unspent(drawn: u64, spent: u64) -> i64 {
    bytes((drawn & !LOW).wrapping_sub(spent & !LOW))
}

fn windows(turn: u64) -> u32 {
    (turn & (THEFT - 1)) as u32
}
