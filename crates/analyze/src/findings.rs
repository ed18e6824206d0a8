//! What a person should hear first: the few facts of an account that stand out.
//!
//! Each finding has a plain threshold, which stands beside it here; the report makes sentences of them. What
//! is only found by luck or taste is left out.

use crate::account::{Account, EIGHTHS};
use crate::growth;
use crate::lives::Load;
use crate::sites::Site;
use crate::timeline::{Axis, Step, Timeline};
use heaptape_ledger::Bounds;

/// A fact that stands out. Sites are places in [`Account::sites`].
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// For a short part of the run far more was live than else: at least twice as much as half of the time,
    /// for a fifth of the run at the most; of the time, where the run is long enough for its clock, or of the
    /// calls. Of several processes only what lived together for certain counts.
    Spike(Spike),
    /// What lives grows all through the run (as [`mod@growth`] has it), and is not freed at its end.
    Growth(Growth),
    /// At least a third of the blocks, and at least a thousand, were freed before their thread's next
    /// allocation.
    Temporary {
        /// The blocks.
        load: Load,
        /// The site that made most of them, and how many.
        most: Option<(usize, u64)>,
    },
    /// At least half of the blocks, and at least ten thousand, ended within nine allocations of their own, where
    /// they are not temporary in the sense above.
    Short {
        /// The blocks.
        load: Load,
        /// The site that made most of them, and how many.
        most: Option<(usize, u64)>,
    },
    /// At least 64 MiB were made, and twenty times as much as ever lived at once.
    Churn {
        /// What was made.
        made: Load,
        /// The most that lived at once, in bytes.
        peak: Bounds,
        /// The site that made most bytes, and how many.
        most: Option<(usize, u64)>,
    },
    /// Blocks that were never freed: at least a hundredth of the peak.
    Left {
        /// The blocks.
        load: Load,
        /// The site that left most bytes.
        most: Option<usize>,
    },
    /// The kernel held at least twice as much of one process as was live at the peak, and 32 MiB more.
    Held {
        /// The most that was committed at any sample, in bytes.
        system: Bounds,
        /// What was live at the peak, in bytes.
        requested: Bounds,
    },
    /// The allocator set a fifth more aside than was asked for at the peak, and at least 1 MiB.
    Slack {
        /// What was asked for, in bytes.
        requested: u64,
        /// What was set aside, in bytes.
        usable: u64,
    },
    /// Reallocs copied at least a quarter of all bytes that were asked for, and 16 MiB.
    Copies {
        /// Bytes, at the most.
        copied: u64,
        /// The site that copied most, and its bytes.
        most: Option<(usize, u64)>,
    },
}

/// A short stretch with far more than else.
#[derive(Clone, Debug, PartialEq)]
pub struct Spike {
    /// Where on the axis of its curve it begins and ends.
    pub from: u64,
    /// The step after its last one begins here.
    pub to: u64,
    /// Whether these are indexes; else they are milliseconds.
    pub by_index: bool,
    /// The most in it, in requested bytes.
    pub most: u64,
    /// What was live half of the time, or more.
    pub usual: u64,
    /// The site of which most more lived at the peak than usual, and how many bytes.
    pub site: Option<(usize, u64)>,
}

/// What grows all through the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// Live requested bytes at the even points of the run.
    pub levels: [u64; EIGHTHS],
    /// The site that grew most in the second half of the run, and by how much.
    pub site: Option<(usize, u64)>,
}

const THIRD_OF_BLOCKS: u64 = 3;
const MANY_BLOCKS: u64 = 1000;
const MIB: u64 = 1 << 20;

/// The findings of an account, the most telling first.
pub fn of(account: &Account) -> Vec<Finding> {
    let all = [
        spike(account).map(Finding::Spike),
        growth(account).map(Finding::Growth),
        temporary(account).or_else(|| short(account)),
        churn(account),
        held(account),
        slack(account),
        copies(account),
        left(account),
    ];
    all.into_iter().flatten().collect()
}

/// The site with the most of something, if any has some; of equals the first.
fn most(sites: &[Site], figure: impl Fn(&Site) -> u64) -> Option<(usize, u64)> {
    let figures = sites.iter().map(figure).enumerate();
    figures.rev().max_by_key(|&(_, figure)| figure).filter(|&(_, figure)| figure > 0)
}

fn spike(account: &Account) -> Option<Spike> {
    let over_time = || spike_of(account, &account.over_time);
    match &account.over_index {
        Some(over_index) if account.axis == Axis::Time => {
            over_time().or_else(|| spike_of(account, over_index))
        }
        Some(over_index) => spike_of(account, over_index),
        None => over_time(),
    }
}

fn spike_of(account: &Account, line: &Timeline) -> Option<Spike> {
    let steps = line.steps();
    // What processes had in one step may not have lived together; their least did.
    let is_job = account.over_index.is_none();
    let height = |step: &Step| if is_job { step.requested.least } else { step.requested.most };
    let usual = median(line);
    let top = steps.iter().enumerate().rev().max_by_key(|(_, step)| height(step))?.0;
    let most_bytes = height(&steps[top]);
    if most_bytes < MIB / 16 || most_bytes / 2 < usual {
        return None;
    }
    let half = usual + (most_bytes - usual) / 2;
    let is_high = |place: &usize| steps.get(*place).is_some_and(|step| height(step) > half);
    let first = (0..=top).rev().take_while(is_high).last()?;
    let last = (top..steps.len()).take_while(is_high).last()?;
    let is_short = (last - first + 1) * 5 <= steps.len().max(5);
    // What only grew up to its end has not come down again.
    let comes_down = last + 1 < steps.len() || account.end.requested <= half;
    (is_short && comes_down).then(|| Spike {
        from: steps[first].at,
        to: steps[last].at.saturating_add(line.per_step()).min(line.range().end),
        by_index: line.axis() == Axis::Index,
        most: most_bytes,
        usual,
        site: most(&account.sites, above_usual),
    })
}

/// What was live half of the time, or more.
fn median(line: &Timeline) -> u64 {
    let mut all: Vec<u64> = line.steps().iter().map(|step| step.requested.least).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

/// How much more of a site was live at the peak than at half of the even points.
fn above_usual(site: &Site) -> u64 {
    let mut usual = evens(site).map(|load| load.bytes);
    usual.sort_unstable();
    site.deeds.at_peak.bytes.saturating_sub(usual[EIGHTHS / 2])
}

/// What of a site lived at the even points of the run.
fn evens(site: &Site) -> [Load; EIGHTHS] {
    let mut loads = [Load::default(); EIGHTHS];
    loads.iter_mut().zip(&site.deeds.at).for_each(|(load, at)| *load = *at);
    loads
}

fn growth(account: &Account) -> Option<Growth> {
    let mut all = [Load::default(); EIGHTHS];
    let per_site: Vec<_> = account.sites.iter().map(evens).collect();
    for evens in &per_site {
        all.iter_mut().zip(evens).for_each(|(sum, load)| sum.join(*load));
    }
    let grown = |evens: &[Load; EIGHTHS]| {
        let by = evens[EIGHTHS - 1].bytes.saturating_sub(evens[EIGHTHS / 2 - 1].bytes);
        if growth::Growth::of(evens).is_growing() { by } else { 0 }
    };
    let site = per_site.iter().map(grown).enumerate();
    let site = site.rev().max_by_key(|&(_, by)| by).filter(|&(_, by)| by > 0);
    let end = all[EIGHTHS - 1].bytes;
    // A site that grows may be hidden below others that come and go.
    let stands_out = site.is_some_and(|(_, by)| by >= 16 * 1024 && by >= end / 10);
    (stands_out || (end >= MIB && grown(&all) > 0))
        .then(|| Growth { levels: all.map(|load| load.bytes), site })
}

fn temporary(account: &Account) -> Option<Finding> {
    let load = account.lives.temporary;
    let is_much =
        load.blocks >= MANY_BLOCKS && load.blocks * THIRD_OF_BLOCKS >= account.lives.all.blocks;
    let most = most(&account.sites, |site| site.deeds.temporary.blocks);
    is_much.then_some(Finding::Temporary { load, most })
}

fn short(account: &Account) -> Option<Finding> {
    let load = account.lives.short();
    let is_much = load.blocks >= 10 * MANY_BLOCKS && load.blocks * 2 >= account.lives.all.blocks;
    let most = most(&account.sites, |site| site.deeds.short.blocks);
    is_much.then_some(Finding::Short { load, most })
}

fn churn(account: &Account) -> Option<Finding> {
    let (made, peak) = (account.lives.all, account.peak.requested);
    let is_much = made.bytes >= 64 * MIB && made.bytes / 20 >= peak.upper;
    let most = most(&account.sites, |site| site.deeds.made.bytes);
    is_much.then_some(Finding::Churn { made, peak, most })
}

fn left(account: &Account) -> Option<Finding> {
    let load = Load { bytes: account.end.requested, blocks: account.end.blocks };
    let is_much = load.blocks > 0 && load.bytes >= account.peak.requested.lower / 100;
    let most = most(&account.sites, |site| site.deeds.left.bytes).map(|(place, _)| place);
    is_much.then_some(Finding::Left { load, most })
}

fn held(account: &Account) -> Option<Finding> {
    // Forked processes share most of what each of them may write.
    let [_] = account.parts.as_slice() else { return None };
    let (system, requested) = (account.held_most.system?, account.peak.requested);
    let is_much = system.lower / 2 >= requested.upper && system.lower - requested.upper >= 32 * MIB;
    is_much.then_some(Finding::Held { system, requested })
}

fn slack(account: &Account) -> Option<Finding> {
    let (requested, usable) = (account.peak.requested.known()?, account.peak.usable.known()?);
    let slack = usable.saturating_sub(requested);
    (slack >= MIB && slack >= requested / 5).then_some(Finding::Slack { requested, usable })
}

fn copies(account: &Account) -> Option<Finding> {
    let copied = account.reallocs.copied;
    let is_much = copied >= 16 * MIB && copied >= account.lives.all.bytes / 4;
    let most = most(&account.sites, |site| site.deeds.copied);
    is_much.then_some(Finding::Copies { copied, most })
}
