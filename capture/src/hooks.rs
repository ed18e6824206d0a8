//! The C allocator's functions, as the program finds them: forward, then write down.
//!
//! A release is written before it happens and an allocation after, so that an address never seems to
//! be handed out twice. Each function takes the caller's address as one argument more (see
//! [`crate::arch`]); one that allocates, while stacks are wanted, the call's site in its place (see [`crate::callstack`]).

use core::ffi::c_int;

use heaptape_wire::event::{Allocation, Call};

use crate::arch::{with_caller, with_site};
use crate::early::{early_size, is_early};
use crate::following::following;
use crate::heads::usable_size;
use crate::next::{ENOMEM, UsableSize, next, set_errno};
use crate::{counted, counting, operators, thread};

with_site!(malloc, 1, malloc_entry);
with_site!(calloc, 2, calloc_entry);
with_site!(realloc, 2, realloc_entry);
with_site!(reallocarray, 3, reallocarray_entry);
with_caller!(free, 1, free_entry);
with_caller!(cfree, 1, free_entry);
with_caller!(free_sized, 2, free_sized_entry);
with_caller!(free_aligned_sized, 3, free_aligned_sized_entry);
with_site!(memalign, 2, memalign_entry);
with_site!(aligned_alloc, 2, aligned_alloc_entry);
with_site!(posix_memalign, 3, posix_memalign_entry);
with_site!(valloc, 1, valloc_entry);
with_site!(pvalloc, 1, pvalloc_entry);

/// What a block got beyond what was asked for, as the library that it is from says.
#[inline(always)]
pub fn slack(block: *mut u8, size: usize, ask: UsableSize) -> u64 {
    if block.is_null() {
        return 0;
    }
    usable_size(block, size as u64, || ask).saturating_sub(size as u64)
}

/// Writes an allocation down, and gives its block back.
#[inline(always)]
pub fn record(
    call: Call,
    block: *mut u8,
    size: usize,
    align: usize,
    caller: usize,
    ask: UsableSize,
) -> *mut u8 {
    // (A block that was handed out during the look-up comes before there is anything to write to.)
    thread::allocation(call, block, size, slack(block, size, ask), align, caller)
}

unsafe extern "C" fn malloc_entry(size: usize, caller: usize) -> *mut u8 {
    if counting::is_on() {
        return counted::malloc(size, caller);
    }
    // SAFETY: forwarded as the program asked.
    let block = unsafe { (next().malloc)(size) };
    record(Call::Malloc, block, size, 0, caller, next().sizes.malloc)
}

unsafe extern "C" fn calloc_entry(count: usize, size: usize, caller: usize) -> *mut u8 {
    if counting::is_on() {
        return counted::calloc(count, size, caller);
    }
    // SAFETY: forwarded as the program asked.
    let block = unsafe { (next().calloc)(count, size) };
    record(Call::Calloc, block, count.saturating_mul(size), 0, caller, next().sizes.malloc)
}

unsafe extern "C" fn realloc_entry(old: *mut u8, size: usize, caller: usize) -> *mut u8 {
    reallocate(Call::Realloc, old, size, caller)
}

following! {
    /// libc's, which calls the program's own `realloc` where there is one.
    static REALLOCARRAY = c"reallocarray"
}

unsafe extern "C" fn reallocarray_entry(
    old: *mut u8,
    count: usize,
    size: usize,
    caller: usize,
) -> *mut u8 {
    if operators::are_bypassed()
        && let found @ 1.. = REALLOCARRAY.address()
    {
        type Reallocarray = unsafe extern "C" fn(*mut u8, usize, usize) -> *mut u8;
        // SAFETY: the type of reallocarray; forwarded as the program asked.
        return unsafe { core::mem::transmute::<usize, Reallocarray>(found)(old, count, size) };
    }
    // libc's own would call `realloc`, and that would be a second event.
    match count.checked_mul(size) {
        Some(size) => reallocate(Call::Reallocarray, old, size, caller),
        None if counting::is_on() => {
            set_errno(ENOMEM);
            counting::fail()
        }
        None => {
            set_errno(ENOMEM);
            let none = core::ptr::null_mut();
            record_reallocation(Call::Reallocarray, none, usize::MAX, old, false, caller)
        }
    }
}

#[inline(always)]
fn reallocate(call: Call, old: *mut u8, size: usize, caller: usize) -> *mut u8 {
    if is_early(old) {
        return reallocate_early(old, size, caller);
    }
    if counting::is_on() {
        return counting::reallocate(old, size, caller);
    }
    let begun = !old.is_null() && thread::begin_reallocation(old as u64);
    // SAFETY: forwarded as the program asked.
    let block = unsafe { (next().realloc)(old, size) };
    record_reallocation(call, block, size, old, begun, caller)
}

#[inline(always)]
fn record_reallocation(
    call: Call,
    block: *mut u8,
    size: usize,
    old: *mut u8,
    begun: bool,
    caller: usize,
) -> *mut u8 {
    let a = Allocation {
        address: block as u64,
        size: size as u64,
        slack: slack(block, size, next().sizes.malloc),
        align: 0,
        caller: caller as u64,
    };
    thread::reallocation(call, &a, old as u64, begun)
}

/// Moves a block that was handed out before the next allocator was known into that allocator.
#[cold]
fn reallocate_early(old: *mut u8, size: usize, caller: usize) -> *mut u8 {
    // SAFETY: both blocks are at least that long, and distinct.
    unsafe {
        let block = malloc_entry(size, caller);
        if !block.is_null() {
            let length = early_size(old).min(size);
            core::ptr::copy_nonoverlapping(old, block, length);
        }
        block
    }
}

unsafe extern "C" fn free_entry(block: *mut u8, caller: usize) {
    release(Call::Free, block, caller);
}

unsafe extern "C" fn free_sized_entry(block: *mut u8, _size: usize, caller: usize) {
    release(Call::Free, block, caller);
}

unsafe extern "C" fn free_aligned_sized_entry(
    block: *mut u8,
    _align: usize,
    _size: usize,
    caller: usize,
) {
    release(Call::Free, block, caller);
}

/// Gives a block back.
#[inline(always)]
pub fn release(call: Call, block: *mut u8, caller: usize) {
    if counting::is_on() {
        // SAFETY: forwarded as the program asked.
        return unsafe { counted::free(block) };
    }
    if block.is_null() {
        return thread::free_null();
    }
    if !is_early(block) {
        // SAFETY: as above.
        unsafe { thread::release(call, block, caller, next().free) }
    }
}

unsafe extern "C" fn memalign_entry(align: usize, size: usize, caller: usize) -> *mut u8 {
    if counting::is_on() {
        return counted::memalign(align, size, caller);
    }
    // SAFETY: forwarded as the program asked.
    let block = unsafe { (next().memalign)(align, size) };
    record(Call::Memalign, block, size, align, caller, next().sizes.memalign)
}

unsafe extern "C" fn aligned_alloc_entry(align: usize, size: usize, caller: usize) -> *mut u8 {
    if counting::is_on() {
        return counted::aligned_alloc(align, size, caller);
    }
    // SAFETY: forwarded as the program asked.
    let block = unsafe { (next().aligned_alloc)(align, size) };
    record(Call::AlignedAlloc, block, size, align, caller, next().sizes.aligned_alloc)
}

unsafe extern "C" fn posix_memalign_entry(
    out: *mut *mut u8,
    align: usize,
    size: usize,
    caller: usize,
) -> c_int {
    if counting::is_on() {
        // SAFETY: forwarded as the program asked.
        return unsafe { counted::posix_memalign(out, align, size, caller) };
    }
    // SAFETY: forwarded as the program asked; `out` is written when the call succeeds.
    let (error, block) = unsafe {
        let error = (next().posix_memalign)(out, align, size);
        (error, if error == 0 { *out } else { core::ptr::null_mut() })
    };
    let ask = next().sizes.posix_memalign;
    let kept = record(Call::PosixMemalign, block, size, align, caller, ask);
    if kept.is_null() && error == 0 { ENOMEM } else { error }
}

unsafe extern "C" fn valloc_entry(size: usize, caller: usize) -> *mut u8 {
    if counting::is_on() {
        return counted::valloc(size, caller);
    }
    // SAFETY: forwarded as the program asked.
    let block = unsafe { (next().valloc)(size) };
    record(Call::Valloc, block, size, 0, caller, next().sizes.valloc)
}

unsafe extern "C" fn pvalloc_entry(size: usize, caller: usize) -> *mut u8 {
    if counting::is_on() {
        return counted::pvalloc(size, caller);
    }
    // SAFETY: forwarded as the program asked.
    let block = unsafe { (next().pvalloc)(size) };
    record(Call::Pvalloc, block, size, 0, caller, next().sizes.pvalloc)
}

/// `malloc_usable_size` of the allocator that the block is from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut u8) -> usize {
    if is_early(block) {
        return early_size(block);
    }
    // SAFETY: forwarded as the program asked.
    unsafe { (next().usable_size)(block) }
}
