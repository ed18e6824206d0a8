//! What the kernel accounts to a job as a whole: its resident memory by parts, and its control group.

/// Resident bytes of all processes of a job together, each page once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Private pages of no file.
    pub anonymous: u64,
    /// Shared memory, files in tmpfs among it.
    pub shared: u64,
    /// What was moved to swap of both.
    pub swap: u64,
    /// Page cache, which the kernel takes back when it needs it; `None` where only processes were looked at.
    pub cache: Option<u64>,
    /// The kernel's own for the job: page tables, stacks, pipes, sockets; `None` as above.
    pub kernel: Option<u64>,
    /// Of `anonymous`, what this tool has in the programs itself; `None` where it was not looked for.
    pub ours: Option<u64>,
}

impl Judge {
    /// Whether the kernel has killed somebody already.
    pub fn is_kernel(self) -> bool {
        matches!(self, Judge::Kernel | Judge::Machine)
    }
}

impl Parts {
    /// What the programs hold: private and shared memory, also in swap, without what is this tool's.
    pub fn held(&self) -> u64 {
        let all = self.anonymous.saturating_add(self.shared).saturating_add(self.swap);
        all.saturating_sub(self.ours.unwrap_or(0))
    }
}

/// A control group that a job had to itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The version of its hierarchy.
    pub version: u8,
    /// Its directory.
    pub directory: String,
    /// The bytes at which the kernel ends the job, page cache among them as far as it can't be taken back.
    pub limit: u64,
    /// The most that counted against it, page cache too; `None` where the kernel does not tell.
    pub peak: Option<u64>,
    /// What counted at the end.
    pub current: Option<u64>,
    /// Page cache at the end.
    pub cache: Option<u64>,
    /// The kernel's own at the end.
    pub kernel: Option<u64>,
    /// Processes that the kernel has killed in it.
    pub oom_kills: u64,
}

/// How closely resident memory was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// How often.
    pub count: u64,
    /// The longest time from the begin of one to the end of the next, in microseconds: so old may a figure have been.
    pub longest: u64,
    /// The most that came between two of them, in bytes.
    pub grown: u64,
}

/// Who has found a job beyond what it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The kernel, at the limit of the job's group.
    Kernel,
    /// The kernel, while the group was well below its limit: at the limit of a group above it, or of the machine.
    Machine,
    /// A look at its resident memory.
    Resident,
    /// A look at what is resident and stands in no row.
    Unaccounted,
}

/// The end of a job for what was resident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// Milliseconds since the job began.
    pub time: u64,
    /// Who has found it.
    pub judge: Judge,
    /// Bytes that were too many: what the job held, or what was unaccounted.
    pub bytes: u64,
    /// The process that was killed first, or that held most: its id, its command and what was resident in it.
    pub who: Option<(u32, Vec<String>, Option<u64>)>,
}

/// What the kernel says of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The job's group.
    pub group: Option<Group>,
    /// Why it has none: one sentence, with what can be done.
    pub missing: Option<String>,
    /// The parts when most was held.
    pub most: Parts,
    /// Shared memory, files in tmpfs among it, beyond what is charged for what is mapped, as much as was seen at
    /// one time: files that are written to and not mapped.
    pub unmapped: u64,
    /// How it was looked at.
    pub looks: Looks,
    /// Why the job was ended.
    pub over: Option<Over>,
    /// Whether a process has left the group.
    pub is_left: bool,
}
