//! The functions behind ours: the allocator that the program would have used, and libc.
//!
//! They are looked up once, at the first call of any hook: before the constructors of libraries that
//! allocate, and after the loader has bound everything. What is asked for while the look-up runs is
//! served from a small static region that `free` recognises.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use heaptape_wire::process::Gap;

use crate::early::early;
use crate::following::{self, following};
use crate::{asking, owner, sanitizers};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

// The oldest version of dlsym: the default one of newer glibc would keep us from loading on older.
core::arch::global_asm!(".symver dlsym, dlsym@GLIBC_2.2.5");

const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
const RTLD_LAZY_NOLOAD: c_int = 1 | 4;

following! {
    /// libc's `dlopen`, behind ours.
    pub static DLOPEN = c"dlopen"
}

pub type Malloc = unsafe extern "C" fn(usize) -> *mut u8;
pub type Calloc = unsafe extern "C" fn(usize, usize) -> *mut u8;
pub type Realloc = unsafe extern "C" fn(*mut u8, usize) -> *mut u8;
pub type Free = unsafe extern "C" fn(*mut u8);
pub type Aligned = unsafe extern "C" fn(usize, usize) -> *mut u8;
pub type PosixMemalign = unsafe extern "C" fn(*mut *mut u8, usize, usize) -> c_int;
pub type UsableSize = unsafe extern "C" fn(*mut u8) -> usize;

/// The next allocator. Until it is looked up, every entry leads to the look-up.
pub struct Next {
    pub malloc: Malloc,
    pub calloc: Calloc,
    pub realloc: Realloc,
    pub free: Free,
    pub memalign: Aligned,
    pub aligned_alloc: Aligned,
    pub valloc: Malloc,
    pub pvalloc: Malloc,
    pub posix_memalign: PosixMemalign,
    /// `malloc_usable_size`, as the program calls it.
    pub usable_size: UsableSize,
    /// What a block of each function has, as we ask; 0 bytes where that can't be told.
    pub sizes: Sizes,
}

/// What tells how large a block is: of `malloc`, `calloc`, `realloc` and `operator new`, and of the
/// rarer functions, which may be of another library than these.
pub struct Sizes {
    pub malloc: UsableSize,
    pub memalign: UsableSize,
    pub aligned_alloc: UsableSize,
    pub valloc: UsableSize,
    pub pvalloc: UsableSize,
    pub posix_memalign: UsableSize,
}

impl Sizes {
    const fn all(size: UsableSize) -> Sizes {
        Sizes {
            malloc: size,
            memalign: size,
            aligned_alloc: size,
            valloc: size,
            pvalloc: size,
            posix_memalign: size,
        }
    }
}

struct Table(UnsafeCell<Next>);

// SAFETY: written once, by the thread that makes the first call, before there are others.
unsafe impl Sync for Table {}

static NEXT: Table = Table(UnsafeCell::new(Next {
    malloc: first_malloc,
    calloc: first_calloc,
    realloc: first_realloc,
    free: first_free,
    memalign: first_aligned,
    aligned_alloc: first_aligned,
    valloc: first_malloc,
    pvalloc: first_malloc,
    posix_memalign: first_posix_memalign,
    usable_size: first_usable_size,
    sizes: Sizes::all(no_size),
}));

/// The next allocator's functions.
#[inline(always)]
pub fn next() -> &'static Next {
    // SAFETY: see `Table`.
    unsafe { &*NEXT.0.get() }
}

const UNKNOWN: u32 = 0;
const LOOKING: u32 = 1;
const KNOWN: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Looks the next functions up, once. False while that is under way.
pub fn look_up() -> bool {
    match STATE.compare_exchange(UNKNOWN, LOOKING, Ordering::AcqRel, Ordering::Acquire) {
        Err(KNOWN) => return true,
        Err(_) => return false,
        Ok(_) => {}
    }
    let table = NEXT.0.get();
    macro_rules! find {
        ($field:ident, $name:literal, $type:ty) => {
            let found = symbol($name);
            // SAFETY: the symbol with this name has this type, in every libc and allocator; the table
            // is written before it is used (see `Table`).
            unsafe {
                (*table).$field = if found != 0 {
                    core::mem::transmute::<usize, $type>(found)
                } else {
                    core::mem::transmute::<Missing, $type>(missing)
                };
            }
        };
    }
    find!(malloc, c"malloc", Malloc);
    find!(calloc, c"calloc", Calloc);
    find!(realloc, c"realloc", Realloc);
    find!(free, c"free", Free);
    find!(memalign, c"memalign", Aligned);
    find!(aligned_alloc, c"aligned_alloc", Aligned);
    find!(valloc, c"valloc", Malloc);
    find!(pvalloc, c"pvalloc", Malloc);
    find!(posix_memalign, c"posix_memalign", PosixMemalign);
    find!(usable_size, c"malloc_usable_size", UsableSize);
    // SAFETY: as above; every field but this one is known now.
    unsafe { (*table).sizes = sizes(&*table) };
    crate::operators::look_around();
    following::look_up_all();
    // One that succeeds comes last: the loader then gives back, unseen like its making, the text that
    // it holds about one that failed.
    symbol(c"malloc");
    STATE.store(KNOWN, Ordering::Release);
    true
}

/// Whether nobody can be asked for the size of a block of `malloc`.
static SIZE_UNKNOWN: AtomicU32 = AtomicU32::new(0);

/// Who is asked for the sizes of the blocks of each function.
///
/// An allocator may lack some functions, and libc's serves those: each block's size is asked of the
/// library that it is from. A `malloc` whose library has no `malloc_usable_size` may put a header
/// before its blocks, so that nobody else's may be asked.
fn sizes(next: &Next) -> Sizes {
    let libc = owner::libc();
    let of_libc = |function: usize| libc.is_some_and(|libc| libc.holds(function));
    let own = owner::module_of(next.malloc as usize);
    if own.is_some_and(|own| sanitizers::is_runtime(own.path())) {
        return Sizes::all(no_size);
    }
    let own = own.filter(|own| own.holds(next.usable_size as usize));
    let size: UsableSize = match own {
        None => {
            SIZE_UNKNOWN.store(1, Ordering::Relaxed);
            no_size
        }
        Some(_) if of_libc(next.malloc as usize) => next.usable_size,
        Some(_) => ask_size,
    };
    let of = |function: usize| match own {
        Some(own) if own.holds(function) => size,
        _ if of_libc(function) => size_by_libc,
        _ => no_size,
    };
    Sizes {
        malloc: size,
        memalign: of(next.memalign as usize),
        aligned_alloc: of(next.aligned_alloc as usize),
        valloc: of(next.valloc as usize),
        pvalloc: of(next.pvalloc as usize),
        posix_memalign: of(next.posix_memalign as usize),
    }
}

/// The size of a block of an allocator that is not libc's.
unsafe extern "C" fn ask_size(block: *mut u8) -> usize {
    if asking::is_trusted() {
        // SAFETY: a live block.
        return unsafe { (next().usable_size)(block) };
    }
    // SAFETY: as above.
    asking::with_care(|| unsafe { (next().usable_size)(block) })
}

/// libc's `malloc_usable_size`, where libc is not the allocator but serves what that lacks.
static LIBC_SIZE: AtomicUsize = AtomicUsize::new(0);

/// From the constructor: looks up what may not be looked up earlier, since it may allocate, and an
/// allocator may be why the first look-up is made.
pub fn look_up_rest() {
    let sizes = &next().sizes;
    let all =
        [sizes.memalign, sizes.aligned_alloc, sizes.valloc, sizes.pvalloc, sizes.posix_memalign];
    if all.iter().any(|&size| core::ptr::fn_addr_eq(size, size_by_libc as UsableSize)) {
        let (found, _) = asking::unseen(|| symbol_of(c"libc.so.6", c"malloc_usable_size"));
        LIBC_SIZE.store(found, Ordering::Relaxed);
    }
}

/// The size of a block of libc's, where libc is not the allocator; not known before the constructor.
unsafe extern "C" fn size_by_libc(block: *mut u8) -> usize {
    match LIBC_SIZE.load(Ordering::Relaxed) {
        0 => 0,
        // SAFETY: the type of this function; a live block of libc's.
        found => unsafe { core::mem::transmute::<usize, UsableSize>(found)(block) },
    }
}

/// Why calls may pass this library by, and the module that makes them, if there is a reason.
pub fn gap() -> Option<(Gap, Option<owner::Module>)> {
    if let Some(other) = owner::earlier(c"malloc") {
        return Some((Gap::OtherFirst, owner::module_of(other)));
    }
    if let Some(tool) = owner::replacing_tool() {
        return Some((Gap::Replaced, Some(tool)));
    }
    let is_unknown = SIZE_UNKNOWN.load(Ordering::Relaxed) != 0;
    is_unknown.then(|| (Gap::SizeUnknown, owner::module_of(next().malloc as usize)))
}

following!(static VERSION = c"gnu_get_libc_version");

/// An address in the C library; 0 where that is not glibc.
pub fn in_glibc() -> usize {
    VERSION.address()
}

/// Whether the C library is glibc. Another one may load this library just as well, and then hands no
/// arguments to constructors, keeps its thread's words elsewhere, and so on: nothing is recorded there.
pub fn is_glibc() -> bool {
    in_glibc() != 0
}

/// The address of the next definition of a symbol; 0 when there is none. Not for hooks.
pub fn symbol(name: &CStr) -> usize {
    // SAFETY: a C string; dlsym may be called at any time after relocation.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr()) as usize }
}

/// The address that a symbol has for the program: the first definition, ours included. Not for hooks.
pub fn global(name: &CStr) -> usize {
    // SAFETY: as above.
    unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) as usize }
}

/// The address of a symbol of a library that is loaded already but perhaps in no global scope; 0
/// when there is none. Not for hooks.
pub fn symbol_of(library: &CStr, name: &CStr) -> usize {
    let dlopen = DLOPEN.address();
    if dlopen == 0 {
        return 0;
    }
    // SAFETY: the type of dlopen; RTLD_NOLOAD only finds what is there.
    unsafe {
        let dlopen: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
            core::mem::transmute(dlopen);
        let handle = dlopen(library.as_ptr(), RTLD_LAZY_NOLOAD);
        if handle.is_null() { 0 } else { dlsym(handle, name.as_ptr()) as usize }
    }
}

/// Sets errno, where a function of ours stands in for one that libc lacks or that failed before it.
pub fn set_errno(error: c_int) {
    // SAFETY: libc's own word of this thread.
    unsafe { *__errno_location() = error };
}

pub const ENOMEM: c_int = 12;
pub const ENOSYS: c_int = 38;

/// The size of a block whose allocator can't be asked, or hands out what was asked for to the byte.
unsafe extern "C" fn no_size(_: *mut u8) -> usize {
    0
}

type Missing = unsafe extern "C" fn() -> usize;

/// Stands for a function that the next allocator does not have: no block, size 0.
unsafe extern "C" fn missing() -> usize {
    0
}

unsafe extern "C" fn first_malloc(size: usize) -> *mut u8 {
    // SAFETY: the table leads to the real function once the look-up is done.
    if look_up() { unsafe { (next().malloc)(size) } } else { early(size) }
}

unsafe extern "C" fn first_calloc(count: usize, size: usize) -> *mut u8 {
    if look_up() {
        // SAFETY: as above.
        unsafe { (next().calloc)(count, size) }
    } else {
        count.checked_mul(size).map_or(core::ptr::null_mut(), early)
    }
}

unsafe extern "C" fn first_realloc(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: as above. (Blocks of the static region never come here.)
    if look_up() { unsafe { (next().realloc)(block, size) } } else { early(size) }
}

unsafe extern "C" fn first_free(block: *mut u8) {
    if look_up() {
        // SAFETY: as above.
        unsafe { (next().free)(block) }
    }
}

unsafe extern "C" fn first_aligned(align: usize, size: usize) -> *mut u8 {
    if look_up() {
        // SAFETY: as above.
        unsafe { (next().memalign)(align, size) }
    } else {
        core::ptr::null_mut()
    }
}

unsafe extern "C" fn first_posix_memalign(out: *mut *mut u8, align: usize, size: usize) -> c_int {
    // SAFETY: as above.
    if look_up() { unsafe { (next().posix_memalign)(out, align, size) } } else { ENOMEM }
}

unsafe extern "C" fn first_usable_size(block: *mut u8) -> usize {
    // SAFETY: as above.
    if look_up() { unsafe { (next().usable_size)(block) } } else { 0 }
}
