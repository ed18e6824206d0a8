//! The calls that map memory, where calls are counted: what the program maps for itself is charged before
//! it has it, page by page, and given back after it is unmapped.
//!
//! Charged are writable private mappings without a file, and those that become writable. What is mapped
//! without reserve, or without the right to write, is a plan and no use of memory. Memory that processes
//! share is charged [by object](crate::shared).

use core::ffi::c_int;

use heaptape_wire::ledger::Kind;
use heaptape_wire::purse::{self, Purse};

use crate::counting::ledger;
use crate::lane::{self, Lane};
use crate::pages::{self, Counted, PAGE, Pages};
use crate::shared::{self, Visit};
use crate::{charges, heaps, mappings, sheets, starting};

const PROT_WRITE: c_int = 2;
const MAP_TYPE: c_int = 0xf;
const MAP_PRIVATE: c_int = 2;
pub const MAP_FIXED: c_int = 0x10;
const MAP_ANONYMOUS: c_int = 0x20;
const MAP_LOCKED: c_int = 0x2000;
const MAP_NORESERVE: c_int = 0x4000;
const MAP_POPULATE: c_int = 0x8000;
const MAP_HUGETLB: c_int = 0x4_0000;
const MREMAP_FIXED: c_int = 2;
const MREMAP_DONTUNMAP: c_int = 4;

/// What a mapping that failed returns.
const FAILED: usize = usize::MAX;

fn bytes(pages: usize) -> u64 {
    (pages * PAGE) as u64
}

/// What the new pages of a mapping are.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    /// Charged, in this row.
    Charged(Kind),
    /// Not charged yet.
    Open,
    /// None of what is charged by page.
    Other,
}

impl Sort {
    fn of(protection: c_int, flags: c_int, caller: usize) -> Sort {
        let is_plain = flags & MAP_TYPE == MAP_PRIVATE && flags & MAP_ANONYMOUS != 0;
        let is_writable = protection & PROT_WRITE != 0;
        if !is_plain || heaps::is_for_blocks(caller) || is_writable && flags & MAP_NORESERVE != 0 {
            Sort::Other
        } else if is_writable {
            Sort::Charged(starting::row(Kind::Mappings, caller))
        } else {
            Sort::Open
        }
    }

    /// What these pages are.
    fn at(pages: &Pages) -> Sort {
        let charged = pages::charged(pages);
        if charged.starting > 0 {
            Sort::Charged(Kind::MpiRuntime)
        } else if charged.mappings > 0 || charged.inherited > 0 {
            Sort::Charged(Kind::Mappings)
        } else if pages::is_open(pages.start) {
            Sort::Open
        } else {
            Sort::Other
        }
    }

    /// Notes what these pages, which are mapped now, are; how many of them were not charged, if they are to be.
    fn set(self, pages: &Pages) -> usize {
        match self {
            Sort::Charged(kind) => return pages::charge(pages, kind == Kind::MpiRuntime),
            Sort::Open => pages::open(pages),
            Sort::Other => {}
        }
        0
    }

    fn kind(self) -> Kind {
        match self {
            Sort::Charged(kind) => kind,
            Sort::Open | Sort::Other => Kind::Mappings,
        }
    }
}

/// Pages that a call is about to unmap, or that something else was mapped over, so that they must have been
/// unmapped where nobody saw it.
#[derive(Default)]
struct Leaving {
    charged: Counted,
    objects: shared::Leaving,
}

impl Leaving {
    fn of(pages: &Pages) -> Leaving {
        let mut leaving = Leaving::default();
        leaving.add(pages);
        leaving
    }

    fn add(&mut self, pages: &Pages) {
        let Counted { mappings, starting, inherited } = pages::leave(pages);
        self.charged.mappings += mappings;
        self.charged.starting += starting;
        self.charged.inherited += inherited;
        self.objects.add(pages);
    }

    /// They are unmapped: gives back what was charged, but for what is due for what was mapped in their place:
    /// `made` bytes in the row of this kind, of which `paid` were charged in advance.
    fn replace(self, lane: Lane, kind: Kind, paid: u64, made: u64) {
        for row in [Kind::Mappings, Kind::MpiRuntime] {
            let (paid, made) = if row == kind { (paid, made) } else { (0, 0) };
            charges::settle(lane, row, paid, made as i64 - bytes(self.charged.of(row)) as i64);
        }
        if self.charged.inherited > 0 {
            sheets::let_go(bytes(self.charged.inherited));
        }
        self.objects.gone(lane);
    }

    /// They are unmapped, and nothing of the kind is there now.
    fn gone(self, lane: Lane) {
        self.replace(lane, Kind::Mappings, 0, 0);
    }
}

/// A call for which so much is charged and that may never come back: a signal handler may leave it by a jump.
/// Then others give back what was charged.
struct Away(Option<(&'static Purse, purse::Away)>);

impl Away {
    fn begin(lane: Lane, kind: Kind, bytes: u64) -> Away {
        let purse = lane.purse.filter(|_| bytes > 0 && kind == Kind::Mappings);
        Away(purse.map(|purse| (purse, purse.send_away(bytes))))
    }

    /// It has come back; whether it is still charged.
    fn end(self) -> bool {
        self.0.is_none_or(|(purse, away)| purse.come_back(away))
    }
}

/// The bytes that a call maps or unmaps, rounded as the kernel does for these flags.
fn rounded(length: usize, flags: c_int) -> usize {
    const SIZE_SHIFT: c_int = 26;
    const USUAL: u32 = 21;
    if flags & MAP_HUGETLB == 0 {
        return length;
    }
    let bits = (flags >> SIZE_SHIFT) as u32 & 0x3f;
    let page = 1usize << if bits == 0 { USUAL } else { bits };
    length.checked_next_multiple_of(page).unwrap_or(length)
}

/// The arguments of `mmap`.
#[derive(Clone, Copy)]
pub struct Map {
    pub address: usize,
    pub length: usize,
    pub protection: c_int,
    pub flags: c_int,
    pub fd: c_int,
    pub offset: usize,
}

/// `mmap`, which `make` makes.
pub fn map(map: Map, caller: usize, make: impl FnOnce() -> usize) -> usize {
    let length = rounded(map.length, map.flags);
    let result = map_charged(map, length, caller, make);
    note_heap(result, length, map.flags, caller);
    result
}

/// Notes what an allocator has mapped.
pub fn note_heap(address: usize, length: usize, flags: c_int, caller: usize) {
    if address != FAILED && flags & MAP_ANONYMOUS != 0 && heaps::is_for_blocks(caller) {
        heaps::mapped(address, length);
    }
}

/// The same for so many bytes, as the kernel rounds them.
fn map_charged(map: Map, length: usize, caller: usize, make: impl FnOnce() -> usize) -> usize {
    let is_fixed = map.flags & MAP_FIXED != 0;
    let at = if is_fixed { map.address } else { 0 };
    let (Some(lane), Some(place)) = (lane::own(), pages::pages(at, length)) else {
        return make();
    };
    let sort = Sort::of(map.protection, map.flags, caller);
    let peak = ledger().budget().peak();
    let Some(visit) = Visit::of_mapping(lane, &map, bytes(place.len()), caller) else {
        return FAILED;
    };
    let paid = match sort {
        // Before the rest is known: what the kernel does not give was never held.
        Sort::Charged(kind) if !is_at_once(map.flags) => {
            if charges::is_hopeless(lane, kind, bytes(place.len())) {
                return charges::refuse_call(lane, bytes(place.len()), caller);
            }
            0
        }
        Sort::Charged(kind) => {
            let there = if is_fixed { pages::charged(&place).of(kind) } else { 0 };
            let (more, whole) = (bytes(place.len().saturating_sub(there)), bytes(place.len()));
            if !charges::charge_call(lane, kind, more, whole, caller) {
                return FAILED;
            }
            more
        }
        Sort::Open | Sort::Other => 0,
    };
    let leaving = is_fixed.then(|| Leaving::of(&place));
    let away = Away::begin(lane, sort.kind(), paid);
    let result = make();
    if result == FAILED {
        if is_fixed {
            pages::stay(&place);
        }
        // (Libraries ask for huge pages that there are none of, and the like.)
        blur_since(peak);
        charges::give_back(lane, sort.kind(), if away.end() { paid } else { 0 });
        visit.end(lane, &(0..0));
        return result;
    }
    let Some(place) = pages::pages(result, length) else { return result };
    let leaving = leaving.unwrap_or_else(|| Leaving::of(&place));
    pages::gone(&place);
    let whole = bytes(place.len());
    let due = match sort {
        Sort::Charged(_) if !is_at_once(map.flags) => whole,
        _ => paid,
    };
    // Right before the pages themselves are charged: a jump between the two is not noticed.
    let is_paid = away.end() && paid == due;
    if !is_paid && !charges::charge_call(lane, sort.kind(), due, whole, caller) {
        mappings::unmap_again(result, length);
        leaving.gone(lane);
        visit.end(lane, &(0..0));
        return FAILED;
    }
    let made = bytes(sort.set(&place));
    leaving.replace(lane, sort.kind(), due, made);
    visit.end(lane, &place);
    result
}

/// A call has failed that was charged before; the peak may have risen by it since it was this.
fn blur_since(peak: u64) {
    if ledger().budget().peak() != peak {
        ledger().header().blur();
    }
}

/// Whether the pages of a mapping are there, or others are lost, by the time that the kernel has made it: it is charged
/// before.
fn is_at_once(flags: c_int) -> bool {
    flags & (MAP_FIXED | MAP_LOCKED | MAP_POPULATE) != 0
}

/// `munmap`.
pub fn unmap(address: usize, length: usize, make: impl FnOnce() -> c_int) -> c_int {
    let was_heap = heaps::unmapped(address, length);
    let result = unmap_charged(address, length, make);
    if result != 0 && was_heap {
        heaps::mapped(address, length);
    }
    result
}

fn unmap_charged(address: usize, length: usize, make: impl FnOnce() -> c_int) -> c_int {
    let (Some(lane), Some(place)) = (lane::own(), pages::pages(address, length)) else {
        return make();
    };
    let leaving = Leaving::of(&place);
    let result = make();
    if result == 0 {
        pages::gone(&place);
        leaving.gone(lane);
    } else {
        pages::stay(&place);
    }
    result
}

/// `mprotect`. (What was charged stays so without the right to write: the pages keep what is in them. One
/// that fails may have changed a part of the pages, so all stay charged.)
pub fn protect(
    (address, length, protection): (usize, usize, c_int),
    caller: usize,
    make: impl FnOnce() -> c_int,
) -> c_int {
    if protection & PROT_WRITE != 0
        && let (Some(lane), Some(place)) = (lane::own(), pages::pages(address, length))
    {
        let more = bytes(pages::openable(&place));
        let kind = starting::row(Kind::Mappings, caller);
        if more > 0 {
            if !charges::charge_call(lane, kind, more, more, caller) {
                return -1;
            }
            let due = pages::charge_open(&place, kind == Kind::MpiRuntime);
            charges::settle(lane, kind, more, bytes(due) as i64);
        }
    }
    make()
}

/// The arguments of `mremap`.
#[derive(Clone, Copy)]
pub struct Remap {
    pub address: usize,
    pub old: usize,
    pub new: usize,
    pub flags: c_int,
    pub target: usize,
}

impl Remap {
    /// Whether what was mapped stays so: it does, too, where a shared mapping of no length is "moved".
    fn keeps(&self) -> bool {
        self.flags & MREMAP_DONTUNMAP != 0 || self.old == 0
    }

    fn target(&self) -> Option<Pages> {
        (self.flags & MREMAP_FIXED != 0).then(|| pages::pages(self.target, self.new)).flatten()
    }
}

/// `mremap`.
pub fn remap(remap: Remap, caller: usize, make: impl FnOnce() -> usize) -> usize {
    if !heaps::is_for_blocks(caller) {
        return remap_charged(remap, caller, make);
    }
    let was_heap = !remap.keeps() && heaps::unmapped(remap.address, remap.old);
    let result = remap_charged(remap, caller, make);
    if result != FAILED {
        heaps::mapped(result, remap.new);
    } else if was_heap {
        heaps::mapped(remap.address, remap.old);
    }
    result
}

fn remap_charged(remap: Remap, caller: usize, make: impl FnOnce() -> usize) -> usize {
    let before = pages::pages(remap.address, remap.old.max(1));
    let after = pages::pages(remap.address, remap.new);
    let (Some(lane), Some(before), Some(after)) = (lane::own(), before, after) else {
        return make();
    };
    let length = after.len();
    if let Some(object) = pages::object(before.start) {
        return move_object(lane, object, (remap, before, length), caller, make);
    }
    let is_still = remap.flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) == 0;
    if is_still && length <= before.len() {
        return shrink(lane, &(after.end..before.end), make);
    }
    move_to(lane, (remap, before, length), caller, make)
}

/// A mapping of an object moves, or changes its length.
fn move_object(
    lane: Lane,
    object: usize,
    (remap, before, length): (Remap, Pages, usize),
    caller: usize,
    make: impl FnOnce() -> usize,
) -> usize {
    let Some(visit) = Visit::of_object(lane, object, bytes(length), caller) else {
        return FAILED;
    };
    let target = remap.target();
    let mut leaving = target.as_ref().map(Leaving::of).unwrap_or_default();
    let result = make();
    let place = pages::pages(result, remap.new).filter(|_| result != FAILED);
    let Some(place) = place else {
        target.iter().for_each(pages::stay);
        visit.end(lane, &(0..0));
        return result;
    };
    if !remap.keeps() {
        leaving.add(&before);
    }
    leaving.add(&place);
    pages::gone(&place);
    leaving.gone(lane);
    visit.end(lane, &place);
    result
}

/// A mapping becomes shorter, by these pages.
fn shrink(lane: Lane, rest: &Pages, make: impl FnOnce() -> usize) -> usize {
    let leaving = Leaving::of(rest);
    let result = make();
    if result == FAILED {
        pages::stay(rest);
    } else {
        pages::gone(rest);
        leaving.gone(lane);
    }
    result
}

/// A mapping moves, or becomes longer. All its pages are alike: the kernel does neither for others.
fn move_to(
    lane: Lane,
    (remap, before, length): (Remap, Pages, usize),
    caller: usize,
    make: impl FnOnce() -> usize,
) -> usize {
    let (keeps, target) = (remap.keeps(), remap.target());
    let (old, sort) = (pages::charged(&before), Sort::at(&before));
    let peak = ledger().budget().peak();
    let mut paid = 0;
    if let Sort::Charged(kind) = sort {
        let freed = if keeps { 0 } else { old.of(kind) };
        let there = target.as_ref().map_or(0, |target| pages::charged(target).of(kind));
        paid = bytes(length.saturating_sub(freed + there));
        if !charges::charge_call(lane, kind, paid, bytes(length), caller) {
            return FAILED;
        }
    }
    let mut leaving = target.as_ref().map(Leaving::of).unwrap_or_default();
    if !keeps {
        leaving.add(&before);
    }
    let result = make();
    let place = pages::pages(result, remap.new).filter(|_| result != FAILED);
    let Some(place) = place else {
        target.iter().chain([&before]).for_each(pages::stay);
        blur_since(peak);
        charges::give_back(lane, sort.kind(), paid);
        return result;
    };
    if !keeps {
        pages::gone(&before);
    }
    leaving.add(&place);
    pages::gone(&place);
    let made = bytes(sort.set(&place));
    leaving.replace(lane, sort.kind(), paid, made);
    result
}

/// `sbrk`, where `end` tells where the data ends and `make` moves that; both are libc's.
pub fn move_break(
    increment: isize,
    caller: usize,
    end: impl FnOnce() -> usize,
    make: impl FnOnce() -> usize,
) -> usize {
    if increment == 0 {
        return make();
    }
    if heaps::is_for_blocks(caller) {
        let old = make();
        if old != FAILED && increment > 0 {
            heaps::mapped(old, increment as usize);
        }
        return old;
    }
    let (Some(lane), old) = (lane::own(), end()) else { return make() };
    let (kind, peak) = (starting::row(Kind::Mappings, caller), ledger().budget().peak());
    let paid = bytes(between(old, increment).len());
    let paid = if increment > 0 { paid } else { 0 };
    if paid > 0 && !charges::charge_call(lane, kind, paid, increment as u64, caller) {
        return FAILED;
    }
    let leaving = (increment < 0).then(|| Leaving::of(&between(old, increment)));
    let old_now = make();
    if old_now == FAILED {
        if increment < 0 {
            pages::stay(&between(old, increment));
        }
        blur_since(peak);
        charges::give_back(lane, kind, paid);
        return FAILED;
    }
    let place = between(old_now, increment);
    match leaving {
        Some(leaving) => {
            pages::gone(&place);
            leaving.gone(lane);
        }
        None => {
            let made = bytes(pages::charge(&place, kind == Kind::MpiRuntime));
            charges::settle(lane, kind, paid, made as i64);
        }
    }
    old_now
}

/// `brk`.
pub fn set_break(
    address: usize,
    caller: usize,
    end: impl Fn() -> usize,
    make: impl FnOnce() -> c_int,
) -> c_int {
    let old = end();
    let increment = address.wrapping_sub(old) as isize;
    let made = move_break(increment, caller, || old, || if make() == 0 { old } else { FAILED });
    if made == FAILED { -1 } else { 0 }
}

/// `shmat`.
pub fn attach(id: c_int, caller: usize, make: impl FnOnce() -> usize) -> usize {
    let Some(lane) = lane::own() else { return make() };
    let Some((visit, size)) = Visit::of_segment(lane, id, caller) else { return FAILED };
    let result = make();
    let place = pages::pages(result, size).filter(|_| result != FAILED);
    if let Some(place) = &place {
        let leaving = Leaving::of(place);
        pages::gone(place);
        leaving.gone(lane);
    }
    visit.end(lane, &place.unwrap_or_default());
    result
}

/// `shmdt`.
pub fn detach(address: usize, make: impl FnOnce() -> c_int) -> c_int {
    let place = lane::own().zip(shared::segment_at(address));
    let Some((lane, place)) = place else { return make() };
    let mut leaving = shared::Leaving::default();
    leaving.add(&place);
    let result = make();
    if result == 0 {
        leaving.gone(lane);
    }
    result
}

/// The whole pages that lie between an end of the data and the one that is so far from it.
fn between(end: usize, increment: isize) -> Pages {
    let pages = [end, end.wrapping_add_signed(increment)].map(|end| end.div_ceil(PAGE));
    pages[0].min(pages[1])..pages[0].max(pages[1])
}
