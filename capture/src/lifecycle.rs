//! Joins the session, follows the process through forks, and leaves when the collector is gone.
//!
//! ```text
//! UNKNOWN ──first record, with an environment──▶ RECORDING ──collector gone, session over──▶ PASSING
//!    └────────────── no session, or none that can be joined ────────────────────────────────────▶┘
//! ```

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use heaptape_wire::chunk::{LARGE_BYTES, Owner, SMALL_PER_EXTENT, UNKNOWN_TID};
use heaptape_wire::note::NoteKind;
use heaptape_wire::process::{
    JOB_BYTES, JOB_VARIABLES, Origin, ProcessSlot, Proof, Registration, SLOT_BYTES, SLOTS,
    SlotState, THREADS,
};
use heaptape_wire::session::{
    ARENA_BYTES, Arena, EXTENTS_AT, How, INTENTS, Intent, Refusal, SESSION_VARIABLE, SLOTS_AT,
    Stamp, Why,
};

use crate::arch::{self, syscall};
use crate::thread::{self, BY_COUNTER, BY_TSC, STAMPING, ThreadSlot, UNSTAMPED};
use crate::{exec, leaving, limits, modules, next};

unsafe extern "C" {
    static environ: *const *const c_char;
}

const UNKNOWN: u32 = 0;
const JOINING: u32 = 1;
const RECORDING: u32 = 2;
const PASSING: u32 = 3;

/// What a fork leaves in place: the child knows by it whose copy it is.
pub struct State {
    mode: AtomicU32,
    /// The process slot.
    pub slot: AtomicU32,
    /// Its generation.
    pub generation: AtomicU32,
    arena: AtomicPtr<u8>,
    /// Set once the program asked for a sandbox: no system call for our own ends any more.
    pub sandboxed: AtomicU32,
    /// Set once a sandbox may forbid to sleep.
    pub sleepless: AtomicU32,
    forks: AtomicUsize,
    /// The inode of the pid namespace that the process's numbers are of; 0 when it is not known.
    namespace: AtomicUsize,
    /// The process id.
    pid: AtomicU32,
    /// 1 when libc notes the numbers of threads where we look for them.
    notes_threads: AtomicU32,
    /// 1 in a copy that was made behind libc's back: what libc has noted for its first thread is then the
    /// number of the thread that it was copied from.
    copied: AtomicU32,
}

/// The process's own state.
pub static STATE: State = State {
    mode: AtomicU32::new(UNKNOWN),
    slot: AtomicU32::new(0),
    generation: AtomicU32::new(0),
    arena: AtomicPtr::new(core::ptr::null_mut()),
    sandboxed: AtomicU32::new(0),
    sleepless: AtomicU32::new(0),
    forks: AtomicUsize::new(0),
    namespace: AtomicUsize::new(0),
    pid: AtomicU32::new(0),
    notes_threads: AtomicU32::new(0),
    copied: AtomicU32::new(0),
};

/// The private region: one page of state and the thread slots. The kernel wipes it in a child.
#[repr(C, align(4096))]
struct Private {
    /// 1 in the process that registered.
    registered: AtomicU32,
    next_thread: AtomicU32,
    proof: Proof,
    _pad: [u64; 509],
    threads: [ThreadSlot; THREADS],
}

static PRIVATE: AtomicPtr<Private> = AtomicPtr::new(core::ptr::null_mut());

fn arena() -> Arena {
    // SAFETY: only called while recording, when the arena is mapped; it is never unmapped.
    unsafe { Arena::new(STATE.arena.load(Ordering::Relaxed)) }
}

/// The session clock in milliseconds. Only for threads that have a slot.
#[inline(always)]
pub fn clock() -> u32 {
    arena().session().clock()
}

/// Whether records are to be written; joins the session at the first call and registers a process
/// that turns out to be a fork of a covered one.
pub fn is_recording() -> bool {
    match STATE.mode.load(Ordering::Acquire) {
        RECORDING => {
            // SAFETY: mapped before the mode was set; a wiped page reads as zeros.
            let private = unsafe { &*PRIVATE.load(Ordering::Relaxed) };
            private.registered.load(Ordering::Relaxed) == 1 || register_fork()
        }
        UNKNOWN => join(),
        _ => false,
    }
}

/// Whether this process, or the one whose memory it still shares, is recorded.
pub fn is_covered() -> bool {
    STATE.mode.load(Ordering::Acquire) == RECORDING && arena().session().is_open()
}

/// The process id, as it was when the process registered.
pub fn registered_pid() -> u32 {
    STATE.pid.load(Ordering::Relaxed)
}

/// The kernel's number of this thread, the process's first or another one. In a sandbox it is the one that
/// libc has noted, where that is certain to be right.
pub fn own_thread(is_first: bool) -> u32 {
    let noted = arch::noted_thread();
    if is_sandboxed() {
        let is_copied = is_first && STATE.copied.load(Ordering::Relaxed) != 0;
        let is_right = !is_copied && STATE.notes_threads.load(Ordering::Relaxed) != 0;
        return if is_right { noted } else { UNKNOWN_TID };
    }
    let asked = arch::ask(arch::SYS_GETTID);
    if noted == asked {
        STATE.notes_threads.store(1, Ordering::Relaxed);
    }
    if asked == 0 { UNKNOWN_TID } else { asked }
}

/// Whether the program has asked for a sandbox.
pub fn is_sandboxed() -> bool {
    STATE.sandboxed.load(Ordering::Relaxed) != 0
}

fn is_sleepless() -> bool {
    STATE.sleepless.load(Ordering::Relaxed) != 0
}

/// What is mapped, as start and length. Only while covered.
pub fn mapped() -> [(usize, usize); 2] {
    let private = PRIVATE.load(Ordering::Relaxed) as usize;
    [(arena().base() as usize, ARENA_BYTES), (private, size_of::<Private>())]
}

/// Parts of the arena in which nothing is offered yet, nor will be within the next moments. Only while
/// covered.
pub fn unused() -> [(usize, usize); 2] {
    /// Offered meanwhile at the most: bytes of process slots, and of chunks.
    const SOON: (usize, usize) = (256 * SLOT_BYTES, 64 * LARGE_BYTES);
    let session = arena().session();
    let word = |word: &AtomicU32| word.load(Ordering::Acquire) as usize;
    let slots = SLOTS_AT + word(&session.slots_ready) * SLOT_BYTES + SOON.0;
    let smalls = word(&session.small_end).div_ceil(SMALL_PER_EXTENT);
    let chunks = EXTENTS_AT + word(&session.large_end).max(smalls) * LARGE_BYTES + SOON.1;
    let base = arena().base() as usize;
    [
        (base + slots, EXTENTS_AT.saturating_sub(slots)),
        (base + chunks, ARENA_BYTES.saturating_sub(chunks)),
    ]
}

/// Announces that process `pid` becomes, or was started as, `file`.
pub fn announce(pid: u32, file: &[u8], mut how: How) -> Option<&'static Intent> {
    if !is_covered() {
        return None;
    }
    // Where a sandbox does not let it be asked, it is the process that registered.
    let pid = if pid == 0 { registered_pid() } else { pid };
    let is_free = |intent: &&Intent| pid != 0 && intent.claim(pid);
    let intent = (0..INTENTS).map(|i| arena().intent(i)).find(is_free)?;
    how.order = arena().session().registered.load(Ordering::Acquire);
    how.namespace = STATE.namespace.load(Ordering::Relaxed) as u64;
    how.sandboxed = is_sandboxed();
    how.slot = STATE.slot.load(Ordering::Relaxed);
    how.generation = STATE.generation.load(Ordering::Relaxed);
    intent.announce(file.iter().copied(), how);
    Some(intent)
}

/// Joins the session that the environment names, if there is one.
fn join() -> bool {
    if !next::look_up()
        || STATE
            .mode
            .compare_exchange(UNKNOWN, JOINING, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
    {
        return false;
    }
    // Whoever wraps dlsym may allocate in it: from here on that leads to no further try to join.
    if !next::is_glibc() {
        STATE.mode.store(PASSING, Ordering::Release);
        return false;
    }
    let environment = first_environment();
    if environment.is_null() {
        STATE.mode.store(UNKNOWN, Ordering::Release);
        return false;
    }
    // SAFETY: a null-terminated array of C strings.
    let joined = unsafe { variable(environment, SESSION_VARIABLE) }.is_some_and(map);
    let recording = joined && register(Origin::Exec, environment);
    if recording {
        // SAFETY: as above.
        unsafe { exec::remember(environment) };
    }
    STATE.mode.store(if recording { RECORDING } else { PASSING }, Ordering::Release);
    recording
}

/// The environment that the program was started with. The loader knows where it lies before libc
/// has set `environ`, and it stays there when the program clears that.
fn first_environment() -> *const *const c_char {
    let stack_end = next::global(c"__libc_stack_end") as *const *const usize;
    // SAFETY: the loader's pointer to the initial stack: the number of arguments, the arguments, a
    // null, the environment.
    unsafe {
        if stack_end.is_null() || (*stack_end).is_null() {
            return environ;
        }
        (*stack_end).add(1 + **stack_end + 1).cast()
    }
}

/// The value of a variable in an environment.
///
/// # Safety
/// `environment` is a null-terminated array of C strings that outlive the result.
pub unsafe fn variable<'a>(environment: *const *const c_char, name: &str) -> Option<&'a CStr> {
    let mut at = environment;
    // SAFETY: as promised; no byte behind the end of an entry is read.
    unsafe {
        while !(*at).is_null() {
            let entry = (*at).cast::<u8>();
            let mut name_bytes = name.bytes().chain([b'=']).enumerate();
            if name_bytes.all(|(i, byte)| *entry.add(i) == byte) {
                return Some(CStr::from_ptr((*at).add(name.len() + 1)));
            }
            at = at.add(1);
        }
    }
    None
}

/// Maps all that is needed, or tells the collector why that can't be.
fn map(path: &CStr) -> bool {
    let mapped = limits::make_room().and_then(|()| map_arena(path)).and_then(|()| map_private());
    if let Err(Some(why)) = mapped {
        refuse(path, why);
    }
    mapped.is_ok()
}

/// Tells the collector why this process is not recorded, by way of the arena's file, which is not mapped.
fn refuse(path: &CStr, why: Why) {
    let pid = arch::ask(arch::SYS_GETPID);
    let (place, bytes) = Refusal::bytes(pid, pid_namespace(Origin::Exec, 0) as u64, why);
    // SAFETY: opens, writes and closes a file of ours.
    unsafe {
        let fd = open(path);
        if fd >= 0 {
            let bytes_at = bytes.as_ptr() as usize;
            syscall(arch::SYS_PWRITE64, [fd as usize, bytes_at, bytes.len(), place, 0, 0]);
            syscall(arch::SYS_CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
        }
    }
}

/// # Safety
/// As opening that file is.
unsafe fn open(path: &CStr) -> isize {
    const AT_FDCWD: usize = -100isize as usize;
    const O_RDWR_CLOEXEC: usize = 0o2000002;
    // As the loader opens files: a filter that came with the process lets that through.
    let open = [AT_FDCWD, path.as_ptr() as usize, O_RDWR_CLOEXEC, 0, 0, 0];
    // SAFETY: as promised.
    unsafe { syscall(arch::SYS_OPENAT, open) }
}

/// Why a system call, which answered so, keeps this process from being recorded.
fn refused(call: usize, answer: isize) -> Option<Why> {
    Some(Why::Call { number: call as u32, error: answer.unsigned_abs() as u32 })
}

fn map_arena(path: &CStr) -> Result<(), Option<Why>> {
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
        let base =
            syscall(arch::SYS_MMAP, [0, ARENA_BYTES, PROT_READ_WRITE, MAP_SHARED, fd as usize, 0]);
        syscall(arch::SYS_CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
        if (-4095..0).contains(&base) {
            return Err(refused(arch::SYS_MMAP, base));
        }
        let arena = Arena::new(base as *mut u8);
        if !arena.session().is_joinable() || arena.session().is_orphaned() {
            syscall(arch::SYS_MUNMAP, [base as usize, ARENA_BYTES, 0, 0, 0, 0]);
            return Err(None);
        }
        syscall(arch::SYS_MADVISE, [base as usize, ARENA_BYTES, MADV_DONTDUMP, 0, 0, 0]);
        STATE.arena.store(base as *mut u8, Ordering::Release);
    }
    Ok(())
}

/// After the arena, which goes again where this is not possible.
fn map_private() -> Result<(), Option<Why>> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x4022;
    const MADV_WIPEONFORK: usize = 18;
    let bytes = size_of::<Private>();
    // SAFETY: a new mapping.
    unsafe {
        let base = syscall(
            arch::SYS_MMAP,
            [0, bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0],
        );
        let unmap = |base, bytes| syscall(arch::SYS_MUNMAP, [base, bytes, 0, 0, 0, 0]);
        let arena = STATE.arena.load(Ordering::Relaxed) as usize;
        if (-4095..0).contains(&base) {
            unmap(arena, ARENA_BYTES);
            return Err(refused(arch::SYS_MMAP, base));
        }
        let wipes = syscall(arch::SYS_MADVISE, [base as usize, bytes, MADV_WIPEONFORK, 0, 0, 0]);
        if wipes != 0 {
            unmap(base as usize, bytes);
            unmap(arena, ARENA_BYTES);
            return Err(refused(arch::SYS_MADVISE, wipes));
        }
        PRIVATE.store(base as *mut Private, Ordering::Release);
    }
    Ok(())
}

/// How long a process waits for another one to end when all slots are taken.
const FULL_MS: u64 = 200;

/// Takes a process slot and says who we are; `environment` is that of a new program, or null.
fn register(origin: Origin, environment: *const *const c_char) -> bool {
    let session = arena().session();
    // SAFETY: mapped by `map_private`, of this process alone.
    let private = unsafe { &*PRIVATE.load(Ordering::Relaxed) };
    let pid = own_process(origin);
    STATE.pid.store(pid, Ordering::Relaxed);
    // A filter may forbid to ask; of a fork the parent is known in any case.
    let ppid = if is_sandboxed() { 0 } else { arch::ask(arch::SYS_GETPPID) };
    let registration = Registration {
        pid,
        ppid,
        origin,
        parent_slot: STATE.slot.load(Ordering::Relaxed),
        parent_generation: STATE.generation.load(Ordering::Relaxed),
        fork: arch::fork_word() as u32,
        order: session.registered.fetch_add(1, Ordering::AcqRel),
        namespace: pid_namespace(origin, ppid) as u64,
        proof: &raw const private.proof as u64,
        time: session.clock(),
    };
    STATE.namespace.store(registration.namespace as usize, Ordering::Relaxed);
    STAMPING.store(UNSTAMPED, Ordering::Relaxed);
    let mut patience = Patience::new();
    loop {
        let ready = (session.slots_ready.load(Ordering::Acquire) as usize).min(SLOTS);
        for index in 0..ready {
            let slot = arena().slot(index);
            if slot.claim(pid) {
                STATE.slot.store(index as u32, Ordering::Relaxed);
                STATE.generation.store(slot.generation(), Ordering::Relaxed);
                private.proof.set(session.name(), index as u32, slot.generation());
                private.next_thread.store(0, Ordering::Relaxed);
                private.registered.store(1, Ordering::Relaxed);
                // SAFETY: null, or the environment of this program.
                unsafe { tell_job(slot, environment) };
                slot.register(&registration);
                return true;
            }
        }
        // Where all the slots that there can be are taken, those who hold them may wait for us.
        let is_full = ready == SLOTS && patience.has_waited(FULL_MS);
        if is_full || !patience.wait() {
            session.turned_away.fetch_add(1, Ordering::Relaxed);
            return false;
        }
    }
}

/// The process's own number; 0 when it can't be told without a question, which a sandbox may forbid. The
/// only thread of a new copy has the number of the process.
fn own_process(origin: Origin) -> u32 {
    match origin {
        Origin::Fork if is_sandboxed() => match own_thread(true) {
            UNKNOWN_TID => 0,
            number => number,
        },
        _ => arch::ask(arch::SYS_GETPID),
    }
}

/// The inode of the pid namespace: process ids in another than the collector's mean others to it. 0 when it
/// can't be told.
///
/// A copy that libc made and that sees a parent at all is in the namespace of the process that it was copied
/// from: from a new one neither that process nor who takes its place can be seen.
fn pid_namespace(origin: Origin, ppid: u32) -> usize {
    let mut text = [0u8; 64];
    let link = c"/proc/self/ns/pid".as_ptr() as usize;
    if is_sandboxed() {
        return 0;
    }
    if origin == Origin::Fork && ppid != 0 && is_by_libc() {
        return STATE.namespace.load(Ordering::Relaxed);
    }
    // SAFETY: writes at most the text's length into it.
    unsafe { syscall(arch::SYS_READLINK, [link, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]) };
    // It reads `pid:[4026531836]`.
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

/// Says which place in a parallel job the environment tells of.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
unsafe fn tell_job(slot: &ProcessSlot, environment: *const *const c_char) {
    if environment.is_null() {
        return;
    }
    let mut left = JOB_BYTES;
    let variables = JOB_VARIABLES.iter().filter_map(|name| {
        // SAFETY: as promised.
        let value = unsafe { variable(environment, name) }?.to_bytes();
        left = left.checked_sub(name.len() + value.len() + 2)?;
        Some(name.bytes().chain([b'=']).chain(value.iter().copied()).chain([0]))
    });
    slot.set_job(variables.flatten());
}

/// Whether this is the process that registered, and not one that a vfork lent its memory to.
pub fn is_itself() -> bool {
    is_recording() && {
        let slot = arena().slot(STATE.slot.load(Ordering::Relaxed) as usize);
        STATE.sandboxed.load(Ordering::Relaxed) != 0
            || slot.state() == SlotState::Live(arch::ask(arch::SYS_GETPID))
    }
}

/// Makes a forked child a process of its own.
fn register_fork() -> bool {
    arch::set_thread_word(0);
    STATE.copied.store(u32::from(!is_by_libc()), Ordering::Relaxed);
    let recording = register(Origin::Fork, core::ptr::null());
    if recording {
        modules::forget();
    } else {
        STATE.mode.store(PASSING, Ordering::Release);
    }
    arch::set_fork_word(0);
    recording
}

/// A slot for the calling thread; null when the process has too many threads.
pub fn new_thread() -> *mut ThreadSlot {
    // SAFETY: mapped while recording.
    let private = unsafe { &mut *PRIVATE.load(Ordering::Relaxed) };
    let slot = arena().slot(STATE.slot.load(Ordering::Relaxed) as usize);
    let number = match slot.reuse_thread() {
        Some(number) => number as usize,
        None => private.next_thread.fetch_add(1, Ordering::Relaxed) as usize,
    };
    if number >= THREADS {
        detach();
        return core::ptr::null_mut();
    }
    if number > 0 {
        expect_threads();
    }
    let place = &raw mut private.threads[number];
    // SAFETY: this number was given to this thread alone.
    unsafe { ThreadSlot::assign(place, number as u16) };
    place
}

/// From here on events are stamped, because there is about to be more than one thread.
pub fn expect_threads() {
    if STATE.mode.load(Ordering::Acquire) == RECORDING
        && STAMPING.load(Ordering::Relaxed) == UNSTAMPED
    {
        let kind = match arena().session().stamp() {
            Stamp::Tsc => BY_TSC,
            Stamp::Counter => BY_COUNTER,
        };
        STAMPING.store(kind, Ordering::SeqCst);
    }
}

/// Scatters the places where waiting threads look for a chunk.
const SCATTER: usize = 0x9e37_79b9_7f4a_7c15;

/// Claims a chunk, waiting for one while the collector works; `None` ends the recording here.
pub fn claim_chunk(owner: Owner, prefers_small: bool) -> Option<(*mut u8, usize)> {
    let session = arena().session();
    if !session.is_open() {
        detach();
        return None;
    }
    let mut offers = session.offers();
    if let Some(found) = thread::claim_now(arena(), owner, prefers_small, 0) {
        return Some(found);
    }
    let mut patience = Patience::new();
    let mut from = owner.to_word() as usize;
    loop {
        let now = session.offers();
        if core::mem::replace(&mut offers, now) != now {
            from = from.wrapping_mul(SCATTER).wrapping_add(SCATTER);
            if let Some(found) = thread::claim_now(arena(), owner, prefers_small, from >> 16) {
                return Some(found);
            }
        }
        if !session.is_open() || !patience.wait() {
            detach();
            return None;
        }
    }
}

/// This process records no more; its calls pass through.
fn detach() {
    STATE.mode.store(PASSING, Ordering::Release);
    arena().slot(STATE.slot.load(Ordering::Relaxed) as usize).detach();
}

/// How long to wait for the collector: 0.2 s once it is dead, 2 s once it has stopped. It counts among
/// those who wait as long as it lives.
struct Patience {
    rounds: u32,
    beat: u32,
    last: u64,
    /// Ticks waited in all, and since the collector last gave a sign of life.
    waited: u64,
    silent: u64,
    ticks_per_ms: u64,
    spins: bool,
}

impl Patience {
    const DEAD_MS: u64 = 200;
    const STOPPED_MS: u64 = 2000;
    /// What one round counts beyond its pause at the most: the program itself may have been stopped
    /// meanwhile.
    const ROUND_MS: u64 = 20;
    /// Rounds without a pause, where few wait.
    const SPINS: u32 = 16;
    const FEW: u32 = 8;
    /// The first pause. The next ones are longer, up to so much for each who waits: all together
    /// then ask no more often than one would, and leave the processors to the collector.
    const PAUSE_US: u64 = 50;
    const LONGEST_US: u64 = 500_000;

    fn new() -> Patience {
        let session = arena().session();
        session.waiting.fetch_add(1, Ordering::Relaxed);
        let spins = is_sleepless();
        session.spinning.fetch_add(u32::from(spins), Ordering::Relaxed);
        Patience {
            spins,
            rounds: 0,
            beat: session.heartbeat(),
            last: arch::stamp(),
            waited: 0,
            silent: 0,
            ticks_per_ms: u64::from(session.tsc_per_ms.load(Ordering::Relaxed)),
        }
    }

    /// Waits a moment; false when there is nobody to wait for.
    fn wait(&mut self) -> bool {
        let session = arena().session();
        let pause_us = self.pause_us(session.waiting.load(Ordering::Relaxed));
        self.rounds += 1;
        if pause_us == 0 {
            arch::relax();
        } else {
            const EPERM: isize = -1;
            const ENOSYS: isize = -38;
            let moment: [u64; 2] = [0, pause_us * 1000];
            // SAFETY: reads the two words; the remainder is not asked for.
            let slept =
                unsafe { syscall(arch::SYS_NANOSLEEP, [moment.as_ptr() as usize, 0, 0, 0, 0, 0]) };
            // A sandbox that came with the process.
            if matches!(slept, EPERM | ENOSYS) {
                STATE.sleepless.store(1, Ordering::Relaxed);
            }
        }
        let now = arch::stamp();
        let most = (Self::ROUND_MS + pause_us / 1000) * self.ticks_per_ms;
        let round = now.saturating_sub(self.last).min(most);
        self.last = now;
        self.waited += round;
        self.silent += round;
        let beat = session.heartbeat();
        if beat != self.beat {
            (self.beat, self.silent) = (beat, 0);
        }
        if session.is_orphaned() && self.has_waited(Self::DEAD_MS) {
            return false;
        }
        self.silent < Self::STOPPED_MS * self.ticks_per_ms
    }

    /// How long the next pause is, with so many who wait; 0 for none.
    fn pause_us(&self, crowd: u32) -> u64 {
        let spins = if crowd > Self::FEW { 0 } else { Self::SPINS };
        if self.rounds < spins || is_sleepless() {
            return 0;
        }
        let doubled = Self::PAUSE_US << (self.rounds - spins).min(16);
        doubled.min(Self::PAUSE_US * u64::from(crowd.max(1))).min(Self::LONGEST_US)
    }

    /// Whether the wait has lasted so long.
    fn has_waited(&self, ms: u64) -> bool {
        self.waited >= ms * self.ticks_per_ms
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        let session = arena().session();
        session.waiting.fetch_sub(1, Ordering::Relaxed);
        session.spinning.fetch_sub(u32::from(self.spins), Ordering::Relaxed);
    }
}

// --- forks ------------------------------------------------------------------------------------------

/// The thread's word during a fork is the fork's number, with this bit where libc does not know of it.
const BEHIND_LIBC: usize = 1 << 32;

fn announce_fork() -> usize {
    let number = STATE.forks.fetch_add(1, Ordering::Relaxed) + 1;
    thread::note(NoteKind::Fork, 0, &[number as u64], &[]);
    number
}

unsafe extern "C" fn before_fork() {
    arch::set_fork_word(announce_fork());
}

/// The program is about to make the system call for a copy of itself. (The word stays in the parent until
/// its next fork; what was announced is there once, so nobody takes it for a later one.)
pub fn before_copy() {
    if is_recording() {
        arch::set_fork_word(announce_fork() | BEHIND_LIBC);
    }
}

/// Whether libc makes, or has made, the copy that this is.
fn is_by_libc() -> bool {
    let word = arch::fork_word();
    word != 0 && word & BEHIND_LIBC == 0
}

unsafe extern "C" fn after_fork_in_parent() {
    arch::set_fork_word(0);
}

unsafe extern "C" fn after_fork_in_child() {
    is_recording();
}

fn follow_forks() {
    let address = next::symbol(c"__register_atfork");
    if address == 0 {
        return;
    }
    type Handler = Option<unsafe extern "C" fn()>;
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, usize) -> c_int;
    // SAFETY: the type that this function of libc has; the library is never unloaded.
    unsafe {
        core::mem::transmute::<usize, Register>(address)(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork_in_child),
            0,
        );
    }
}

// --- begin and end -----------------------------------------------------------------------------------

/// Environment variables that change what an allocator does; they go on the tape.
const SETTINGS: [&str; 7] = [
    "MALLOC_",
    "GLIBC_TUNABLES=",
    "_RJEM_MALLOC_CONF=",
    "MIMALLOC_",
    "TCMALLOC_",
    "PYTHONMALLOC=",
    "LD_PRELOAD=",
];

unsafe extern "C" fn begin(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
    next::look_up();
    if !next::is_glibc() || !is_recording() {
        return;
    }
    // SAFETY: the loader passes the program's arguments and environment to constructors.
    unsafe {
        let command = (0..argc.max(0) as usize)
            .map(|i| *argv.add(i))
            .take_while(|arg| !arg.is_null())
            .flat_map(|arg| CStr::from_ptr(arg).to_bytes_with_nul().iter().copied());
        let slot = arena().slot(STATE.slot.load(Ordering::Relaxed) as usize);
        slot.set_command(command);
        if let Some((gap, module)) = next::gap() {
            let first = if argc > 0 { *argv } else { core::ptr::null() };
            let path = module.as_ref().map_or(&[][..], |module| module.path_of_library(first));
            slot.set_gap(gap, path.iter().copied());
        }
        let mut at = envp;
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            if SETTINGS.iter().any(|name| entry.starts_with(name.as_bytes())) {
                thread::note(NoteKind::Setting, 0, &[], entry);
            }
            at = at.add(1);
        }
    }
    modules::refresh();
    follow_forks();
    leaving::follow();
}

unsafe extern "C" fn end() {
    modules::refresh();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: unsafe extern "C" fn() = end;
