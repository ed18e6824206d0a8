//! Heaps: whether a mapping is made for blocks, by an allocator or by the C library. The blocks are charged,
//! and their mapping is not; where it is the collector is told, which asks the kernel what is resident there.

use core::sync::atomic::{AtomicUsize, Ordering};

use heaptape_wire::heaps::Heaps;

use crate::callers::{self, Found};
use crate::following::following;
use crate::next::{in_glibc, next};
use crate::pages::PAGE;
use crate::{counting, owner};

/// The modules of the next allocator and of the C library, as addresses: begin and end.
static MODULES: [[AtomicUsize; 2]; 2] = [const { [const { AtomicUsize::new(0) }; 2] }; 2];

/// What is mapped for blocks in this process. The account has a copy.
static MAPPED: Heaps = Heaps::new();

/// An allocator whose functions are found in one library, and that maps its memory in another.
const PROXY: &[u8] = b"libtbbmalloc_proxy.so";
const BEHIND_PROXY: &[u8] = b"libtbbmalloc.so";

fn anchors() -> [usize; 2] {
    [next().malloc as usize, in_glibc()]
}

/// From the constructor: with a C library that has no table to ask without a lock, the modules are looked up
/// once.
pub fn look_up() {
    if callers::can_find() {
        return;
    }
    for (module, anchor) in MODULES.iter().zip(anchors()) {
        if let Some(found) = owner::module_of(anchor) {
            let (start, length) = found.extent();
            module[0].store(start, Ordering::Relaxed);
            module[1].store(start + length, Ordering::Release);
        }
    }
}

/// A process begins, after an exec or as a fork's child.
pub fn begin() {
    MAPPED.let_go();
    publish();
}

fn publish() {
    if let Some(account) = counting::account() {
        account.heaps.copy(&MAPPED);
    }
}

/// So much was mapped for blocks.
pub fn mapped(address: usize, length: usize) {
    MAPPED.add(address as u64, end(address, length));
    publish();
}

/// So much is about to be unmapped, whatever it was for; whether anything of it was for blocks. (Once it is unmapped another
/// thread may be given the same addresses.)
pub fn unmapped(address: usize, length: usize) -> bool {
    let is_known = !MAPPED.is_empty() && MAPPED.remove(address as u64, end(address, length));
    if is_known {
        publish();
    }
    is_known
}

/// The address behind the last page.
fn end(address: usize, length: usize) -> u64 {
    address.saturating_add(length).next_multiple_of(PAGE) as u64
}

following!(static BREAK = c"__curbrk");

/// Where glibc keeps the end of its data; 0 where it does not tell.
pub fn break_at() -> u64 {
    BREAK.address() as u64
}

/// Whether blocks come from glibc.
pub fn are_of_glibc() -> bool {
    let [allocator, libc] = anchors();
    match callers::find(libc) {
        Some(found) => (found.start..found.end).contains(&allocator),
        None => false,
    }
}

/// Whether what this caller maps is for blocks.
pub fn is_for_blocks(caller: usize) -> bool {
    match callers::find(caller) {
        Some(found) => is_allocator(&found),
        None if callers::can_find() => false,
        None => MODULES.iter().any(|[start, end]| {
            // Before the constructor nothing is known, and what is mapped then is mostly an allocator's.
            let end = end.load(Ordering::Acquire);
            end == 0 || (start.load(Ordering::Relaxed)..end).contains(&caller)
        }),
    }
}

fn is_allocator(caller: &Found) -> bool {
    let is_its = |anchor: usize| (caller.start..caller.end).contains(&anchor);
    anchors().into_iter().any(is_its) || caller.has_name(BEHIND_PROXY) && is_behind_proxy()
}

fn is_behind_proxy() -> bool {
    callers::find(next().malloc as usize).is_some_and(|found| found.has_name(PROXY))
}
