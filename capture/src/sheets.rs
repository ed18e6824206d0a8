//! Sheets: how a thread comes to its part of the ledger, and a process to its account.
//!
//! A thread takes a sheet when it first allocates. It goes with the thread's number, and so to the
//! thread that gets that number later: what a process's threads have counted stays in its sheets.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heaptape_wire::ledger::{SHEETS, Sheet};

use crate::arena::{private, thread_place};
use crate::counting::{self, Lane, ledger};
use crate::lifecycle::{self, STATE};
use crate::slot::{self, ThreadSlot};
use crate::{arch, asking, sizes, spending};

/// The number of the process slot, which the account has, too.
pub fn own_slot() -> u32 {
    STATE.slot.load(Ordering::Relaxed)
}

/// Requested bytes that lived in this process when it last forked: what the child has inherited.
static HELD: AtomicU64 = AtomicU64::new(0);

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
        let index = take(slot)?;
        let is_exempt = counting::account()?.is_exempt();
        let purse = (!is_exempt).then(|| ledger().purse(index));
        slot.set_lane(Lane { sheet: ledger().sheet(index), purse });
    }
    slot.lane()
}

/// Takes a sheet for the thread with this slot; its number.
fn take(slot: &ThreadSlot) -> Option<usize> {
    let header = ledger().header();
    let (number, tid) = slot.identity();
    let generation = STATE.generation.load(Ordering::Relaxed);
    let open = |sheet: &Sheet| sheet.open(own_slot(), generation, number, tid);
    let ready = (header.sheets_ready.load(Ordering::Acquire) as usize).min(SHEETS);
    let fresh = header.sheets_taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |taken| {
        ((taken as usize) < ready).then_some(taken + 1)
    });
    let taken = match fresh {
        Ok(index) => Some(index as usize).filter(|&index| ledger().sheet(index).claim()),
        Err(_) => None,
    };
    // Those that processes have left which are gone.
    let found = taken.or_else(|| (0..ready).find(|&index| ledger().sheet(index).claim()));
    if found.is_none() {
        header.uncounted.fetch_add(1, Ordering::Relaxed);
    }
    let index = found?;
    open(ledger().sheet(index));
    Some(index)
}

/// What a process does at its beginning, once it has its slot: after an exec, or as a fork's child.
pub fn begin(is_fork: bool, is_launcher: bool) {
    let Some(account) = counting::account() else { return };
    if is_fork {
        sizes::inherit();
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
    let live = (0..numbers).fold(0u64, |sum, number| {
        // SAFETY: slots of this process; only what never changes once it is set is read.
        let lane = unsafe { (*thread_place(number)).lane() };
        let sheet = lane.map(|lane| lane.sheet);
        let word = |word: &heaptape_wire::atomic::AtomicU64| word.load(Ordering::Relaxed);
        let own = sheet.map_or(0, |sheet| word(&sheet.allocated).wrapping_sub(word(&sheet.freed)));
        sum.wrapping_add(own)
    });
    HELD.store(live.wrapping_add(account.inherited()), Ordering::Relaxed);
}

/// A block that came with the fork is given back.
#[cold]
#[inline(never)]
pub fn release_inherited(size: u64) {
    if let Some(account) = counting::account() {
        account.release_inherited(size);
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
