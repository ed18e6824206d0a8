//! A thread's place to write: its slot and its chunk, claimed for one record after another.
//!
//! A [`ThreadSlot`] lies in memory that the kernel wipes in a forked child, so a child's first record
//! finds no chunk and goes the slow way, where the child makes itself known.
//!
//! A signal handler may run between any two instructions, call the allocator, and leave by a jump. So
//! a record begins with a claim: a slot that is not claimed may be used by whoever comes, and what was
//! read before the claim is not relied on. A handler that finds the slot claimed writes to another
//! one, a lane of its own inside the thread, and the claim's holder takes the thread back when it has
//! written. If it never comes back the thread goes on in the inner lane. Nothing is lost and nothing
//! is written twice.

use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use heaptape_wire::chunk::{ChunkHeader, HEADER_BYTES, Owner};
use heaptape_wire::event::{MAX_EVENT_WORDS, Put, put_time};
use heaptape_wire::ledger::Sheet;
use heaptape_wire::process::THREADS;
use heaptape_wire::purse::Purse;

use crate::arch;
use crate::arena::{arena, clock, private, thread_place};
use crate::asking;
use crate::lane::Lane;
use crate::lifecycle::{self, STATE, detach};
use crate::shortage::ShortOfMemory;
use crate::stacks;
use crate::supply;
use crate::thread::expect_threads;

/// What a thread needs to write the next record.
#[repr(C, align(64))]
pub struct ThreadSlot {
    /// Where the next record goes.
    cursor: *mut u64,
    /// From here on the chunk has no room for two of the longest events. (One may be written after a look at
    /// the gate that a handler's came after.)
    limit: *mut u64,
    chunk: *const ChunkHeader,
    /// Bytes written in the chunks before this one.
    first: u64,
    /// The session clock at the last record, doubled, and the states beside it. One comparison with the clock
    /// tells that the slot is free, that it has room, and that its time is right.
    gate: AtomicU64,
    /// The kernel's number of the thread; 0 while the slot is blank.
    tid: u32,
    number: u16,
    /// 0 for the thread's own lane; how many lanes are around this one.
    depth: u16,
    /// The lane inside this one, or null.
    inner: *mut ThreadSlot,
    /// The `operator new` that this thread is in because memory was short.
    pub short: ShortOfMemory,
    /// Where calls are counted: the thread's part of the ledger, or null.
    sheet: *const Sheet,
    /// Its part of the budget, or null.
    purse: *const Purse,
    /// There was no room for it in the ledger.
    is_uncounted: bool,
}

/// Room that an event needs at the most.
pub const EVENT_BYTES: usize = MAX_EVENT_WORDS * 8;
/// The record that moves the clock.
const TIME_BYTES: usize = 8;

/// What a gate has beside the time: a record is being written; a handler has turned the thread to an inner
/// lane meanwhile; the next record takes the slow way, for want of room or since memory is short.
const CLAIMED: u64 = 1;
const TURNED: u64 = 1 << 63;
const SLOW: u64 = 1 << 62;

/// A time as gates have it. That of a slot that the kernel has wiped is none.
#[inline(always)]
const fn gate(time: u32) -> u64 {
    2 * time as u64 + 2
}

const NOWHERE: *mut ThreadSlot = core::ptr::null_mut();

/// Where the words of a record go.
pub struct Cursor(*mut u64);

impl Put for Cursor {
    #[inline(always)]
    fn put(&mut self, word: u64) {
        // SAFETY: the slot had room for the longest record (see `claim`).
        unsafe {
            self.0.write(word);
            self.0 = self.0.add(1);
        }
    }
}

/// A slot that is claimed for an event.
pub struct Claim(*mut ThreadSlot);

/// Claims the thread's slot for an event if that takes no more than a moment: there is room, and the clock
/// has not moved. Whoever has a claim ends it by [`Claim::write`].
#[inline(always)]
pub fn claim_now() -> Option<Claim> {
    let slot = arch::thread_word() as *mut ThreadSlot;
    // SAFETY: a slot, once given to a thread, stays mapped and is only touched by that thread.
    unsafe {
        if slot.is_null() || (*slot).gate.load(Ordering::Relaxed) != gate(clock()) {
            return None;
        }
        // A handler between the two may have filled the chunk; for that there is room for one event more.
        arch::count_up((*slot).gate.as_ptr());
        compiler_fence(Ordering::SeqCst);
        Some(Claim(slot))
    }
}

impl Claim {
    /// Writes an event and ends the claim; what is left to do, which hardly ever is anything.
    #[inline(always)]
    pub fn write(self, record: impl FnOnce(&mut Cursor)) -> Option<Rest> {
        // SAFETY: the slot is claimed, with room for an event.
        unsafe {
            let next = put(self.0, record);
            compiler_fence(Ordering::SeqCst);
            let is_full = next >= (*self.0).limit;
            let is_turned = !is_full && arch::count_down((*self.0).gate.as_ptr());
            (is_full || is_turned).then_some(Rest { slot: self.0, is_full })
        }
    }
}

/// What is left to do for a slot that a record was written to.
pub struct Rest {
    slot: *mut ThreadSlot,
    is_full: bool,
}

impl Rest {
    /// Does it.
    pub fn finish(self) {
        // SAFETY: the thread's own slot; if it is full, it is still claimed.
        unsafe {
            if self.is_full {
                (*self.slot).gate.fetch_or(SLOW, Ordering::Relaxed);
                leave(self.slot);
            } else {
                come_back(self.slot);
            }
        }
    }
}

/// Claims the thread's slot, with room for `bytes` and its clock set; null when nothing is to be
/// recorded. Whoever has a claim ends it by [`write`] or [`leave`].
#[inline(always)]
pub fn claim(bytes: usize) -> *mut ThreadSlot {
    if bytes > EVENT_BYTES {
        return claim_slowly(bytes);
    }
    claim_now().map_or_else(|| claim_slowly(bytes), |claim| claim.0)
}

/// The slow way to a claimed slot: joins the session, gives the thread a slot, takes the next chunk,
/// moves the thread's clock.
#[cold]
#[inline(never)]
pub fn claim_slowly(bytes: usize) -> *mut ThreadSlot {
    if asking::is_answer() || !lifecycle::is_recording() {
        return NOWHERE;
    }
    let slot = claim_any();
    if slot.is_null() {
        return NOWHERE;
    }
    // SAFETY: the thread's own slot, claimed.
    unsafe {
        if !(*slot).has_room(bytes + TIME_BYTES) && !take_chunk(slot) {
            leave(slot);
            return NOWHERE;
        }
        (*slot).let_through();
        let now = clock();
        if (*slot).time() != now {
            (*slot).set_time(now);
            put(slot, |out| put_time(out, u64::from(now)));
        }
    }
    slot
}

/// Claims a slot; false when it is claimed already.
///
/// # Safety
/// `slot` is the thread's own.
#[inline(always)]
pub unsafe fn try_claim(slot: *mut ThreadSlot) -> bool {
    // SAFETY: as promised. A handler between the two has left the slot as it found it, but for its time.
    unsafe {
        if (*slot).gate.load(Ordering::Relaxed) & CLAIMED != 0 {
            return false;
        }
        arch::count_up((*slot).gate.as_ptr());
    }
    compiler_fence(Ordering::SeqCst);
    true
}

/// Ends a claim.
///
/// # Safety
/// `slot` is claimed by the caller.
#[inline(always)]
pub unsafe fn leave(slot: *mut ThreadSlot) {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as promised.
    unsafe {
        if arch::count_down((*slot).gate.as_ptr()) {
            come_back(slot);
        }
    }
}

/// A handler has turned the thread to an inner lane; its own is free again.
///
/// # Safety
/// `slot` is the thread's own.
#[cold]
#[inline(never)]
unsafe fn come_back(slot: *mut ThreadSlot) {
    // SAFETY: as promised.
    // Only a handler that finds the slot claimed sets the bit, and it is not.
    unsafe { (*slot).gate.fetch_and(!TURNED, Ordering::Relaxed) };
    compiler_fence(Ordering::SeqCst);
    arch::set_thread_word(slot as usize);
}

/// Writes one record into a claimed slot and ends the claim.
///
/// # Safety
/// `slot` came from [`claim`] for at least as many bytes as `record` puts.
#[inline(always)]
pub unsafe fn write(slot: *mut ThreadSlot, record: impl FnOnce(&mut Cursor)) {
    // SAFETY: as promised.
    unsafe {
        if put(slot, record) >= (*slot).limit {
            (*slot).gate.fetch_or(SLOW, Ordering::Relaxed);
        }
        leave(slot);
    }
}

/// # Safety
/// As for [`write`].
#[inline(always)]
unsafe fn put(slot: *mut ThreadSlot, record: impl FnOnce(&mut Cursor)) -> *mut u64 {
    // SAFETY: only the holder of the claim touches the slot.
    unsafe {
        let mut cursor = Cursor((*slot).cursor);
        record(&mut cursor);
        let base = (*slot).chunk.cast::<u8>().add(HEADER_BYTES);
        (*(*slot).chunk).publish(cursor.0.cast::<u8>().offset_from(base) as usize);
        (*slot).cursor = cursor.0;
        cursor.0
    }
}

/// Claims the thread's slot, or the first lane inside it that is free; makes what is not there.
fn claim_any() -> *mut ThreadSlot {
    let mut slot = arch::thread_word() as *mut ThreadSlot;
    // SAFETY: the thread's own slots.
    unsafe {
        if slot.is_null() || (*slot).tid == 0 {
            slot = new_thread(0);
            arch::set_thread_word(slot as usize);
            if slot.is_null() {
                return NOWHERE;
            }
        }
        while !try_claim(slot) {
            (*slot).gate.fetch_or(TURNED, Ordering::Relaxed);
            if (*slot).inner.is_null() {
                (*slot).inner = new_thread((*slot).depth.saturating_add(1));
                // One thread, one lane of the ledger.
                if let (Some(inner), Some(lane)) = ((*slot).inner.as_mut(), (*slot).lane()) {
                    inner.set_lane(lane);
                }
            }
            if (*slot).inner.is_null() {
                count_dropped(slot);
                return NOWHERE;
            }
            slot = (*slot).inner;
            arch::set_thread_word(slot as usize);
        }
    }
    slot
}

/// The calling thread's slot, which is made where there is none; `None` when the process has too many.
pub fn own() -> Option<&'static mut ThreadSlot> {
    let slot = arch::thread_word() as *mut ThreadSlot;
    // SAFETY: the thread's own slots, which stay mapped and which nobody else touches.
    unsafe {
        if slot.is_null() || (*slot).tid == 0 {
            arch::set_thread_word(new_thread(0) as usize);
        }
        (arch::thread_word() as *mut ThreadSlot).as_mut()
    }
}

/// Whether a call comes from the real `operator new` that this thread is in because memory was short.
pub fn is_retry(caller: usize) -> bool {
    let slot = arch::thread_word() as *const ThreadSlot;
    // SAFETY: the thread's own slot.
    unsafe { slot.as_ref() }
        .is_some_and(|slot| slot.short.is_any() && slot.short.is_caller(caller as u64))
}

/// A slot for the calling thread, its own or one so deep inside; null when the process has too many.
fn new_thread(depth: u16) -> *mut ThreadSlot {
    let slot = arena().slot(STATE.slot.load(Ordering::Relaxed) as usize);
    let number = match slot.reuse_thread() {
        Some(number) => number as usize,
        None => private().next_thread.fetch_add(1, Ordering::Relaxed) as usize,
    };
    if number >= THREADS {
        // A handler's events may be missing, a thread's may not.
        if depth == 0 {
            detach();
        }
        return core::ptr::null_mut();
    }
    if number > 0 {
        expect_threads();
    }
    let place = thread_place(number);
    // SAFETY: this number was given to this thread alone.
    unsafe { ThreadSlot::assign(place, number as u16, depth) };
    place
}

/// There is no lane left for a handler's event.
///
/// # Safety
/// `slot` is the thread's own.
unsafe fn count_dropped(slot: *mut ThreadSlot) {
    // SAFETY: as promised; a chunk stays mapped.
    unsafe {
        if !(*slot).chunk.is_null() {
            (*(*slot).chunk).count_dropped();
        }
    }
}

/// Seals the thread's chunk and takes the next one, waiting for it if need be.
///
/// # Safety
/// `slot` is claimed by the caller.
#[cold]
unsafe fn take_chunk(slot: *mut ThreadSlot) -> bool {
    // SAFETY: as promised; chunks lie in the arena, which stays mapped.
    unsafe {
        let is_first = (*slot).chunk.is_null();
        let owner = Owner {
            slot: STATE.slot.load(Ordering::Relaxed) as u16,
            generation: STATE.generation.load(Ordering::Relaxed),
            thread: (*slot).number,
        };
        let Some((start, capacity)) = supply::claim(owner, is_first) else {
            // This thread records no more.
            (*slot).limit = (*slot).cursor.byte_sub(EVENT_BYTES);
            return false;
        };
        if !is_first {
            let written = (*slot).cursor.cast::<u8>().offset_from((*slot).chunk.cast::<u8>())
                as u64
                - HEADER_BYTES as u64;
            (*slot).first += written;
        }
        let header = start.cast::<ChunkHeader>();
        (*header).open((*slot).tid, u32::from((*slot).depth), (*slot).first);
        // The new chunk is open before the old one is sealed: whoever sees the seal can find it.
        if !is_first {
            (*(*slot).chunk).seal();
        }
        (*slot).chunk = header;
        (*slot).cursor = start.add(HEADER_BYTES).cast();
        (*slot).limit = start.add(capacity - 2 * EVENT_BYTES + 1).cast();
        // A new chunk tells its time again, so that each can be read by itself.
        (*slot).set_time(clock().wrapping_sub(1));
    }
    true
}

impl ThreadSlot {
    /// Prepares a blank slot for the calling thread: its own lane, or one so deep inside.
    ///
    /// # Safety
    /// `slot` is not in use by another thread.
    pub unsafe fn assign(slot: *mut ThreadSlot, number: u16, depth: u16) {
        // SAFETY: as promised.
        unsafe {
            let (sheet, purse) = (*slot).kept_lane(number);
            slot.write(ThreadSlot {
                cursor: core::ptr::null_mut(),
                limit: core::ptr::null_mut(),
                chunk: core::ptr::null(),
                first: 0,
                gate: AtomicU64::new(0),
                tid: lifecycle::own_thread(number == 0),
                number,
                depth,
                inner: NOWHERE,
                short: ShortOfMemory::NONE,
                sheet,
                purse,
                is_uncounted: false,
            });
            if let Some(sheet) = sheet.as_ref() {
                sheet.take_over((*slot).tid, stacks::own((*slot).tid));
            }
        }
    }

    /// Of a slot that was another thread's: the sheet goes with the number. (That of a lane inside a thread
    /// is the thread's.)
    fn kept_lane(&self, number: u16) -> (*const Sheet, *const Purse) {
        let number = u32::from(number);
        let is_its = |lane: Lane| lane.sheet.number.load(Ordering::Relaxed) == number;
        match self.lane() {
            Some(lane) if is_its(lane) => (self.sheet, self.purse),
            _ => (core::ptr::null(), core::ptr::null()),
        }
    }

    /// Where calls are counted: the thread's lane, if it has one.
    #[inline(always)]
    pub fn lane(&self) -> Option<Lane> {
        // SAFETY: null, or in the ledger, which stays mapped.
        unsafe { Some(Lane { sheet: self.sheet.as_ref()?, purse: self.purse.as_ref() }) }
    }

    /// Gives the thread its lane.
    pub fn set_lane(&mut self, lane: Lane) {
        self.purse = lane.purse.map_or(core::ptr::null(), core::ptr::from_ref);
        compiler_fence(Ordering::SeqCst);
        self.sheet = lane.sheet;
    }

    /// Whether the thread is counted nowhere.
    pub fn is_uncounted(&self) -> bool {
        self.is_uncounted
    }

    /// There was no room for it in the ledger.
    pub fn set_uncounted(&mut self) {
        self.is_uncounted = true;
    }

    /// Takes the thread's lane away.
    pub fn take_lane(&mut self) -> Option<Lane> {
        let lane = self.lane();
        self.sheet = core::ptr::null();
        lane
    }

    /// The thread's number in its process, and the kernel's.
    pub fn identity(&self) -> (u32, u32) {
        (u32::from(self.number), self.tid)
    }

    /// Whether so many bytes leave room for an event.
    fn has_room(&self, bytes: usize) -> bool {
        !self.chunk.is_null() && self.cursor as usize + bytes < self.limit as usize + EVENT_BYTES
    }

    /// The session clock at the last record.
    fn time(&self) -> u32 {
        (self.gate.load(Ordering::Relaxed) >> 1).wrapping_sub(1) as u32
    }

    /// The next record need not take the slow way, unless there is a reason.
    fn let_through(&mut self) {
        if self.cursor < self.limit && !self.short.is_any() {
            self.gate.fetch_and(!SLOW, Ordering::Relaxed);
        }
    }

    /// Memory is short: what comes next is looked at closely.
    ///
    /// # Safety
    /// The slot is claimed by the caller.
    pub unsafe fn is_short(&mut self, short: ShortOfMemory) {
        self.short = short;
        self.gate.fetch_or(SLOW, Ordering::Relaxed);
    }

    /// Sets it, beside whatever else the gate says.
    fn set_time(&mut self, time: u32) {
        let before = self.gate.load(Ordering::Relaxed) & !(CLAIMED | TURNED | SLOW);
        let more = gate(time).wrapping_sub(before);
        // SAFETY: a word of the slot.
        unsafe { arch::add_to(self.gate.as_ptr(), more) };
    }

    /// Counts a `free(NULL)`.
    ///
    /// # Safety
    /// The slot came from [`claim`], and so has a chunk.
    #[inline(always)]
    pub unsafe fn count_free_null(&self) {
        // SAFETY: as promised.
        unsafe { (*self.chunk).count_free_null() };
    }
}
