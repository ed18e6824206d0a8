//! Memory that processes share: which object a mapping is of, and this process's part in it.
//!
//! An object is entered before it is mapped, for a visit, and stays this process's when pages of it are
//! mapped. The [page map](crate::pages) tells which pages those are. Files of file systems that lie in
//! memory are such objects, files on disk are not.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heaptape_wire::budget::Machine;
use heaptape_wire::ledger::Kind;
use heaptape_wire::objects::{Actor, Key, OBJECTS, Outside};

use crate::arch::{self, syscall};
use crate::counting::{self, ledger};
use crate::lane::Lane;
use crate::lifecycle::{self, STATE};
use crate::mapped::Map;
use crate::next::{ENOMEM, set_errno};
use crate::pages::{self, PAGE, Pages};
use crate::spending::System;
use crate::{charges, refusing, sheets, spending, starting};

/// What the objects of this process are known by, by number, for its forks.
static KEYS: [[AtomicU64; 2]; OBJECTS] = [const { [const { AtomicU64::new(0) }; 2] }; OBJECTS];
/// This process's part in each object.
static PARTS: [Part; OBJECTS] = [const { Part(AtomicU64::new(0)) }; OBJECTS];
/// The pages of each that came with the fork.
static FORKED: [AtomicU64; OBJECTS] = [const { AtomicU64::new(0) }; OBJECTS];
/// How far each was mapped by this process.
static BYTES: [AtomicU64; OBJECTS] = [const { AtomicU64::new(0) }; OBJECTS];
/// Objects without a name that this process has made.
static NAMELESS: AtomicU32 = AtomicU32::new(0);

fn actor(kind: Kind) -> Actor<'static, System> {
    let generation = STATE.generation.load(Ordering::Relaxed);
    Actor { slot: sheets::own_slot(), generation, kind, machine: &System }
}

/// A part in an object: the pages that are mapped of it, 40 bits, calls that are about to map more, 8, whether
/// the last of both has just gone, 1, and how often it had, 15. While there is any, this process is one of
/// the object's users.
struct Part(AtomicU64);

const VISIT: u64 = 1 << 40;
const LEAVING: u64 = 1 << 48;
const TURN: u64 = 1 << 49;

impl Part {
    /// Changes it by pages and visits; whether it has nothing any more and the object has to be left.
    fn change(&self, more: u64) -> bool {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let after = before.wrapping_add(more);
            let is_last = after & (LEAVING - 1) == 0;
            let new = if is_last { after | LEAVING } else { after };
            match self.0.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return is_last,
                Err(now) => before = now,
            }
        }
    }

    fn pages(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & (VISIT - 1)
    }
}

/// Enters an object of which so many bytes are about to be mapped, for a visit.
fn enter(lane: Lane, key: Key, bytes: u64, kind: Kind) -> Result<usize, Outside> {
    for round in 0.. {
        let index = become_user(lane, key, bytes, kind)?;
        // Another thread may be about to leave it, or may have left it just now.
        let part = &PARTS[index].0;
        let before = part.load(Ordering::Acquire);
        if before & LEAVING == 0
            && ledger().object(index).has_user(sheets::own_slot())
            && part
                .compare_exchange(before, before + VISIT, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            KEYS[index][0].store(key.place, Ordering::Relaxed);
            KEYS[index][1].store(key.number, Ordering::Relaxed);
            BYTES[index].store(ledger().object(index).bytes(), Ordering::Relaxed);
            return Ok(index);
        }
        if !System.wait(round) {
            break;
        }
    }
    Err(Outside::Unknown)
}

fn become_user(lane: Lane, key: Key, bytes: u64, kind: Kind) -> Result<usize, Outside> {
    ledger().enter(key, bytes, &actor(kind), |kind, more| {
        let fits = !charges::is_held(kind) || spending::spend_beside(lane, more);
        if fits && charges::is_held(kind) {
            note_spent(more as i64);
        }
        fits
    })
}

/// Changes this process's part in an object, and leaves it with the last of that.
fn change(lane: Lane, index: usize, more: u64) {
    let part = &PARTS[index];
    if part.change(more) {
        leave_object(lane, index);
        part.0.fetch_add(TURN - LEAVING, Ordering::AcqRel);
    }
}

fn leave_object(lane: Lane, index: usize) {
    ledger().leave(index, &actor(Kind::Shared), |kind, bytes| {
        if charges::is_held(kind) {
            note_spent(-(bytes as i64));
            spending::refund_beside(lane, bytes);
        }
    });
}

fn note_spent(bytes: i64) {
    if let Some(account) = counting::account() {
        account.spend_for_objects(bytes);
        if !account.is_exempt() {
            charges::note_beside(bytes as u64);
        }
    }
}

/// A call that is about to map an object, if it is one.
pub struct Visit(Option<usize>);

impl Visit {
    /// For `mmap`; `None` where the object does not fit.
    pub fn of_mapping(lane: Lane, map: &Map, bytes: u64, caller: usize) -> Option<Visit> {
        Visit::begin(lane, of_mapping(map, bytes), bytes, caller)
    }

    /// For more of an object that the process has.
    pub fn of_object(lane: Lane, index: usize, bytes: u64, caller: usize) -> Option<Visit> {
        let [place, number] =
            KEYS[index % OBJECTS].each_ref().map(|word| word.load(Ordering::Relaxed));
        Visit::begin(lane, Some((Key { place, number }, bytes)), bytes, caller)
    }

    /// For `shmat`; beside it the bytes of the segment.
    pub fn of_segment(lane: Lane, id: c_int, caller: usize) -> Option<(Visit, usize)> {
        let Some(size) = segment_size(id) else { return Some((Visit(None), 0)) };
        let bytes = size.next_multiple_of(PAGE) as u64;
        let key = Key { place: Key::SYSV, number: id as u32 as u64 };
        let visit = Visit::begin(lane, Some((key, bytes)), bytes, caller)?;
        Some((visit, size))
    }

    fn begin(lane: Lane, object: Option<(Key, u64)>, wanted: u64, caller: usize) -> Option<Visit> {
        // What only those have mapped that are held against no limit is not charged.
        let Some((key, bytes)) = object.filter(|_| lane.purse.is_some()) else {
            return Some(Visit(None));
        };
        match enter(lane, key, bytes, starting::row(Kind::Shared, caller)) {
            Ok(index) => Some(Visit(Some(index))),
            Err(Outside::Unknown) => Some(Visit(None)),
            Err(Outside::Refused) => {
                refusing::refuse(lane, wanted, caller);
                set_errno(ENOMEM);
                None
            }
        }
    }

    /// These pages are mapped, or none.
    pub fn end(self, lane: Lane, pages: &Pages) {
        if let Some(index) = self.0 {
            let given = pages::give(pages, index) as u64;
            change(lane, index, given.wrapping_sub(VISIT));
        }
    }
}

/// Objects of which pages are about to be unmapped.
#[derive(Default)]
pub struct Leaving {
    /// Number and pages.
    list: [(usize, usize); Self::MOST],
    count: usize,
}

impl Leaving {
    /// Those beyond keep their pages, and their charge.
    const MOST: usize = 8;

    /// Adds what belongs to objects of these pages.
    pub fn add(&mut self, pages: &Pages) {
        let first = self.count;
        pages::objects(pages, |object, _| {
            let is_new = self.list[first..self.count].iter().all(|&(seen, _)| seen != object);
            if is_new && self.count < Self::MOST {
                self.list[self.count] = (object, 0);
                self.count += 1;
            }
        });
        for (object, taken) in &mut self.list[first..self.count] {
            *taken = pages::take(pages, *object);
        }
    }

    /// They are unmapped.
    pub fn gone(self, lane: Lane) {
        for &(object, pages) in self.list[..self.count].iter().filter(|(_, pages)| *pages > 0) {
            change(lane, object, (pages as u64).wrapping_neg());
        }
    }
}

/// Whether a mapping is of an object, which it is, and how far it reaches into it.
fn of_mapping(map: &Map, bytes: u64) -> Option<(Key, u64)> {
    const MAP_TYPE: c_int = 0xf;
    const MAP_SHARED: c_int = 1;
    const MAP_SHARED_VALIDATE: c_int = 3;
    const MAP_ANONYMOUS: c_int = 0x20;
    if !matches!(map.flags & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE) {
        return None;
    }
    if map.flags & MAP_ANONYMOUS != 0 {
        let process = u64::from(sheets::own_slot()) << 20 | generation_bits();
        let number = process << 32 | u64::from(NAMELESS.fetch_add(1, Ordering::Relaxed));
        return Some((Key { place: Key::NAMELESS, number }, bytes));
    }
    Some((of_file(map.fd)?, (map.offset as u64).checked_add(bytes)?))
}

fn generation_bits() -> u64 {
    u64::from(STATE.generation.load(Ordering::Relaxed)) & 0xf_ffff
}

/// The object that a file in memory is.
fn of_file(fd: c_int) -> Option<Key> {
    const TMPFS: u64 = 0x0102_1994;
    const HUGETLBFS: u64 = 0x9584_58f6;
    const RAMFS: u64 = 0x8584_58f6;
    const TYPE: u64 = 0o170_000;
    const REGULAR: u64 = 0o100_000;
    if fd < 0 || lifecycle::is_sandboxed() {
        return None;
    }
    // `struct stat` and `struct statfs` are shorter than that.
    let mut words = [0u64; 32];
    let mut ask = |call: usize| {
        // SAFETY: writes into the words.
        let result =
            unsafe { syscall(call, [fd as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        (result == 0).then_some(words)
    };
    let [kind, ..] = ask(arch::SYS_FSTATFS)?;
    if !matches!(kind, TMPFS | HUGETLBFS | RAMFS) {
        return None;
    }
    let [device, inode, _links, mode, ..] = ask(arch::SYS_FSTAT)?;
    (mode & TYPE == REGULAR && device != 0).then_some(Key { place: device, number: inode })
}

/// The bytes of a SysV segment.
fn segment_size(id: c_int) -> Option<usize> {
    const IPC_STAT: usize = 2;
    /// Where `struct shmid_ds` has it, in words.
    const SIZE: usize = 6;
    if lifecycle::is_sandboxed() {
        return None;
    }
    let mut words = [0usize; 32];
    // SAFETY: writes into the words, which are more than it needs.
    let result = unsafe {
        syscall(arch::SYS_SHMCTL, [id as usize, IPC_STAT, words.as_mut_ptr() as usize, 0, 0, 0])
    };
    (result == 0 && words[SIZE] > 0).then_some(words[SIZE])
}

/// The pages of the segment that is attached at an address.
pub fn segment_at(address: usize) -> Option<Pages> {
    let first = pages::pages(address, 1)?;
    let object = pages::object(first.start)?;
    pages::pages(address, ledger().object(object).bytes() as usize)
}

/// Whether the fork that made this process had any object.
pub fn has_inherited() -> bool {
    PARTS.iter().any(|part| part.pages() != 0)
}

/// A fork's child, with its first lane: becomes a user of what it has mapped.
pub fn inherit(lane: Lane) {
    for (part, forked) in PARTS.iter().zip(&FORKED) {
        forked.store(part.pages(), Ordering::Relaxed);
        part.0.store(0, Ordering::Relaxed);
    }
    for (before, forked) in FORKED.iter().enumerate() {
        let pages = forked.load(Ordering::Relaxed);
        if pages == 0 || lane.purse.is_none() {
            continue;
        }
        let [place, number] = KEYS[before].each_ref().map(|word| word.load(Ordering::Relaxed));
        let bytes = BYTES[before].load(Ordering::Relaxed);
        // It is there, unless the parent and all others have gone meanwhile.
        let Ok(index) = enter(lane, Key { place, number }, bytes, Kind::Shared) else { continue };
        if index != before {
            pages::renumber(before, index);
        }
        change(lane, index, pages.wrapping_sub(VISIT));
    }
}
