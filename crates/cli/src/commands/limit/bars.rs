//! What the job and each rank hold while it goes on, as bars on a terminal.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use heaptape_collect::Holding;
use heaptape_report::size::Size;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

const TEMPLATE: &str = "{prefix:>9} {wide_bar} {msg}";

/// More ranks have no bar: they would scroll the terminal.
const MOST_RANKS: usize = 16;

/// A bar for the job, and one for each rank.
pub(super) struct Bars {
    all: MultiProgress,
    job: ProgressBar,
    ranks: BTreeMap<u32, ProgressBar>,
    limit: Option<u64>,
    /// The most that was seen, which the bars are as long as where there is no limit.
    most: u64,
}

impl Bars {
    /// Those of a job that begins; `None` where stderr is no terminal.
    pub(super) fn new(limit: Option<u64>) -> Option<Bars> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let job = bar(&all, "job".to_owned());
        Some(Bars { all, job, ranks: BTreeMap::new(), limit, most: 0 })
    }

    /// Shows what is held now.
    pub(super) fn show(&mut self, processes: &[Holding<'_>], charged: u64) {
        self.most = self.most.max(charged);
        let length = self.limit.unwrap_or(self.most).max(1);
        set(&self.job, charged, length, self.limit);
        let held = by_rank(processes);
        self.ranks.retain(|rank, bar| {
            let is_there = held.contains_key(rank);
            if !is_there {
                bar.finish_and_clear();
            }
            is_there
        });
        for (rank, bytes) in held.into_iter().take(MOST_RANKS) {
            let new = || bar(&self.all, format!("rank {rank}"));
            set(self.ranks.entry(rank).or_insert_with(new), bytes, length, None);
        }
    }

    /// Writes something without disturbing the bars.
    pub(super) fn aside(&self, write: impl FnOnce()) {
        self.all.suspend(write);
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.ranks.values().for_each(ProgressBar::finish_and_clear);
        self.job.finish_and_clear();
    }
}

fn bar(all: &MultiProgress, name: String) -> ProgressBar {
    let bar = all.add(ProgressBar::new(1));
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar.with_prefix(name)
}

fn set(bar: &ProgressBar, bytes: u64, length: u64, limit: Option<u64>) {
    bar.set_length(length);
    bar.set_position(bytes.min(length));
    bar.set_message(match limit {
        Some(limit) => format!("{} of {}", Size(bytes), Size(limit)),
        None => Size(bytes).to_string(),
    });
}

/// What the processes of each rank hold together.
fn by_rank(processes: &[Holding<'_>]) -> BTreeMap<u32, u64> {
    let mut held = BTreeMap::new();
    for process in processes {
        if let Some(rank) = process.rank {
            let sum: &mut u64 = held.entry(rank).or_default();
            *sum = sum.saturating_add(process.charged);
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_a_rank_have_one_bar() {
        let holding = |rank, charged| Holding { pid: None, rank, command: &[], charged };
        let processes = [
            holding(Some(1), 5),
            holding(None, 70),
            holding(Some(0), 3),
            holding(Some(1), u64::MAX),
        ];
        let held: Vec<(u32, u64)> = by_rank(&processes).into_iter().collect();
        assert_eq!(held, [(0, 3), (1, u64::MAX)]);
    }
}
