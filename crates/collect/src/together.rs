//! All figures of a counted job, once it has ended: what its processes held together.

use heaptape_ledger::{Basis, Bounds, Job, Missed, Process as Figures};
use heaptape_proc::system;
use heaptape_wire::atomic::Ordering;
use heaptape_wire::ledger::Header;

use crate::count::Counting;
use crate::counter::Counter;
use crate::launch::texts;
use crate::patched::Patches;

/// All figures together.
pub(crate) fn job(mut counter: Counter, counting: &Counting, elapsed: f64) -> Job {
    let header = counter.ledger.header();
    let all_threads = counter.threads();
    let processes = counter.take_processes();
    if counting.limit.is_some() {
        counter.uncovered.extend(greedy_launchers(&processes));
    }
    let patches = counter.patches.take().map(Patches::finish);
    let (patches, patches_sought) = patches.unwrap_or_default();
    let times = counter.usage.times();
    let threads = counter.tasks.most();
    let bounds = Together::of(&counter, &processes);
    let blocks = if counting.basis == Basis::Usable { bounds.usable } else { bounds.requested };
    Job {
        command: texts(&counting.launch.command),
        limit: counting.limit,
        basis: counting.basis,
        exact: counting.exact,
        details: counting.details,
        refused: header.refusals.load(Ordering::Relaxed),
        first: counter.refusals.first().cloned(),
        killed: counter.refusals.is_halting(),
        is_tampered: counter.ledger.budget().limit() != counting.budget()
            || bounds.charged.lower > counting.budget(),
        peak: bounds.charged,
        charged: counter.rows_at(bounds.charged.lower, blocks.upper),
        requested: bounds.requested,
        usable: counting.details.then_some(bounds.usable),
        resident: counter.usage.resident(),
        elapsed,
        processor: times.processor,
        faults: times.faults,
        threads: [threads, all_threads.max(threads)],
        numa_nodes: system::numa_nodes().unwrap_or(1),
        processes,
        uncovered: counter.uncovered,
        unmet: unmet(header, counting),
        stopped: Vec::new(),
        uncounted_threads: header.uncounted.load(Ordering::Relaxed).into(),
        unaccounted: counter.unaccounted.most(),
        patches,
        patches_sought,
        felled: None,
        kernel: None,
    }
}

/// The names of exempt modules that no module had.
fn unmet(header: &Header, counting: &Counting) -> Vec<String> {
    let names = counting.exempt.iter().enumerate();
    names.filter(|(place, _)| !header.exempt.is_met(*place)).map(|(_, name)| name.clone()).collect()
}

/// What all launchers of a job may hold together before that is told as memory beyond the limit.
const LAUNCHERS_MOST: u64 = 128 << 20;

/// Launchers that hold more than launching takes. They are known by their names, which anybody can have.
fn greedy_launchers(processes: &[Figures]) -> Vec<Missed> {
    let launchers = || processes.iter().filter(|process| process.launcher);
    let held = launchers().fold(0u64, |sum, process| sum.saturating_add(process.peak.lower));
    if held <= LAUNCHERS_MOST {
        return Vec::new();
    }
    let most = launchers().max_by_key(|process| process.peak.lower);
    let missed = |process: &Figures| Missed {
        pid: process.pid.unwrap_or(0),
        command: process.command.clone(),
        why: format!(
            "a launcher by its name, it was held against no limit, and has held {} bytes (--count-launcher charges it)",
            process.peak.lower
        ),
    };
    most.map(missed).into_iter().collect()
}

/// The peaks of the sums over all processes that are held against the limit.
struct Together {
    charged: Bounds,
    requested: Bounds,
    usable: Bounds,
}

impl Together {
    fn of(counter: &Counter, processes: &[Figures]) -> Together {
        let counted = || processes.iter().filter(|process| !process.launcher);
        let join = |of: &dyn Fn(&Figures) -> Bounds| {
            let mut sum = Bounds::default();
            counted().map(of).for_each(|bounds| sum.join_peak(bounds));
            sum
        };
        let most = counter.most;
        let seen = |bounds: Bounds, seen: u64, most: u64| {
            let lower = bounds.lower.max(seen);
            Bounds { lower, upper: bounds.upper.min(most).max(lower) }
        };
        let drawn = counter.ledger.budget().peak();
        // What is held against no limit was not drawn.
        let most_blocks = if counter.is_all_held() { drawn } else { u64::MAX };
        // What stays charged for those who are gone is no more than they held themselves.
        let charged = join(&|process| process.peak);
        let most_usable = if counter.basis == Basis::Usable { most_blocks } else { u64::MAX };
        let requested = join(&|process| process.requested);
        let usable = join(&|process| process.usable.unwrap_or_default());
        let charged = seen(charged, most.charged.max(counter.sure()), drawn);
        // All that was charged and not beside blocks was blocks.
        let blocks = match counter.basis {
            Basis::Requested | Basis::Resident => {
                charged.lower.saturating_sub(counter.beside_peaks)
            }
            Basis::Usable => 0,
        };
        let requested = counter.exact_blocks().map_or_else(
            || seen(requested, most.requested.max(blocks), most_blocks),
            |exact| Bounds::exact(exact.max(most.requested)),
        );
        let usable = seen(usable, most.usable, most_usable).at_least(requested);
        Together { charged, requested, usable }
    }
}
