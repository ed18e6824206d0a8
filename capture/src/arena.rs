//! What is mapped: the arena, which the processes of the session share, and a region of the process's own.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use heaptape_wire::chunk::{LARGE_BYTES, SMALL_PER_EXTENT};
use heaptape_wire::ledger::{
    ACCOUNT_BYTES, ACCOUNTS_AT, LEDGER_AT, LEDGER_BYTES, SHEET_BYTES, SHEETS, SHEETS_AT,
};
use heaptape_wire::process::{Proof, SLOT_BYTES, SLOTS, THREADS};
use heaptape_wire::session::{ARENA_BYTES, Arena, EXTENTS_AT, SLOTS_AT, Session, Why};

use crate::arch::{self, syscall};
use crate::slot::ThreadSlot;
use crate::{counting, zeros};

/// The private region: one page of state and the thread slots. The kernel wipes it in a child.
#[repr(C, align(4096))]
pub struct Private {
    /// 1 in the process that registered.
    pub registered: AtomicU32,
    pub next_thread: AtomicU32,
    /// What the collector knows this process by where nothing else tells.
    pub proof: Proof,
    _pad: [u64; 509],
    threads: [ThreadSlot; THREADS],
}

static ARENA: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static PRIVATE: AtomicPtr<Private> = AtomicPtr::new(core::ptr::null_mut());

/// The memory that the processes of the session share. Only while recording.
#[inline(always)]
pub fn arena() -> Arena {
    // SAFETY: only called while recording, when the arena is mapped; it is never unmapped.
    unsafe { Arena::new(ARENA.load(Ordering::Relaxed)) }
}

/// The private region. Only while recording.
pub fn private() -> &'static Private {
    // SAFETY: mapped before the process began to record.
    unsafe { &*PRIVATE.load(Ordering::Relaxed) }
}

/// The place of a thread's slot. Only while recording.
pub fn thread_place(number: usize) -> *mut ThreadSlot {
    // SAFETY: as above; the place is in the region.
    unsafe {
        (&raw mut (*PRIVATE.load(Ordering::Relaxed)).threads)
            .cast::<ThreadSlot>()
            .add(number.min(THREADS - 1))
    }
}

/// The session clock in milliseconds. Only for threads that have a slot.
#[inline(always)]
pub fn clock() -> u32 {
    arena().session().clock()
}

/// What is mapped, as start and length: what processes share, and what is the process's own. Only while
/// covered.
pub fn mapped() -> ([(usize, usize); 2], (usize, usize)) {
    let private = PRIVATE.load(Ordering::Relaxed) as usize;
    let ledger = match counting::is_on() {
        true => (counting::ledger().base() as usize, LEDGER_BYTES),
        false => (0, 0),
    };
    ([(arena().base() as usize, ARENA_BYTES), ledger], (private, size_of::<Private>()))
}

/// Parts of the arena in which nothing is offered yet, nor will be within the next moments. Only while
/// covered.
pub fn unused() -> [(usize, usize); 4] {
    /// Process slots and chunks that may be offered meanwhile, at the most.
    const SOON_SLOTS: usize = 256;
    const SOON: (usize, usize) = (SOON_SLOTS * SLOT_BYTES, 64 * LARGE_BYTES);
    let session = arena().session();
    let word = |word: &AtomicU32| word.load(Ordering::Acquire) as usize;
    let slots = SLOTS_AT + word(&session.slots_ready) * SLOT_BYTES + SOON.0;
    let smalls = word(&session.small_end).div_ceil(SMALL_PER_EXTENT);
    let chunks = EXTENTS_AT + word(&session.large_end).max(smalls) * LARGE_BYTES + SOON.1;
    let base = arena().base() as usize;
    [
        (base + slots, EXTENTS_AT.saturating_sub(slots)),
        (base + chunks, ARENA_BYTES.saturating_sub(chunks)),
        unused_of_ledger(ACCOUNTS_AT, word(&session.slots_ready) + SOON_SLOTS, SLOTS),
        unused_of_ledger(SHEETS_AT, sheets_ready() + SOON_SLOTS, SHEETS),
    ]
}

fn sheets_ready() -> usize {
    if counting::is_on() {
        counting::ledger().header().sheets_ready.load(Ordering::Acquire) as usize
    } else {
        0
    }
}

/// The rest of one of the ledger's tables, which begins at `table`, from the place `from` on.
fn unused_of_ledger(table: usize, from: usize, places: usize) -> (usize, usize) {
    let bytes = if table == SHEETS_AT { SHEET_BYTES } else { ACCOUNT_BYTES };
    let left = places.saturating_sub(from) * bytes;
    match counting::is_on() {
        // The tables are of whole pages, and so are their places.
        true => (counting::ledger().base() as usize + table + from * bytes, left),
        false => (0, 0),
    }
}

/// Opens the session's file.
///
/// # Safety
/// As opening that file is.
pub unsafe fn open(path: &CStr) -> isize {
    const AT_FDCWD: usize = -100isize as usize;
    const O_RDWR_CLOEXEC: usize = 0o2000002;
    // As the loader opens files: a filter that came with the process lets that through.
    let open = [AT_FDCWD, path.as_ptr() as usize, O_RDWR_CLOEXEC, 0, 0, 0];
    // SAFETY: as promised.
    unsafe { syscall(arch::SYS_OPENAT, open) }
}

/// Whether the session's file is one of a counted job, and whether stacks are wanted in it.
pub fn what_is_wanted(path: &CStr) -> (bool, bool) {
    let mut words = [0u32; 2];
    // SAFETY: reads two words of the file.
    unsafe {
        let fd = open(path);
        if fd < 0 {
            return (false, false);
        }
        for (word, at) in words.iter_mut().zip([Session::COUNTS_AT, Session::STACKS_AT]) {
            let read = [fd as usize, word as *mut u32 as usize, size_of::<u32>(), at, 0, 0];
            syscall(arch::SYS_PREAD64, read);
        }
        syscall(arch::SYS_CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
    }
    (words[0] != 0, words[1] != 0)
}

/// Why a system call, which answered so, keeps this process from being recorded.
fn refused(call: usize, answer: isize) -> Option<Why> {
    Some(Why::Call { number: call as u32, error: answer.unsigned_abs() as u32 })
}

/// Maps the session's file. An error without a reason is that of a session that is over, or of another
/// version.
pub fn map_arena(path: &CStr) -> Result<(), Option<Why>> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_SHARED: usize = 1;
    const MADV_DONTDUMP: usize = 16;
    // SAFETY: opens and maps a file; nothing of the program's is touched, and the descriptor is
    // closed again.
    unsafe {
        let fd = open(path);
        if fd < 0 {
            return Err(None);
        }
        let map = |bytes: usize, at: usize| {
            syscall(arch::SYS_MMAP, [0, bytes, PROT_READ_WRITE, MAP_SHARED, fd as usize, at])
        };
        let unmap = |base, bytes| syscall(arch::SYS_MUNMAP, [base, bytes, 0, 0, 0, 0]);
        let close = || syscall(arch::SYS_CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
        let base = map(ARENA_BYTES, 0);
        if (-4095..0).contains(&base) {
            close();
            return Err(refused(arch::SYS_MMAP, base));
        }
        let arena = Arena::new(base as *mut u8);
        let is_joinable = arena.session().is_joinable() && !arena.session().is_orphaned();
        let counts = is_joinable && arena.session().is_counting();
        let ledger = if counts { map(LEDGER_BYTES, LEDGER_AT) } else { 0 };
        close();
        if !is_joinable || (-4095..0).contains(&ledger) {
            unmap(base as usize, ARENA_BYTES);
            return Err(if is_joinable { refused(arch::SYS_MMAP, ledger) } else { None });
        }
        syscall(arch::SYS_MADVISE, [base as usize, ARENA_BYTES, MADV_DONTDUMP, 0, 0, 0]);
        ARENA.store(base as *mut u8, Ordering::Release);
        if counts {
            let ledger = ledger as usize;
            syscall(arch::SYS_MADVISE, [ledger, LEDGER_BYTES, MADV_DONTDUMP, 0, 0, 0]);
            if !counting::begin(ledger as *mut u8) {
                unmap(ledger, LEDGER_BYTES);
                unmap(base as usize, ARENA_BYTES);
                return Err(None);
            }
        }
    }
    Ok(())
}

/// Maps the private region, after the arena, which goes again where this is not possible.
pub fn map_private() -> Result<(), Option<Why>> {
    match zeros::map_wiped(size_of::<Private>()) {
        Ok(base) => PRIVATE.store(base.cast(), Ordering::Release),
        Err((call, answer)) => {
            let arena = ARENA.load(Ordering::Relaxed) as usize;
            // SAFETY: the mapping that came before, which nobody uses yet.
            unsafe { syscall(arch::SYS_MUNMAP, [arena, ARENA_BYTES, 0, 0, 0, 0]) };
            return Err(refused(call, answer));
        }
    }
    Ok(())
}
