//! Whose a function is: the module that an address lies in, and whether another definition of a
//! symbol comes before ours.
//!
//! Asked once, when the next functions are looked up; the loader's lock is taken, so never in a hook.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::modules::{Info, PT_LOAD, dl_iterate_phdr};
use crate::next::{global, symbol};

/// A mapped module.
#[derive(Clone, Copy)]
pub struct Module {
    low: usize,
    high: usize,
    name: *const c_char,
}

impl Module {
    /// Whether an address lies in it.
    pub fn holds(&self, address: usize) -> bool {
        (self.low..self.high).contains(&address)
    }

    /// Where it begins, and its length.
    pub fn extent(&self) -> (usize, usize) {
        (self.low, self.high - self.low)
    }

    /// Its path; empty for the executable.
    pub fn path(&self) -> &[u8] {
        if self.name.is_null() {
            return &[];
        }
        // SAFETY: the loader's name of a module that is mapped, a C string.
        unsafe { CStr::from_ptr(self.name) }.to_bytes()
    }
}

/// The first module that satisfies a condition.
fn find(mut is_it: impl FnMut(&Module) -> bool) -> Option<Module> {
    let mut search: Search<'_> = (None, &mut is_it);
    // SAFETY: the callback only reads what the loader hands it and writes what is ours.
    unsafe { dl_iterate_phdr(visit, (&raw mut search).cast()) };
    search.0
}

type Search<'a> = (Option<Module>, &'a mut dyn FnMut(&Module) -> bool);

unsafe extern "C" fn visit(info: *const Info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader's structure, and the one that `find` passed.
    let (info, (found, is_it)) = unsafe { (&*info, &mut *data.cast::<Search<'_>>()) };
    let (mut low, mut high) = (usize::MAX, 0);
    for i in 0..info.count as usize {
        // SAFETY: the loader's table of program headers.
        let header = unsafe { &*info.headers.add(i) };
        if header.kind == PT_LOAD {
            let start = info.bias.wrapping_add(header.address as usize);
            low = low.min(start);
            high = high.max(start.wrapping_add(header.memory_size as usize));
        }
    }
    let module = Module { low, high, name: info.name };
    if is_it(&module) {
        *found = Some(module);
        return 1;
    }
    0
}

/// The module that an address lies in.
pub fn module_of(address: usize) -> Option<Module> {
    find(|module| module.holds(address))
}

/// The C library.
pub fn libc() -> Option<Module> {
    module_of(symbol(c"gnu_get_libc_version"))
}

/// The module of a tool that runs the program and puts functions of its own in the place of every
/// `malloc`: valgrind's tools do so, but for those that only count.
pub fn replacing_tool() -> Option<Module> {
    const TOOLS: &[u8] = b"/vgpreload_";
    const NO_TOOL: &[u8] = b"/vgpreload_core";
    find(|module| {
        let holds = |part: &[u8]| module.path().windows(part.len()).any(|at| at == part);
        holds(TOOLS) && !holds(NO_TOOL)
    })
}

/// Whether an address lies in this library.
pub fn is_ours(address: usize) -> bool {
    unsafe extern "C" {
        // The linker's names for the two ends of this library.
        static __ehdr_start: u8;
        static _end: u8;
    }
    (&raw const __ehdr_start as usize..&raw const _end as usize).contains(&address)
}

/// The definition of a symbol that comes before ours for the program, if there is one.
pub fn earlier(name: &CStr) -> Option<usize> {
    let first = global(name);
    (first != 0 && !is_ours(first) && !is_stub(first)).then_some(first)
}

/// Whether an address is no function, but stands for one in an executable that was linked to a fixed
/// place and takes the function's address: the executable's own jump to it.
fn is_stub(address: usize) -> bool {
    const RTLD_DL_SYMENT: c_int = 1;
    type Ask = unsafe extern "C" fn(usize, *mut [usize; 4], *mut *const Symbol, c_int) -> c_int;
    let dladdr1 = symbol(c"dladdr1");
    if dladdr1 == 0 {
        return false;
    }
    let (mut place, mut entry) = ([0; 4], core::ptr::null());
    // SAFETY: the type of dladdr1; it writes a `Dl_info`, four words, and the entry of the symbol.
    unsafe {
        let ask = core::mem::transmute::<usize, Ask>(dladdr1);
        ask(address, &raw mut place, &raw mut entry, RTLD_DL_SYMENT) != 0
            && !entry.is_null()
            && (*entry).section == 0
    }
}

/// `Elf64_Sym` of <elf.h>.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    /// 0 for a symbol that is not defined here.
    section: u16,
    value: u64,
    size: u64,
}
