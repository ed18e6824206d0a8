//! Functions that somebody has patched in the job's processes, and what that means for the figures, in words.

use heaptape_ledger::{Patch, Patched};

use super::Figures;
use crate::document::Part;
use crate::text;

/// So many modules with changed entries are told by name.
const TOLD: usize = 3;

pub(super) fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let patches = &figures.job.patches;
    let of = |what: Patched| patches.iter().filter(move |patch| patch.what == what);
    let mut sentences: Vec<String> =
        of(Patched::Libc).chain(of(Patched::Wrapper)).map(begin).collect();
    let mut by: Vec<&Option<String>> = of(Patched::Entry).map(|patch| &patch.by).collect();
    by.sort_unstable();
    by.dedup();
    sentences.extend(by.into_iter().map(|by| {
        entries(by, &of(Patched::Entry).filter(|patch| patch.by == *by).collect::<Vec<_>>())
    }));
    sentences.into_iter().map(Part::Text).collect()
}

fn begin(patch: &Patch) -> String {
    let whose = match patch.what {
        Patched::Libc => "libc's",
        Patched::Wrapper | Patched::Entry => "heaptape's own",
    };
    let meaning = match patch.what {
        Patched::Libc => {
            "heaptape's wrappers go on to libc, so calls are counted as ever; what is mapped there by other ways is in no row."
        }
        Patched::Wrapper | Patched::Entry => PAST,
    };
    format!(
        "{} in {} has patched {whose} {}: {meaning}",
        name(&patch.by),
        processes(&[patch]),
        patch.functions.join(", ")
    )
}

/// What it means where calls come to somebody else first.
const PAST: &str = "calls go there first, and those that are not passed on to heaptape's wrappers are not counted. What they hold shows as unaccounted, if it is resident.";

fn entries(by: &Option<String>, patches: &[&Patch]) -> String {
    let mut functions: Vec<&str> =
        patches.iter().flat_map(|patch| patch.functions.iter().map(String::as_str)).collect();
    functions.sort_unstable();
    functions.dedup();
    let modules: Vec<&str> =
        patches.iter().take(TOLD).map(|patch| text::file_name(&patch.module)).collect();
    let more = match patches.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{} in {} has changed the entries by which {}{more} call {}: {PAST}",
        name(by),
        processes(patches),
        modules.join(", "),
        functions.join(", ")
    )
}

fn name(by: &Option<String>) -> &str {
    by.as_deref().map_or("Somebody unknown", text::file_name)
}

fn processes(patches: &[&Patch]) -> String {
    let mut all: Vec<usize> =
        patches.iter().flat_map(|patch| patch.processes.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    text::counted(all.len() as u64, "process", "processes")
}
