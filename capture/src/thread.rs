//! A thread's place to write: its slot, its chunk, and one record after another.
//!
//! A [`ThreadSlot`] lies in memory that the kernel wipes in a forked child, so a child's first record
//! finds no room and goes the slow way, where the child makes itself known. While a record is being
//! written the slot has no room either, so a signal handler that calls the allocator just then is
//! counted as dropped and disturbs nothing.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use heaptape_wire::chunk::{self, ChunkHeader, HEADER_BYTES, LARGE_BYTES, Owner, SMALL_BYTES};
use heaptape_wire::event::{
    self, Allocation, Call, MAX_EVENT_WORDS, Put, put_realloc_begin, put_reallocation, put_release,
    put_time,
};
use heaptape_wire::note::{self, NoteKind};

use crate::arch;
use crate::lifecycle::{self, STATE};
use crate::next::next;
use crate::owner;

/// What a thread needs to write the next record.
#[repr(C, align(64))]
pub struct ThreadSlot {
    /// Where the next record goes.
    cursor: *mut u64,
    /// Bytes left, plus 4; 0 while a record is being written and before the first chunk.
    room: usize,
    chunk: *const ChunkHeader,
    /// Bytes written in the chunks before this one.
    first: u64,
    /// The session clock at the last record.
    time: u32,
    /// The kernel's number of the thread; 0 while the slot is blank.
    tid: u32,
    /// The `operator new` that this thread is in because memory was short.
    short: ShortOfMemory,
    number: u16,
}

/// A call of `operator new` whose first try failed. The real operator is in charge now; it tries again
/// as long as the new-handler makes room, and throws when there is none. One event in the end: the
/// success of a later try, or the failure once the exception is made.
#[derive(Clone, Copy)]
struct ShortOfMemory {
    /// Start of the real operator's code; 0 while there is no such call.
    operator: usize,
    /// How far it reaches.
    reach: usize,
    size: usize,
    align: usize,
    caller: usize,
}

impl ShortOfMemory {
    const NONE: ShortOfMemory =
        ShortOfMemory { operator: 0, reach: 0, size: 0, align: 0, caller: 0 };

    /// Whether a call is the real operator's. One that it makes by a jump seems to come from this
    /// library, which has called it.
    fn is_caller(&self, caller: u64) -> bool {
        let caller = caller as usize;
        caller.wrapping_sub(self.operator) < self.reach || owner::is_ours(caller)
    }
}

/// `room` is never a multiple of 8, so that a full chunk (4) is not mistaken for a busy slot (0).
const ROOM_MARK: usize = 4;
/// Room that an event needs at the most, with the record that moves the clock before it.
const EVENT_BYTES: usize = (MAX_EVENT_WORDS + 1) * 8;
/// Bytes of an operator in which its call of the allocator is looked for.
pub const OPERATOR_BYTES: usize = 512;

/// How the process stamps its events: not at all while it has one thread.
pub static STAMPING: AtomicU32 = AtomicU32::new(UNSTAMPED);
pub const UNSTAMPED: u32 = 0;
pub const BY_TSC: u32 = 1;
pub const BY_COUNTER: u32 = 2;

#[inline(always)]
fn stamp() -> Option<u64> {
    match STAMPING.load(Ordering::Relaxed) {
        UNSTAMPED => None,
        BY_TSC => Some(arch::stamp()),
        _ => Some(next_count()),
    }
}

#[cold]
fn next_count() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    COUNT.fetch_add(1, Ordering::SeqCst)
}

struct Cursor(*mut u64);

impl Put for Cursor {
    #[inline(always)]
    fn put(&mut self, word: u64) {
        // SAFETY: the slot had room for the longest record (see `ready`).
        unsafe {
            self.0.write(word);
            self.0 = self.0.add(1);
        }
    }
}

/// The thread's slot, if it has room for `bytes` and its clock is set; null where [`make_ready`] has
/// something to do first.
#[inline(always)]
fn ready_now(bytes: usize) -> *mut ThreadSlot {
    let slot = arch::thread_word() as *mut ThreadSlot;
    // SAFETY: a slot, once given to a thread, stays mapped and is only touched by that thread.
    unsafe {
        let is_ready = !slot.is_null()
            && (*slot).room >= bytes + ROOM_MARK
            && (*slot).time == lifecycle::clock();
        if is_ready { slot } else { core::ptr::null_mut() }
    }
}

/// The thread's slot, with room for `bytes` and its clock set; null when nothing is to be recorded.
#[inline(always)]
fn ready(bytes: usize) -> *mut ThreadSlot {
    let slot = ready_now(bytes);
    if slot.is_null() { make_ready(bytes) } else { slot }
}

/// Writes one record into a slot that is ready for it.
///
/// # Safety
/// `slot` came from [`ready`] for at least as many bytes as `write` puts.
#[inline(always)]
unsafe fn write(slot: *mut ThreadSlot, write: impl FnOnce(&mut Cursor)) {
    // SAFETY: only this thread touches its slot; a signal handler in between finds no room.
    unsafe {
        let room = (*slot).room;
        (*slot).room = 0;
        compiler_fence(Ordering::SeqCst);
        let start = (*slot).cursor;
        let mut cursor = Cursor(start);
        write(&mut cursor);
        let base = (*slot).chunk.cast::<u8>().add(HEADER_BYTES);
        (*(*slot).chunk).publish(cursor.0.cast::<u8>().offset_from(base) as usize);
        (*slot).cursor = cursor.0;
        compiler_fence(Ordering::SeqCst);
        (*slot).room = room - cursor.0.offset_from(start) as usize * 8;
    }
}

/// Records an allocation that has just been made (or has failed: address 0).
#[inline(always)]
pub fn allocation(call: Call, a: &Allocation) {
    let stamp = stamp();
    let slot = ready_now(EVENT_BYTES);
    // SAFETY: a ready slot is the thread's own and has room for the longest event.
    unsafe {
        if !slot.is_null() && (*slot).short.operator == 0 && !a.is_wide() {
            return write(slot, |out| event::put_narrow_allocation(out, call, a, stamp));
        }
    }
    // All else in a function of its own: the way above then calls nothing and saves no registers.
    rare_allocation(call, *a, stamp);
}

#[cold]
#[inline(never)]
fn rare_allocation(call: Call, a: Allocation, stamp: Option<u64>) {
    let slot = ready(EVENT_BYTES);
    if slot.is_null() {
        return;
    }
    // SAFETY: `ready` gave the slot for the longest event.
    unsafe {
        if (*slot).short.operator != 0 {
            return inside_new(slot, call, &a, stamp);
        }
        write(slot, |out| event::put_allocation(out, call, &a, stamp));
    }
}

/// Records an allocation while the thread is in the real `operator new` (see [`ShortOfMemory`]).
///
/// # Safety
/// `slot` is the thread's own, ready for an event.
#[cold]
unsafe fn inside_new(slot: *mut ThreadSlot, call: Call, a: &Allocation, stamp: Option<u64>) {
    // SAFETY: as promised.
    unsafe {
        let short = (*slot).short;
        if short.is_caller(a.caller) {
            if a.address == 0 {
                return;
            }
            (*slot).short = ShortOfMemory::NONE;
            let usable = a.size + a.slack;
            let done = Allocation {
                address: a.address,
                size: short.size as u64,
                slack: usable.saturating_sub(short.size as u64),
                align: short.align as u64,
                caller: short.caller as u64,
            };
            return write(slot, |out| event::put_allocation(out, Call::New, &done, stamp));
        }
        let maker = EXCEPTION_MAKER.load(Ordering::Relaxed);
        if maker != 0 && (a.caller as usize).wrapping_sub(maker) < OPERATOR_BYTES {
            (*slot).short = ShortOfMemory::NONE;
            ended_new(&short, 0, 0, stamp);
        }
        // Room for one more event, which the failure may have taken.
        let slot = ready(EVENT_BYTES);
        if !slot.is_null() {
            write(slot, |out| event::put_allocation(out, call, a, stamp));
        }
    }
}

/// The real `operator new` has returned a block, or null where it may not throw. If no call was seen
/// that ended it, this does.
pub fn leave_new(block: u64, slack: impl FnOnce(usize) -> u64) {
    let slot = arch::thread_word() as *mut ThreadSlot;
    if slot.is_null() {
        return;
    }
    // SAFETY: the thread's own slot.
    let short = unsafe { core::mem::replace(&mut (*slot).short, ShortOfMemory::NONE) };
    if short.operator != 0 {
        ended_new(&short, block, slack(short.size), stamp());
    }
}

fn ended_new(short: &ShortOfMemory, address: u64, slack: u64, stamp: Option<u64>) {
    let slot = ready(EVENT_BYTES);
    if slot.is_null() {
        return;
    }
    let done = Allocation {
        address,
        size: short.size as u64,
        slack,
        align: short.align as u64,
        caller: short.caller as u64,
    };
    // SAFETY: `ready` gave the slot for the longest event.
    unsafe { write(slot, |out| event::put_allocation(out, Call::New, &done, stamp)) };
}

/// Start of the C++ runtime's function that makes an exception; 0 when it is not known, and failures
/// of `operator new` are then not recorded.
pub static EXCEPTION_MAKER: AtomicUsize = AtomicUsize::new(0);

/// The thread is about to enter the real `operator new`, after a first try for its caller failed.
///
/// The operator's code is told by its start and its length.
pub fn enter_new((operator, reach): (usize, usize), size: usize, align: usize, caller: usize) {
    let slot = ready(0);
    if slot.is_null() {
        return;
    }
    // SAFETY: the thread's own slot.
    unsafe {
        let is_nested = (*slot).short.operator != 0 && (*slot).short.is_caller(caller as u64);
        (*slot).short = match is_nested {
            true => ShortOfMemory { operator, reach, ..(*slot).short },
            false => ShortOfMemory { operator, reach, size, align, caller },
        };
    }
}

/// The size of a block of an allocator that is not libc's. To tell it, the allocator may allocate (one
/// makes an object for that at the first time): such calls come from our asking and are no events.
pub unsafe extern "C" fn ask_size(block: *mut u8) -> usize {
    if arch::asking_word() != 0 {
        return 0;
    }
    let slot = arch::thread_word() as *mut ThreadSlot;
    arch::set_asking_word(1);
    // SAFETY: the thread's own slot, full for the time of the question; a live block.
    let size = unsafe {
        if slot.is_null() {
            (next().usable_size)(block)
        } else {
            let room = core::mem::replace(&mut (*slot).room, 0);
            compiler_fence(Ordering::SeqCst);
            let size = (next().usable_size)(block);
            compiler_fence(Ordering::SeqCst);
            (*slot).room = room;
            size
        }
    };
    arch::set_asking_word(0);
    size
}

/// Records that a block is about to be given back.
#[inline(always)]
pub fn release(call: Call, address: u64, caller: u64) {
    let slot = ready_now(EVENT_BYTES);
    if slot.is_null() {
        return rare_release(call, address, caller);
    }
    let stamp = stamp();
    // SAFETY: a ready slot is the thread's own and has room for the longest event.
    unsafe { write(slot, |out| put_release(out, call, address, caller, stamp)) };
}

#[cold]
#[inline(never)]
fn rare_release(call: Call, address: u64, caller: u64) {
    let slot = ready(EVENT_BYTES);
    if slot.is_null() {
        return;
    }
    let stamp = stamp();
    // SAFETY: `ready` gave the slot for the longest event.
    unsafe { write(slot, |out| put_release(out, call, address, caller, stamp)) };
}

/// Records that a block is about to be reallocated, where other threads could be handed its address
/// before the call returns; says whether it was recorded.
#[inline(always)]
pub fn begin_reallocation(old: u64) -> bool {
    if STAMPING.load(Ordering::Relaxed) == UNSTAMPED {
        return false;
    }
    let slot = ready(EVENT_BYTES);
    if slot.is_null() {
        return false;
    }
    let stamp = stamp().unwrap_or(0);
    // SAFETY: `ready` gave the slot for the longest event.
    unsafe { write(slot, |out| put_realloc_begin(out, old, stamp)) };
    true
}

/// Records a reallocation that has just been made (or has failed).
#[inline(always)]
pub fn reallocation(call: Call, a: &Allocation, old: u64, begun: bool) {
    let stamp = stamp();
    let slot = ready(EVENT_BYTES);
    if slot.is_null() {
        return;
    }
    // SAFETY: `ready` gave the slot for the longest event.
    unsafe { write(slot, |out| put_reallocation(out, call, a, old, begun, stamp)) };
}

/// Counts a `free(NULL)`, which is no event.
#[inline(always)]
pub fn free_null() {
    let slot = ready(0);
    if !slot.is_null() {
        // SAFETY: a ready slot has a chunk.
        unsafe { (*(*slot).chunk).count_free_null() };
    }
}

/// Records something that is not a heap call.
pub fn note(kind: NoteKind, caller: usize, args: &[u64], text: &[u8]) {
    let stamp = stamp();
    let words = note::note_words(args.len(), text.len().min(note::MAX_TEXT), stamp.is_some()) + 1;
    let slot = ready(words * 8);
    if slot.is_null() {
        return;
    }
    // SAFETY: `ready` gave the slot for that many bytes.
    unsafe { write(slot, |out| note::put_note(out, kind, caller as u64, args, text, stamp)) };
}

/// Whether the calling thread is in the middle of a record: a signal handler came between.
pub fn is_busy() -> bool {
    let slot = arch::thread_word() as *mut ThreadSlot;
    // SAFETY: a slot, once given to a thread, stays mapped and is only touched by that thread.
    unsafe { !slot.is_null() && (*slot).room == 0 && !(*slot).chunk.is_null() }
}

/// The slow way to a ready slot: joins the session, gives the thread a slot, takes the next chunk,
/// moves the thread's clock.
#[cold]
#[inline(never)]
fn make_ready(bytes: usize) -> *mut ThreadSlot {
    const NOWHERE: *mut ThreadSlot = core::ptr::null_mut();
    if arch::asking_word() != 0 {
        return NOWHERE;
    }
    if !lifecycle::is_recording() {
        return NOWHERE;
    }
    let mut slot = arch::thread_word() as *mut ThreadSlot;
    // SAFETY: the thread's own slot.
    unsafe {
        if slot.is_null() || (*slot).tid == 0 {
            slot = lifecycle::new_thread();
            if slot.is_null() {
                return NOWHERE;
            }
            arch::set_thread_word(slot as usize);
        }
        if (*slot).room == 0 && !(*slot).chunk.is_null() {
            // A signal handler came while this thread was writing a record.
            (*(*slot).chunk).count_dropped();
            return NOWHERE;
        }
        // One word more than the record itself: the clock may have to move, too.
        if (*slot).room < bytes + 8 + ROOM_MARK && !take_chunk(slot) {
            return NOWHERE;
        }
        let now = lifecycle::clock();
        if (*slot).time != now {
            (*slot).time = now;
            write(slot, |out| put_time(out, u64::from(now)));
        }
    }
    slot
}

/// Seals the thread's chunk and takes the next one, waiting for it if need be.
///
/// # Safety
/// `slot` is the thread's own and not busy.
#[cold]
unsafe fn take_chunk(slot: *mut ThreadSlot) -> bool {
    // SAFETY: as promised; chunks lie in the arena, which stays mapped.
    unsafe {
        let is_first = (*slot).chunk.is_null();
        // Busy from here on; if no chunk comes, this thread records no more.
        (*slot).room = 0;
        compiler_fence(Ordering::SeqCst);
        let owner = Owner {
            slot: STATE.slot.load(Ordering::Relaxed) as u16,
            generation: STATE.generation.load(Ordering::Relaxed),
            thread: (*slot).number,
        };
        let Some((start, capacity)) = lifecycle::claim_chunk(owner, is_first) else {
            return false;
        };
        if !is_first {
            let written = (*slot).cursor.cast::<u8>().offset_from((*slot).chunk.cast::<u8>())
                as u64
                - HEADER_BYTES as u64;
            (*slot).first += written;
        }
        let header = start.cast::<ChunkHeader>();
        (*header).open((*slot).tid, (*slot).first);
        // The new chunk is open before the old one is sealed: whoever sees the seal can find it.
        if !is_first {
            (*(*slot).chunk).seal();
        }
        (*slot).chunk = header;
        (*slot).cursor = start.add(HEADER_BYTES).cast();
        // A new chunk tells its time again, so that each can be read by itself.
        (*slot).time = !lifecycle::clock();
        compiler_fence(Ordering::SeqCst);
        (*slot).room = capacity - HEADER_BYTES - 8 + ROOM_MARK;
    }
    true
}

impl ThreadSlot {
    /// Prepares a blank slot for the calling thread.
    ///
    /// # Safety
    /// `slot` is not in use by another thread.
    pub unsafe fn assign(slot: *mut ThreadSlot, number: u16) {
        // SAFETY: as promised.
        unsafe {
            slot.write(ThreadSlot {
                cursor: core::ptr::null_mut(),
                room: 0,
                chunk: core::ptr::null(),
                first: 0,
                time: 0,
                tid: lifecycle::own_thread(number == 0),
                short: ShortOfMemory::NONE,
                number,
            });
        }
    }
}

/// Claims a chunk from the arena: a small one for a thread's first, else a large one, and what there
/// is when there is none of the kind. `from` scatters where threads that wait begin to look; 0 is the
/// beginning, so that few chunks are in use while there are enough.
pub fn claim_now(
    arena: heaptape_wire::session::Arena,
    owner: Owner,
    prefers_small: bool,
    from: usize,
) -> Option<(*mut u8, usize)> {
    let session = arena.session();
    let bound = |word: &AtomicU32| word.load(Ordering::Acquire) as usize;
    let find = |owners: &[AtomicU64]| {
        let start = from.checked_rem(owners.len()).unwrap_or(0);
        chunk::claim_from(owners, owner, start)
    };
    let small = || {
        let (start, end) = (bound(&session.small_start), bound(&session.small_end));
        find(arena.small_owners().get(start..end)?).map(|i| (arena.small(start + i), SMALL_BYTES))
    };
    let large = || {
        let owners = arena.large_owners().get(..bound(&session.large_end))?;
        find(owners).map(|i| (arena.large(i), LARGE_BYTES))
    };
    if prefers_small { small().or_else(large) } else { large().or_else(small) }
}
