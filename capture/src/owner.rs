//! Whose a function is: the module that an address lies in, and whether another definition of a
//! symbol comes before ours.
//!
//! Asked once, when the next functions are looked up; the loader's lock is taken, so never in a hook.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::exported::Symbol;
use crate::following::following;
use crate::modules::{self, Header, Info, dl_iterate_phdr};
use crate::next::{global, in_glibc};

/// `Dl_info` of <dlfcn.h>.
#[repr(C)]
struct Place {
    module: *const c_char,
    base: usize,
    symbol: *const c_char,
    address: usize,
}

/// `Elf64_Ehdr` of <elf.h>, as far as it is read here.
#[repr(C)]
struct FileHeader {
    ident: [u8; 32],
    headers: u64,
    _rest: [u8; 16],
    count: u16,
}

/// Asks the loader about an address; the module, and the entry of the symbol there.
///
/// (`dl_iterate_phdr` may be wrapped by a sanitizer's runtime that is not ready for it.)
fn place_of(address: usize) -> Option<(Place, *const Symbol)> {
    const RTLD_DL_SYMENT: c_int = 1;
    type Ask = unsafe extern "C" fn(usize, *mut Place, *mut *const Symbol, c_int) -> c_int;
    following!(static DLADDR1 = c"dladdr1");
    let dladdr1 = DLADDR1.address();
    if dladdr1 == 0 {
        return None;
    }
    let null = core::ptr::null();
    let mut place = Place { module: null, base: 0, symbol: null, address: 0 };
    let mut entry = core::ptr::null();
    // SAFETY: the type of dladdr1, which writes into the two.
    let found = unsafe {
        let ask = core::mem::transmute::<usize, Ask>(dladdr1);
        ask(address, &raw mut place, &raw mut entry, RTLD_DL_SYMENT)
    };
    (found != 0 && place.base != 0).then_some((place, entry))
}

/// A mapped module.
#[derive(Clone, Copy)]
pub struct Module {
    base: usize,
    length: usize,
    name: *const c_char,
}

impl Module {
    /// Whether an address lies in it.
    pub fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.length
    }

    /// Where it begins, and its length.
    pub fn extent(&self) -> (usize, usize) {
        (self.base, self.length)
    }

    /// Its path; empty for the executable, whose name is the command's first word to the loader.
    pub fn path_later(&self, first_word: *const c_char) -> &[u8] {
        if self.name == first_word { &[] } else { self.path() }
    }

    /// Its path.
    pub fn path(&self) -> &[u8] {
        if self.name.is_null() {
            return &[];
        }
        // SAFETY: the loader's name of a module that is mapped, a C string.
        unsafe { CStr::from_ptr(self.name) }.to_bytes()
    }
}

/// The module that an address lies in.
pub fn module_of(address: usize) -> Option<Module> {
    let (place, _) = place_of(address)?;
    // SAFETY: a module begins with its ELF header, which leads to the program headers.
    let headers = unsafe {
        let file = &*(place.base as *const FileHeader);
        let headers = (place.base + file.headers as usize) as *const Header;
        core::slice::from_raw_parts(headers, file.count as usize)
    };
    let (low, high) = modules::extent(headers)?;
    Some(Module { base: place.base, length: (high - low) as usize, name: place.module })
}

/// The C library.
pub fn libc() -> Option<Module> {
    module_of(in_glibc())
}

/// The module of a tool that runs the program and puts functions of its own in the place of every
/// `malloc`: valgrind's tools do so, but for those that only count.
pub fn replacing_tool() -> Option<Module> {
    let mut found: Option<Module> = None;
    // SAFETY: the callback only reads what the loader hands it and writes what is ours.
    unsafe { dl_iterate_phdr(find_tool, (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn find_tool(info: *const Info, _: usize, data: *mut c_void) -> c_int {
    const TOOLS: &[u8] = b"/vgpreload_";
    const NO_TOOL: &[u8] = b"/vgpreload_core";
    // SAFETY: the loader's structure, and the one that was passed.
    let (info, found) = unsafe { (&*info, &mut *data.cast::<Option<Module>>()) };
    let module = Module { base: info.bias, length: 0, name: info.name };
    let holds = |part: &[u8]| module.path().windows(part.len()).any(|at| at == part);
    if !holds(TOOLS) || holds(NO_TOOL) {
        return 0;
    }
    *found = Some(module);
    1
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
    // SAFETY: the loader's entry of a symbol.
    place_of(address).is_some_and(|(_, entry)| unsafe { !entry.is_null() && (*entry).section == 0 })
}
