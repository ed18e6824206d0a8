//! Stacks that are charged whole when they are made: those of threads for which the program asks for more than a usual
//! one. They are given back when the thread has ended, by whoever of the process is about to be refused or makes the
//! next one, or by the collector.
//!
//! A usual stack is no use of memory: it is charged as far as it is touched, by the collector, and so is what can't be
//! charged whole for want of a place or of the thread's number. A stack that the program has mapped itself is charged
//! as a mapping.

use core::ffi::c_int;

use heaptape_wire::ledger::{Kind, WholeStacks};

use crate::arch::{self, syscall};
use crate::counting;
use crate::following::{Following, following};
use crate::lane::{self, Lane};
use crate::{charges, lifecycle};

following!(static SET_UP = c"pthread_attr_init");
following!(static TEAR_DOWN = c"pthread_attr_destroy");
following!(static SIZE = c"pthread_attr_getstacksize");
following!(static STACK = c"pthread_attr_getstack");

/// What `pthread_attr_t` has room in, several times over.
type Attributes = [u64; 32];

/// Larger is unusual: the kernel's limit for the first thread's stack, unless the user has set another.
const USUAL: usize = 8 << 20;

/// A stack that is charged, of a thread that is about to be made.
struct Coming {
    lane: Lane,
    stacks: &'static WholeStacks,
    place: usize,
    bytes: u64,
}

/// `pthread_create` of a thread whose descriptor will stand at `thread`, with these attributes.
pub fn create(
    thread: *const usize,
    attributes: usize,
    caller: usize,
    make: impl FnOnce() -> c_int,
) -> c_int {
    const EAGAIN: c_int = 11;
    let Ok(coming) = Coming::charge(attributes, caller) else { return EAGAIN };
    let error = make();
    if let Some(coming) = coming {
        coming.settle(if error == 0 { look(thread as usize) } else { 0 });
    }
    error
}

impl Coming {
    /// Charges what is to be charged whole, if anything is; an error where that does not fit.
    fn charge(attributes: usize, caller: usize) -> Result<Option<Coming>, ()> {
        let Some((lane, account)) = lane::own().zip(counting::account()) else {
            return Ok(None);
        };
        let bytes = size(attributes);
        if bytes == 0 || lane.purse.is_none() || !lifecycle::is_thread_noted() {
            return Ok(None);
        }
        give_back_gone();
        let stacks = &account.stacks;
        let Some(place) = stacks.claim() else { return Ok(None) };
        if charges::charge_call(lane, Kind::Stacks, bytes, bytes, caller) {
            return Ok(Some(Coming { lane, stacks, place, bytes }));
        }
        stacks.release(place);
        Err(())
    }

    /// The thread with this descriptor was made; 0 for none.
    fn settle(self, thread: usize) {
        match number(thread) {
            0 => {
                self.stacks.release(self.place);
                charges::give_back(self.lane, Kind::Stacks, self.bytes);
            }
            number => self.stacks.set(self.place, number, self.bytes),
        }
    }
}

/// Bytes of the stack, where that is to be charged whole.
fn size(attributes: usize) -> u64 {
    let all = [&SET_UP, &TEAR_DOWN, &SIZE, &STACK];
    if attributes == 0 || all.into_iter().any(|next| next.address() == 0) {
        return 0;
    }
    let (mut size, mut address, mut usual): (usize, usize, usize) = (0, 0, 0);
    let mut fresh: Attributes = [0; 32];
    let of_fresh = &raw mut fresh as usize;
    call(&STACK, [attributes, &raw mut address as usize, &raw mut size as usize]);
    // Where the program has not said where the stack is, it ends at 0.
    if size <= USUAL || address.wrapping_add(size) != 0 {
        return 0;
    }
    call(&SET_UP, [of_fresh, 0, 0]);
    call(&SIZE, [of_fresh, &raw mut usual as usize, 0]);
    call(&TEAR_DOWN, [of_fresh, 0, 0]);
    if size > usual { size as u64 } else { 0 }
}

/// Calls one of these functions, which take three words at most.
fn call(next: &Following, words: [usize; 3]) {
    type Function = unsafe extern "C" fn(usize, usize, usize) -> c_int;
    // SAFETY: such a function, whose arguments point to attributes and to words of our own.
    unsafe {
        core::mem::transmute::<usize, Function>(next.address())(words[0], words[1], words[2]);
    }
}

/// The kernel's number of the thread with this descriptor; 0 where it has ended.
fn number(thread: usize) -> u32 {
    let number = if thread == 0 { 0 } else { look(thread.wrapping_add(arch::NOTED_AT)) as u32 };
    if lives(number) { number } else { 0 }
}

/// What stands there; 0 where nothing can be read. A thread that was made may have ended, and given back the memory that
/// its number or its descriptor was in: so the kernel is asked to read it.
fn look(at: usize) -> usize {
    let mut found: usize = 0;
    let size = size_of::<usize>();
    let (own, other): ([usize; 2], [usize; 2]) = ([&raw mut found as usize, size], [at, size]);
    let pid = lifecycle::registered_pid() as usize;
    // SAFETY: writes the word, if there is one to read.
    unsafe {
        let (own, other) = (own.as_ptr() as usize, other.as_ptr() as usize);
        syscall(arch::SYS_PROCESS_VM_READV, [pid, own, 1, other, 1, 0]);
    }
    found
}

/// Whether a thread of this process has this number.
pub fn lives(number: u32) -> bool {
    let pid = lifecycle::registered_pid() as usize;
    // SAFETY: a look; no signal is sent.
    number != 0 && unsafe { syscall(arch::SYS_TGKILL, [pid, number as usize, 0, 0, 0, 0]) == 0 }
}

/// Gives back the stacks of threads that have ended; whether there were any.
pub fn give_back_gone() -> bool {
    let Some((lane, account)) = lane::own().zip(counting::account()) else { return false };
    if lifecycle::is_sandboxed() || account.stacks.all().next().is_none() {
        return false;
    }
    let bytes = account.stacks.take_gone(lives);
    charges::give_back(lane, Kind::Stacks, bytes);
    bytes > 0
}
