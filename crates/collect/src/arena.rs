//! The shared arena from the collector's side: makes the file, gives memory to what it offers, takes
//! chunks back.
//!
//! A page is allocated before anything in it is offered, so that a full file system shows here, as an
//! error, and never as a SIGBUS in the program.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use heaptape_wire::atomic::Ordering;
use heaptape_wire::chunk::{
    ChunkHeader, FREE, HEADER_BYTES, LARGE_BYTES, NONE, SMALL_BYTES, SMALL_PER_EXTENT,
};
use heaptape_wire::ledger::{LEDGER_BYTES, Ledger};
use heaptape_wire::process::{SLOT_BYTES, SLOTS, SlotState};
use heaptape_wire::session::{
    ARENA_BYTES, Arena, EXTENTS, EXTENTS_AT, GUARD_BYTES, SLOTS_AT, Stamp,
};
use rustix::fs::{FallocateFlags, FlockOperation, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::ledger::SharedLedger;
use crate::{Error, arch};

const SHARED_MEMORY: &str = "/dev/shm";
/// Process slots offered from the start.
pub(crate) const FIRST_SLOTS: usize = 128;
/// Extents offered from the start: as large chunks, and cut into small ones.
pub(crate) const FIRST_LARGE: usize = 48;
pub(crate) const FIRST_SMALL: usize = 2;
/// Large chunks offered at the most while nobody waits; more only add to what must be drained.
const LARGE_LIMIT: usize = 192;
/// Free chunks of each kind to keep at hand.
const KEEP_LARGE: usize = 16;
const KEEP_SMALL: usize = 16;
/// Extents that are given memory in one round at the most, of each kind.
const OFFERED_AT_ONCE: usize = 32;

/// A chunk of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Chunk {
    Large(usize),
    Small(usize),
}

/// The arena and its file.
pub(crate) struct SharedArena {
    arena: Arena,
    /// Behind the arena, in a session that counts.
    ledger: Option<SharedLedger>,
    file: File,
    /// The path in `/dev/shm`, to be removed at the end; none where the file has no name there.
    named: Option<PathBuf>,
    session: PathBuf,
    /// Extents that were given memory.
    extents: usize,
    /// Those of them that are large chunks, and those that are cut into small ones.
    larges: Vec<usize>,
    smalls: Vec<usize>,
    slots: usize,
    ticks_per_ms: u32,
    full: bool,
}

impl SharedArena {
    /// Makes the arena of a session that records, in `/dev/shm` or, where there is no room, without a name
    /// there.
    pub(crate) fn create(stack_depth: u32) -> Result<SharedArena, Error> {
        let mut shared = Self::make(Purpose::Record)?;
        shared.arena.session().set_stacks(stack_depth);
        shared.open()?;
        Ok(shared)
    }

    /// The same for a session that counts, with a ledger behind the arena; `prepare` says in it what is
    /// wanted before anybody can join.
    pub(crate) fn create_counting(prepare: impl FnOnce(Ledger)) -> Result<SharedArena, Error> {
        let mut shared = Self::make(Purpose::Count)?;
        let ledger = SharedLedger::map(&shared.file)
            .map_err(|source| Error::Arena { what: "mapping the ledger", source })?;
        prepare(ledger.ledger());
        shared.ledger = Some(ledger);
        shared.arena.session().set_counting();
        shared.open()?;
        Ok(shared)
    }

    /// Makes and maps the file.
    fn make(purpose: Purpose) -> Result<SharedArena, Error> {
        sweep();
        let (file, named) = match create_named(purpose) {
            Ok((file, path)) => (file, Some(path)),
            Err(_) => (create_unnamed(purpose)?, None),
        };
        let session = named.clone().unwrap_or_else(|| {
            PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
        });
        // SAFETY: a new mapping of a file that nobody truncates; it stays for the process's life.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                ARENA_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }
        .map_err(|e| Error::Arena { what: "mapping it", source: e.into() })?;
        // SAFETY: just mapped, of that size, never unmapped.
        let arena = unsafe { Arena::new(base.cast()) };
        Ok(SharedArena {
            arena,
            ledger: None,
            file,
            named,
            session,
            extents: 0,
            larges: Vec::new(),
            smalls: Vec::new(),
            slots: 0,
            ticks_per_ms: arch::ticks_per_ms(),
            full: false,
        })
    }

    /// Offers what there is from the start, and lets everybody join.
    fn open(&mut self) -> Result<(), Error> {
        self.hold_guard()?;
        self.offer_slots(FIRST_SLOTS);
        for _ in 0..FIRST_SMALL {
            self.offer_extent(false);
        }
        for _ in 0..FIRST_LARGE {
            self.offer_extent(true);
        }
        let stamp = if tsc_is_trusted() { Stamp::Tsc } else { Stamp::Counter };
        self.arena.session().open(random()?, stamp, self.ticks_per_ms);
        Ok(())
    }

    /// The mapped arena.
    pub(crate) fn arena(&self) -> Arena {
        self.arena
    }

    /// The ledger, in a session that counts.
    pub(crate) fn ledger(&self) -> Option<Ledger> {
        self.ledger.as_ref().map(SharedLedger::ledger)
    }

    /// Sheets of the ledger that somebody may have, and memory for the next ones.
    pub(crate) fn sheets(&mut self) -> usize {
        let Some(ledger) = &mut self.ledger else { return 0 };
        ledger.replenish(&self.file);
        ledger.taken()
    }

    /// What the capture library opens.
    pub(crate) fn session_path(&self) -> &Path {
        &self.session
    }

    /// Device and inode of its file, as `/proc/PID/maps` tells them.
    pub(crate) fn identity(&self) -> Result<((u32, u32), u64), Error> {
        let meta = self.file.metadata();
        let meta = meta.map_err(|source| Error::Arena { what: "looking at its file", source })?;
        let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        Ok((device, meta.ino()))
    }

    /// Locks the robust mutex whose word the kernel marks when this thread, and so the collector,
    /// dies.
    fn hold_guard(&self) -> Result<(), Error> {
        const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= GUARD_BYTES);
        let mutex: *mut libc::pthread_mutex_t =
            (&raw const self.arena.session().guard).cast_mut().cast();
        // SAFETY: the mutex lies in memory that is never unmapped and is large and aligned enough;
        // the attribute is initialised before use.
        let status = unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            libc::pthread_mutexattr_setpshared(&mut attributes, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init(mutex, &attributes);
            libc::pthread_mutexattr_destroy(&mut attributes);
            libc::pthread_mutex_lock(mutex)
        };
        match status {
            0 => Ok(()),
            error => Err(Error::Arena {
                what: "the robust mutex",
                source: io::Error::from_raw_os_error(error),
            }),
        }
    }

    fn allocate(&mut self, offset: usize, bytes: usize) -> bool {
        let done =
            rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset as u64, bytes as u64);
        self.full = done.is_err();
        done.is_ok()
    }

    /// Offers `count` more process slots.
    pub(crate) fn offer_slots(&mut self, count: usize) {
        let end = (self.slots + count).min(SLOTS);
        let bytes = (end - self.slots) * SLOT_BYTES;
        let new = self.slots..end;
        let has_accounts = |ledger: &SharedLedger| ledger.open_accounts(&self.file, new.clone());
        if bytes > 0
            && self.ledger.as_ref().is_none_or(has_accounts)
            && self.allocate(SLOTS_AT + self.slots * SLOT_BYTES, bytes)
        {
            new.for_each(|index| self.arena.slot(index).offer(1));
            self.slots = end;
        }
        self.restate();
    }

    /// Says how much there is of all; also once more where a program has written over it, since those that come later
    /// would look in vain, and wait.
    pub(crate) fn restate(&self) {
        let session = self.arena.session();
        let small = |extent: Option<&usize>| extent.map_or(0..0, |&extent| smalls_of(extent));
        let words = [
            (&session.tsc_per_ms, self.ticks_per_ms.max(1)),
            (&session.slots_ready, self.slots as u32),
            (&session.large_end, self.larges.last().map_or(0, |&extent| extent as u32 + 1)),
            (&session.small_start, small(self.smalls.first()).start as u32),
            (&session.small_end, small(self.smalls.last()).end as u32),
        ];
        for (word, value) in words {
            if word.load(Ordering::Relaxed) != value {
                word.store(value, Ordering::Release);
            }
        }
        self.ledger.iter().for_each(SharedLedger::restate);
    }

    /// Slots that the next processes may take.
    pub(crate) fn free_slots(&self) -> usize {
        let is_free = |&slot: &usize| self.arena.slot(slot).state() == SlotState::Free;
        (0..self.slots).filter(is_free).count()
    }

    /// Offers a slot again, under its next generation.
    pub(crate) fn offer_again(&self, slot: u16, generation: u32) {
        if let Some(ledger) = self.ledger() {
            // In this order: who finds no knell that rings looks whether an end was noted meanwhile.
            ledger.header().note_end();
            ledger.knell(slot as usize).clear();
            ledger.account(slot as usize).open(generation + 1);
        }
        self.arena.slot(slot as usize).offer(generation + 1);
    }

    /// Slots that have been offered at least once.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    fn offer_extent(&mut self, large: bool) -> bool {
        let extent = self.extents;
        if extent >= EXTENTS || !self.allocate(EXTENTS_AT + extent * LARGE_BYTES, LARGE_BYTES) {
            return false;
        }
        self.extents += 1;
        if large {
            self.larges.push(extent);
            self.put(Chunk::Large(extent));
        } else {
            self.smalls.push(extent);
            smalls_of(extent).for_each(|small| self.put(Chunk::Small(small)));
        }
        self.restate();
        self.arena.session().count_offer();
        true
    }

    /// Chunks that lie in offered extents, with their owner words.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (Chunk, u64)> + '_ {
        let (larges, smalls) = (self.arena.large_owners(), self.arena.small_owners());
        let large = self.larges.iter().map(|&i| (Chunk::Large(i), &larges[i]));
        let small = self.smalls.iter().flat_map(|&extent| smalls_of(extent));
        let small = small.map(|i| (Chunk::Small(i), &smalls[i]));
        large
            .chain(small)
            .map(|(chunk, word)| (chunk, word.load(Ordering::Acquire)))
            .filter(|(_, word)| *word != NONE)
    }

    /// The header of a chunk.
    pub(crate) fn header(&self, chunk: Chunk) -> &'static ChunkHeader {
        // SAFETY: a chunk begins with its header, which consists of atomics.
        unsafe { &*self.start(chunk).cast::<ChunkHeader>() }
    }

    fn start(&self, chunk: Chunk) -> *mut u8 {
        match chunk {
            Chunk::Large(index) => self.arena.large(index),
            Chunk::Small(index) => self.arena.small(index),
        }
    }

    /// Bytes behind the header.
    pub(crate) fn capacity(chunk: Chunk) -> usize {
        match chunk {
            Chunk::Large(_) => LARGE_BYTES - HEADER_BYTES,
            Chunk::Small(_) => SMALL_BYTES - HEADER_BYTES,
        }
    }

    /// Appends the words `from..to` (in bytes behind the header) of a chunk to `out`.
    pub(crate) fn copy(&self, chunk: Chunk, from: usize, to: usize, out: &mut Vec<u64>) {
        let to = to.min(Self::capacity(chunk));
        if from >= to {
            return;
        }
        let count = (to - from) / 8;
        out.reserve(count);
        // SAFETY: the range lies in the chunk, whose pages are allocated, and behind the published
        // length nothing is read; the copy goes into reserved memory. A process that scribbles over
        // the chunk can change the bytes meanwhile; any bytes are valid words, and they are decoded
        // from the copy.
        unsafe {
            let source = self.start(chunk).add(HEADER_BYTES + from).cast::<u64>();
            std::ptr::copy_nonoverlapping(source, out.as_mut_ptr().add(out.len()), count);
            out.set_len(out.len() + count);
        }
    }

    /// Offers a chunk again.
    pub(crate) fn release(&self, chunk: Chunk) {
        self.put(chunk);
        self.arena.session().count_offer();
    }

    fn put(&self, chunk: Chunk) {
        self.header(chunk).reset();
        let word = match chunk {
            Chunk::Large(index) => &self.arena.large_owners()[index],
            Chunk::Small(index) => &self.arena.small_owners()[index],
        };
        word.store(FREE, Ordering::Release);
    }

    /// Keeps chunks at hand, also for threads that wait; true when any was offered. `starved`: nothing
    /// is free although everything written has been drained, so that threads that write nothing must
    /// hold all chunks. There may be thousands of them: then small chunks are offered. `spinning`: some who
    /// wait can't sleep, and take the time in which others would end and give theirs back.
    pub(crate) fn replenish(
        &mut self,
        free: FreeChunks,
        waiting: usize,
        starved: bool,
        spinning: bool,
    ) -> bool {
        let before = self.extents;
        let wanted = KEEP_LARGE + waiting.min(OFFERED_AT_ONCE);
        for _ in free.large..wanted {
            if self.larges.len() >= LARGE_LIMIT || !self.offer_extent(true) {
                break;
            }
        }
        let most = OFFERED_AT_ONCE * SMALL_PER_EXTENT;
        let kept = match starved {
            _ if spinning && self.extents < EXTENTS / 2 => most,
            true => waiting.min(most),
            false => 0,
        };
        for _ in 0..(KEEP_SMALL + kept).saturating_sub(free.small).div_ceil(SMALL_PER_EXTENT) {
            if !self.offer_extent(false) {
                break;
            }
        }
        self.extents > before
    }

    /// Whether the last attempt to get memory failed.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }
}

/// The small chunks that an extent is cut into.
fn smalls_of(extent: usize) -> Range<usize> {
    extent * SMALL_PER_EXTENT..(extent + 1) * SMALL_PER_EXTENT
}

/// Chunks that nobody owns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FreeChunks {
    pub(crate) large: usize,
    pub(crate) small: usize,
}

impl FreeChunks {
    pub(crate) fn total(self) -> usize {
        self.large + self.small
    }
}

impl Drop for SharedArena {
    fn drop(&mut self) {
        self.arena.session().end();
        if let Some(directory) = self.named.as_ref().and_then(|path| path.parent()) {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// What a session is for, which tells what its file holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The arena.
    Record,
    /// The arena, and the ledger behind it.
    Count,
}

fn prefix() -> String {
    format!("heaptape.{}.", rustix::process::getuid().as_raw())
}

/// The arena as a file in a directory of its own.
///
/// What root records may go on as another user, who must be able to open the file then: the directory
/// lets everybody through, shows nobody its contents, and the file's name can't be guessed.
fn create_named(purpose: Purpose) -> io::Result<(File, PathBuf)> {
    let is_root = rustix::process::getuid().is_root();
    let (directory_mode, file_mode) = if is_root { (0o711, 0o666) } else { (0o700, 0o600) };
    let directory = Path::new(SHARED_MEMORY).join(format!("{}{}", prefix(), random_name()?));
    fs::DirBuilder::new().mode(0o700).create(&directory)?;
    let made = create_in(&directory, file_mode, purpose).and_then(|made| {
        fs::set_permissions(&directory, fs::Permissions::from_mode(directory_mode))?;
        Ok(made)
    });
    if made.is_err() {
        let _ = fs::remove_dir_all(&directory);
    }
    made
}

fn create_in(directory: &Path, mode: u32, purpose: Purpose) -> io::Result<(File, PathBuf)> {
    let path = directory.join(random_name()?);
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    // Held as long as we live: who can take it finds a file whose collector is gone.
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    provision(&file, purpose)?;
    Ok((file, path))
}

fn random_name() -> io::Result<String> {
    let bytes: [u8; 16] = random_bytes()?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

fn random() -> Result<u64, Error> {
    let error = |source| Error::Arena { what: "reading /dev/urandom", source };
    random_bytes().map(u64::from_le_bytes).map_err(error)
}

fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut random = [0u8; N];
    File::open("/dev/urandom").and_then(|mut f| io::Read::read_exact(&mut f, &mut random))?;
    Ok(random)
}

fn create_unnamed(purpose: Purpose) -> Result<File, Error> {
    let error = |what| move |e: io::Error| Error::Arena { what, source: e };
    let fd = rustix::fs::memfd_create("heaptape", MemfdFlags::CLOEXEC)
        .map_err(|e| error("memfd_create")(e.into()))?;
    let file = File::from(fd);
    provision(&file, purpose).map_err(error("allocating it"))?;
    Ok(file)
}

/// Sizes the file and gives memory to its tables and to as much as a session needs at least.
fn provision(file: &File, purpose: Purpose) -> io::Result<()> {
    let ledger = if purpose == Purpose::Count { LEDGER_BYTES } else { 0 };
    file.set_len((ARENA_BYTES + ledger) as u64)?;
    let least = EXTENTS_AT + (FIRST_LARGE + FIRST_SMALL) * LARGE_BYTES;
    let tables = SLOTS_AT + FIRST_SLOTS * SLOT_BYTES;
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, tables as u64)?;
    rustix::fs::fallocate(
        file,
        FallocateFlags::empty(),
        EXTENTS_AT as u64,
        (least - EXTENTS_AT) as u64,
    )?;
    if purpose == Purpose::Count { SharedLedger::provision(file, FIRST_SLOTS) } else { Ok(()) }
}

/// Removes arenas of this user whose collector is gone.
fn sweep() {
    let Ok(entries) = fs::read_dir(SHARED_MEMORY) else { return };
    let prefix = prefix();
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether no collector holds the file in this directory. One that is being made has none yet, and is
/// left alone.
fn is_abandoned(directory: &Path) -> bool {
    let Ok(files) = fs::read_dir(directory) else { return false };
    let mut files = files.flatten().peekable();
    files.peek().is_some()
        && files.all(|file| {
            let opened = OpenOptions::new().read(true).write(true).open(file.path());
            // A file without a length is one whose collector is about to lock it.
            opened.is_ok_and(|file| {
                file.metadata().is_ok_and(|meta| meta.len() > 0)
                    && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            })
        })
}

pub(crate) fn tsc_is_trusted() -> bool {
    let source =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .unwrap_or_default();
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = flags.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    std::env::var_os("HEAPTAPE_STAMP").is_none_or(|kind| kind != "counter")
        && arch::is_tsc_trusted(&source, flags)
}
