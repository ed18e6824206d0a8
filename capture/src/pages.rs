//! The page map: what is known of each page of the program's own mappings.
//!
//! ```text
//! address bits 46..32: the leaf        31..12: the page in it, a bit in each of its planes
//! ```
//!
//! A page is *charged* when it is writable, private and without a file, and *open* when it could become so:
//! it was mapped without the right to write. A page that belongs to a [shared object](crate::shared) has the
//! object's number. Other pages, those of allocators among them, are blank.
//!
//! Every change tells how many pages it changed, so of two threads that unmap the same pages only one
//! gives them back. A page that is about to be unmapped becomes *leaving*, since once it is unmapped its address
//! may be another thread's. A fork's child has a copy of the map; what its parent had charged is *inherited*.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};

use heaptape_wire::ledger::Kind;

use crate::lifecycle;
use crate::sizes::map;

/// Bits of an address within a page.
const PAGE_BITS: u32 = 12;
/// Bytes of a page.
pub const PAGE: usize = 1 << PAGE_BITS;
const ADDRESS_BITS: u32 = 47;
/// Address space that one leaf is for: 4 GiB.
const LEAF_BITS: u32 = 32;
const LEAVES: usize = 1 << (ADDRESS_BITS - LEAF_BITS);
const PAGES: usize = 1 << (LEAF_BITS - PAGE_BITS);
const WORDS: usize = PAGES / 64;
/// Leaves that are set aside when no more can be asked for.
const SPARE_LEAVES: usize = 4;

type Plane = [AtomicU64; WORDS];

/// What is known of the pages of 4 GiB.
#[repr(C)]
struct Leaf {
    charged: Plane,
    /// Of charged pages: they stand in the row of the MPI runtime.
    starting: Plane,
    leaving: Plane,
    open: Plane,
    /// Of a leaf all of whose pages were open: those that are no longer.
    shut: Plane,
    inherited: Plane,
    /// By page the number of its object, plus one.
    objects: [AtomicU16; PAGES],
    /// 1 once any page belonged to an object.
    has_objects: AtomicU32,
}

#[repr(C)]
struct Directory {
    leaves: [AtomicPtr<Leaf>; LEAVES],
    /// All pages of a leaf are open, but for those that are shut: a reservation may be larger than memory
    /// that has a bit for each of its pages.
    is_open: [AtomicBool; LEAVES],
}

static DIRECTORY: AtomicPtr<Directory> = AtomicPtr::new(core::ptr::null_mut());
static SPARE: AtomicPtr<Leaf> = AtomicPtr::new(core::ptr::null_mut());
static SPARE_LEFT: AtomicU32 = AtomicU32::new(0);

/// Pages by the row that they are charged in.
#[derive(Clone, Copy, Default)]
pub struct Counted {
    /// The program's mappings.
    pub mappings: usize,
    /// Those of the MPI runtime, from its start.
    pub starting: usize,
    /// Those that came with the fork, and are charged to the parent.
    pub inherited: usize,
}

/// A stretch of pages, by number.
pub type Pages = Range<usize>;

/// The pages from an address on that `bytes` reach into; `None` where there can be none, or where the
/// address is within a page.
pub fn pages(address: usize, bytes: usize) -> Option<Pages> {
    let end = address.checked_add(bytes)?.checked_next_multiple_of(PAGE)?;
    let is_fine = address.is_multiple_of(PAGE) && bytes > 0 && end <= 1 << ADDRESS_BITS;
    is_fine.then_some(address >> PAGE_BITS..end >> PAGE_BITS)
}

/// Begins an empty map; false where there is no memory for it.
pub fn begin() -> bool {
    let fresh = map(size_of::<Directory>());
    DIRECTORY.store(fresh.cast(), Ordering::Release);
    !fresh.is_null()
}

/// The program is about to enter a sandbox, which may forbid to ask for memory: sets some aside.
pub fn provide() {
    if SPARE_LEFT.load(Ordering::Relaxed) == 0 {
        let spare = map(SPARE_LEAVES * size_of::<Leaf>());
        if !spare.is_null() {
            SPARE.store(spare.cast(), Ordering::Relaxed);
            SPARE_LEFT.store(SPARE_LEAVES as u32, Ordering::Release);
        }
    }
}

/// A fork has made this process: what is charged so far is its parent's.
pub fn inherit() {
    let Some(directory) = directory() else { return };
    for place in &directory.leaves {
        // SAFETY: null, or a leaf that stays mapped.
        let Some(leaf) = (unsafe { place.load(Ordering::Relaxed).as_ref() }) else { continue };
        for (charged, inherited) in leaf.charged.iter().zip(&leaf.inherited) {
            if charged.load(Ordering::Relaxed) != 0 {
                inherited.fetch_or(charged.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
}

/// How many of these pages are charged.
pub fn charged(pages: &Pages) -> Counted {
    let mut counted = Counted::default();
    each_word(pages, false, |leaf, word, mask| {
        counted.add(leaf, word, leaf.charged_in(word) & mask);
        let inherited = leaf.inherited[word].load(Ordering::Relaxed) & mask;
        counted.inherited += inherited.count_ones() as usize;
    });
    counted
}

/// Whether this page is open.
pub fn is_open(page: usize) -> bool {
    openable(&(page..page + 1)) > 0
}

/// How many of these pages are open.
pub fn openable(pages: &Pages) -> usize {
    let mut count = 0;
    each_part(pages, |directory, place, words| {
        let all = directory.is_open[place].load(Ordering::Acquire);
        match leaf(directory, place) {
            None if all => count += words.len(),
            None => {}
            Some(leaf) => each_mask(&words, |word, mask| {
                count += (leaf.open_in(word, all) & mask).count_ones() as usize;
            }),
        }
    });
    count
}

/// Charges those of these pages that are open; how many they were.
pub fn charge_open(pages: &Pages, is_starting: bool) -> usize {
    let mut fresh = 0;
    each_part(pages, |directory, place, words| {
        let all = directory.is_open[place].load(Ordering::Acquire);
        let found = leaf(directory, place);
        let Some(leaf) = found.or_else(|| all.then(|| new_leaf(directory, place)).flatten()) else {
            return;
        };
        each_mask(&words, |word, mask| {
            let open = leaf.open_in(word, all) & mask;
            if open != 0 {
                leaf.shut(word, open, all);
                fresh += leaf.charge(word, open, is_starting);
            }
        });
    });
    fresh
}

/// Charges these pages, whatever was known of them; how many were not charged.
pub fn charge(pages: &Pages, is_starting: bool) -> usize {
    shut(pages);
    let mut fresh = 0;
    each_word(pages, true, |leaf, word, mask| {
        leaf.inherited[word].fetch_and(!mask, Ordering::Relaxed);
        fresh += leaf.charge(word, mask, is_starting);
    });
    fresh
}

/// Makes these pages open.
pub fn open(pages: &Pages) {
    each_part(pages, |directory, place, words| {
        if words.len() == PAGES {
            if let Some(leaf) = leaf(directory, place) {
                leaf.shut.iter().for_each(wipe);
            }
            directory.is_open[place].store(true, Ordering::Release);
        } else if let Some(leaf) = leaf(directory, place).or_else(|| new_leaf(directory, place)) {
            each_mask(&words, |word, mask| {
                leaf.open[word].fetch_or(mask, Ordering::Relaxed);
                leaf.shut[word].fetch_and(!mask, Ordering::Relaxed);
            });
        }
    });
}

/// Makes these pages open no longer.
fn shut(pages: &Pages) {
    each_part(pages, |directory, place, words| {
        let all = directory.is_open[place].load(Ordering::Acquire);
        let found = leaf(directory, place);
        if words.len() == PAGES {
            directory.is_open[place].store(false, Ordering::Release);
            found.into_iter().for_each(|leaf| leaf.open.iter().for_each(wipe));
        } else if let Some(leaf) =
            found.or_else(|| all.then(|| new_leaf(directory, place)).flatten())
        {
            each_mask(&words, |word, mask| leaf.shut(word, mask, all));
        }
    });
}

/// These pages are about to be unmapped; what was charged of them.
pub fn leave(pages: &Pages) -> Counted {
    let mut counted = Counted::default();
    each_word(pages, false, |leaf, word, mask| {
        if leaf.inherited[word].load(Ordering::Relaxed) & mask != 0 {
            let inherited = leaf.inherited[word].fetch_and(!mask, Ordering::Relaxed) & mask;
            counted.inherited += inherited.count_ones() as usize;
        }
        if leaf.charged_in(word) & mask != 0 {
            let left = leaf.charged[word].fetch_and(!mask, Ordering::Relaxed) & mask;
            counted.add(leaf, word, left);
            leaf.leaving[word].fetch_or(left, Ordering::Relaxed);
        }
    });
    counted
}

/// They are unmapped, or something else is mapped there.
pub fn gone(pages: &Pages) {
    each_word(pages, false, |leaf, word, mask| leaf.stop_leaving(word, mask, false));
    shut(pages);
}

/// They could not be unmapped.
pub fn stay(pages: &Pages) {
    each_word(pages, false, |leaf, word, mask| leaf.stop_leaving(word, mask, true));
}

/// Notes that these pages belong to an object; how many did not.
pub fn give(pages: &Pages, object: usize) -> usize {
    let number = object as u16 + 1;
    let mut fresh = 0;
    each_object(pages, true, |place| {
        fresh += usize::from(place.swap(number, Ordering::Relaxed) != number);
    });
    fresh
}

/// Takes these pages from an object; how many belonged to it.
pub fn take(pages: &Pages, object: usize) -> usize {
    let number = object as u16 + 1;
    let mut taken = 0;
    each_object(pages, false, |place| {
        let is_its =
            place.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        taken += usize::from(is_its);
    });
    taken
}

/// The objects that these pages belong to, each stretch by its object and pages.
pub fn objects(pages: &Pages, mut see: impl FnMut(usize, usize)) {
    let mut stretch = (0, 0);
    each_object(pages, false, |place| {
        let number = place.load(Ordering::Relaxed);
        if number != stretch.0 {
            if stretch.0 != 0 {
                see(usize::from(stretch.0) - 1, stretch.1);
            }
            stretch = (number, 0);
        }
        stretch.1 += 1;
    });
    if stretch.0 != 0 {
        see(usize::from(stretch.0) - 1, stretch.1);
    }
}

/// The object that this page belongs to.
pub fn object(page: usize) -> Option<usize> {
    let mut found = None;
    objects(&(page..page + 1), |object, _| found = Some(object));
    found
}

/// All pages of an object get another number.
pub fn renumber(from: usize, to: usize) {
    let Some(directory) = directory() else { return };
    for place in (0..LEAVES).filter(|&place| leaf(directory, place).is_some()) {
        let first = place << (LEAF_BITS - PAGE_BITS);
        each_object(&(first..first + PAGES), false, |object| {
            let (from, to) = (from as u16 + 1, to as u16 + 1);
            let _ = object.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        });
    }
}

impl Counted {
    /// Pages in the row of this kind.
    pub fn of(&self, kind: Kind) -> usize {
        if kind == Kind::MpiRuntime { self.starting } else { self.mappings }
    }

    fn add(&mut self, leaf: &Leaf, word: usize, pages: u64) {
        let starting = leaf.starting[word].load(Ordering::Relaxed) & pages;
        self.starting += starting.count_ones() as usize;
        self.mappings += (pages & !starting).count_ones() as usize;
    }
}

impl Leaf {
    fn charged_in(&self, word: usize) -> u64 {
        self.charged[word].load(Ordering::Relaxed)
    }

    fn open_in(&self, word: usize, all: bool) -> u64 {
        match all {
            true => !self.shut[word].load(Ordering::Relaxed),
            false => self.open[word].load(Ordering::Relaxed),
        }
    }

    fn shut(&self, word: usize, mask: u64, all: bool) {
        if all {
            self.shut[word].fetch_or(mask, Ordering::Relaxed);
        }
        if self.open[word].load(Ordering::Relaxed) & mask != 0 {
            self.open[word].fetch_and(!mask, Ordering::Relaxed);
        }
    }

    fn charge(&self, word: usize, mask: u64, is_starting: bool) -> usize {
        let fresh = mask & !self.charged[word].fetch_or(mask, Ordering::Relaxed);
        match is_starting {
            true => self.starting[word].fetch_or(fresh, Ordering::Relaxed),
            false => self.starting[word].fetch_and(!fresh, Ordering::Relaxed),
        };
        fresh.count_ones() as usize
    }

    fn stop_leaving(&self, word: usize, mask: u64, stays: bool) {
        if self.leaving[word].load(Ordering::Relaxed) & mask != 0 {
            let left = self.leaving[word].fetch_and(!mask, Ordering::Relaxed) & mask;
            self.charged[word].fetch_or(if stays { left } else { 0 }, Ordering::Relaxed);
        }
    }
}

fn wipe(word: &AtomicU64) {
    if word.load(Ordering::Relaxed) != 0 {
        word.store(0, Ordering::Relaxed);
    }
}

fn directory() -> Option<&'static Directory> {
    // SAFETY: null, or a directory that stays mapped.
    unsafe { DIRECTORY.load(Ordering::Relaxed).as_ref() }
}

fn leaf(directory: &Directory, place: usize) -> Option<&'static Leaf> {
    // SAFETY: null, or a leaf that stays mapped.
    unsafe { directory.leaves[place].load(Ordering::Acquire).as_ref() }
}

/// Makes a leaf, or finds that another thread has just made it. (Then the new one is lost; it has never been
/// touched.)
#[cold]
fn new_leaf(directory: &Directory, place: usize) -> Option<&'static Leaf> {
    let fresh = fresh_leaf();
    if !fresh.is_null() {
        let null = core::ptr::null_mut();
        let word = &directory.leaves[place];
        let _ = word.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire);
    }
    leaf(directory, place)
}

fn fresh_leaf() -> *mut Leaf {
    if !lifecycle::is_sandboxed() {
        return map(size_of::<Leaf>()).cast();
    }
    let left = |left: u32| left.checked_sub(1);
    match SPARE_LEFT.fetch_update(Ordering::AcqRel, Ordering::Acquire, left) {
        // SAFETY: so many leaves lie there, and each number is handed out once.
        Ok(number) => unsafe { SPARE.load(Ordering::Relaxed).add(number as usize - 1) },
        Err(_) => core::ptr::null_mut(),
    }
}

/// The parts of a stretch that lie in one leaf each, as pages of it.
fn each_part(pages: &Pages, mut act: impl FnMut(&'static Directory, usize, Pages)) {
    let Some(directory) = directory() else { return };
    let mut at = pages.start;
    while at < pages.end {
        let (place, first) = (at / PAGES, at % PAGES);
        let count = (PAGES - first).min(pages.end - at);
        act(directory, place % LEAVES, first..first + count);
        at += count;
    }
}

/// The words that a stretch within a leaf lies in, and which bits of each.
fn each_mask(pages: &Pages, mut act: impl FnMut(usize, u64)) {
    let mut at = pages.start;
    while at < pages.end {
        let (word, first) = (at / 64, at % 64);
        let count = (64 - first).min(pages.end - at);
        act(word % WORDS, (u64::MAX >> (64 - count)) << first);
        at += count;
    }
}

fn each_word(pages: &Pages, makes: bool, mut act: impl FnMut(&Leaf, usize, u64)) {
    each_part(pages, |directory, place, part| {
        let found = leaf(directory, place);
        let made = found.or_else(|| makes.then(|| new_leaf(directory, place)).flatten());
        if let Some(leaf) = made {
            each_mask(&part, |word, mask| act(leaf, word, mask));
        }
    });
}

fn each_object(pages: &Pages, makes: bool, mut act: impl FnMut(&AtomicU16)) {
    each_part(pages, |directory, place, part| {
        let found = leaf(directory, place);
        let made = found.or_else(|| makes.then(|| new_leaf(directory, place)).flatten());
        let Some(leaf) = made else { return };
        if makes {
            leaf.has_objects.store(1, Ordering::Release);
        }
        if leaf.has_objects.load(Ordering::Acquire) != 0 {
            leaf.objects.get(part).into_iter().flatten().for_each(&mut act);
        }
    });
}
