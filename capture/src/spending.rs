//! Spending: a thread's way to the job's budget, and what the budget asks of the system.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heaptape_wire::budget::Machine;
use heaptape_wire::ledger::SHEETS;
use heaptape_wire::purse::Purse;

use crate::arch::{self, syscall};
use crate::arena::arena;
use crate::counting::{self, ledger};
use crate::knell;
use crate::lane::Lane;
use crate::lifecycle::{self, STATE};
use crate::patience::{self, Patience, Pause};
use crate::whole;

const MEMBARRIER_GLOBAL_EXPEDITED: usize = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: usize = 1 << 2;

/// Charges the budget with bytes that are about to be handed out; false when they do not fit.
#[inline(always)]
pub fn spend(lane: Lane, bytes: u64) -> bool {
    match lane.purse {
        Some(purse) => ledger().budget().spend_now(purse, bytes) || spend_slowly(purse, bytes),
        None => true,
    }
}

#[cold]
#[inline(never)]
fn spend_slowly(purse: &'static Purse, bytes: u64) -> bool {
    let fits = spend_by_asking(purse, bytes);
    if fits && counts_blocks() {
        ledger().header().blocks.add(bytes);
    }
    fits
}

/// The same for what is no block.
pub fn spend_beside(lane: Lane, bytes: u64) -> bool {
    match lane.purse {
        Some(purse) => ledger().budget().spend_now(purse, bytes) || spend_by_asking(purse, bytes),
        None => true,
    }
}

/// Whether it is counted what all blocks take together: nothing is drawn ahead then, so each call comes along here.
fn counts_blocks() -> bool {
    ledger().budget().is_exact() && !counting::is_by_usable()
}

/// So many bytes more, or fewer, are those of blocks, and were charged as something else.
pub fn note_blocks(lane: Lane, more: i64) {
    if lane.purse.is_none() || !counts_blocks() {
        return;
    }
    let blocks = &ledger().header().blocks;
    match u64::try_from(more) {
        Ok(more) => blocks.add(more),
        Err(_) => blocks.sub(more.unsigned_abs()),
    }
}

fn spend_by_asking(purse: &'static Purse, bytes: u64) -> bool {
    insist(bytes, || ledger().budget().spend(purse, bytes, &System).is_ok()) && note_high()
}

fn note_high() -> bool {
    ledger().header().note_high(ledger().budget().granted());
    true
}

/// Spends, by this way, once all has come free that may; false where it does not fit even then.
pub fn insist(bytes: u64, spends: impl Fn() -> bool) -> bool {
    lay_to_rest(bytes);
    let budget = ledger().budget();
    let ends = ledger().header().ends();
    spends()
        || bytes <= budget.limit()
            && (whole::give_back_gone() && spends()
                || comes_free(ends, &spends)
                || counting::is_by_usable() && comes_back(&spends))
}

/// The same for bytes that may be too many, without a wait for others; false is no refusal.
pub fn spend_ahead(lane: Lane, bytes: u64) -> bool {
    let Some(purse) = lane.purse else { return true };
    let budget = ledger().budget();
    if bytes == 0 || budget.spend_now(purse, bytes) {
        return true;
    }
    lay_to_rest(bytes);
    budget.spend(purse, bytes, &System).is_ok() && note_high()
}

/// Before more is granted than ever was, what the dead held is given back: in the peak it may not stand beside what
/// came after it.
fn lay_to_rest(bytes: u64) {
    /// The end of a process is mostly noticed within a millisecond. Where it takes longer the peak is blurred, and
    /// nobody tries again so soon.
    const MOST_MS: u64 = 50;
    static VAIN: Pause = Pause::of_ms(1000);
    let (budget, header) = (ledger().budget(), ledger().header());
    let rises = budget.would_rise(bytes) || counts_blocks() && header.blocks.would_rise(bytes);
    if !rises {
        return;
    }
    take_from_heirs();
    if !knell::has_rung() {
        return;
    }
    if VAIN.is_over() {
        let mut patience = Patience::new();
        while settles() {
            if !knell::has_rung() {
                return;
            }
            if patience.has_waited(MOST_MS) || !patience.wait() {
                break;
            }
        }
        VAIN.begin();
    }
    header.blur();
}

/// What heirs release is not waited for again so soon where the collector is stopped or gone.
static HEIRS: Pause = Pause::of_ms(1000);

/// Whether the collector has answered about heirs.
fn asks_for_heirs() -> bool {
    let has_answered = settles();
    if has_answered {
        HEIRS.end()
    } else {
        HEIRS.begin()
    }
    has_answered
}

/// The same for what processes have released that share it with the dead. Where that is little, and it was asked for a
/// moment ago, it is told how much may stand in the peak.
fn take_from_heirs() {
    /// Little is less than this, or than this part of what is granted.
    const LITTLE: u64 = 64 << 10;
    const PART: u64 = 256;
    static LAST: Pause = Pause::of_ms(20);
    let (budget, legacy) = (ledger().budget(), &ledger().header().legacy);
    let released = legacy.released();
    if released == 0 || !HEIRS.is_over() {
        return legacy.note_stale();
    }
    if LAST.is_over() || released >= LITTLE.max(budget.granted() / PART) {
        asks_for_heirs();
        LAST.begin();
    }
    legacy.note_stale();
}

/// Spends once others have given back what they had charged ahead and do not need; false where it does not
/// fit even then.
fn comes_back(spends: impl Fn() -> bool) -> bool {
    let ahead = &ledger().header().ahead;
    for round in 0.. {
        let before = ahead.look();
        if spends() {
            return true;
        }
        let is_last = before.is_nothing() && ahead.look() == before;
        if is_last || !System.wait(round) {
            break;
        }
    }
    false
}

/// Spends once what the dead held has been given back; false where it does not fit even then. `ends`: those that the
/// collector knew of before it was found not to fit.
///
/// The kernel tells of an end before it lets anybody know of it, see [`knell`]. Such a process is waited for. Where none
/// rings, and nothing was given back since, all that could come free is known.
fn comes_free(mut ends: u32, spends: impl Fn() -> bool) -> bool {
    /// The kernel may take so long to tear down a large process.
    const MOST_MS: u64 = 1000;
    /// The same by the clock, where looking takes long.
    const LATE_MS: u64 = 3000;
    let header = ledger().header();
    let mut patience = None;
    let begin = arch::stamp();
    loop {
        let has_rung = knell::has_rung();
        let is_away = !has_rung && IN_VAIN.is_over() && stays_away();
        if header.ends() == ends && !(has_rung || is_away || is_to_be_asked()) {
            return false;
        }
        if header.ends() == ends && !asks_for_heirs() {
            return false;
        }
        ends = header.ends();
        if spends() {
            return true;
        }
        let is_late = arch::stamp().saturating_sub(begin) > LATE_MS * patience::ticks_per_ms();
        if is_late && !(has_rung || is_away) {
            // Heirs release so much all the time that there is an answer each time.
            return false;
        }
        if has_rung || is_away {
            let patience = patience.get_or_insert_with(Patience::new);
            if is_late || patience.has_waited(MOST_MS) || !patience.wait() {
                knell::give_up();
                IN_VAIN.begin();
                return false;
            }
        }
    }
}

/// Calls that do not come back are not waited for soon after that was in vain, as after somebody has written over the purses.
static IN_VAIN: Pause = Pause::of_ms(10_000);

/// Whether bytes are spent for calls that do not come back in a while. The collector takes them, once it is asked.
fn stays_away() -> bool {
    const ROUNDS: u32 = System::SPINS + 3;
    (0..ROUNDS).all(|round| {
        System.purses().any(|purse| purse.away() > 0) && {
            System.wait(round);
            true
        }
    })
}

/// When the collector was last asked, as the session clock and the ends known then; 0 before.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// An answer holds so long, unless the end of another process was told meanwhile: there may be processes without a
/// knell, and who is refused all the time would wait all the time.
const HOLDS_MS: u32 = 50;

/// Whether the collector's last answer holds no longer: heirs may have released what is charged for the dead.
fn is_to_be_asked() -> bool {
    let (time, deaths) = (arena().session().clock().wrapping_add(1), ledger().header().deaths());
    let last = ASKED.load(Ordering::Relaxed);
    let is_old = last == 0 || time.wrapping_sub((last >> 32) as u32) >= HOLDS_MS;
    is_old || last as u32 != deaths || ledger().header().legacy.released() > 0 && HEIRS.is_over()
}

/// How long an answer is waited for while the collector works. Who has written over the shared pages may have it wait
/// itself for somebody who never comes: then no answer is waited for so long again.
const ANSWER_MS: u64 = 5000;
const DEAF_MS: u64 = 50;
static IS_DEAF: AtomicBool = AtomicBool::new(false);

/// Waits until the collector has given back what those held that it knows to be dead; false where it never will.
fn settles() -> bool {
    let header = ledger().header();
    let session = arena().session();
    let (time, deaths) = (session.clock().wrapping_add(1), header.deaths());
    ASKED.store(u64::from(time.max(1)) << 32 | u64::from(deaths), Ordering::Relaxed);
    let question = header.ask();
    let (mut beat, mut silent) = (session.heartbeat(), 0);
    let begin = arch::stamp();
    let most_ms = if IS_DEAF.load(Ordering::Relaxed) { DEAF_MS } else { ANSWER_MS };
    while !header.is_settled(question) {
        // It may be slow on a busy machine, as long as it lives.
        if !System.wait(silent) || session.is_orphaned() || !session.is_open() {
            return false;
        }
        if arch::stamp().saturating_sub(begin) > most_ms * patience::ticks_per_ms() {
            IS_DEAF.store(true, Ordering::Relaxed);
            return false;
        }
        silent += 1;
        if session.heartbeat() != beat {
            (beat, silent) = (session.heartbeat(), System::SPINS.min(silent));
        }
    }
    true
}

/// Gives bytes back that were charged for a call which has failed. They may stand in the peak, which they never were in.
#[cold]
pub fn unspend(lane: Lane, bytes: u64) {
    if lane.purse.is_some() && bytes > 0 {
        ledger().header().blur();
        refund(lane, bytes);
    }
}

/// Gives the budget bytes back that were given back to the allocator.
#[inline(always)]
pub fn refund(lane: Lane, bytes: u64) {
    if let Some(purse) = lane.purse
        && !ledger().budget().refund_now(purse, bytes)
    {
        settle(purse, bytes);
    }
}

/// The same for what is no block.
pub fn refund_beside(lane: Lane, bytes: u64) {
    if let Some(purse) = lane.purse {
        ledger().budget().refund(purse, bytes, &System);
    }
}

#[cold]
#[inline(never)]
fn settle(purse: &'static Purse, bytes: u64) {
    // While the purse still has credit: a process that is killed in between is found out by that.
    if counts_blocks() {
        ledger().header().blocks.sub(bytes);
    }
    ledger().budget().settle(purse, &System);
}

/// What a process does before it first spends: others may reach it with a barrier.
pub fn begin() {
    if !membarrier(MEMBARRIER_REGISTER_GLOBAL_EXPEDITED) {
        ledger().budget().fence_for_ever();
    }
}

/// The program is about to enter a sandbox, which may forbid to ask for a barrier.
pub fn enter_sandbox() {
    if counting::is_on() {
        ledger().budget().fence_for_ever();
        membarrier(MEMBARRIER_GLOBAL_EXPEDITED);
    }
}

fn membarrier(command: usize) -> bool {
    // SAFETY: touches no memory.
    unsafe { syscall(arch::SYS_MEMBARRIER, [command, 0, 0, 0, 0, 0]) == 0 }
}

/// The system, as the budget asks it.
pub struct System;

impl System {
    /// Rounds of waiting without a pause, and in all; a pause takes 50 µs at least.
    const SPINS: u32 = 64;
    const ROUNDS: u32 = 4096;
    /// The same where nothing may be asked of the kernel.
    const ROUNDS_SPINNING: u32 = 1 << 22;
}

impl Machine for System {
    fn barrier(&self) -> bool {
        !lifecycle::is_sandboxed() && membarrier(MEMBARRIER_GLOBAL_EXPEDITED)
    }

    fn wait(&self, round: u32) -> bool {
        let is_quiet = lifecycle::is_sandboxed() || STATE.sleepless.load(Ordering::Relaxed) != 0;
        if round < Self::SPINS || is_quiet {
            arch::relax();
            return round < if is_quiet { Self::ROUNDS_SPINNING } else { Self::ROUNDS };
        }
        let moment: [u64; 2] = [0, 50_000];
        // SAFETY: reads the two words; the remainder is not asked for.
        unsafe { syscall(arch::SYS_NANOSLEEP, [moment.as_ptr() as usize, 0, 0, 0, 0, 0]) };
        round < Self::ROUNDS
    }

    fn purses(&self) -> impl Iterator<Item = &Purse> {
        let taken = ledger().header().sheets_taken.load(Ordering::Acquire) as usize;
        (0..taken.min(SHEETS)).map(|sheet| ledger().purse(sheet))
    }
}
