//! Calls of `operator new` that ran short of memory: one event in the end, whatever the real operator
//! does meanwhile.

use core::sync::atomic::{AtomicUsize, Ordering};

use heaptape_wire::event::{Allocation, Call};

use crate::arch;
use crate::counting;
use crate::owner;
use crate::slot::{ThreadSlot, claim, leave};
use crate::thread::{plain_allocation, stamp};

/// A call of `operator new` whose first try failed. The real operator is in charge now; it tries again
/// as long as the new-handler makes room, and throws when there is none. One event in the end: the
/// success of a later try, or the failure once the exception is made.
#[derive(Clone, Copy)]
pub struct ShortOfMemory {
    /// Start of the real operator's code; 0 while there is no such call.
    operator: usize,
    /// How far it reaches.
    reach: usize,
    size: usize,
    align: usize,
    caller: usize,
}

impl ShortOfMemory {
    /// There is no such call.
    pub const NONE: ShortOfMemory =
        ShortOfMemory { operator: 0, reach: 0, size: 0, align: 0, caller: 0 };

    /// Whether there is such a call.
    #[inline(always)]
    pub fn is_any(&self) -> bool {
        self.operator != 0
    }

    /// The event that it ends with.
    fn outcome(&self, address: u64, slack: u64) -> Allocation {
        Allocation {
            address,
            size: self.size as u64,
            slack,
            align: self.align as u64,
            caller: self.caller as u64,
        }
    }

    /// Whether a call is the real operator's. One that it makes by a jump seems to come from this
    /// library, which has called it.
    pub fn is_caller(&self, caller: u64) -> bool {
        let caller = caller as usize;
        caller.wrapping_sub(self.operator) < self.reach || owner::is_ours(caller)
    }
}

/// Bytes of an operator in which its call of the allocator is looked for.
pub const OPERATOR_BYTES: usize = 512;

/// Start of the C++ runtime's function that makes an exception; 0 when it is not known, and failures
/// of `operator new` are then not recorded.
pub static EXCEPTION_MAKER: AtomicUsize = AtomicUsize::new(0);

/// The thread is about to enter the real `operator new`, after a first try for its caller failed.
///
/// The operator's code is told by its start and its length.
pub fn enter((operator, reach): (usize, usize), size: usize, align: usize, caller: usize) {
    let slot = claim(0);
    if slot.is_null() {
        return;
    }
    // SAFETY: the slot is claimed.
    unsafe {
        let is_nested = (*slot).short.is_any() && (*slot).short.is_caller(caller as u64);
        (*slot).is_short(match is_nested {
            true => ShortOfMemory { operator, reach, ..(*slot).short },
            false => ShortOfMemory { operator, reach, size, align, caller },
        });
        leave(slot);
    }
}

/// Records an allocation while the thread is in the real `operator new` (see [`ShortOfMemory`]), and
/// ends the claim.
///
/// # Safety
/// `slot` is claimed by the caller.
#[cold]
pub unsafe fn inside(slot: *mut ThreadSlot, call: Call, a: &Allocation, stamp: Option<u64>) {
    let maker = EXCEPTION_MAKER.load(Ordering::Relaxed);
    // SAFETY: as promised.
    let short = unsafe {
        let short = (*slot).short;
        let is_its = short.is_caller(a.caller);
        let has_failed =
            !is_its && maker != 0 && (a.caller as usize).wrapping_sub(maker) < OPERATOR_BYTES;
        if has_failed || (is_its && a.address != 0) {
            (*slot).short = ShortOfMemory::NONE;
        }
        leave(slot);
        match (is_its, has_failed) {
            (true, _) if a.address == 0 => return,
            (true, _) => {
                let usable = a.size + a.slack;
                let slack = usable.saturating_sub(short.size as u64);
                return plain_allocation(Call::New, &short.outcome(a.address, slack), stamp);
            }
            (false, true) => Some(short),
            (false, false) => None,
        }
    };
    if let Some(failed) = short {
        plain_allocation(Call::New, &failed.outcome(0, 0), stamp);
    }
    plain_allocation(call, a, stamp);
}

/// The real `operator new` has returned a block, or null where it may not throw. If no call was seen
/// that ended it, this does.
pub fn exit(block: u64, slack: impl FnOnce(usize) -> u64) {
    let slot = arch::thread_word() as *mut ThreadSlot;
    if slot.is_null() {
        return;
    }
    // SAFETY: the thread's own slot.
    let short = unsafe { core::mem::replace(&mut (*slot).short, ShortOfMemory::NONE) };
    if short.is_any() && !counting::is_on() {
        plain_allocation(Call::New, &short.outcome(block, slack(short.size)), stamp());
    }
}
