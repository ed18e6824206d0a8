//! The C++ operators: `new` is the malloc hook and, when there is no memory, the real `operator new`,
//! which calls the new-handler and throws; `delete` is the free hook.
//!
//! What `new` asks the allocator for is what libstdc++'s asks for, so that blocks keep the sizes and
//! addresses they would have had. The array, nothrow and sized forms are by default made of the
//! plain ones: where a program has replaced one of those, ours step aside, so that its own is called.

#![allow(non_snake_case)]

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use heaptape_wire::event::Call;

use crate::arch::{operator_new, with_caller};
use crate::hooks::{record, release};
use crate::next::{self, Late, next, symbol_of};
use crate::thread;

/// Forms of the operators that are made of one another.
struct Family {
    replaced: AtomicU32,
    names: &'static [&'static CStr],
}

impl Family {
    fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Relaxed) != 0
    }

    fn look_around(&self) {
        let is_foreign = |name: &&CStr| !is_ours(next::global(name));
        let replaced = self.names.iter().any(is_foreign);
        self.replaced.store(u32::from(replaced), Ordering::Relaxed);
    }
}

static PLAIN: Family = Family {
    replaced: AtomicU32::new(0),
    names: &[
        c"_Znwm",
        c"_Znam",
        c"_ZnwmRKSt9nothrow_t",
        c"_ZnamRKSt9nothrow_t",
        c"_ZdlPv",
        c"_ZdaPv",
        c"_ZdlPvm",
        c"_ZdaPvm",
        c"_ZdlPvRKSt9nothrow_t",
        c"_ZdaPvRKSt9nothrow_t",
    ],
};

static ALIGNED: Family = Family {
    replaced: AtomicU32::new(0),
    names: &[
        c"_ZnwmSt11align_val_t",
        c"_ZnamSt11align_val_t",
        c"_ZnwmSt11align_val_tRKSt9nothrow_t",
        c"_ZnamSt11align_val_tRKSt9nothrow_t",
        c"_ZdlPvSt11align_val_t",
        c"_ZdaPvSt11align_val_t",
        c"_ZdlPvmSt11align_val_t",
        c"_ZdaPvmSt11align_val_t",
        c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
        c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
    ],
};

/// Finds out which operators the program has replaced. Not for hooks.
pub fn look_around() {
    PLAIN.look_around();
    ALIGNED.look_around();
}

/// Whether an address lies in this library.
fn is_ours(address: usize) -> bool {
    unsafe extern "C" {
        // The linker's names for the two ends of this library.
        static __ehdr_start: u8;
        static _end: u8;
    }
    (&raw const __ehdr_start as usize..&raw const _end as usize).contains(&address)
}

fn allocate_plain(size: usize, _: usize) -> *mut u8 {
    // SAFETY: an allocation like any other; `new` of nothing is a block, too.
    unsafe { (next().malloc)(size.max(1)) }
}

fn allocate_aligned(size: usize, align: usize) -> *mut u8 {
    let whole = size.max(1).checked_next_multiple_of(align.max(1)).unwrap_or(usize::MAX);
    // SAFETY: as above.
    unsafe { (next().aligned_alloc)(align, whole) }
}

unsafe extern "C" fn plain(size: usize, _: usize, _: usize, caller: usize) -> *mut u8 {
    let block = allocate_plain(size, 0);
    record(Call::New, block, size, 0, caller);
    block
}

unsafe extern "C" fn aligned(size: usize, align: usize, _: usize, caller: usize) -> *mut u8 {
    let block = allocate_aligned(size, align);
    record(Call::New, block, size, align, caller);
    block
}

/// A form made of another: the real one takes over when the other is replaced, and when memory is
/// short. It then calls the other, which is where the failure is recorded.
unsafe extern "C" fn made_of_plain(size: usize, _: usize, _: usize, caller: usize) -> *mut u8 {
    if PLAIN.is_replaced() {
        return core::ptr::null_mut();
    }
    let block = allocate_plain(size, 0);
    if !block.is_null() {
        record(Call::New, block, size, 0, caller);
    }
    block
}

unsafe extern "C" fn made_of_aligned(
    size: usize,
    align: usize,
    _: usize,
    caller: usize,
) -> *mut u8 {
    if ALIGNED.is_replaced() {
        return core::ptr::null_mut();
    }
    let block = allocate_aligned(size, align);
    if !block.is_null() {
        record(Call::New, block, size, align, caller);
    }
    block
}

/// The next operator of a form; 0 when there is none.
fn real(operator: &Late) -> usize {
    match operator.address() {
        // The C++ library may have come with a plug-in and be in no global scope.
        0 => symbol_of(c"libstdc++.so.6", operator.name()),
        found => found,
    }
}

/// The next `operator new` of a form, to be entered in our place.
fn real_new(operator: &Late, is_base: bool) -> usize {
    let address = real(operator);
    if address == 0 {
        return no_operator as *const () as usize;
    }
    if is_base {
        thread::enter_new(address);
    }
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

/// An exported `operator new` with the function that finds the next of its form.
macro_rules! new {
    ($name:ident, $symbol:literal, $entry:path, $is_base:literal, $next:ident) => {
        unsafe extern "C" fn $next() -> usize {
            static REAL: Late = Late::new($symbol);
            real_new(&REAL, $is_base)
        }
        operator_new!($name, $entry, $next);
    };
}

new!(_Znwm, c"_Znwm", plain, true, next_0);
new!(_Znam, c"_Znam", made_of_plain, false, next_1);
new!(_ZnwmRKSt9nothrow_t, c"_ZnwmRKSt9nothrow_t", made_of_plain, false, next_2);
new!(_ZnamRKSt9nothrow_t, c"_ZnamRKSt9nothrow_t", made_of_plain, false, next_3);
new!(_ZnwmSt11align_val_t, c"_ZnwmSt11align_val_t", aligned, true, next_4);
new!(_ZnamSt11align_val_t, c"_ZnamSt11align_val_t", made_of_aligned, false, next_5);
new!(
    _ZnwmSt11align_val_tRKSt9nothrow_t,
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    made_of_aligned,
    false,
    next_6
);
new!(
    _ZnamSt11align_val_tRKSt9nothrow_t,
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    made_of_aligned,
    false,
    next_7
);

unsafe extern "C" fn delete(block: *mut u8, caller: usize) {
    release(Call::Delete, block, caller);
}

with_caller!(_ZdlPv, 1, delete);
with_caller!(_ZdlPvSt11align_val_t, 2, delete_aligned);

unsafe extern "C" fn delete_aligned(block: *mut u8, _: usize, caller: usize) {
    release(Call::Delete, block, caller);
}

/// An exported `operator delete` that is made of another: where that is replaced, the real one runs.
macro_rules! delete {
    ($name:ident, $count:tt, $symbol:literal, $family:expr, $entry:ident, ($($rest:ident),*)) => {
        unsafe extern "C" fn $entry(block: *mut u8, $($rest: usize,)* caller: usize) {
            static REAL: Late = Late::new($symbol);
            if $family.is_replaced() {
                let address = real(&REAL);
                if address != 0 {
                    // SAFETY: the next operator of this name takes these arguments.
                    return unsafe {
                        core::mem::transmute::<
                            usize,
                            unsafe extern "C" fn(*mut u8, $(delete!(@word $rest)),*),
                        >(address)(block, $($rest),*)
                    };
                }
            }
            release(Call::Delete, block, caller);
        }
        with_caller!($name, $count, $entry);
    };
    (@word $rest:ident) => { usize };
}

delete!(_ZdaPv, 1, c"_ZdaPv", PLAIN, delete_0, ());
delete!(_ZdlPvm, 2, c"_ZdlPvm", PLAIN, delete_1, (a));
delete!(_ZdaPvm, 2, c"_ZdaPvm", PLAIN, delete_2, (a));
delete!(_ZdlPvRKSt9nothrow_t, 2, c"_ZdlPvRKSt9nothrow_t", PLAIN, delete_3, (a));
delete!(_ZdaPvRKSt9nothrow_t, 2, c"_ZdaPvRKSt9nothrow_t", PLAIN, delete_4, (a));
delete!(_ZdaPvSt11align_val_t, 2, c"_ZdaPvSt11align_val_t", ALIGNED, delete_5, (a));
delete!(_ZdlPvmSt11align_val_t, 3, c"_ZdlPvmSt11align_val_t", ALIGNED, delete_6, (a, b));
delete!(_ZdaPvmSt11align_val_t, 3, c"_ZdaPvmSt11align_val_t", ALIGNED, delete_7, (a, b));
delete!(
    _ZdlPvSt11align_val_tRKSt9nothrow_t,
    3,
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    ALIGNED,
    delete_8,
    (a, b)
);
delete!(
    _ZdaPvSt11align_val_tRKSt9nothrow_t,
    3,
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
    ALIGNED,
    delete_9,
    (a, b)
);
