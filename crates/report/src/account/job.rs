//! The processes of the report: who started whom, what each had, and who was not recorded.

use std::cmp::Reverse;
use std::collections::HashSet;

use heaptape_analyze::overview::Member;
use heaptape_analyze::{Call, ProcessNumber};

use super::Figures;
use crate::document::{Part, Rows};
use crate::size::{Count, Size};
use crate::table::Align::{Left, Name, Right, Text};
use crate::text;

/// Calls by kind, of all processes together.
pub(super) fn calls(figures: &Figures<'_>) -> Vec<Part> {
    let parts = &figures.account.parts;
    let mut rows = Rows::new(&[("call", Left), ("calls", Right), ("share", Right)]);
    let events = figures.account.events();
    for call in Call::ALL {
        let made: u64 = parts.iter().map(|part| part.process.calls.of(call)).sum();
        if made > 0 {
            rows.row([call.name().to_owned(), Count(made).to_string(), text::share(made, events)]);
        }
    }
    rows.row(["all".to_owned(), Count(events).to_string(), text::share(events, events)]);
    let free_null: u64 = parts.iter().map(|part| part.process.free_null).sum();
    vec![
        Part::Heading("Calls".to_owned()),
        Part::Table(rows),
        Part::Text(format!(
            "Besides, {} of free(NULL), which do nothing and are no calls of the above.",
            text::counted(free_null, "call", "calls")
        )),
    ]
}

/// The processes as a tree, where there are several: those with the highest peaks, below their parents.
pub(super) fn processes(figures: &Figures<'_>) -> Vec<Part> {
    let members = &figures.overview.members;
    if members.len() < 2 {
        return Vec::new();
    }
    let ranked = members.iter().any(|m| m.process.rank.is_some());
    let rank = ranked.then_some(("rank", Right));
    let columns: Vec<_> = [("#", Right), ("pid", Right)]
        .into_iter()
        .chain(rank)
        .chain([
            ("calls", Right),
            ("peak", Right),
            ("inherited", Right),
            ("left", Right),
            ("exit", Left),
            ("command", Name),
        ])
        .collect();
    let mut rows = Rows::new(&columns);
    let shown = foremost(figures);
    for (member, depth) in tree(members) {
        let p = &member.process;
        if !shown.contains(&p.number) {
            continue;
        }
        let mut row = vec![p.number.to_string(), text::or_dash(p.known_pid())];
        if ranked {
            row.push(text::or_dash(p.rank));
        }
        let inherited = Size(p.inherited_bytes).to_string();
        row.extend([
            Count(p.events).to_string(),
            Size(p.peak_requested).to_string(),
            if p.inherited_bytes == 0 { "-".to_owned() } else { inherited },
            Size(p.end_requested).to_string(),
            text::exit(member),
            // A no-break space keeps its place at the start of a cell.
            format!("{}{}", "\u{a0}".repeat(2 * depth.min(20)), text::short_command(&p.command)),
        ]);
        rows.row(row);
    }
    let mut parts = vec![Part::Heading("Processes".to_owned()), Part::Table(rows)];
    parts.extend(figures.rest(shown.len(), members.len(), "processes"));
    parts.push(Part::Text(
        "Peak and left are of the process alone, what it inherited by fork included.".to_owned(),
    ));
    parts
}

/// The processes with the highest peaks, and those that they descend from.
fn foremost(figures: &Figures<'_>) -> HashSet<ProcessNumber> {
    let members = &figures.overview.members;
    let mut order: Vec<&Member> = members.iter().collect();
    order.sort_by_key(|m| (Reverse(m.process.peak_requested), m.process.number));
    let mut shown = HashSet::new();
    for member in figures.first(&order) {
        let mut next = Some(member.process.number);
        while let Some(number) = next.filter(|n| !shown.contains(n)) {
            let Some(found) = members.iter().find(|m| m.process.number == number) else { break };
            shown.insert(number);
            next = found.process.parent;
        }
    }
    shown
}

/// The processes, each before its children, with their depths.
fn tree(members: &[Member]) -> Vec<(&Member, usize)> {
    let here: HashSet<ProcessNumber> = members.iter().map(|m| m.process.number).collect();
    let mut children: std::collections::HashMap<Option<ProcessNumber>, Vec<&Member>> =
        std::collections::HashMap::new();
    for member in members.iter().rev() {
        // A parent has started before its child; a tape that says otherwise is not followed.
        let parent = member.process.parent;
        let parent = parent.filter(|p| *p < member.process.number && here.contains(p));
        children.entry(parent).or_default().push(member);
    }
    let mut all = Vec::new();
    let mut next: Vec<(&Member, usize)> =
        children.remove(&None).unwrap_or_default().into_iter().map(|m| (m, 0)).collect();
    while let Some((member, depth)) = next.pop() {
        all.push((member, depth));
        let below = children.remove(&Some(member.process.number)).unwrap_or_default();
        next.extend(below.into_iter().map(|m| (m, depth + 1)));
    }
    all
}

/// The processes that were not recorded, or only in part.
pub(super) fn uncovered(figures: &Figures<'_>) -> Vec<Part> {
    let uncovered = &figures.overview.summary.uncovered;
    if uncovered.is_empty() {
        return Vec::new();
    }
    let mut rows = Rows::new(&[("pid", Right), ("command", Text), ("why", Text)]);
    let shown = figures.first(uncovered);
    for u in shown {
        rows.row([text::or_dash(u.known_pid()), text::command(&u.command), u.why.clone()]);
    }
    let mut parts =
        vec![Part::Heading("Not recorded, or only in part".to_owned()), Part::Table(rows)];
    parts.extend(figures.rest(shown.len(), uncovered.len(), "processes"));
    parts
}
