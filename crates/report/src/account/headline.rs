//! The first paragraph of the report, and the facts that stand out as sentences.

use std::time::{Duration, UNIX_EPOCH};

use heaptape_analyze::account::{Account, Peak};
use heaptape_analyze::findings::{Finding, Growth, Spike};
use heaptape_analyze::lives::Load;
use heaptape_analyze::sites::Deeds;
use heaptape_analyze::timeline::Axis;

use super::Figures;
use crate::document::Part;
use crate::size::{Count, Millis, Size};
use crate::{text, unseen};

pub(super) fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let command = &figures.overview.summary.header.command;
    let mut parts = vec![
        Part::Title(format!("Memory of {}", text::short_command(command))),
        Part::Text(recording(figures)),
    ];
    if figures.account.parts.is_empty() {
        parts.push(Part::Text("No process is on this tape.".to_owned()));
        return parts;
    }
    if figures.account.events() == 0 {
        parts.push(Part::Text("No heap calls were made.".to_owned()));
        return parts;
    }
    parts.push(Part::Heading("In short".to_owned()));
    parts.push(Part::List(sentences(figures)));
    parts
}

/// When and where it was recorded, how much there is, and whether it is all.
fn recording(figures: &Figures<'_>) -> String {
    let (s, account) = (&figures.overview.summary, figures.account);
    let mut words = format!("{}: recorded", figures.file);
    if !s.header.host.is_empty() {
        words += &format!(" on {}", s.header.host);
    }
    if let Some(started) = UNIX_EPOCH.checked_add(Duration::from_nanos(s.header.started)) {
        words += &format!(" at {}", humantime::format_rfc3339_seconds(started));
    }
    words += &match text::incomplete(s) {
        Some(why) => format!("; incomplete: {why}."),
        None => "; complete.".to_owned(),
    };
    let events = text::counted(account.events(), "call", "calls");
    words += &format!(" {events} of {} in {}", subject(account), Millis(account.duration()));
    if let Some(rate) = rate(account.events(), account.duration()) {
        words += &format!(" ({} a second)", Count(rate));
    }
    let of = s.processes.len();
    if account.parts.len() < of {
        words += &format!("; the tape has {} processes", Count(of as u64));
    }
    let (lost, faults, unknown) = (Count(s.lost), Count(s.order_faults), Count(s.unknown_frees));
    words += &format!(". Lost events: {lost}. Order faults: {faults}. Unknown frees: {unknown}.");
    if let Some(sentence) = unseen::faults(s) {
        words += &format!(" {sentence}");
    }
    if !s.uncovered.is_empty() {
        let count = text::counted(s.uncovered.len() as u64, "process was", "processes were");
        words += &format!(" {count} not recorded, or only in part: see the end.");
    }
    words
}

/// Calls a second; `None` for a time too short to tell.
fn rate(events: u64, millis: u64) -> Option<u64> {
    (millis >= 10).then(|| (u128::from(events) * 1000 / u128::from(millis)) as u64)
}

/// Whose figures these are.
fn subject(account: &Account) -> String {
    match account.parts.as_slice() {
        [part] => text::process(&part.process),
        parts => text::counted(parts.len() as u64, "process", "processes"),
    }
}

fn sentences(figures: &Figures<'_>) -> Vec<String> {
    let mut all = vec![peak(figures)];
    all.extend(figures.findings.iter().map(|finding| sentence(figures, finding)));
    if figures.account.end.blocks == 0 && figures.account.lives.all.blocks > 0 {
        all.push("Every block was freed before the end.".to_owned());
    }
    if let [part] = figures.account.parts.as_slice()
        && let Some(signal) = part.process.signal
        && figures.account.end.blocks > 0
    {
        all.push(format!("Signal {signal} ended it: what was never freed is what lived then."));
    }
    all
}

/// The most that was live, when, and who had made most of it.
fn peak(figures: &Figures<'_>) -> String {
    let account = figures.account;
    let Peak { requested, usable, blocks, at, time, within } = account.peak;
    let mut words = format!("The most that lived at once was {}", text::bounds(requested));
    if let (Some(blocks), Some(usable)) = (blocks.known(), usable.known()) {
        let blocks = text::counted(blocks, "block", "blocks");
        words += &format!(" in {blocks} ({} usable)", Size(usable));
    }

    words += &match at {
        Some(at) => {
            let calls = account.events();
            format!(
                ", after call {} at {} ({} of the calls)",
                Count(at),
                Millis(time),
                text::share(at + 1, calls)
            )
        }
        None => {
            let since = time.saturating_sub(account.time.start);
            let (from, to) = (Millis(time), Millis(time.saturating_add(within)));
            format!(
                ", between {from} and {to} ({} of the run)",
                text::share(since, account.duration())
            )
        }
    };
    let at_peak =
        |place: &usize| account.sites.get(*place).map_or(0, |site| site.deeds.at_peak.bytes);
    let all = Deeds::of(&account.sites).at_peak.bytes;
    let most = (0..account.sites.len()).rev().max_by_key(at_peak).filter(|p| at_peak(p) > 0);
    match most {
        Some(place) => {
            let (bytes, name) = (at_peak(&place), figures.site_at(place));
            words + &format!("; {} of it ({}) from {name}.", Size(bytes), text::share(bytes, all))
        }
        None => words + ".",
    }
}

fn sentence(figures: &Figures<'_>, finding: &Finding) -> String {
    let account = figures.account;
    match finding {
        Finding::Spike(spike) => self::spike(figures, spike),
        Finding::Growth(growth) => self::growth(figures, growth),
        Finding::Temporary { load, most } => {
            let what = "Temporary blocks: ";
            many(figures, what, *load, "were freed before their thread's next allocation", *most)
        }
        Finding::Short { load, most } => {
            let what = "Short-lived blocks: ";
            many(figures, what, *load, "ended within nine allocations of their own", *most)
        }
        Finding::Churn { made, peak, most } => {
            let words = format!(
                "Churn: {} were made in {}, though no more than {} lived at once",
                Size(made.bytes),
                text::counted(made.blocks, "block", "blocks"),
                text::bounds(*peak)
            );
            ended(
                figures,
                words,
                most.map(|(place, bytes)| (place, format!("{} of it", Size(bytes)))),
            )
        }
        Finding::Left { load, most } => {
            let words = format!(
                "Never freed: {} in {}",
                Size(load.bytes),
                text::counted(load.blocks, "block", "blocks")
            );
            let site = most.and_then(|place| Some((place, account.sites.get(place)?)));
            match site {
                Some((place, site)) => {
                    let left = site.deeds.left;
                    let blocks = text::counted(left.blocks, "block", "blocks");
                    words
                        + &format!(
                            "; {} in {blocks} from {}.",
                            Size(left.bytes),
                            figures.site_at(place)
                        )
                }
                None => words + ".",
            }
        }
        Finding::Held { system, requested } => format!(
            "The system gave {} where at most {} were asked for at once: the rest is stacks, libraries' \
             data, what the allocator keeps, and mappings of the program's own.",
            text::bounds(*system),
            text::bounds(*requested)
        ),
        Finding::Slack { requested, usable } => format!(
            "At the peak the allocator set {} aside for {}, {} more than was asked for.",
            Size(*usable),
            Size(*requested),
            text::share(usable - requested, *requested)
        ),
        Finding::Copies { copied, most } => {
            let words = format!("Reallocs that moved blocks copied up to {}", Size(*copied));
            ended(
                figures,
                words,
                most.map(|(place, bytes)| (place, format!("{} of it", Size(bytes)))),
            )
        }
    }
}

/// How many of all blocks are of a kind, and who made most of them.
fn many(
    figures: &Figures<'_>,
    what: &str,
    load: Load,
    did: &str,
    most: Option<(usize, u64)>,
) -> String {
    let all = figures.account.lives.all.blocks;
    let (of, share) = (text::counted(all, "block", "blocks"), text::share(load.blocks, all));
    let words = format!("{what}{} of {of} ({share}) {did}", Count(load.blocks));
    ended(figures, words, most.map(|(place, blocks)| (place, format!("{} of them", Count(blocks)))))
}

/// A sentence that ends with the caller that has most of what it is about, and how much.
fn ended(figures: &Figures<'_>, words: String, most: Option<(usize, String)>) -> String {
    match most {
        Some((place, much)) => format!("{words}; {much} from {}.", figures.site_at(place)),
        None => words + ".",
    }
}

fn spike(figures: &Figures<'_>, spike: &Spike) -> String {
    let range = match spike.by_index {
        true => format!("between calls {} and {}", Count(spike.from), Count(spike.to)),
        false => format!("between {} and {}", Millis(spike.from), Millis(spike.to)),
    };
    let words = format!(
        "A spike: {range} up to {} were live, where it was {} or less for half of the run",
        Size(spike.most),
        Size(spike.usual)
    );
    match spike.site {
        Some((place, bytes)) => {
            words + &format!("; {} of the difference from {}.", Size(bytes), figures.site_at(place))
        }
        None => words + ".",
    }
}

fn growth(figures: &Figures<'_>, growth: &Growth) -> String {
    let [first, .., last] = growth.levels;
    let half = growth.levels[growth.levels.len() / 2 - 1];
    let account = figures.account;
    // Of several processes the even points are the middles of the eighths.
    let (of, it, early, middle, late) = match (account.parts.len(), account.axis) {
        (1, Axis::Time) => ("run", "it", "an eighth", "half", "at the end"),
        (1, Axis::Index) => ("calls", "them", "an eighth", "half", "at the end"),
        _ => ("run", "it", "a sixteenth", "seven sixteenths", "shortly before the end"),
    };
    let words = format!(
        "It grows all through the {of}: {} lived after {early} of {it}, {} after {middle}, {} {late}",
        Size(first),
        Size(half),
        Size(last)
    );
    match growth.site {
        Some((place, by)) => format!(
            "{words}; {} grew by {} in the second half alone.",
            figures.site_at(place),
            Size(by)
        ),
        None => words + ".",
    }
}
