//! What went through the heap: size classes with their groups, and modules.

use heaptape_ledger::{ModuleTotal, Traffic};

use super::{FEW_CLASSES, Figures};
use crate::classes::{self, Class};
use crate::document::{Part, Rows};
use crate::size::{Count, Size};
use crate::table::Align::{Left, Name, Right};
use crate::text;

pub(super) fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let totals = figures.totals;
    let mut parts = vec![Part::Heading("Heap blocks, as requested".to_owned()), calls(figures)];
    if !figures.job.details || !totals.all.is_used() {
        return parts;
    }
    parts.extend(sizes(figures));
    parts.extend(modules(figures));
    let classes = totals.groups.iter().map(|(_, traffic)| traffic).chain([&totals.all]);
    let mut all = classes.chain(totals.modules.iter().map(|module| &module.traffic));
    if all.any(|traffic| traffic.peak.known().is_none()) {
        parts.push(Part::Text(
            "≤ stands before a peak of several processes, threads or classes together: it may have been lower."
                .to_owned(),
        ));
    }
    parts
}

fn calls(figures: &Figures<'_>) -> Part {
    let totals = figures.totals;
    let mut words = format!(
        "{} of {}, {} released ({}).",
        text::counted(totals.allocations, "allocation", "allocations"),
        Size(totals.all.total),
        Count(totals.frees),
        Size(totals.all.freed)
    );
    if totals.failed > 0 {
        words += &format!(" {} failed.", text::counted(totals.failed, "allocation", "allocations"));
    }
    if totals.unknown > 0 {
        let blocks = text::counted(totals.unknown, "block", "blocks");
        words += &format!(" {blocks} of unknown size were released.");
    }
    Part::Text(words)
}

fn sizes(figures: &Figures<'_>) -> Vec<Part> {
    let totals = figures.totals;
    let mut groups = Rows::new(&classes::columns(("group", Left)));
    for (group, traffic) in &totals.groups {
        groups.row(class(group.name().to_owned(), traffic));
    }
    groups.row(class("all".to_owned(), &totals.all));
    let mut parts = vec![Part::Table(groups)];
    if figures.is_shown(totals.bins.len(), FEW_CLASSES) {
        let mut bins = Rows::new(&classes::columns(("up to", Right)));
        for (unit, traffic) in &totals.bins {
            bins.row(class(Size(*unit).to_string(), traffic));
        }
        parts.push(Part::Table(bins));
    } else {
        let bins = Count(totals.bins.len() as u64);
        parts.push(Part::Text(format!("There are {bins} size classes; --verbose shows them.")));
    }
    parts
}

fn class(name: String, traffic: &Traffic) -> [String; 7] {
    let Traffic { total, freed, count, .. } = *traffic;
    Class { name, peak: at_most(traffic), total, freed, current: traffic.current(), count }.row()
}

/// A peak of which only the most is known is marked as such.
fn at_most(traffic: &Traffic) -> String {
    let size = Size(traffic.peak.upper);
    if traffic.peak.known().is_some() { size.to_string() } else { format!("≤ {size}") }
}

fn modules(figures: &Figures<'_>) -> Vec<Part> {
    let modules = &figures.totals.modules;
    let mut rows = Rows::new(&[
        ("peak", Right),
        ("total", Right),
        ("current", Right),
        ("count", Right),
        ("module", Name),
    ]);
    let shown =
        if figures.is_shown(modules.len(), FEW_CLASSES) { modules.len() } else { FEW_CLASSES };
    for module in modules.iter().take(shown) {
        let traffic = &module.traffic;
        rows.row([
            at_most(traffic),
            Size(traffic.total).to_string(),
            Size(traffic.current()).to_string(),
            Count(traffic.count).to_string(),
            name(module),
        ]);
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let mut parts = vec![Part::Heading("By the module that asked".to_owned()), Part::Table(rows)];
    let left = (modules.len() - shown) as u64;
    if left > 0 {
        let left = text::counted(left, "module", "modules");
        parts.push(Part::Text(format!("… and {left} more; --verbose shows all.")));
    }
    parts
}

fn name(module: &ModuleTotal) -> String {
    let name = module.name.as_deref().unwrap_or("(other modules)");
    if module.exempt { format!("{name} (exempt: not charged)") } else { name.to_owned() }
}
