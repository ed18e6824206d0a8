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
use crate::following::Following;
use crate::hooks::{record, release, slack};
use crate::next::{UsableSize, next, symbol_of};
use crate::owner;
use crate::shortage::{self, OPERATOR_BYTES};
use crate::{counted, counting};

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
        let is_foreign = |name: &&CStr| owner::earlier(name).is_some();
        let replaced = are_bypassed() || self.names.iter().any(is_foreign);
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

/// Whether the program's `malloc` or `free` is not ours: then the C++ library's operators call those,
/// and ours step aside.
static BYPASSED: AtomicU32 = AtomicU32::new(0);

/// Whether the operators step aside.
pub fn are_bypassed() -> bool {
    BYPASSED.load(Ordering::Relaxed) != 0
}

/// Finds out which operators the program has replaced. Not for hooks.
pub fn look_around() {
    let is_bypassed = [c"malloc", c"free"].iter().any(|name| owner::earlier(name).is_some());
    BYPASSED.store(u32::from(is_bypassed), Ordering::Relaxed);
    PLAIN.look_around();
    ALIGNED.look_around();
}

/// What the plain forms ask for.
fn make_plain(size: usize, caller: usize) -> *mut u8 {
    if counting::is_on() {
        return counted::new(size, caller);
    }
    // SAFETY: an allocation like any other; `new` of nothing is a block, too.
    let block = unsafe { (next().malloc)(size.max(1)) };
    made(block, size, 0, caller, next().sizes.malloc)
}

/// What the aligned forms ask for.
fn make_aligned(size: usize, align: usize, caller: usize) -> *mut u8 {
    let whole = size.max(1).checked_next_multiple_of(align.max(1)).unwrap_or(usize::MAX);
    if counting::is_on() {
        return counted::new_aligned(size, align, whole, caller);
    }
    // SAFETY: as above.
    let block = unsafe { (next().aligned_alloc)(align, whole) };
    made(block, size, align, caller, next().sizes.aligned_alloc)
}

/// A failure is recorded once it is final (see [`shortage::enter`]).
fn made(block: *mut u8, size: usize, align: usize, caller: usize, ask: UsableSize) -> *mut u8 {
    if block.is_null() { block } else { record(Call::New, block, size, align, caller, ask) }
}

/// Leaves everything to the real operator.
const ASIDE: *mut u8 = core::ptr::null_mut();

/// The base forms.
unsafe extern "C" fn plain(size: usize, _: usize, _: usize, caller: usize) -> *mut u8 {
    if are_bypassed() { ASIDE } else { make_plain(size, caller) }
}

unsafe extern "C" fn aligned(size: usize, align: usize, _: usize, caller: usize) -> *mut u8 {
    if are_bypassed() { ASIDE } else { make_aligned(size, align, caller) }
}

/// The forms made of a base form: where that is replaced, they step aside.
unsafe extern "C" fn made_of_plain(size: usize, _: usize, _: usize, caller: usize) -> *mut u8 {
    if PLAIN.is_replaced() { ASIDE } else { make_plain(size, caller) }
}

unsafe extern "C" fn made_of_aligned(
    size: usize,
    align: usize,
    _: usize,
    caller: usize,
) -> *mut u8 {
    if ALIGNED.is_replaced() { ASIDE } else { make_aligned(size, align, caller) }
}

/// The next operator of a form; 0 when there is none.
fn real(operator: &Following) -> usize {
    match operator.address() {
        // The C++ library may have come with a plug-in and be in no global scope.
        0 => symbol_of(c"libstdc++.so.6", operator.name()),
        found => found,
    }
}

/// The next `operator new` of a form, to be entered in our place.
fn real_new(
    operator: &Following,
    family: &Family,
    size: usize,
    align: usize,
    caller: usize,
) -> usize {
    let address = match real(operator) {
        // An allocator's own would take the memory that was refused, without a call that we see.
        found if counting::is_on() && is_allocators(found) => of_runtime(operator),
        found => found,
    };
    if address == 0 {
        return no_operator as *const () as usize;
    }
    if !family.is_replaced() {
        find_exception_maker();
        shortage::enter(code_of(address), size, align, caller);
    }
    address
}

/// Whether an operator is the allocator's own.
fn is_allocators(operator: usize) -> bool {
    let allocator = owner::module_of(next().malloc as usize);
    operator != 0 && allocator.is_some_and(|allocator| allocator.holds(operator))
}

/// The operator of the C++ library, which calls `malloc`, the new-handler, and throws.
fn of_runtime(operator: &Following) -> usize {
    const RUNTIMES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++.so.1"];
    let all = RUNTIMES.iter().map(|library| symbol_of(library, operator.name()));
    all.into_iter().find(|&found| found != 0 && !is_allocators(found)).unwrap_or(0)
}

/// Where the calls of an operator come from: one of the C++ library's is a small function, one of the
/// allocator's own may call `malloc` from anywhere in there.
fn code_of(operator: usize) -> (usize, usize) {
    let allocator = owner::module_of(next().malloc as usize);
    match allocator.filter(|allocator| allocator.holds(operator)) {
        Some(allocator) => allocator.extent(),
        None => (operator, OPERATOR_BYTES),
    }
}

/// The real `operator new` has returned. One that is not the C++ library's may have made the block, or
/// given up, without a call that we see.
unsafe extern "C" fn after_real(block: *mut u8) -> *mut u8 {
    shortage::exit(block as u64, |size| slack(block, size, next().sizes.malloc));
    block
}

/// Memory is short already, so the look-up costs nothing that matters.
fn find_exception_maker() {
    static MAKER: Following = Following::later(c"__cxa_allocate_exception");
    shortage::EXCEPTION_MAKER.store(real(&MAKER), Ordering::Relaxed);
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
    ($name:ident, $symbol:literal, $entry:path, $family:expr, $next:ident) => {
        unsafe extern "C" fn $next(size: usize, align: usize, _: usize, caller: usize) -> usize {
            static REAL: Following = Following::later($symbol);
            let align = if core::ptr::eq(&$family, &ALIGNED) { align } else { 0 };
            real_new(&REAL, &$family, size, align, caller)
        }
        operator_new!($name, $entry, $next, after_real);
    };
}

new!(_Znwm, c"_Znwm", plain, PLAIN, next_0);
new!(_Znam, c"_Znam", made_of_plain, PLAIN, next_1);
new!(_ZnwmRKSt9nothrow_t, c"_ZnwmRKSt9nothrow_t", made_of_plain, PLAIN, next_2);
new!(_ZnamRKSt9nothrow_t, c"_ZnamRKSt9nothrow_t", made_of_plain, PLAIN, next_3);
new!(_ZnwmSt11align_val_t, c"_ZnwmSt11align_val_t", aligned, ALIGNED, next_4);
new!(_ZnamSt11align_val_t, c"_ZnamSt11align_val_t", made_of_aligned, ALIGNED, next_5);
new!(
    _ZnwmSt11align_val_tRKSt9nothrow_t,
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    made_of_aligned,
    ALIGNED,
    next_6
);
new!(
    _ZnamSt11align_val_tRKSt9nothrow_t,
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    made_of_aligned,
    ALIGNED,
    next_7
);

/// An exported `operator delete`. Where `$aside` says so (a base form: the program has a `free` of its
/// own; another: the form that it is made of is replaced), the real one runs.
macro_rules! delete {
    ($name:ident, $count:tt, $symbol:literal, $aside:expr, $entry:ident, ($($rest:ident),*)) => {
        unsafe extern "C" fn $entry(block: *mut u8, $($rest: usize,)* caller: usize) {
            static REAL: Following = Following::later($symbol);
            if $aside {
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

delete!(_ZdlPv, 1, c"_ZdlPv", are_bypassed(), delete_base, ());
delete!(_ZdlPvSt11align_val_t, 2, c"_ZdlPvSt11align_val_t", are_bypassed(), delete_aligned, (a));
delete!(_ZdaPv, 1, c"_ZdaPv", PLAIN.is_replaced(), delete_0, ());
delete!(_ZdlPvm, 2, c"_ZdlPvm", PLAIN.is_replaced(), delete_1, (a));
delete!(_ZdaPvm, 2, c"_ZdaPvm", PLAIN.is_replaced(), delete_2, (a));
delete!(_ZdlPvRKSt9nothrow_t, 2, c"_ZdlPvRKSt9nothrow_t", PLAIN.is_replaced(), delete_3, (a));
delete!(_ZdaPvRKSt9nothrow_t, 2, c"_ZdaPvRKSt9nothrow_t", PLAIN.is_replaced(), delete_4, (a));
delete!(_ZdaPvSt11align_val_t, 2, c"_ZdaPvSt11align_val_t", ALIGNED.is_replaced(), delete_5, (a));
delete!(
    _ZdlPvmSt11align_val_t,
    3,
    c"_ZdlPvmSt11align_val_t",
    ALIGNED.is_replaced(),
    delete_6,
    (a, b)
);
delete!(
    _ZdaPvmSt11align_val_t,
    3,
    c"_ZdaPvmSt11align_val_t",
    ALIGNED.is_replaced(),
    delete_7,
    (a, b)
);
delete!(
    _ZdlPvSt11align_val_tRKSt9nothrow_t,
    3,
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    ALIGNED.is_replaced(),
    delete_8,
    (a, b)
);
delete!(
    _ZdaPvSt11align_val_tRKSt9nothrow_t,
    3,
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
    ALIGNED.is_replaced(),
    delete_9,
    (a, b)
);
