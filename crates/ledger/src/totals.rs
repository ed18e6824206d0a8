//! What the processes of a job counted, added up: classes, groups, modules, and how far the processes
//! are apart.
//!
//! Launchers are held against no limit and are left out. Peaks need not have come together, so those of
//! sums lie between two values.

use std::collections::BTreeMap;

use crate::bins::{Group, upper_edge};
use crate::{Bounds, Job, Process, Traffic};

/// A module of the job, whichever processes have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleTotal {
    /// The name of its file, and of an executable its command's; `None` for all modules that were not
    /// told apart.
    pub name: Option<String>,
    /// Its path; `None` for executables, and where there is no name.
    pub path: Option<String>,
    /// Whether its blocks are held against no limit.
    pub exempt: bool,
    /// What its calls brought and released.
    pub traffic: Traffic,
}

/// What the processes of a job counted, launchers left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Successful allocations, reallocs among them.
    pub allocations: u64,
    /// Blocks released, reallocs among them.
    pub frees: u64,
    /// Allocations that failed, refused ones among them.
    pub failed: u64,
    /// Releases of blocks whose size was not known.
    pub unknown: u64,
    /// All requested bytes.
    pub all: Traffic,
    /// The groups of size classes, from small to huge.
    pub groups: Vec<(Group, Traffic)>,
    /// The size classes that were used, by their upper edges, the smallest first.
    pub bins: Vec<(u64, Traffic)>,
    /// The modules, those that brought most first.
    pub modules: Vec<ModuleTotal>,
    /// The processes' own peaks of charged bytes, added up: they need not have come at one time.
    pub own_peaks: Bounds,
}

impl Totals {
    /// Those of a job.
    pub fn of(job: &Job) -> Totals {
        let mut totals = Totals::default();
        let mut bins = BTreeMap::new();
        let mut modules = BTreeMap::new();
        for process in job.counted() {
            totals.add(process);
            for (bin, traffic) in process.sums.bins.iter().enumerate() {
                join(&mut bins, upper_edge(bin), traffic);
            }
            for module in &process.modules {
                let (path, name) = key(process, module.path.as_deref());
                join(&mut modules, (path, name, module.exempt), &module.traffic);
            }
        }
        totals.groups = groups(&bins);
        totals.bins = bins.into_iter().collect();
        totals.modules = modules
            .into_iter()
            .map(|((path, name, exempt), traffic)| ModuleTotal { name, path, exempt, traffic })
            .collect();
        totals.modules.sort_by_key(|module| std::cmp::Reverse(module.traffic.total));
        totals.cap(job.requested.upper);
        totals.all.peak = job.requested;
        totals
    }

    fn add(&mut self, process: &Process) {
        let sums = &process.sums;
        for (sum, more) in [
            (&mut self.allocations, sums.allocations),
            (&mut self.frees, sums.frees),
            (&mut self.failed, sums.failed),
            (&mut self.unknown, sums.unknown),
        ] {
            *sum = sum.saturating_add(more);
        }
        let [total, freed] = sums.requested;
        self.all.join(&Traffic { count: sums.allocations, total, freed, peak: Bounds::default() });
        self.own_peaks.add(process.peak);
    }

    /// No part lived that was more than all of it.
    fn cap(&mut self, most: u64) {
        let bins = self.bins.iter_mut().map(|(_, traffic)| traffic);
        let groups = self.groups.iter_mut().map(|(_, traffic)| traffic);
        let modules = self.modules.iter_mut().map(|module| &mut module.traffic);
        for traffic in bins.chain(groups).chain(modules) {
            let peak = &mut traffic.peak;
            peak.upper = peak.upper.min(most).max(peak.lower);
        }
    }
}

fn join<K: Ord>(sums: &mut BTreeMap<K, Traffic>, key: K, traffic: &Traffic) {
    if traffic.is_used() {
        sums.entry(key).and_modify(|sum| sum.join(traffic)).or_insert(*traffic);
    }
}

/// Libraries are told apart by their paths, executables by their commands' names.
fn key(process: &Process, path: Option<&str>) -> (Option<String>, Option<String>) {
    match path {
        Some("") => (None, Some(process.name().to_owned())),
        Some(path) => (Some(path.to_owned()), Some(file_name(path).to_owned())),
        None => (None, None),
    }
}

fn groups(bins: &BTreeMap<u64, Traffic>) -> Vec<(Group, Traffic)> {
    let mut groups = Group::ALL.map(|group| (group, Traffic::default()));
    for (&unit, traffic) in bins {
        let group = groups.iter_mut().find(|(group, _)| *group == Group::of_bytes(unit));
        group.into_iter().for_each(|(_, sum)| sum.join(traffic));
    }
    groups.to_vec()
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// How far the processes of a job are apart: their own peaks of charged bytes, as upper bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The place in the job's list of the process that held least, and its peak.
    pub least: (usize, u64),
    /// The middle one's peak; of an even number of processes the higher of the two.
    pub median: u64,
    /// The place of the process that held most, and its peak.
    pub most: (usize, u64),
    /// How many processes it is of.
    pub processes: usize,
}

impl Spread {
    /// That of the job's ranks, or of all its processes where none has a rank; `None` where there are
    /// fewer than two.
    pub fn of(job: &Job) -> Option<Spread> {
        let has_ranks = job.counted().any(|process| process.rank.is_some());
        let mut peaks: Vec<(u64, usize)> = (0..)
            .zip(&job.processes)
            .filter(|(_, process)| !process.launcher && (process.rank.is_some() || !has_ranks))
            .map(|(place, process)| (process.peak.upper, place))
            .collect();
        peaks.sort_unstable();
        let [least, .., most] = peaks.as_slice() else { return None };
        let median = peaks.get(peaks.len() / 2)?.0;
        let turned = |&(peak, place): &(u64, usize)| (place, peak);
        Some(Spread { least: turned(least), median, most: turned(most), processes: peaks.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Module;
    use crate::bins::bin_of;

    fn traffic(total: u64, freed: u64, peak: u64) -> Traffic {
        Traffic { count: 1, total, freed, peak: Bounds::exact(peak) }
    }

    /// A rank of `prog`, which allocated these sizes, one after another, and freed each.
    fn rank(rank: u32, sizes: &[u64]) -> Process {
        let most = sizes.iter().copied().max().unwrap_or(0);
        let total = sizes.iter().sum();
        let mut process = Process {
            rank: Some(rank),
            command: vec!["/opt/prog".into()],
            peak: Bounds { lower: most, upper: most + 10 },
            ..Process::default()
        };
        process.sums.allocations = sizes.len() as u64;
        process.sums.frees = sizes.len() as u64;
        process.sums.requested = [total, total];
        for &size in sizes {
            process.sums.bins[bin_of(size)].join(&traffic(size, size, size));
        }
        let own = Traffic { count: sizes.len() as u64, ..traffic(total, total, most) };
        process.modules = vec![Module { path: Some(String::new()), exempt: false, traffic: own }];
        process
    }

    fn job(processes: Vec<Process>) -> Job {
        Job { requested: Bounds { lower: 4000, upper: 5000 }, processes, ..Job::default() }
    }

    #[test]
    fn classes_modules_and_all_add_up_to_the_same() {
        let totals = Totals::of(&job(vec![rank(0, &[10, 2000]), rank(1, &[10, 4000, 9_000_000])]));
        let sum = |list: &[&Traffic]| {
            list.iter().map(|t| (t.total, t.count)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        };
        let all = (totals.all.total, totals.all.count);
        assert_eq!(all, (9_006_020, 5));
        assert_eq!(sum(&totals.bins.iter().map(|(_, t)| t).collect::<Vec<_>>()), all);
        assert_eq!(sum(&totals.groups.iter().map(|(_, t)| t).collect::<Vec<_>>()), all);
        assert_eq!(sum(&totals.modules.iter().map(|m| &m.traffic).collect::<Vec<_>>()), all);
        assert_eq!(totals.modules.len(), 1);
        assert_eq!(totals.modules[0].name.as_deref(), Some("prog"));
        assert_eq!(totals.modules[0].path, None);
    }

    #[test]
    fn peaks_of_sums_lie_between_two_values_and_below_that_of_all() {
        let totals = Totals::of(&job(vec![rank(0, &[2000]), rank(1, &[4000])]));
        assert_eq!(totals.groups[1].1.peak, Bounds { lower: 4000, upper: 5000 });
        assert_eq!(totals.all.peak, Bounds { lower: 4000, upper: 5000 });
        assert_eq!(totals.own_peaks, Bounds { lower: 6000, upper: 6020 });
    }

    #[test]
    fn launchers_are_left_out() {
        let mut launcher = rank(0, &[77]);
        launcher.launcher = true;
        launcher.rank = None;
        let job = job(vec![launcher, rank(0, &[100])]);
        let totals = Totals::of(&job);
        assert_eq!((totals.all.total, totals.bins.len()), (100, 1));
        assert_eq!(Spread::of(&job), None);
    }

    #[test]
    fn modules_are_told_apart_by_their_paths() {
        let mut one = rank(0, &[100]);
        let module = |path: Option<&str>| Module {
            path: path.map(str::to_owned),
            exempt: false,
            traffic: traffic(1, 0, 1),
        };
        one.modules = vec![
            module(Some("/a/libx.so")),
            module(Some("/b/libx.so")),
            module(None),
            module(Some("")),
        ];
        let totals = Totals::of(&job(vec![one.clone(), one]));
        let mut names: Vec<_> =
            totals.modules.iter().map(|m| (m.name.as_deref(), m.path.as_deref())).collect();
        names.sort();
        let libx = Some("libx.so");
        let expected = [
            (None, None),
            (libx, Some("/a/libx.so")),
            (libx, Some("/b/libx.so")),
            (Some("prog"), None),
        ];
        assert_eq!(names, expected);
        assert!(totals.modules.iter().all(|m| m.traffic.total == 2));
    }

    #[test]
    fn the_spread_is_of_ranks_where_there_are_any() {
        let mut helper = rank(0, &[1]);
        helper.rank = None;
        let job = job(vec![rank(0, &[300]), helper, rank(1, &[100]), rank(2, &[200])]);
        let spread = Spread { least: (2, 110), median: 210, most: (0, 310), processes: 3 };
        assert_eq!(Spread::of(&job), Some(spread));
    }

    #[test]
    fn sums_beyond_64_bits_stay_there() {
        let huge = || {
            let mut one = rank(0, &[1]);
            one.sums.requested = [u64::MAX, 0];
            one.sums.bins[0] = traffic(u64::MAX, 0, u64::MAX);
            one.peak = Bounds::exact(u64::MAX);
            one
        };
        let totals = Totals::of(&job(vec![huge(), huge()]));
        assert_eq!((totals.all.total, totals.own_peaks.upper), (u64::MAX, u64::MAX));
    }
}
