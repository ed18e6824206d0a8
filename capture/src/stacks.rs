//! Stacks: what the collector has to know to find a thread's in the kernel's list of mappings, and the first step
//! of what is charged for them.
//!
//! How far they are touched only the kernel knows, which the collector asks (`collect::stacks`). The first step is
//! charged when the process begins: most never need another, so what is left of the limit does not change under them.

use heaptape_wire::ledger::{Kind, STACK_STEP};

use crate::lane::Lane;
use crate::pages::PAGE;
use crate::{arch, charges, lifecycle, pages};

/// A process begins, and has its first lane.
pub fn begin(lane: Lane) {
    if lane.purse.is_some() {
        // Where it does not fit nothing else does.
        charges::charge(lane, Kind::Stacks, STACK_STEP);
    }
}

/// An address in the highest pages of the calling thread's stack; 0 for the first thread, whose stack has a name, and
/// where the program has mapped the stack itself, which is charged as a mapping.
pub fn own(tid: u32) -> u64 {
    // glibc keeps a thread's descriptor at the top of its stack.
    let top = arch::thread_pointer();
    let page = top / PAGE;
    let is_first = tid == lifecycle::registered_pid();
    let is_charged = || {
        let charged = pages::charged(&(page..page + 1));
        charged.mappings + charged.starting + charged.inherited > 0
    };
    if is_first || is_charged() { 0 } else { top as u64 }
}
