//! The writable data of the executable and of libraries, which is charged when they are loaded. A program
//! whose data does not fit ends before its `main`.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heaptape_wire::ledger::Kind;

use crate::arch::{self, syscall};
use crate::modules::{self, Header, Info, PT_LOAD};
use crate::pages::PAGE;
use crate::{charges, counting, lane, owner, refusing};

/// Bytes of all modules when the loader's list was last looked at, as far as they were charged.
static CHARGED: AtomicU64 = AtomicU64::new(0);
/// They did not fit.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The data of all modules, summed up.
#[derive(Default)]
pub struct Data {
    bytes: u64,
    /// The largest one of those that are not charged yet, and where it lies. (What is new comes last.)
    largest: (u64, usize),
}

impl Data {
    /// Adds a module's.
    pub fn add(&mut self, info: &Info) {
        // (Its program headers lie in it.)
        if owner::is_ours(info.headers as usize) {
            return;
        }
        // SAFETY: the loader's table of program headers.
        let headers = unsafe { core::slice::from_raw_parts(info.headers, info.count as usize) };
        for header in headers.iter().filter(|header| is_writable(header)) {
            let start = info.bias.wrapping_add(header.address as usize);
            let end = start.wrapping_add(header.memory_size as usize);
            let bytes = (end.next_multiple_of(PAGE) - start / PAGE * PAGE) as u64;
            self.bytes += bytes;
            if self.bytes > CHARGED.load(Ordering::Relaxed) {
                self.largest = self.largest.max((bytes, start));
            }
        }
    }

    /// Charges what is new, and gives back what is gone; false where it does not fit, which is told. The next look
    /// tries again.
    pub fn charge(&self) -> bool {
        let Some((lane, account)) = lane::own().zip(counting::account()) else { return true };
        let before = CHARGED.load(Ordering::Relaxed);
        let claim =
            |from, to| CHARGED.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        // Of two that look at once one charges.
        if claim(before, self.bytes).is_err() {
            return true;
        }
        let more = self.bytes.saturating_sub(before);
        if more > 0 && !charges::charge(lane, Kind::Data, more) {
            let _ = claim(self.bytes, before);
            REFUSED.store(true, Ordering::Relaxed);
            refusing::refuse_data(lane, more, self.largest.1);
            return false;
        }
        if let Some(less @ 1..) = before.checked_sub(self.bytes) {
            // The rest came with a fork.
            let own = account.charged[Kind::Data as usize].load(Ordering::Relaxed).min(less);
            charges::give_back(lane, Kind::Data, own);
            account.release_inherited(less - own);
        }
        true
    }
}

fn is_writable(header: &Header) -> bool {
    const PF_W: u32 = 2;
    header.kind == PT_LOAD && header.flags & PF_W != 0
}

/// A look at the loader's list, unless it is as it was at the last such look.
struct Look {
    data: Data,
    is_new: bool,
}

/// Modules ever loaded and unloaded, at the last look.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Charges what the loader has mapped since the last look; false where it does not fit, which is told once. For a thread
/// that is in the loader.
pub fn charge_new() -> bool {
    let mut look = Look { data: Data::default(), is_new: false };
    // SAFETY: the callback only reads what the loader hands it.
    unsafe { modules::dl_iterate_phdr(see, (&raw mut look).cast()) };
    !look.is_new || look.data.charge()
}

unsafe extern "C" fn see(info: *const Info, size: usize, look: *mut c_void) -> c_int {
    // SAFETY: the loader's and our own structures.
    let (info, look) = unsafe { (&*info, &mut *look.cast::<Look>()) };
    if !look.is_new {
        let generation = info.generation(size);
        if SEEN.swap(generation, Ordering::Relaxed) == generation {
            return 1;
        }
        look.is_new = true;
    }
    look.data.add(info);
    0
}

/// From the constructor, once the modules were looked at: ends a program whose data does not fit.
pub fn end_if_refused() {
    const CANNOT_RUN: usize = 126;
    if REFUSED.load(Ordering::Relaxed) {
        // SAFETY: ends the process, of which nothing has run but constructors.
        unsafe { syscall(arch::SYS_EXIT_GROUP, [CANNOT_RUN, 0, 0, 0, 0, 0]) };
    }
}
