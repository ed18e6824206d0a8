//! The writable data of the executable and of libraries, which is charged when they are loaded. A program
//! whose data does not fit ends before its `main`.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heaptape_wire::ledger::Kind;

use crate::arch::{self, syscall};
use crate::modules::{self, Header, Info, PT_LOAD};
use crate::pages::PAGE;
use crate::{charges, counting, lane, owner, refusing};

/// What is charged: pages of all modules, and below them the lower bits of the age of the loader's list then.
static CHARGED: AtomicU64 = AtomicU64::new(0);
const AGE_BITS: u32 = 24;
const AGES: u64 = (1 << AGE_BITS) - 1;

fn bytes_of(charged: u64) -> u64 {
    (charged >> AGE_BITS) * PAGE as u64
}

/// Whether an age is that of an earlier look than another.
fn is_before(age: u64, other: u64) -> bool {
    age.wrapping_sub(other) & AGES > AGES / 2
}

/// They did not fit.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The data of all modules, summed up.
#[derive(Default)]
pub struct Data {
    bytes: u64,
    age: u64,
    /// The largest one of those that are not charged yet, and where it lies. (What is new comes last.)
    largest: (u64, usize),
}

impl Data {
    /// The look begins, at a list of this age.
    pub fn begin(&mut self, age: u64) {
        self.age = age;
    }

    /// Adds a module's.
    pub fn add(&mut self, info: &Info) {
        // (Its program headers lie in it.)
        if owner::is_ours(info.headers as usize) {
            return;
        }
        for header in info.headers().iter().filter(|header| is_writable(header)) {
            let start = info.bias.wrapping_add(header.address as usize);
            let end = start.wrapping_add(header.memory_size as usize);
            let bytes = (end.next_multiple_of(PAGE) - start / PAGE * PAGE) as u64;
            self.bytes += bytes;
            if self.bytes > bytes_of(CHARGED.load(Ordering::Relaxed)) {
                self.largest = self.largest.max((bytes, start));
            }
        }
    }

    /// Charges what is new, and gives back what is gone; false where it does not fit, which is told. The next look
    /// tries again.
    pub fn charge(&self) -> bool {
        let Some((lane, account)) = lane::own().zip(counting::account()) else { return true };
        let now = ((self.bytes / PAGE as u64) << AGE_BITS) | (self.age & AGES);
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        // Of several that look at once each charges what is new to it, and one that has looked earlier nothing.
        let Ok(charged) = CHARGED.fetch_update(order, failed, |charged| {
            (charged != now && !is_before(self.age, charged)).then_some(now)
        }) else {
            return true;
        };
        let before = bytes_of(charged);
        let more = self.bytes.saturating_sub(before);
        if more > 0 && !charges::charge(lane, Kind::Data, more) {
            let _ = CHARGED.compare_exchange(now, charged, order, failed);
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
        look.data.begin(info.age(size));
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
