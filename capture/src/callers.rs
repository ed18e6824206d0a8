//! Whose call it is: the module of a caller's address, as a number in the process's account.
//!
//! An address that was seen before is found in a table. For a new one the loader's own table is asked,
//! which takes no lock (`_dl_find_object`, glibc 2.35); with an older glibc all callers are of one module
//! that stands for all.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU64, Ordering};

use heaptape_wire::ledger::{MODULES, OTHER_MODULES};

use crate::counting;
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
    _rest: [usize; 8],
}

/// `struct link_map` of <link.h>, its first two words.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
}

/// The number of the module that the caller lies in.
#[inline(always)]
pub fn module_of(caller: usize) -> usize {
    let seen = SEEN[place(caller)].load(Ordering::Relaxed);
    if seen >> NUMBER_BITS == caller as u64 { seen as usize % MODULES } else { ask(caller) }
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
    let number = find(caller).unwrap_or(OTHER_MODULES);
    SEEN[place(caller)].store((caller as u64) << NUMBER_BITS | number as u64, Ordering::Relaxed);
    number
}

fn find(caller: usize) -> Option<usize> {
    type Find = unsafe extern "C" fn(usize, *mut Object) -> c_int;
    let address = FIND_OBJECT.address();
    if address == 0 {
        return None;
    }
    let mut object =
        Object { flags: 0, start: 0, end: 0, link_map: core::ptr::null(), _rest: [0; 8] };
    // SAFETY: the type of this function, which writes into the object.
    let found = unsafe { core::mem::transmute::<usize, Find>(address)(caller, &raw mut object) };
    if found != 0 || object.link_map.is_null() {
        return None;
    }
    let modules = &counting::account()?.modules;
    for (number, module) in modules[..OTHER_MODULES].iter().enumerate() {
        if module.start() == object.start as u64 {
            return Some(number);
        }
        if module.start() == 0 {
            if module.take(object.start as u64) {
                // SAFETY: the loader's entry of a module that has just called, and its name.
                let path = unsafe {
                    let name = (*object.link_map).name;
                    if name.is_null() { &[] } else { CStr::from_ptr(name).to_bytes() }
                };
                module.set_path(path);
                return Some(number);
            }
            if module.start() == object.start as u64 {
                return Some(number);
            }
        }
    }
    None
}

/// A module is gone, and another one may come to its place.
pub fn forget() {
    SEEN.iter().for_each(|seen| seen.store(0, Ordering::Relaxed));
}
