//! A process slot: how a process makes itself known to the collector.
//!
//! Claiming is one compare-and-swap that also names the process, as with chunks.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// Processes that can be covered at the same time.
pub const SLOTS: usize = 1024;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 8 << 10;
/// Threads that one process can have at the same time.
pub const THREADS: usize = 16384;
/// Bytes of command line that a slot holds.
pub const COMMAND_BYTES: usize = 5 << 10;
/// Bytes of a module's path that a slot holds.
pub const GAP_BYTES: usize = 256;
/// Bytes of a process's place in a parallel job that a slot holds.
pub const JOB_BYTES: usize = 512;
/// Variables that tell a process's place in a parallel job, those first that tell its rank.
pub const JOB_VARIABLES: [&str; 20] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_STEP_ID",
    "SLURM_STEPID",
    "PMI_JOBID",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "PMIX_HOSTNAME",
    "SLURMD_NODENAME",
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
];

/// Those of them that tell its rank.
pub const JOB_RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
/// The files of programs that launch the ranks of a job: without a rank of its own such a process is none
/// of them.
pub const LAUNCHERS: [&str; 20] = [
    "mpirun",
    "mpirun.openmpi",
    "mpirun.mpich",
    "mpiexec",
    "mpiexec.openmpi",
    "mpiexec.mpich",
    "mpiexec.hydra",
    "orterun",
    "orted",
    "prte",
    "prted",
    "prterun",
    "hydra_pmi_proxy",
    "hydra_bstrap_proxy",
    "mpiexec.slurm",
    "srun",
    "slurmstepd",
    "jsrun",
    "aprun",
    "palsd",
];

const NONE: u64 = 0;
const FREE: u64 = 1 << 32;
const CLAIMED: u64 = 2 << 32;
const LIVE: u64 = 3 << 32;

/// How a process came to run the capture library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Origin {
    /// The library was loaded with a new program.
    Exec = 1,
    /// The process is a copy of a covered one.
    Fork = 2,
}

/// Why calls of a process that runs the capture library may pass it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Gap {
    /// Another `malloc` comes before the library's; the module is the one that defines it, or nothing
    /// for the executable.
    OtherFirst = 1,
    /// The module, of a tool that runs the program, puts functions of its own in the place of every
    /// `malloc`.
    Replaced = 2,
    /// The module defines the `malloc` behind the library's, and no `malloc_usable_size`.
    SizeUnknown = 3,
}

/// What a process tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its process id, as it sees it; 0 when it can't tell.
    pub pid: u32,
    /// Its parent's process id, as it sees it.
    pub ppid: u32,
    /// How it came to be.
    pub origin: Origin,
    /// The slot it was copied from (fork).
    pub parent_slot: u32,
    /// That slot's generation (fork).
    pub parent_generation: u32,
    /// The number of the fork in the parent's stream (fork); 0 when it was not announced.
    pub fork: u32,
    /// Registrations of the session before this one.
    pub order: u32,
    /// The inode of its pid namespace; 0 when it can't tell.
    pub namespace: u64,
    /// Where its [`Proof`] lies in its memory.
    pub proof: u64,
    /// The session clock, in milliseconds: none of its records has an earlier time.
    pub time: u32,
}

/// What a registered process keeps in memory of its own, and a copy of it does not: whoever can read that
/// memory is certain which process it is, whatever numbers it goes by.
#[repr(C)]
pub struct Proof {
    session: AtomicU64,
    slot: AtomicU64,
}

impl Proof {
    /// Bytes of it.
    pub const BYTES: usize = 16;

    /// Process: it has this slot, of this generation, in the session with this `name`.
    pub fn set(&self, name: u64, slot: u32, generation: u32) {
        self.slot.store(Self::slot_word(slot, generation), Ordering::Relaxed);
        self.session.store(name, Ordering::Release);
    }

    /// Collector: the bytes that [`Proof::set`] leaves.
    pub fn bytes(name: u64, slot: u32, generation: u32) -> [u8; Self::BYTES] {
        let words = u128::from(name) | u128::from(Self::slot_word(slot, generation)) << 64;
        words.to_le_bytes()
    }

    fn slot_word(slot: u32, generation: u32) -> u64 {
        u64::from(generation) << 32 | u64::from(slot)
    }
}

/// A slot of the process table.
#[repr(C, align(64))]
pub struct ProcessSlot {
    state: AtomicU64,
    generation: AtomicU32,
    ppid: AtomicU32,
    origin: AtomicU32,
    parent_slot: AtomicU32,
    parent_generation: AtomicU32,
    fork: AtomicU32,
    order: AtomicU32,
    command_len: AtomicU32,
    detached: AtomicU32,
    gap: AtomicU32,
    gap_len: AtomicU32,
    time: AtomicU32,
    job_len: AtomicU32,
    namespace: AtomicU64,
    proof: AtomicU64,
    /// One bit a thread number that may be used again, set by the collector.
    reusable: [AtomicU64; THREADS / 64],
    command: [AtomicU64; COMMAND_BYTES / 8],
    gap_module: [AtomicU64; GAP_BYTES / 8],
    job: [AtomicU64; JOB_BYTES / 8],
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<ProcessSlot>() <= SLOT_BYTES);

/// Where a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Not offered.
    None,
    /// Offered.
    Free,
    /// Claimed by the process with this id, which has not said all yet.
    Claimed(u32),
    /// The process with this id runs.
    Live(u32),
}

impl ProcessSlot {
    /// Where the slot stands.
    pub fn state(&self) -> SlotState {
        let word = self.state.load(Ordering::Acquire);
        match word & !0xffff_ffff {
            FREE => SlotState::Free,
            CLAIMED => SlotState::Claimed(word as u32),
            LIVE => SlotState::Live(word as u32),
            _ => SlotState::None,
        }
    }

    /// The generation of the slot.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Collector: offers the slot under a new generation.
    pub fn offer(&self, generation: u32) {
        self.generation.store(generation, Ordering::Relaxed);
        self.command_len.store(0, Ordering::Relaxed);
        self.detached.store(0, Ordering::Relaxed);
        self.gap.store(0, Ordering::Relaxed);
        self.job_len.store(0, Ordering::Relaxed);
        for word in &self.reusable {
            word.store(0, Ordering::Relaxed);
        }
        self.state.store(FREE, Ordering::Release);
    }

    /// Collector: takes the slot out of the table.
    pub fn withdraw(&self) {
        self.state.store(NONE, Ordering::Release);
    }

    /// Process: claims the slot if it is free.
    pub fn claim(&self, pid: u32) -> bool {
        self.state
            .compare_exchange(FREE, CLAIMED | u64::from(pid), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Process: says what it is; from here on the collector follows it.
    pub fn register(&self, r: &Registration) {
        self.ppid.store(r.ppid, Ordering::Relaxed);
        self.origin.store(r.origin as u32, Ordering::Relaxed);
        self.parent_slot.store(r.parent_slot, Ordering::Relaxed);
        self.parent_generation.store(r.parent_generation, Ordering::Relaxed);
        self.fork.store(r.fork, Ordering::Relaxed);
        self.order.store(r.order, Ordering::Relaxed);
        self.namespace.store(r.namespace, Ordering::Relaxed);
        self.proof.store(r.proof, Ordering::Relaxed);
        self.time.store(r.time, Ordering::Relaxed);
        self.state.store(LIVE | u64::from(r.pid), Ordering::Release);
    }

    /// Collector: what a live process has said.
    pub fn registration(&self) -> Option<Registration> {
        let SlotState::Live(pid) = self.state() else { return None };
        Some(Registration {
            pid,
            ppid: self.ppid.load(Ordering::Relaxed),
            origin: if self.origin.load(Ordering::Relaxed) == Origin::Fork as u32 {
                Origin::Fork
            } else {
                Origin::Exec
            },
            parent_slot: self.parent_slot.load(Ordering::Relaxed),
            parent_generation: self.parent_generation.load(Ordering::Relaxed),
            fork: self.fork.load(Ordering::Relaxed),
            order: self.order.load(Ordering::Relaxed),
            namespace: self.namespace.load(Ordering::Relaxed),
            proof: self.proof.load(Ordering::Relaxed),
            time: self.time.load(Ordering::Relaxed),
        })
    }

    /// Process: its command line, arguments ended by zero bytes; what does not fit is cut.
    pub fn set_command(&self, bytes: impl Iterator<Item = u8>) {
        self.command_len.store(put_text(&self.command, bytes), Ordering::Release);
    }

    /// Collector: the command line's bytes; empty while it is not known.
    pub fn command(&self) -> impl Iterator<Item = u8> + '_ {
        text(&self.command, self.command_len.load(Ordering::Acquire))
    }

    /// Process: calls may pass the library by, because of a module; its path is cut where it is long.
    pub fn set_gap(&self, gap: Gap, module: impl Iterator<Item = u8>) {
        self.gap_len.store(put_text(&self.gap_module, module), Ordering::Relaxed);
        self.gap.store(gap as u32, Ordering::Release);
    }

    /// Collector: why calls may pass the library by, and the module's path.
    pub fn gap(&self) -> Option<(Gap, impl Iterator<Item = u8> + '_)> {
        let gap = match self.gap.load(Ordering::Acquire) {
            1 => Gap::OtherFirst,
            2 => Gap::Replaced,
            3 => Gap::SizeUnknown,
            _ => return None,
        };
        Some((gap, text(&self.gap_module, self.gap_len.load(Ordering::Relaxed))))
    }

    /// Process: its place in a parallel job, the [`JOB_VARIABLES`] that it was started with as
    /// `NAME=value`, each ended by a zero byte. Before it registers.
    pub fn set_job(&self, bytes: impl Iterator<Item = u8>) {
        self.job_len.store(put_text(&self.job, bytes), Ordering::Relaxed);
    }

    /// Collector: what [`ProcessSlot::set_job`] was given.
    pub fn job(&self) -> impl Iterator<Item = u8> + '_ {
        text(&self.job, self.job_len.load(Ordering::Relaxed))
    }

    /// Collector: thread number `thread` is not in use any more.
    pub fn recycle_thread(&self, thread: u16) {
        if let Some(word) = self.reusable.get(thread as usize / 64) {
            word.fetch_or(1 << (thread % 64), Ordering::Release);
        }
    }

    /// Process: takes a thread number that is not in use any more.
    pub fn reuse_thread(&self) -> Option<u16> {
        for (i, word) in self.reusable.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                let seen = word.fetch_and(!(1 << bit), Ordering::AcqRel);
                if seen & 1 << bit != 0 {
                    return Some((i * 64) as u16 + bit as u16);
                }
                bits = seen & !(1 << bit);
            }
        }
        None
    }

    /// Process: it records no more.
    pub fn detach(&self) {
        self.detached.store(1, Ordering::Release);
    }

    /// Collector: whether the process said that it records no more.
    pub fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire) != 0
    }
}

/// Puts as much of a text into words as fits; its length.
fn put_text(words: &[AtomicU64], bytes: impl Iterator<Item = u8>) -> u32 {
    let (mut len, mut word) = (0, 0u64);
    for byte in bytes.take(words.len() * 8) {
        word |= u64::from(byte) << (8 * (len % 8));
        words[len / 8].store(word, Ordering::Relaxed);
        len += 1;
        if len.is_multiple_of(8) {
            word = 0;
        }
    }
    len as u32
}

/// The first `len` bytes of a text that was put into words.
fn text(words: &[AtomicU64], len: u32) -> impl Iterator<Item = u8> + '_ {
    let len = (len as usize).min(words.len() * 8);
    (0..len).map(|i| (words[i / 8].load(Ordering::Relaxed) >> (8 * (i % 8))) as u8)
}
