//! Refusals: what happens to a request beyond the limit.

use core::sync::atomic::{AtomicBool, Ordering};

use heaptape_wire::ledger::{OnLimit, Refused};

use crate::arena::clock;
use crate::counting::{self, ledger};
use crate::lane::Lane;
use crate::lifecycle::{self, STATE};
use crate::patience::Patience;
use crate::slot;
use crate::{arch, callers, sheets};

/// Whether a request of this process was refused.
static HAS_REFUSED: AtomicBool = AtomicBool::new(false);

/// The job was not halted for a refusal of this process, which waited for it: it does so no more.
static HAS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Whether a request of this process was refused.
pub fn has_refused() -> bool {
    HAS_REFUSED.load(Ordering::Relaxed)
}

/// A request for so many bytes was refused. Where the whole job is to be killed or stopped for it,
/// this thread does nothing else before that is done.
#[cold]
#[inline(never)]
pub fn refuse(lane: Lane, bytes: u64, caller: usize) {
    tell(lane, bytes, caller, false);
}

/// The same for the data of modules, the largest of which lies at an address.
#[cold]
pub fn refuse_data(lane: Lane, bytes: u64, address: usize) {
    tell(lane, bytes, address, true);
}

fn tell(lane: Lane, bytes: u64, caller: usize, is_data: bool) {
    // The real `operator new` asks once more before it throws.
    if slot::is_retry(caller) {
        return;
    }
    HAS_REFUSED.store(true, Ordering::Relaxed);
    counting::look_closely();
    let header = ledger().header();
    header.refuse(&Refused {
        slot: sheets::own_slot(),
        generation: STATE.generation.load(Ordering::Relaxed),
        thread: lane.sheet.thread.load(Ordering::Relaxed),
        time: clock(),
        bytes,
        caller: caller as u64,
        module: callers::module_of(caller) as u32,
        job: ledger().budget().granted(),
        is_data,
    });
    await_halt();
}

/// Waits while the job is being killed or stopped for a refusal: by the collector, who halts the others first. Who ended or
/// stopped itself here would let a parent that waits for it go on meanwhile. A job that was stopped, and goes on, is halted
/// no more.
fn await_halt() {
    /// Longer than the collector takes.
    const MOST_MS: u64 = 10_000;
    let mut patience = None;
    let how = loop {
        let how = ledger().header().wanted().on_limit;
        if how == OnLimit::Fail {
            return;
        }
        if HAS_GIVEN_UP.load(Ordering::Relaxed) {
            break how;
        }
        let patience = patience.get_or_insert_with(Patience::new);
        if patience.has_waited(MOST_MS) || !patience.wait() {
            HAS_GIVEN_UP.store(true, Ordering::Relaxed);
        }
    };
    // There is no collector any more, or it was stopped. A sandbox may forbid signals.
    if how == OnLimit::Kill && !lifecycle::is_sandboxed() {
        const SIGKILL: usize = 9;
        let pid = arch::ask(arch::SYS_GETPID) as usize;
        // SAFETY: a signal to this process alone.
        unsafe { arch::syscall(arch::SYS_KILL, [pid, SIGKILL, 0, 0, 0, 0]) };
    }
}
