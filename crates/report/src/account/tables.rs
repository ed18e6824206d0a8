//! The tables of the report: callers, modules, size classes, lives, reallocs, threads, and what stands
//! between what was asked for and what the machine gave.

use std::cmp::Reverse;

use heaptape_analyze::account::Held;
use heaptape_analyze::bins::Traffic;
use heaptape_analyze::live::Trace;
use heaptape_analyze::lives::{CLASSES, Load, least_age};
use heaptape_analyze::sites::{self, Deeds, Origin, Site};
use heaptape_ledger::Bounds;

use super::Figures;
use crate::document::{Part, Rows};
use crate::size::{Count, Millis, Size};
use crate::table::Align::{Left, Name, Right, Text};
use crate::{classes, stacks, text};

/// What lived at the peak, by caller.
pub(super) fn at_peak(figures: &Figures<'_>) -> Vec<Part> {
    let account = figures.account;
    let time = Millis(account.peak.time);
    let when = match (account.peak.at, account.peak.within) {
        (Some(at), _) => format!("after call {} at {time}", Count(at)),
        (None, within) => format!("within {within} ms after {time}"),
    };
    let mut parts = vec![Part::Heading(format!("Live at the peak, {when}"))];
    parts.extend(loads(figures, |site| (site.deeds.at_peak, site.trace.as_deref())));
    parts
}

/// What was left, by caller.
pub(super) fn left(figures: &Figures<'_>) -> Vec<Part> {
    let mut parts = vec![Part::Heading("Never freed".to_owned())];
    let loads = loads(figures, |site| (site.deeds.left, site.left_trace.as_deref()));
    if loads.is_empty() {
        parts.push(Part::Text("Nothing: every block was freed.".to_owned()));
    }
    parts.extend(loads);
    parts
}

/// Callers by what they have of something, each with the stack that has most of it, and the sum of all.
fn loads<'a>(
    figures: &Figures<'a>,
    load: impl Fn(&'a Site) -> (Load, Option<&'a Trace>),
) -> Vec<Part> {
    let mut list: Vec<(&Site, (Load, Option<&Trace>))> =
        figures.account.sites.iter().map(|site| (site, load(site))).collect();
    list.retain(|(_, (load, _))| load.blocks > 0);
    list.sort_by_key(|(_, (load, _))| Reverse(*load));
    let mut all = Load::default();
    list.iter().for_each(|(_, (load, _))| all.join(*load));
    let mut rows =
        Rows::new(&[("requested", Right), ("share", Right), ("blocks", Right), ("caller", Name)]);
    let shown = figures.first(&list);
    let mut row = |load: Load, name: String, below: Vec<String>| {
        rows.row([
            Size(load.bytes).to_string(),
            text::share(load.bytes, all.bytes),
            Count(load.blocks).to_string(),
            name,
        ]);
        below.into_iter().for_each(|line| rows.row(["", "", "", &format!("  {line}")]));
    };
    for (site, (load, trace)) in shown {
        row(*load, figures.site(site), below(figures, site, *trace));
    }
    if list.is_empty() {
        return Vec::new();
    }
    row(all, "all".to_owned(), Vec::new());
    let mut parts = vec![Part::Table(rows)];
    parts.extend(figures.rest(shown.len(), list.len(), "callers"));
    parts
}

/// The calls that a caller was called by, on one of its stacks.
fn below(figures: &Figures<'_>, site: &Site, trace: Option<&Trace>) -> Vec<String> {
    let Some(trace) = trace else { return Vec::new() };
    let (place, address) = match &site.origin {
        Origin::Caller { address, place } => (place.as_ref(), *address),
        Origin::Inherited => (None, 0),
    };
    let mut lines = stacks::below_address(trace, place, address, figures.whole);
    if site.stacks > 1 {
        lines.push(format!("(the largest of {} call stacks)", Count(site.stacks)));
    }
    lines
}

/// What each caller made in all.
pub(super) fn made(figures: &Figures<'_>) -> Vec<Part> {
    let mut rows = Rows::new(&[
        ("made", Right),
        ("blocks", Right),
        ("mean", Right),
        ("temporary", Right),
        ("left", Right),
        ("caller", Name),
    ]);
    let made: Vec<&Site> =
        figures.account.sites.iter().filter(|site| site.deeds.made.blocks > 0).collect();
    let all = Deeds::of(made.iter().copied());
    let mut row = |deeds: &Deeds, name: String| {
        let made = deeds.made;
        rows.row([
            Size(made.bytes).to_string(),
            Count(made.blocks).to_string(),
            Size(made.bytes.checked_div(made.blocks).unwrap_or(0)).to_string(),
            text::share(deeds.temporary.blocks, made.blocks),
            Size(deeds.left.bytes).to_string(),
            name,
        ]);
    };
    let shown = figures.first(&made);
    shown.iter().for_each(|site| row(&site.deeds, figures.site(site)));
    row(&all, "all".to_owned());
    let mut parts = vec![Part::Heading("Made, by caller".to_owned()), Part::Table(rows)];
    parts.extend(figures.rest(shown.len(), made.len(), "callers"));
    parts
}

/// The same by module.
pub(super) fn modules(figures: &Figures<'_>) -> Vec<Part> {
    let account = figures.account;
    let mut rows = Rows::new(&[
        ("made", Right),
        ("blocks", Right),
        ("at peak", Right),
        ("left", Right),
        ("module", Name),
    ]);
    let modules = sites::by_module(&account.sites);
    let shown = figures.first(&modules);
    for (path, deeds) in shown {
        rows.row([
            Size(deeds.made.bytes).to_string(),
            Count(deeds.made.blocks).to_string(),
            Size(deeds.at_peak.bytes).to_string(),
            Size(deeds.left.bytes).to_string(),
            path.as_deref().map_or("(no module known)", text::file_name).to_owned(),
        ]);
    }
    let mut parts = vec![Part::Heading("Made, by module".to_owned()), Part::Table(rows)];
    parts.extend(figures.rest(shown.len(), modules.len(), "modules"));
    parts
}

/// The size classes, and their groups.
pub(super) fn bins(figures: &Figures<'_>) -> Vec<Part> {
    let bins = &figures.account.bins;
    let mut all: Vec<_> = bins.bins().collect();
    all.sort_by_key(|(bin, traffic)| (Reverse(traffic.total), *bin));
    let count = all.len();
    let mut shown = figures.first(&all).to_vec();
    shown.sort_by_key(|(bin, _)| *bin);
    let mut rows = Rows::new(&classes::columns(("up to", Right)));
    for (bin, traffic) in &shown {
        rows.row(bin_row(Size(bin.unit()).to_string(), traffic));
    }
    let mut groups = Rows::new(&classes::columns(("group", Left)));
    for (group, traffic) in bins.groups() {
        groups.row(bin_row(group.name().to_owned(), traffic));
    }
    groups.row(bin_row("all".to_owned(), bins.all()));
    let mut parts = vec![
        Part::Heading("Sizes, as requested".to_owned()),
        Part::Table(groups),
        Part::Table(rows),
    ];
    parts.extend(figures.rest(shown.len(), count, "size classes, with fewer bytes"));
    parts
}

fn bin_row(name: String, traffic: &Traffic) -> [String; 7] {
    let Traffic { peak, total, freed, current, count } = *traffic;
    classes::Class { name, peak: text::bounds(peak), total, freed, current, count }.row()
}

/// How long blocks lived.
pub(super) fn lives(figures: &Figures<'_>) -> Vec<Part> {
    let lives = &figures.account.lives;
    if lives.all.blocks == 0 {
        return Vec::new();
    }
    let mut rows = Rows::new(&[
        ("ended after", Left),
        ("blocks", Right),
        ("share", Right),
        ("requested", Right),
    ]);
    let mut row = |name: String, load: Load| {
        let share = text::share(load.blocks, lives.all.blocks);
        rows.row([name, Count(load.blocks).to_string(), share, Size(load.bytes).to_string()]);
    };
    for (class, load) in lives.by_age.iter().enumerate().filter(|(_, load)| load.blocks > 0) {
        row(age(class), *load);
    }
    row("not at all: left".to_owned(), lives.left());
    row("all".to_owned(), lives.all);
    let sentence = format!(
        "A realloc ends a block and makes another. Temporary (freed before their thread's next allocation): {}, {}. Alive for half of the calls or more: \
         {}, {}.",
        text::counted(lives.temporary.blocks, "block", "blocks"),
        Size(lives.temporary.bytes),
        text::counted(lives.long.blocks, "block", "blocks"),
        Size(lives.long.bytes),
    );
    vec![
        Part::Heading("How long blocks lived, in allocations of their process".to_owned()),
        Part::Table(rows),
        Part::Text(sentence),
    ]
}

fn age(class: usize) -> String {
    match class {
        0 => "0 allocations".to_owned(),
        class if class + 1 == CLASSES => format!("{} or more", Count(least_age(class))),
        class => format!("{} to {}", Count(least_age(class)), Count(least_age(class + 1) - 1)),
    }
}

/// How reallocs went.
pub(super) fn reallocs(figures: &Figures<'_>) -> Vec<Part> {
    let r = &figures.account.reallocs;
    let all = r.in_place + r.moved + r.failed;
    if all == 0 {
        return Vec::new();
    }
    let sentence = format!(
        "{} of a block: {} in place, {} moved it, {} failed. The blocks grew by {} and shrank by {}; up to {} \
         were copied.",
        text::counted(all, "realloc", "reallocs"),
        Count(r.in_place),
        Count(r.moved),
        Count(r.failed),
        Size(r.grown),
        Size(r.shrunk),
        Size(r.copied)
    );
    let mut parts = vec![Part::Heading("Reallocs".to_owned()), Part::Text(sentence)];
    let mut copiers: Vec<&Site> =
        figures.account.sites.iter().filter(|site| site.deeds.copied > 0).collect();
    copiers.sort_by_key(|site| Reverse(site.deeds.copied));
    let mut rows = Rows::new(&[("copied", Right), ("share", Right), ("caller", Name)]);
    let shown = figures.first(&copiers);
    for site in shown {
        let copied = site.deeds.copied;
        rows.row([Size(copied).to_string(), text::share(copied, r.copied), figures.site(site)]);
    }
    if !rows.is_empty() {
        parts.push(Part::Table(rows));
        parts.extend(figures.rest(shown.len(), copiers.len(), "callers"));
    }
    parts
}

/// What each thread did, where there are several.
pub(super) fn threads(figures: &Figures<'_>) -> Vec<Part> {
    let account = figures.account;
    if account.threads.len() <= account.parts.len() {
        return Vec::new();
    }
    let mut threads: Vec<_> = account.threads.iter().filter(|t| t.deeds.events > 0).collect();
    threads.sort_by_key(|t| (Reverse(t.deeds.events), t.part, t.number));
    let mut rows = Rows::new(&[
        ("pid", Right),
        ("thread", Right),
        ("calls", Right),
        ("made", Right),
        ("blocks", Right),
        ("left", Right),
        ("freed of others", Right),
    ]);
    let shown = figures.first(&threads);
    for thread in shown {
        let pid = account.parts.get(thread.part).and_then(|part| part.process.known_pid());
        let deeds = &thread.deeds;
        rows.row([
            text::or_dash(pid),
            thread.number.to_string(),
            Count(deeds.events).to_string(),
            Size(deeds.made.bytes).to_string(),
            Count(deeds.made.blocks).to_string(),
            Size(deeds.left.bytes).to_string(),
            Size(deeds.freed_of_others.bytes).to_string(),
        ]);
    }
    let mut parts = vec![Part::Heading("Threads".to_owned()), Part::Table(rows)];
    parts.extend(figures.rest(shown.len(), threads.len(), "threads"));
    parts
}

/// From what was asked for to what the machine gave.
pub(super) fn ladder(figures: &Figures<'_>) -> Vec<Part> {
    let account = figures.account;
    let steps = account.over_time.steps();
    let most =
        |figure: fn(&heaptape_analyze::timeline::Step) -> u64| steps.iter().map(figure).max();
    let exact = account.over_index.is_some();
    let highest = |most: Option<u64>, lower: u64| match most {
        Some(most) if exact => text::bounds(Bounds::exact(most)),
        Some(most) => text::bounds(Bounds { lower: lower.min(most), upper: most }),
        None => "n/a".to_owned(),
    };
    let usable_lower = most(|step| step.usable.least).unwrap_or(0);
    let mut rows =
        Rows::new(&[("", Left), ("at the peak", Right), ("at most", Right), ("what it is", Text)]);
    let peak = &account.peak;
    rows.row([
        "requested".to_owned(),
        text::bounds(peak.requested),
        text::bounds(peak.requested),
        "what the program asked for and had not freed".to_owned(),
    ]);
    rows.row([
        "usable".to_owned(),
        text::bounds(peak.usable),
        highest(most(|step| step.usable.most), usable_lower),
        "what the allocator set aside for it: sizes rounded up".to_owned(),
    ]);
    let Held { system, resident } = account.held_at_peak;
    let or_na = |bounds: Option<Bounds>| bounds.map_or_else(|| "n/a".to_owned(), text::bounds);
    rows.row([
        "system".to_owned(),
        or_na(system),
        or_na(account.held_most.system),
        "all writable memory of the program: heap, what the allocator keeps, stacks, libraries' data".to_owned(),
    ]);
    rows.row([
        "resident".to_owned(),
        or_na(resident),
        or_na(account.held_most.resident),
        "pages in RAM, code and files too; what was never touched is not".to_owned(),
    ]);
    vec![
        Part::Heading("From what was asked for to what the machine gave".to_owned()),
        Part::Table(rows),
        Part::Text(
            "requested and usable are of every call. system and resident are samples of the kernel: two values \
             are those before and after the peak, and n/a is what they missed."
                .to_owned(),
        ),
    ]
}
