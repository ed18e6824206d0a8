//! Sheets: how a thread comes to its part of the ledger, and a process to its account.
//!
//! A thread takes a sheet when it first allocates. It goes with the thread's number, and so to the
//! thread that gets that number later: what a process's threads have counted stays in its sheets.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use heaptape_wire::atomic::AtomicU64;
use heaptape_wire::ledger::{Kind, SHEETS};

use crate::arena::{private, thread_place};
use crate::counting::{self, ledger};
use crate::lane::{self, Lane};
use crate::lifecycle::{self, STATE};
use crate::patience::Patience;
use crate::sizes::Known;
use crate::slot::{self, ThreadSlot};
use crate::{
    apart, arch, asking, callers, heaps, knell, loading, pages, reserve, shared, sizes, spending,
    stacks,
};

/// The number of the process slot, which the account has, too.
pub fn own_slot() -> u32 {
    STATE.slot.load(Ordering::Relaxed)
}

/// What was charged for what this process had when it last forked: what the child has inherited.
static HELD: AtomicU64 = AtomicU64::new(0);

/// No thread of the process had a lane yet.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// 1 in a launcher and in its forks.
static IS_EXEMPT: AtomicU32 = AtomicU32::new(0);

/// Gives the calling thread a lane, where calls are counted and this one is the program's.
#[cold]
#[inline(never)]
pub fn join() -> Option<Lane> {
    // What an allocator does for us is not the program's.
    if !counting::is_on() || asking::is_answer() || !lifecycle::is_recording() {
        return None;
    }
    let slot = slot::own()?;
    if slot.lane().is_none() {
        if slot.is_uncounted() {
            return None;
        }
        let Some(index) = take(slot) else {
            slot.set_uncounted();
            return None;
        };
        let is_exempt = counting::account()?.is_exempt();
        let purse = (!is_exempt).then(|| ledger().purse(index));
        let lane = Lane { sheet: ledger().sheet(index), purse };
        slot.set_lane(lane);
        if IS_NEW.swap(false, Ordering::Relaxed) {
            knell::hang(slot.identity().1);
            reserve::begin(lane);
            stacks::begin(lane);
            if heaps::are_of_glibc() {
                counting::account()?.set_plain_heap(heaps::break_at());
            }
            shared::inherit(lane);
        }
    }
    slot.lane()
}

/// How long a thread waits for a sheet where many begin at once, and the collector has not got memory for more
/// yet. Without one it is never counted.
const WAIT_MS: u64 = 1000;

/// Takes a sheet for the thread with this slot; its number.
fn take(slot: &ThreadSlot) -> Option<usize> {
    let index = claim().or_else(|| {
        let mut patience = Patience::new();
        loop {
            if are_all_ready() || patience.has_waited(WAIT_MS) || !patience.wait() {
                ledger().header().uncounted.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            if let Some(index) = claim() {
                return Some(index);
            }
        }
    })?;
    let (number, tid) = slot.identity();
    let generation = STATE.generation.load(Ordering::Relaxed);
    let sheet = ledger().sheet(index);
    sheet.open(own_slot(), generation, number, tid);
    sheet.stack.store(stacks::own(tid), Ordering::Relaxed);
    Some(index)
}

/// Whether there is nothing to wait for: all sheets that there can be have memory.
fn are_all_ready() -> bool {
    ledger().header().sheets_ready.load(Ordering::Acquire) as usize >= SHEETS
}

/// Claims a sheet that nobody has had, or one that a process has left which is gone.
fn claim() -> Option<usize> {
    let header = ledger().header();
    let ready = (header.sheets_ready.load(Ordering::Acquire) as usize).min(SHEETS);
    let fresh = header.sheets_taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |taken| {
        ((taken as usize) < ready).then_some(taken + 1)
    });
    let fresh = fresh.ok().map(|index| index as usize);
    let is_claimed = |index: &usize| ledger().sheet(*index).claim(own_slot());
    fresh.filter(is_claimed).or_else(|| (0..ready).find(is_claimed))
}

/// What a process does at its beginning, once it has its slot: after an exec, or as a fork's child.
pub fn begin(is_fork: bool, is_launcher: bool) {
    let Some(account) = counting::account() else { return };
    IS_NEW.store(true, Ordering::Relaxed);
    heaps::begin();
    if is_fork {
        callers::forget();
        loading::inherit();
        sizes::inherit();
        pages::inherit();
        account.inherit(HELD.load(Ordering::Relaxed));
    }
    if is_launcher && !ledger().header().wanted().launchers {
        IS_EXEMPT.store(1, Ordering::Relaxed);
    }
    // A launcher forks what becomes a rank later, by an exec.
    if IS_EXEMPT.load(Ordering::Relaxed) != 0 {
        account.exempt();
    }
    spending::begin();
}

/// From the handler before a fork: what the child is going to inherit.
pub fn before_fork() {
    let Some(account) = counting::account() else { return };
    let numbers = private().next_thread.load(Ordering::Relaxed) as usize;
    let is_by_usable = counting::is_by_usable();
    let live = (0..numbers).fold(0u64, |sum, number| {
        // SAFETY: slots of this process; only what never changes once it is set is read.
        let lane = unsafe { (*thread_place(number)).lane() };
        let words = lane.map(|Lane { sheet, .. }| match is_by_usable {
            true => sheet.usable.each_ref(),
            false => [&sheet.allocated, &sheet.freed],
        });
        let words = words.map(|words| words.map(|word| word.load(Ordering::Relaxed)));
        let [made, gone] = words.unwrap_or_default();
        sum.wrapping_add(made.wrapping_sub(gone))
    });
    let row = |kind: Kind| account.charged[kind as usize].load(Ordering::Relaxed);
    // Of what the MPI runtime took when it started, blocks are among the others.
    let starting = row(Kind::MpiRuntime).saturating_sub(account.apart());
    let beside = row(Kind::Mappings).wrapping_add(row(Kind::Data)).wrapping_add(starting);
    let blocks = live.wrapping_sub(account.uncharged()).wrapping_add(account.inherited());
    HELD.store(blocks.wrapping_add(beside), Ordering::Relaxed);
}

/// From the handler in a fork's child: what it shares with others it takes part in at once, since these may
/// end.
pub fn after_fork() {
    if counting::is_on() && shared::has_inherited() {
        lane::own();
    }
}

/// A block that came with the fork is given back; `usable` tells how large it was.
#[cold]
#[inline(never)]
pub fn release_inherited(known: Known, usable: impl FnOnce() -> u64) {
    let charged = match counting::is_by_usable() {
        _ if apart::is_exempt(known.module()) => 0,
        true => usable(),
        false => known.size,
    };
    let_go(charged);
}

/// So many charged bytes that came with the fork are held no longer.
pub fn let_go(bytes: u64) {
    if let Some(account) = counting::account() {
        account.release_inherited(bytes);
        ledger().header().legacy.release(bytes);
    }
}

/// Whether the thread is in a call of our own (see [`asking::unseen`]): takes its lane away for that time.
pub fn set_aside() -> Option<Lane> {
    let slot = arch::thread_word() as *mut ThreadSlot;
    // SAFETY: the thread's own slot.
    unsafe { slot.as_mut()?.take_lane() }
}

/// Gives it back.
pub fn give_back(lane: Option<Lane>) {
    let slot = arch::thread_word() as *mut ThreadSlot;
    // SAFETY: as above.
    if let (Some(lane), Some(slot)) = (lane, unsafe { slot.as_mut() }) {
        slot.set_lane(lane);
    }
}
