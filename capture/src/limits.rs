//! Limits on memory: the program keeps all that it, or its user, has set.
//!
//! What this library maps counts against the limits on address space and on data. So they are raised
//! by as much when the library joins a session and when the program sets them, and the program is told
//! the lower figure. A raised limit is told by its last bytes, which count for nothing to the kernel:
//! it stays recognisable through fork and exec. Where it may not be raised, and is so low that the
//! program could miss the room, nothing is recorded.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use heaptape_wire::ledger::LEDGER_BYTES;
use heaptape_wire::session::{ARENA_BYTES, Why};

use crate::arch::{self, syscall};
use crate::arena;
use crate::callstack::REGION_BYTES;
use crate::counting;
use crate::following::{Following, following};
use crate::lifecycle::{is_covered, registered_pid};
use crate::next::{ENOSYS, set_errno};
use crate::sizes::DIRECTORY_BYTES;

/// `struct rlimit` of <sys/resource.h>.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Limit {
    current: u64,
    maximum: u64,
}

const RLIMIT_DATA: c_int = 2;
const RLIMIT_AS: c_int = 9;
const INFINITY: u64 = u64::MAX;

/// The bytes of a page that a raised limit ends on. (Shells set multiples of 1024.)
const MARK: u64 = 0x155;
const MARKED: u64 = 0x3ff;

/// 1 where the limits are raised for a counted job that is about to be joined.
static IS_COUNTED: AtomicU32 = AtomicU32::new(0);
/// 1 where they are raised for a session that wants stacks.
static HAS_STACKS: AtomicU32 = AtomicU32::new(0);

/// What this library takes at the most: the arena, the thread slots, itself, what is kept for stacks; in a counted job the ledger
/// and the side map, which grows with the program's memory.
fn ours(resource: c_int) -> Option<u64> {
    /// The side map of 4 GiB.
    const GROWS: u64 = 1 << 30;
    let grows = if is_counted() { GROWS } else { 0 };
    Some(least(resource)? + grows + MARK)
}

/// What it takes of that from the start.
fn least(resource: c_int) -> Option<u64> {
    const PRIVATE: u64 = 4 << 20;
    let stacks = if HAS_STACKS.load(Ordering::Relaxed) != 0 { REGION_BYTES as u64 } else { 0 };
    let (shared, private) = match is_counted() {
        true => (ARENA_BYTES + LEDGER_BYTES, PRIVATE + DIRECTORY_BYTES as u64),
        false => (ARENA_BYTES, PRIVATE + stacks),
    };
    match resource {
        RLIMIT_AS => Some(shared as u64 + private),
        RLIMIT_DATA => Some(private),
        _ => None,
    }
}

fn is_counted() -> bool {
    counting::is_on() || IS_COUNTED.load(Ordering::Relaxed) != 0
}

fn is_raised(limit: u64) -> bool {
    limit != INFINITY && limit & MARKED == MARK
}

fn raised(limit: u64, ours: u64) -> u64 {
    if limit == INFINITY || limit & MARKED != 0 { limit } else { limit.saturating_add(ours) }
}

fn lowered(limit: u64, ours: u64) -> u64 {
    if is_raised(limit) { limit.saturating_sub(ours) } else { limit }
}

/// Asks the kernel for a limit, or sets it.
fn kernels(resource: c_int, new: Option<&Limit>) -> Option<Limit> {
    let mut old = Limit { current: INFINITY, maximum: INFINITY };
    let new = new.map_or(0, |limit| core::ptr::from_ref(limit) as usize);
    // SAFETY: reads the one structure and writes the other; 0 is this process.
    let done = unsafe {
        let old = &raw mut old as usize;
        syscall(arch::SYS_PRLIMIT64, [0, resource as usize, new, old, 0, 0])
    };
    (done == 0).then_some(old)
}

/// Makes room for what this library maps; the reason where the program may need that room itself.
pub fn make_room(session: &CStr) -> Result<(), Option<Why>> {
    let is_finite = |resource| kernels(resource, None).is_some_and(|l| l.current != INFINITY);
    let limits = [RLIMIT_DATA, RLIMIT_AS];
    if limits.into_iter().any(is_finite) {
        let (counts, stacks) = arena::what_is_wanted(session);
        IS_COUNTED.store(u32::from(counts), Ordering::Relaxed);
        HAS_STACKS.store(u32::from(stacks), Ordering::Relaxed);
    }
    limits.into_iter().try_for_each(|resource| match raise(resource) {
        Ok(()) => Ok(()),
        Err(bytes) => {
            let (ours, is_data) = (least(resource).unwrap_or(0), resource == RLIMIT_DATA);
            Err(Some(Why::Limit { is_data, bytes, ours, roomy: ROOMY * ours }))
        }
    })
}

/// A limit of so many times what this library takes has room for it.
const ROOMY: u64 = 16;

/// Raises a limit; what it is where that can't be and there may be no room.
fn raise(resource: c_int) -> Result<(), u64> {
    let (Some(limit), Some(ours)) = (kernels(resource, None), ours(resource)) else {
        return Ok(());
    };
    if limit.current == INFINITY || is_raised(limit.current) {
        return Ok(());
    }
    let current = raised(limit.current, ours);
    let within = Limit { current, maximum: limit.maximum };
    let both = Limit { current, maximum: raised(limit.maximum, ours) };
    let change = if current <= limit.maximum { within } else { both };
    let has_room = kernels(resource, Some(&change)).is_some()
        || limit.current >= ROOMY * least(resource).unwrap_or(0);
    if has_room { Ok(()) } else { Err(limit.current) }
}

/// The limit to set in place of the one that the program wants; `None` for that itself.
fn with_room(resource: c_int, wanted: &Limit) -> Option<Limit> {
    let ours = ours(resource).filter(|_| is_covered())?;
    let raise = |limit| raised(limit, ours);
    Some(Limit { current: raise(wanted.current), maximum: raise(wanted.maximum) })
}

/// Takes out of a limit what this library has put in.
///
/// # Safety
/// `limit` is null or points to a limit.
unsafe fn tell(resource: c_int, limit: *mut Limit) {
    // SAFETY: as promised.
    if let (Some(ours), Some(limit)) = (ours(resource), unsafe { limit.as_mut() }) {
        limit.current = lowered(limit.current, ours);
        limit.maximum = lowered(limit.maximum, ours);
    }
}

macro_rules! limit_functions {
    ($get:ident, $get_symbol:literal, $set:ident, $set_symbol:literal, $both:ident, $both_symbol:literal) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(resource: c_int, limit: *mut Limit) -> c_int {
            following!(static NEXT = $get_symbol);
            type Get = unsafe extern "C" fn(c_int, *mut Limit) -> c_int;
            // SAFETY: the type of this function; forwarded as the program asked.
            unsafe {
                let Some(next) = found::<Get>(&NEXT) else { return absent() };
                let result = next(resource, limit);
                if result == 0 {
                    tell(resource, limit);
                }
                result
            }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(resource: c_int, limit: *const Limit) -> c_int {
            following!(static NEXT = $set_symbol);
            type Set = unsafe extern "C" fn(c_int, *const Limit) -> c_int;
            // SAFETY: as above; the limit is one, or null.
            unsafe {
                let Some(next) = found::<Set>(&NEXT) else { return absent() };
                match limit.as_ref().and_then(|limit| with_room(resource, limit)) {
                    Some(changed) if next(resource, &changed) == 0 => 0,
                    // What may not be raised is set as it was wanted.
                    _ => next(resource, limit),
                }
            }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $both(
            pid: c_int,
            resource: c_int,
            new: *const Limit,
            old: *mut Limit,
        ) -> c_int {
            following!(static NEXT = $both_symbol);
            type Both = unsafe extern "C" fn(c_int, c_int, *const Limit, *mut Limit) -> c_int;
            // SAFETY: as above.
            unsafe {
                let Some(next) = found::<Both>(&NEXT) else { return absent() };
                let is_own = pid == 0 || pid == registered_pid() as c_int;
                let changed = new.as_ref().filter(|_| is_own);
                let result = match changed.and_then(|limit| with_room(resource, limit)) {
                    Some(changed) if next(pid, resource, &changed, old) == 0 => 0,
                    _ => next(pid, resource, new, old),
                };
                if result == 0 {
                    tell(resource, old);
                }
                result
            }
        }
    };
}

/// The next function, as one of the type `F`.
///
/// # Safety
/// It has that type.
unsafe fn found<F>(next: &Following) -> Option<F> {
    let address = next.address();
    // SAFETY: as promised; a function is a word.
    (address != 0).then(|| unsafe { core::mem::transmute_copy::<usize, F>(&address) })
}

fn absent() -> c_int {
    set_errno(ENOSYS);
    -1
}

limit_functions!(getrlimit, c"getrlimit", setrlimit, c"setrlimit", prlimit, c"prlimit");
limit_functions!(getrlimit64, c"getrlimit64", setrlimit64, c"setrlimit64", prlimit64, c"prlimit64");
