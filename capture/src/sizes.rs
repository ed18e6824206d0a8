//! The side map: the requested size of each live block, and the module that asked for it, by address.
//!
//! Blocks keep the sizes and addresses they would have had, so what is known of one lies elsewhere: two
//! bytes for each eight bytes of address space, at a place that its address alone tells. A small block
//! takes one such entry. A block too large for that has entries to spare, since nobody else can have a
//! block inside it: the next four hold its size.
//!
//! ```text
//! address bits 46..26: the leaf        3: which half of it        25..4: the entry in that
//! entry: module 6 · size + 1 10, or all ones of those 10 and the size in the four entries behind
//! ```
//!
//! An entry is written by the thread that was just handed the block, and cleared by the one that is
//! about to give it back: no other touches it meanwhile. A fork child has a copy. It goes on with a map
//! of its own, so that blocks which it inherited can be told from those that it made.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicUsize, Ordering};

use heaptape_wire::ledger::MODULES;

use crate::{lifecycle, zeros};

/// Bits of an address that a program can have.
const ADDRESS_BITS: u32 = 47;
/// Address space that one leaf is for: 64 MiB.
const LEAF_BITS: u32 = 26;
const GRANULE_BITS: u32 = 3;
const LEAVES: usize = 1 << (ADDRESS_BITS - LEAF_BITS);
const ENTRIES: usize = 1 << (LEAF_BITS - GRANULE_BITS);
/// Entries of blocks at even granules come first in a leaf: most allocators have no others, and theirs then lie
/// twice as close together.
const HALF: usize = ENTRIES / 2;
/// Bytes from one entry's address to that of the next in the same half.
const STEP: usize = 2 << GRANULE_BITS;
const LEAF_BYTES: usize = ENTRIES * size_of::<AtomicU16>();
/// Bytes of what leads to the leaves.
pub const DIRECTORY_BYTES: usize = LEAVES * size_of::<usize>();
/// Leaves that are set aside when no more can be asked for.
const SPARE_LEAVES: usize = 64;
/// Maps of processes that this one descends from by forks without an exec.
const GENERATIONS: usize = 16;

const SIZE_BITS: u32 = 10;
/// What stands for a size that lies in the entries behind.
const WIDE: u16 = (1 << SIZE_BITS) - 1;
/// Entries that a wide size takes.
const WIDE_ENTRIES: usize = 4;

type Leaf = [AtomicU16; ENTRIES];
type Directory = [AtomicPtr<Leaf>; LEAVES];

static DIRECTORY: AtomicPtr<Directory> = AtomicPtr::new(core::ptr::null_mut());
/// The maps that a fork brought along, the parent's last.
static INHERITED: [AtomicPtr<Directory>; GENERATIONS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; GENERATIONS];
static INHERITED_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Leaves that were set aside, and how many of them are left.
static SPARE: AtomicPtr<Leaf> = AtomicPtr::new(core::ptr::null_mut());
static SPARE_LEFT: AtomicUsize = AtomicUsize::new(0);

/// What is known of a block.
#[derive(Clone, Copy)]
pub struct Known {
    /// Requested bytes.
    pub size: u64,
    /// The number of the module that asked, and two bits. Never 0, and so all of it stays in two registers,
    /// also where nothing may be known.
    what: NonZeroU32,
}

impl Known {
    const KNOWN: u32 = 1 << 8;
    const INHERITED: u32 = 1 << 9;

    #[inline(always)]
    fn new(size: u64, what: u32) -> Option<Known> {
        Some(Known { size, what: NonZeroU32::new(what | Self::KNOWN)? })
    }

    /// The number of the module that asked.
    #[inline(always)]
    pub fn module(self) -> usize {
        self.what.get() as usize % MODULES
    }

    /// The block was there when a fork made this process.
    #[inline(always)]
    pub fn is_inherited(self) -> bool {
        self.what.get() & Self::INHERITED != 0
    }
}

/// Begins an empty map; false where there is no memory for it.
pub fn begin() -> bool {
    let fresh = map(DIRECTORY_BYTES);
    DIRECTORY.store(fresh.cast(), Ordering::Release);
    !fresh.is_null()
}

/// A fork has made this process: what is in the map so far is inherited.
pub fn inherit() -> bool {
    let before = DIRECTORY.load(Ordering::Relaxed);
    let count = INHERITED_COUNT.load(Ordering::Relaxed);
    if before.is_null() || !begin() {
        return false;
    }
    // Of a process with more ancestors than that the oldest ones' blocks are unknown.
    if let Some(place) = INHERITED.get(count) {
        place.store(before, Ordering::Relaxed);
        INHERITED_COUNT.store(count + 1, Ordering::Relaxed);
    }
    true
}

/// The program is about to enter a sandbox, which may forbid to ask for memory: sets some aside.
pub fn provide() {
    if SPARE_LEFT.load(Ordering::Relaxed) == 0 {
        let spare = map(SPARE_LEAVES * LEAF_BYTES);
        if !spare.is_null() {
            SPARE.store(spare.cast(), Ordering::Relaxed);
            SPARE_LEFT.store(SPARE_LEAVES, Ordering::Release);
        }
    }
}

/// Writes down a block that was just handed out.
#[inline(always)]
pub fn set(block: *mut u8, size: u64, module: usize) {
    set_in(DIRECTORY.load(Ordering::Relaxed), block, size, module);
}

#[inline(always)]
fn set_in(directory: *mut Directory, block: *mut u8, size: u64, module: usize) {
    let address = block as usize;
    let Some(leaf) = leaf(directory, address).or_else(|| new_leaf(directory, address)) else {
        return;
    };
    let place = place(address);
    let module = (module as u16) << SIZE_BITS;
    if size < u64::from(WIDE) - 1 {
        leaf[place].store(module | (size as u16 + 1), Ordering::Relaxed);
    } else {
        set_wide(directory, leaf, place, address, size);
        leaf[place].store(module | WIDE, Ordering::Relaxed);
    }
}

/// What is known of a block that is about to be given back; the map forgets it.
pub fn take(block: *mut u8) -> Option<Known> {
    take_own(block).or_else(|| take_inherited(block as usize))
}

/// The same of a block that the process has made itself.
#[inline(always)]
pub fn take_own(block: *mut u8) -> Option<Known> {
    take_from(DIRECTORY.load(Ordering::Relaxed), block as usize, 0)
}

#[inline(always)]
fn take_from(directory: *mut Directory, address: usize, how: u32) -> Option<Known> {
    let leaf = leaf(directory, address)?;
    let place = place(address);
    let entry = leaf[place].load(Ordering::Relaxed);
    if entry == 0 {
        return None;
    }
    leaf[place].store(0, Ordering::Relaxed);
    let what = u32::from(entry >> SIZE_BITS) | how;
    let size = match entry & WIDE {
        WIDE => take_wide(directory, leaf, place, address),
        small => u64::from(small) - 1,
    };
    Known::new(size, what)
}

#[cold]
#[inline(never)]
fn take_inherited(address: usize) -> Option<Known> {
    let count = INHERITED_COUNT.load(Ordering::Relaxed).min(GENERATIONS);
    INHERITED[..count].iter().rev().find_map(|directory| {
        take_from(directory.load(Ordering::Relaxed), address, Known::INHERITED)
    })
}

/// Puts back what [`take`] took. (What was inherited goes to the newest of the inherited maps.)
pub fn put_back(block: *mut u8, known: Known) {
    let inherited = INHERITED_COUNT.load(Ordering::Relaxed).min(GENERATIONS);
    let map = match inherited.checked_sub(1) {
        Some(newest) if known.is_inherited() => &INHERITED[newest],
        _ => &DIRECTORY,
    };
    set_in(map.load(Ordering::Relaxed), block, known.size, known.module());
}

#[inline(always)]
fn place(address: usize) -> usize {
    let granule = address >> GRANULE_BITS & (ENTRIES - 1);
    (granule >> 1) | ((granule & 1) * HALF)
}

#[inline(always)]
fn leaf(directory: *mut Directory, address: usize) -> Option<&'static Leaf> {
    // SAFETY: null, or a directory that stays mapped; its leaves do so, too.
    unsafe { directory.as_ref()?.get(address >> LEAF_BITS)?.load(Ordering::Acquire).as_ref() }
}

/// The entry behind an address, in whatever leaf it lies.
fn entry(directory: *mut Directory, address: usize) -> Option<&'static AtomicU16> {
    Some(&leaf(directory, address)?[place(address)])
}

#[inline(always)]
fn wide_place(leaf: &Leaf, place: usize) -> Option<*mut u64> {
    let is_whole = place % HALF + WIDE_ENTRIES < HALF;
    let words = leaf.get(place + 1..place + 1 + WIDE_ENTRIES).filter(|_| is_whole)?;
    Some(words.as_ptr() as *mut u64)
}

#[inline(always)]
fn set_wide(directory: *mut Directory, leaf: &Leaf, place: usize, address: usize, size: u64) {
    match wide_place(leaf, place) {
        // SAFETY: four entries of the leaf, which belong to the block of the calling thread.
        Some(words) => unsafe { words.write_unaligned(size) },
        None => set_wide_across(directory, address, size),
    }
}

/// A block begins so near to the end of a leaf, or of its half, that its size lies in two.
#[cold]
#[inline(never)]
fn set_wide_across(directory: *mut Directory, address: usize, size: u64) {
    for part in 0..WIDE_ENTRIES {
        let at = address + (part + 1) * STEP;
        if leaf(directory, at).or_else(|| new_leaf(directory, at)).is_some()
            && let Some(entry) = entry(directory, at)
        {
            entry.store((size >> (16 * part)) as u16, Ordering::Relaxed);
        }
    }
}

#[inline(always)]
fn take_wide(directory: *mut Directory, leaf: &Leaf, place: usize, address: usize) -> u64 {
    match wide_place(leaf, place) {
        // SAFETY: as in `set_wide`.
        Some(words) => unsafe {
            let size = words.read_unaligned();
            words.write_unaligned(0);
            size
        },
        None => take_wide_across(directory, address),
    }
}

#[cold]
#[inline(never)]
fn take_wide_across(directory: *mut Directory, address: usize) -> u64 {
    (0..WIDE_ENTRIES).fold(0, |size, part| {
        let entry = entry(directory, address + (part + 1) * STEP);
        let bits = entry.map_or(0, |entry| entry.swap(0, Ordering::Relaxed));
        size | u64::from(bits) << (16 * part)
    })
}

/// Makes the leaf for an address, or finds that another thread has just made it.
#[cold]
#[inline(never)]
fn new_leaf(directory: *mut Directory, address: usize) -> Option<&'static Leaf> {
    // SAFETY: as in `leaf`.
    let place = unsafe { directory.as_ref()? }.get(address >> LEAF_BITS)?;
    let fresh = fresh_leaf();
    if fresh.is_null() {
        return None;
    }
    let null = core::ptr::null_mut();
    let leaf = match place.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(theirs) => {
            // (A spare one is lost.)
            if !lifecycle::is_sandboxed() {
                // SAFETY: just mapped, and nobody has seen it.
                unsafe { zeros::unmap(fresh.cast(), LEAF_BYTES) };
            }
            theirs
        }
    };
    // SAFETY: mapped, and stays so.
    unsafe { leaf.as_ref() }
}

fn fresh_leaf() -> *mut Leaf {
    if !lifecycle::is_sandboxed() {
        return map(LEAF_BYTES).cast();
    }
    let left = |left: usize| left.checked_sub(1);
    match SPARE_LEFT.fetch_update(Ordering::AcqRel, Ordering::Acquire, left) {
        // SAFETY: so many leaves lie there, and each number is handed out once.
        Ok(number) => unsafe { SPARE.load(Ordering::Relaxed).add(number - 1) },
        Err(_) => core::ptr::null_mut(),
    }
}

/// Zeros, to be given memory when they are touched; null where there are none.
pub fn map(bytes: usize) -> *mut u8 {
    zeros::map(bytes).unwrap_or(core::ptr::null_mut())
}
