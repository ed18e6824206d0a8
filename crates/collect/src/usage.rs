//! What the kernel says that a counted job uses: resident memory, processor time, page faults.
//!
//! Resident bytes are sampled in all processes together, each page divided by its number of users, so
//! that shared ones count once. Time and faults are those of the children that were waited for, and, for
//! processes that are nobody's of ours to wait for, what they had when they were last seen.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use heaptape_proc::{Stat, lineage, read};

use crate::budget::{self, Budget};
use crate::segments::Segments;

/// How often all processes are sampled, unless that would cost too much.
const EVERY: Duration = Duration::from_millis(250);
/// The share of the time that this may take: one part in this many.
const SHARE: u32 = 100;

/// Processor time in seconds and page faults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// In programs, in the kernel.
    pub(crate) processor: [f64; 2],
    /// Minor, major.
    pub(crate) faults: [u64; 2],
}

/// A process that is sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    pub(crate) place: usize,
    pub(crate) pid: u32,
    pub(crate) slot: u16,
    pub(crate) generation: u32,
    /// Whether it is held against the limit.
    pub(crate) is_counted: bool,
}

/// The samples so far.
pub(crate) struct Usage {
    due: Budget,
    /// What our children had used before.
    before: Times,
    /// The most that was resident in a process, by its place in the job's list.
    resident: HashMap<usize, u64>,
    /// The same in all together.
    most: Option<u64>,
    /// What was resident in all together at the last look, and when that was.
    last: Option<(Instant, u64)>,
    /// What processes have used that we can't wait for, by their place.
    strangers: HashMap<usize, Times>,
    /// Shared memory that the job has mapped, where that is wanted.
    pub(crate) segments: Option<Segments>,
}

impl Usage {
    pub(crate) fn new() -> Usage {
        Usage {
            due: Budget::new(EVERY, SHARE, Instant::now()),
            before: of_children(),
            resident: HashMap::new(),
            most: None,
            last: None,
            strangers: HashMap::new(),
            segments: None,
        }
    }

    /// Whether the next samples are due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_due(now)
    }

    /// Makes the next samples due soon.
    pub(crate) fn hurry(&mut self, every: Duration) {
        self.due.hurry(every);
    }

    /// Samples all processes; how many threads they have. `resident`: what is resident in one, each page divided by
    /// the number of processes that map it.
    pub(crate) fn sample(
        &mut self,
        all: &[Sampled],
        started: Instant,
        mut resident: impl FnMut(&Sampled) -> Option<u64>,
    ) -> u64 {
        let before = budget::processor_time();
        let mut sum = None;
        let mut threads = 0;
        for sampled in all {
            if let Some(bytes) =
                resident(sampled).or_else(|| read::status(sampled.pid).ok()?.vm_rss)
            {
                let most = self.resident.entry(sampled.place).or_default();
                *most = bytes.max(*most);
                if sampled.is_counted {
                    sum = Some(sum.unwrap_or(0u64).saturating_add(bytes));
                }
            }
            if let Ok(stat) = read::stat(sampled.pid) {
                threads += stat.threads;
                if is_stranger(stat.ppid) {
                    self.strangers.insert(sampled.place, times(&stat));
                }
            }
            if let Some(segments) = &mut self.segments {
                segments.note(sampled.pid);
            }
        }
        self.most = self.most.max(sum);
        self.last = sum.map(|bytes| (started, bytes)).or(self.last);
        // On a busy machine most of the time between was others'.
        let cost = budget::processor_time().saturating_sub(before);
        let now = Instant::now();
        self.due.spent(cost.min(now - started), now);
        threads
    }

    /// The most that was resident in a process.
    pub(crate) fn resident_of(&self, place: usize) -> Option<u64> {
        self.resident.get(&place).copied()
    }

    /// The most that was resident in all together.
    pub(crate) fn resident(&self) -> Option<u64> {
        self.most
    }

    /// What was resident in all together at the last look, and milliseconds since then.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        let (when, bytes) = self.last?;
        Some((bytes, u64::try_from(when.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }

    /// What the job has used by now.
    pub(crate) fn times(&self) -> Times {
        let mut sum = of_children();
        for (time, before) in sum.processor.iter_mut().zip(self.before.processor) {
            *time -= before;
        }
        for (faults, before) in sum.faults.iter_mut().zip(self.before.faults) {
            *faults = faults.saturating_sub(before);
        }
        for times in self.strangers.values() {
            sum.processor.iter_mut().zip(times.processor).for_each(|(sum, more)| *sum += more);
            sum.faults.iter_mut().zip(times.faults).for_each(|(sum, more)| *sum += more);
        }
        sum
    }
}

/// Whether a child of `parent` is none that will be waited for by us or by our descendants.
fn is_stranger(parent: u32) -> bool {
    let own = std::process::id();
    lineage(parent).all(|pid| pid != own)
}

fn times(stat: &Stat) -> Times {
    let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
    Times { processor: stat.times.map(|time| time as f64 / ticks), faults: stat.faults }
}

/// What children that were waited for have used, and theirs.
fn of_children() -> Times {
    // SAFETY: the kernel writes the structure, for which zeros are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let count = |faults: libc::c_long| u64::try_from(faults).unwrap_or(0);
    Times {
        processor: [seconds(usage.ru_utime), seconds(usage.ru_stime)],
        faults: [count(usage.ru_minflt), count(usage.ru_majflt)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_had_to_wait_does_not_put_the_next_one_off() {
        let own = std::process::id();
        let sampled = Sampled { place: 0, pid: own, slot: 0, generation: 1, is_counted: true };
        let mut usage = Usage::new();
        usage.sample(&[sampled], Instant::now(), |_| {
            std::thread::sleep(Duration::from_millis(200));
            Some(1)
        });
        // By the clock it would be due after 20 s.
        assert!(usage.is_due(Instant::now() + Duration::from_secs(5)));
    }

    #[test]
    fn a_child_is_no_stranger_and_init_is() {
        let own = std::process::id();
        assert!(!is_stranger(own));
        assert!(is_stranger(0));
        let sampled = Sampled { place: 3, pid: own, slot: 0, generation: 1, is_counted: true };
        let mut usage = Usage::new();
        assert!(usage.sample(&[sampled], Instant::now(), |_| None) > 0);
        // Where the kernel tells no shares it tells the sum.
        assert!(usage.resident_of(3) > Some(1 << 16));
        usage.sample(&[sampled], Instant::now(), |_| Some(1 << 40));
        assert_eq!(usage.resident_of(3), Some(1 << 40));
        assert_eq!(usage.resident(), usage.resident_of(3));
        assert!(!usage.is_due(Instant::now()));
    }
}
