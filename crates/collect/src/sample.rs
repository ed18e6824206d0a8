//! Samples: what the kernel says of each process, and when it is asked.
//!
//! Each process is sampled at its start, several times a second, and out of turn when the tape's
//! writer wants it: after a keyframe, and when a block lies outside of the memory that the last sample
//! showed. A sample stands after all events of its process that have been merged.

use std::time::{Duration, Instant};

use heaptape_proc::{maps, read};
use heaptape_tape::{Error, Sample, Vma};

use crate::budget::Budget;
use crate::recorder::Recorder;

/// How often each process is sampled, unless that would cost too much.
const EVERY: Duration = Duration::from_millis(250);
/// The share of the time that this may take: one part in this many.
const SHARE: u32 = 20;
/// The share of samples out of turn.
const WANTED_SHARE: u32 = 100;
/// The share of looking at how pages are shared, which takes far longer.
const PAGES_SHARE: u32 = 100;

/// When the next samples are due.
pub(crate) struct Sampling {
    all: Budget,
    wanted: Budget,
    pages: Budget,
}

impl Sampling {
    pub(crate) fn new(now: Instant) -> Sampling {
        Sampling {
            all: Budget::new(EVERY, SHARE, now),
            wanted: Budget::new(Duration::ZERO, WANTED_SHARE, now),
            pages: Budget::new(Duration::ZERO, PAGES_SHARE, now),
        }
    }
}

impl Recorder {
    /// Takes the samples that are due. A counted job has [others](crate::usage).
    pub(crate) fn sample(&mut self, now: Instant) -> Result<(), Error> {
        if self.counter.is_some() {
            return Ok(());
        }
        if self.sampling.all.is_due(now) {
            self.sample_all(now)?;
        } else if self.sampling.wanted.is_due(now) {
            self.sample_wanted(now)?;
        }
        Ok(())
    }

    fn sample_all(&mut self, started: Instant) -> Result<(), Error> {
        let with_pages = self.sampling.pages.is_due(started);
        for place in self.live.clone() {
            self.arena.arena().session().beat();
            self.sample_process(place, with_pages)?;
        }
        let now = Instant::now();
        let cost = now - started;
        if with_pages {
            self.sampling.pages.spent(cost, now);
            self.sampling.all.spent(Duration::ZERO, now);
        } else {
            self.sampling.all.spent(cost, now);
        }
        Ok(())
    }

    /// Samples one process out of turn: of those that want it, the one that has waited longest. The
    /// others follow as the budget allows.
    fn sample_wanted(&mut self, started: Instant) -> Result<(), Error> {
        let wanting = self.live.iter().copied().filter(|&place| {
            let process = &self.processes[place];
            process.gone.is_none() && self.tape.wants_sample(process.number)
        });
        let Some(place) = wanting.min_by_key(|&place| self.processes[place].sampled) else {
            return Ok(());
        };
        self.sample_process(place, false)?;
        let now = Instant::now();
        self.sampling.wanted.spent(now - started, now);
        Ok(())
    }

    /// Samples a process, unless it is gone, or nobody keeps the tape.
    pub(crate) fn sample_process(&mut self, place: usize, with_pages: bool) -> Result<(), Error> {
        if self.counter.is_some() {
            return Ok(());
        }
        let process = &mut self.processes[place];
        process.sampled = Instant::now();
        if process.gone.is_some() {
            return Ok(());
        }
        let Some(pid) = process.pid else { return Ok(()) };
        match take(pid, self.clock.now(), with_pages) {
            Some(sample) => self.tape.sample(process.number, &sample),
            None => Ok(()),
        }
    }
}

/// Looks at a process; `None` when it is gone. What the kernel refuses stays `None`.
///
/// `with_pages` also asks how the pages are shared, for which the kernel walks all of them, holding
/// the lock that the process needs to map memory.
fn take(pid: u32, time: u64, with_pages: bool) -> Option<Sample> {
    let mappings = read::maps(pid).ok().filter(|mappings| !mappings.is_empty())?;
    let rollup = if with_pages { read::smaps_rollup(pid).ok() } else { None };
    let of =
        |field: fn(&heaptape_proc::smaps::Smaps) -> Option<u64>| rollup.as_ref().and_then(field);
    let status = read::status(pid).ok();
    Some(Sample {
        time,
        index: 0,
        system: Some(maps::system(&mappings)),
        resident: of(|s| s.rss).or(status.as_ref().and_then(|s| s.vm_rss)),
        pss: of(|s| s.pss),
        pss_anon: of(|s| s.pss_anon),
        pss_file: of(|s| s.pss_file),
        pss_shmem: of(|s| s.pss_shmem),
        swap: of(|s| s.swap).or(status.as_ref().and_then(|s| s.vm_swap)),
        vmas: mappings
            .iter()
            .map(|mapping| Vma {
                start: mapping.start,
                end: mapping.end,
                perms: mapping.perms.bits(),
                name: mapping.label().into_owned(),
            })
            .collect(),
    })
}
