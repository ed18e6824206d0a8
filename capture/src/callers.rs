//! Whose call it is: the module of a caller's address, as a number in the process's account.
//!
//! An address that was seen before is found in a table. For a new one the loader's own table is asked,
//! which takes no lock (`_dl_find_object`, glibc 2.35); with an older glibc all callers are of one module
//! that stands for all.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU64, Ordering};

use heaptape_wire::ledger::{MODULES, OTHER_MODULES};

use crate::counting;
use crate::exported::{Dynamic, Exported};
use crate::following::following;

/// Addresses that are remembered.
const REMEMBERED: usize = 1024;
const NUMBER_BITS: u32 = MODULES.trailing_zeros();

/// By a hash of the address: the address above the module's number; 0 for none.
static SEEN: [AtomicU64; REMEMBERED] = [const { AtomicU64::new(0) }; REMEMBERED];

following! {
    static FIND_OBJECT = c"_dl_find_object"
}

/// `struct dl_find_object` of <dlfcn.h>.
#[repr(C)]
struct Object {
    flags: u64,
    start: usize,
    end: usize,
    link_map: *const LinkMap,
    eh_frame: usize,
    _rest: [usize; 7],
}

/// `struct link_map` of <link.h>, its first three words.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
}

/// The number of the module that the caller lies in.
#[inline(always)]
pub fn module_of(caller: usize) -> usize {
    let seen = SEEN[place(caller)].load(Ordering::Relaxed);
    let number = if seen >> NUMBER_BITS == caller as u64 { seen as usize } else { ask(caller) };
    number % MODULES
}

/// Multiplicative hashing, as in the collector's maps.
#[inline(always)]
fn place(caller: usize) -> usize {
    (caller as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize
        >> (64 - REMEMBERED.trailing_zeros())
}

#[cold]
#[inline(never)]
fn ask(caller: usize) -> usize {
    let number = find(caller).and_then(|found| number_of(&found)).unwrap_or(OTHER_MODULES);
    SEEN[place(caller)].store((caller as u64) << NUMBER_BITS | number as u64, Ordering::Relaxed);
    number
}

/// Whether modules can be found by address, without a lock.
pub fn can_find() -> bool {
    FIND_OBJECT.address() != 0
}

/// Whether the module is the loader.
pub fn is_loader(found: &Found) -> bool {
    found.has_name(b"ld-linux")
}

/// A module that an address was found in.
pub struct Found {
    /// Where it begins …
    pub start: usize,
    /// … and ends.
    pub end: usize,
    /// Where its table of unwinding rules is (`PT_GNU_EH_FRAME`); 0 for none.
    pub eh_frame: usize,
    link_map: *const LinkMap,
}

impl Found {
    /// Its path; empty for the executable.
    fn path(&self) -> &[u8] {
        // SAFETY: the loader's entry of a module that has just called, and its name, a C string.
        unsafe {
            let name = (*self.link_map).name;
            if name.is_null() { &[] } else { CStr::from_ptr(name).to_bytes() }
        }
    }

    /// What it defines for others.
    ///
    /// # Safety
    /// It stays mapped while that is used.
    pub unsafe fn exported(&self) -> Option<Exported> {
        // SAFETY: the loader's entry; as promised.
        unsafe { Exported::of((*self.link_map).bias, (*self.link_map).dynamic) }
    }

    /// Whether it is the executable.
    pub fn is_executable(&self) -> bool {
        self.path().is_empty()
    }

    /// Whether the name of its file begins so.
    pub fn has_name(&self, start: &[u8]) -> bool {
        let name = self.path().rsplit(|&byte| byte == b'/').next();
        name.is_some_and(|name| name.starts_with(start))
    }
}

/// The module that an address lies in.
pub fn find(address: usize) -> Option<Found> {
    type Find = unsafe extern "C" fn(usize, *mut Object) -> c_int;
    let function = FIND_OBJECT.address();
    if function == 0 {
        return None;
    }
    let mut object = Object {
        flags: 0,
        start: 0,
        end: 0,
        link_map: core::ptr::null(),
        eh_frame: 0,
        _rest: [0; 7],
    };
    // SAFETY: the type of this function, which writes into the object.
    let found = unsafe { core::mem::transmute::<usize, Find>(function)(address, &raw mut object) };
    if found != 0 || object.link_map.is_null() {
        return None;
    }
    let Object { start, end, link_map, eh_frame, .. } = object;
    Some(Found { start, end, eh_frame, link_map })
}

/// The number of a module in the account.
fn number_of(found: &Found) -> Option<usize> {
    let (modules, path) = (&counting::account()?.modules, found.path());
    let take = |number: usize| {
        if modules[number].start() == 0 && modules[number].take(found.start as u64) {
            modules[number].set_path(path);
        }
    };
    let exempt = &counting::ledger().header().exempt;
    if let Some(number) = exempt.number_of(path) {
        // It may be gone before the modules are listed again.
        exempt.meet(path);
        take(number);
        return Some(number);
    }
    // One that is gone may have been where this one is.
    let is_its = |number: usize| {
        modules[number].start() == found.start as u64 && modules[number].has_path(path)
    };
    (0..exempt.first()).find(|&number| {
        take(number);
        is_its(number)
    })
}

/// A module is gone, and another one may come to its place; or the numbers are those of another account.
pub fn forget() {
    SEEN.iter().for_each(|seen| seen.store(0, Ordering::Relaxed));
}
