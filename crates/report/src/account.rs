//! The report on a tape: what stands out, then the tables it stands on.
//!
//! The figures come from the account and the overview of the tape; what comes out is a list of
//! [`Part`]s, for a terminal or as Markdown.

mod curves;
mod headline;
mod job;
mod tables;

use heaptape_analyze::account::Account;
use heaptape_analyze::findings::Finding;
use heaptape_analyze::overview::Overview;
use heaptape_analyze::sites::Site;

use crate::document::Part;
use crate::text;

/// What the report on a tape is made from.
pub struct Figures<'a> {
    /// The name of the file.
    pub file: &'a str,
    /// The tape as a whole.
    pub overview: &'a Overview,
    /// The processes that were chosen.
    pub account: &'a Account,
    /// What stands out.
    pub findings: &'a [Finding],
    /// The rows of a table, at the most; 0 for all.
    pub top: usize,
    /// Whether call stacks are shown whole.
    pub whole: bool,
    /// The width of plots, in columns.
    pub width: usize,
}

impl Figures<'_> {
    fn site(&self, site: &Site) -> String {
        text::origin(&site.origin)
    }

    /// The name of the site at a place of the account's list.
    fn site_at(&self, place: usize) -> String {
        self.account.sites.get(place).map_or_else(String::new, |site| self.site(site))
    }

    /// The first rows of a list, as many as are wanted.
    fn first<'b, T>(&self, list: &'b [T]) -> &'b [T] {
        if self.top == 0 { list } else { list.get(..self.top).unwrap_or(list) }
    }

    /// What stands below a table of which rows were left out.
    fn rest(&self, shown: usize, all: usize, what: &str) -> Option<Part> {
        let left = all.checked_sub(shown).filter(|&left| left > 0)?;
        let left = crate::size::Count(left as u64);
        Some(Part::Text(format!("… and {left} more {what}; --top 0 shows all.")))
    }
}

/// The whole report.
pub fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let mut parts = headline::parts(figures);
    if figures.account.events() == 0 {
        parts.extend(job::processes(figures));
        parts.extend(job::uncovered(figures));
        return parts;
    }
    parts.extend(curves::parts(figures));
    parts.extend(tables::at_peak(figures));
    parts.extend(tables::left(figures));
    parts.extend(tables::made(figures));
    parts.extend(tables::modules(figures));
    parts.extend(tables::bins(figures));
    parts.extend(tables::lives(figures));
    parts.extend(tables::reallocs(figures));
    parts.extend(tables::threads(figures));
    parts.extend(tables::ladder(figures));
    parts.extend(job::calls(figures));
    parts.extend(job::processes(figures));
    parts.extend(job::uncovered(figures));
    parts.push(Part::Text(format!("Next: {}", next(figures).join(" · "))));
    parts
}

/// The commands that lead on from here.
fn next(figures: &Figures<'_>) -> Vec<String> {
    let account = figures.account;
    let file = text::command(&[figures.file.to_owned()]);
    let mut next = Vec::new();
    if let [_, _, ..] = account.parts.as_slice()
        && let Some(highest) = account.parts.iter().rev().max_by_key(|p| p.process.peak_requested)
    {
        next.push(format!("heaptape report {file} --process '#{}'", highest.process.number));
    }
    if account.end.blocks > 0 {
        next.push(format!("heaptape leaks {file}"));
    }
    match account.peak.at {
        Some(at) => next.push(format!("heaptape events {file} --around {at}")),
        None => next.push(format!("heaptape report {file} --plot job.svg")),
    }
    next
}
