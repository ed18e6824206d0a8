//! The list of mapped modules, with build ids, so that a caller's address has a name later: at first all
//! of them, then what is new and what is gone.
//!
//! Listed in the constructor, around `dlclose`, at the next `dlopen` after one, and at the end; never
//! in a hook of the allocator, since the loader's lock is taken.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use heaptape_wire::note::{MAX_TEXT, NoteKind};

use crate::data::Data;
use crate::{callstack, counting, executable, thread};

/// `struct dl_phdr_info` of <link.h>.
#[repr(C)]
pub struct Info {
    pub bias: usize,
    pub name: *const c_char,
    pub headers: *const Header,
    pub count: u16,
    added: u64,
    removed: u64,
}

impl Info {
    /// The module's table of segments.
    pub fn headers(&self) -> &[Header] {
        // SAFETY: the loader's table of program headers.
        unsafe { core::slice::from_raw_parts(self.headers, self.count as usize) }
    }

    /// Modules ever loaded and unloaded, all in one sum: a later look at the list has no smaller one. 0 where the
    /// loader does not tell.
    pub fn age(&self, size: usize) -> u64 {
        let is_there = size >= core::mem::offset_of!(Info, removed) + 8;
        if is_there { self.added.wrapping_add(self.removed) } else { 0 }
    }

    /// Modules ever loaded and unloaded, if the loader has told so much that it is there.
    pub fn generation(&self, size: usize) -> u64 {
        let is_there = size >= core::mem::offset_of!(Info, removed) + 8;
        if is_there { self.added.wrapping_add(self.removed << 32) } else { 0 }
    }
}

/// `Elf64_Phdr` of <elf.h>.
#[repr(C)]
pub struct Header {
    pub kind: u32,
    pub flags: u32,
    offset: u64,
    pub address: u64,
    physical: u64,
    file_size: u64,
    pub memory_size: u64,
    align: u64,
}

pub const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const BUILD_ID_BYTES: usize = 20;

unsafe extern "C" {
    pub fn dl_iterate_phdr(
        visit: unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// Modules ever loaded and unloaded, when the list was last written.
static SEEN: AtomicU64 = AtomicU64::new(u64::MAX);

/// What has been listed, in the loader's order: what each module is known by, and its lowest address.
/// The loader adds at the end, so what is new stands behind what is old. Written under its lock.
struct Listed {
    count: AtomicUsize,
    modules: [(AtomicU64, AtomicU64); REMEMBERED],
}

/// With more modules than that all are listed each time.
const REMEMBERED: usize = 2048;

static LISTED: Listed = Listed {
    count: AtomicUsize::new(0),
    modules: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; REMEMBERED],
};

/// A look at the loader's list.
struct Look {
    generation: Option<u64>,
    /// Modules looked at.
    count: usize,
    /// Modules of the last list that were there before it, and that this look has passed.
    known: usize,
    passed: usize,
    /// Whether anything was written.
    differs: bool,
    /// Whether any is gone.
    has_gone: bool,
    data: Data,
}

/// Writes which modules are new and which are gone, if the list has changed since it was last written.
pub fn refresh() {
    let known = LISTED.count.load(Ordering::Relaxed);
    let mut look = Look {
        generation: None,
        count: 0,
        known,
        passed: 0,
        differs: false,
        has_gone: false,
        data: Data::default(),
    };
    // SAFETY: the callback only reads what the loader hands it.
    unsafe { dl_iterate_phdr(visit, (&raw mut look).cast()) };
    let Some(generation) = look.generation else { return };
    look.pass(look.known);
    LISTED.count.store(if look.count > REMEMBERED { 0 } else { look.count }, Ordering::Relaxed);
    SEEN.store(generation, Ordering::Relaxed);
    if look.has_gone {
        callstack::modules_gone();
    }
    if counting::is_on() {
        look.data.charge();
    }
    match look.known {
        0 => thread::note(NoteKind::ModulesEnd, 0, &[], &[]),
        _ if look.differs => thread::note(NoteKind::ModulesEnd, 0, &[1], &[]),
        _ => {}
    }
}

/// The next list is written in any case: the process is a new one, or somebody waits for a list.
pub fn forget() {
    SEEN.store(u64::MAX, Ordering::Relaxed);
    LISTED.count.store(0, Ordering::Relaxed);
}

unsafe extern "C" fn visit(info: *const Info, size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader's and our own structures.
    let (info, look) = unsafe { (&*info, &mut *data.cast::<Look>()) };
    if look.generation.is_none() {
        let generation = info.generation(size);
        if generation == SEEN.load(Ordering::Relaxed) {
            return 1;
        }
        look.generation = Some(generation);
        look.data.begin(info.age(size));
    }
    look.module(info);
    0
}

impl Look {
    fn module(&mut self, info: &Info) {
        if counting::is_on() {
            self.data.add(info);
        }
        let (key, low) = (key(info), extent(info.headers()).map_or(0, |(low, _)| low));
        let mut rest = LISTED.modules[..self.known].iter().skip(self.passed);
        match rest.position(|(known, _)| known.load(Ordering::Relaxed) == key) {
            Some(gone) => self.pass(self.passed + gone),
            None => {
                self.pass(self.known);
                self.differs = true;
                describe(info, self.count == 0);
            }
        }
        self.passed = (self.passed + 1).min(self.known);
        // Never ahead of what is still to be passed: each that stands here was there before, or all are.
        if let Some((known, start)) = LISTED.modules.get(self.count) {
            known.store(key, Ordering::Relaxed);
            start.store((info.bias as u64).wrapping_add(low), Ordering::Relaxed);
        }
        self.count += 1;
    }

    /// The modules of the last list up to this one are gone.
    fn pass(&mut self, next: usize) {
        for (_, start) in LISTED.modules[..self.known].iter().take(next).skip(self.passed) {
            self.differs = true;
            self.has_gone = true;
            thread::note(NoteKind::ModuleGone, 0, &[start.load(Ordering::Relaxed)], &[]);
        }
        self.passed = self.passed.max(next);
    }
}

/// What a module is known by: its place and its name.
fn key(info: &Info) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let name = if info.name.is_null() {
        &[]
    } else {
        // SAFETY: the loader's name of the module, a C string.
        unsafe { CStr::from_ptr(info.name) }.to_bytes()
    };
    let bytes = (info.bias as u64).to_le_bytes().into_iter().chain(name.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// The lowest address of a module and the one behind its highest, without its bias; `None` for one without segments.
pub fn extent(headers: &[Header]) -> Option<(u64, u64)> {
    let loaded = || headers.iter().filter(|header| header.kind == PT_LOAD);
    let high = loaded().map(|header| header.address + header.memory_size).max()?;
    Some((loaded().map(|header| header.address).min()?, high))
}

/// Writes what a module is.
fn describe(info: &Info, is_first: bool) {
    let Some((low, high)) = extent(info.headers()) else { return };
    let mut text = [0u8; MAX_TEXT];
    let notes = info.headers().iter().filter(|header| header.kind == PT_NOTE);
    notes.for_each(|header| copy_build_id(info.bias, header, &mut text));
    let mut executable = [0u8; MAX_TEXT];
    let path = if info.name.is_null() {
        &[]
    } else {
        // SAFETY: the loader's name of the module, a C string.
        unsafe { CStr::from_ptr(info.name) }.to_bytes()
    };
    // The loader has no name for the executable; it comes first.
    let start = (info.bias as u64 + low) as usize;
    let path =
        if path.is_empty() && is_first { executable::path(start, &mut executable) } else { path };
    let mut length = BUILD_ID_BYTES + 1;
    for (to, &from) in text[length..].iter_mut().zip(path) {
        *to = from;
        length += 1;
    }
    if counting::is_on() && !is_first {
        counting::ledger().header().exempt.meet(path);
    }
    let bias = info.bias as u64;
    thread::note(NoteKind::Module, 0, &[bias, bias + low, bias + high], &text[..length]);
}

/// Puts the GNU build id of a note segment at the start of `text`, and its length behind it.
fn copy_build_id(bias: usize, header: &Header, text: &mut [u8; MAX_TEXT]) {
    const NT_GNU_BUILD_ID: u32 = 3;
    let start = (bias as u64 + header.address) as *const u8;
    let total = header.memory_size as usize;
    let mut at = 0;
    while at + 12 <= total {
        // SAFETY: within the note segment, which is mapped and readable.
        let word = |i: usize| unsafe { start.add(at + 4 * i).cast::<u32>().read_unaligned() };
        let (name, desc, kind) = (word(0) as usize, word(1) as usize, word(2));
        let body = at + 12 + name.next_multiple_of(4);
        if kind == NT_GNU_BUILD_ID && name == 4 && body + desc <= total {
            let length = desc.min(BUILD_ID_BYTES);
            for (i, to) in text[..length].iter_mut().enumerate() {
                // SAFETY: within the note segment.
                *to = unsafe { start.add(body + i).read() };
            }
            text[BUILD_ID_BYTES] = length as u8;
            return;
        }
        at = body + desc.next_multiple_of(4);
    }
}
