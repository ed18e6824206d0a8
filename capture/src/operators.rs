//! The C++ operators: `new` is the malloc hook and, when there is no memory, the real `operator new`,
//! which calls the new-handler and throws; `delete` is the free hook.
//!
//! What `new` asks the allocator for is what libstdc++'s asks for, so that blocks keep the sizes and
//! addresses they would have had.

#![allow(non_snake_case)]

use core::ffi::c_int;

use heaptape_wire::event::Call;

use crate::arch::{operator_new, with_caller};
use crate::hooks::{record, release};
use crate::next::{Late, next, symbol_of};
use crate::thread;

unsafe extern "C" fn plain(size: usize, _: usize, _: usize, caller: usize) -> *mut u8 {
    // SAFETY: an allocation like any other; `new` of nothing is a block, too.
    let block = unsafe { (next().malloc)(size.max(1)) };
    record(Call::New, block, size, 0, caller);
    block
}

unsafe extern "C" fn aligned(size: usize, align: usize, _: usize, caller: usize) -> *mut u8 {
    let whole = size.max(1).checked_next_multiple_of(align.max(1)).unwrap_or(usize::MAX);
    // SAFETY: as above.
    let block = unsafe { (next().aligned_alloc)(align, whole) };
    record(Call::New, block, size, align, caller);
    block
}

/// The next `operator new` of this form, to be entered because memory is short.
fn real(operator: &Late) -> usize {
    let address = match operator.address() {
        // The C++ library may have come with a plug-in and be in no global scope.
        0 => symbol_of(c"libstdc++.so.6", operator.name()),
        found => found,
    };
    if address == 0 {
        return no_operator as *const () as usize;
    }
    thread::enter_new(address);
    address
}

/// There is no C++ library to throw `bad_alloc`: the program ends as an uncaught one would end it.
unsafe extern "C" fn no_operator() -> *mut u8 {
    const SIGABRT: c_int = 6;
    unsafe extern "C" {
        fn raise(signal: c_int) -> c_int;
    }
    // SAFETY: plain libc.
    unsafe { raise(SIGABRT) };
    core::ptr::null_mut()
}

/// One exported operator with the function that finds the next of its form.
macro_rules! operator {
    ($name:ident, $symbol:literal, $entry:path, $next:ident) => {
        unsafe extern "C" fn $next() -> usize {
            static REAL: Late = Late::new($symbol);
            real(&REAL)
        }
        operator_new!($name, $entry, $next);
    };
}

operator!(_Znwm, c"_Znwm", plain, next_0);
operator!(_Znam, c"_Znam", plain, next_1);
operator!(_ZnwmRKSt9nothrow_t, c"_ZnwmRKSt9nothrow_t", plain, next_2);
operator!(_ZnamRKSt9nothrow_t, c"_ZnamRKSt9nothrow_t", plain, next_3);
operator!(_ZnwmSt11align_val_t, c"_ZnwmSt11align_val_t", aligned, next_4);
operator!(_ZnamSt11align_val_t, c"_ZnamSt11align_val_t", aligned, next_5);
operator!(
    _ZnwmSt11align_val_tRKSt9nothrow_t,
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    aligned,
    next_6
);
operator!(
    _ZnamSt11align_val_tRKSt9nothrow_t,
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    aligned,
    next_7
);

unsafe extern "C" fn delete(block: *mut u8, caller: usize) {
    release(Call::Delete, block, caller);
}

unsafe extern "C" fn delete_2(block: *mut u8, _: usize, caller: usize) {
    release(Call::Delete, block, caller);
}

unsafe extern "C" fn delete_3(block: *mut u8, _: usize, _: usize, caller: usize) {
    release(Call::Delete, block, caller);
}

with_caller!(_ZdlPv, 1, delete);
with_caller!(_ZdaPv, 1, delete);
with_caller!(_ZdlPvm, 2, delete_2);
with_caller!(_ZdaPvm, 2, delete_2);
with_caller!(_ZdlPvRKSt9nothrow_t, 2, delete_2);
with_caller!(_ZdaPvRKSt9nothrow_t, 2, delete_2);
with_caller!(_ZdlPvSt11align_val_t, 2, delete_2);
with_caller!(_ZdaPvSt11align_val_t, 2, delete_2);
with_caller!(_ZdlPvmSt11align_val_t, 3, delete_3);
with_caller!(_ZdaPvmSt11align_val_t, 3, delete_3);
with_caller!(_ZdlPvSt11align_val_tRKSt9nothrow_t, 3, delete_3);
with_caller!(_ZdaPvSt11align_val_tRKSt9nothrow_t, 3, delete_3);
