//! A call tree for people: what was made below each call and by itself.
//!
//! Where there is but one call below another to be shown, it stands right below it, and not another step to the right.

use std::io::{self, Write};

use heaptape_analyze::lives::Load;
use heaptape_analyze::tree::{Folded, Node, Tree};

use crate::size::{Count, Size};
use crate::stacks::Subject;
use crate::table::{Align, Style, Table};
use crate::{document, live, text};

/// What the columns before the calls take, mostly.
const FIGURES: usize = 48;
/// Of longer chains of calls that hand on, the ends are shown.
const LONGEST_CHAIN: usize = 10;
/// So many at either end.
const CHAIN_ENDS: usize = 4;

/// A tree, and what was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// What it is of.
    pub subject: Subject<'a>,
    /// The tree.
    pub tree: &'a Tree,
    /// Whether it begins with the innermost calls.
    pub reverse: bool,
    /// Whether a call's line is shown.
    pub lines: bool,
    /// The part of what is selected below which calls are folded.
    pub least: f64,
    /// Whether long chains are shown whole.
    pub whole: bool,
}

/// Writes the tree.
pub fn write(out: &mut impl Write, found: Found<'_>, style: Style) -> io::Result<()> {
    for sentence in found.subject.head(found.tree.all).into_iter().chain(folding(found)) {
        document::wrap(out, &text::plain(&sentence), "", style)?;
    }
    if found.tree.nodes.is_empty() && found.tree.folded.nodes == 0 {
        return Ok(());
    }
    writeln!(out)?;
    Drawing::new(found, style).write(out)
}

/// What the reader does not see.
fn folding(found: Found<'_>) -> Option<String> {
    let hidden: u64 = found.tree.nodes.iter().map(|node| node.folded.nodes).sum();
    let hidden = hidden + found.tree.folded.nodes;
    let of = if found.subject.is_selected { " of what is selected" } else { "" };
    (hidden > 0).then(|| {
        format!(
            "Folded: {} with less than {} %{of}, too deep or too many (--min, --depth, --top).",
            text::counted(hidden, "path", "paths"),
            found.least * 100.0
        )
    })
}

/// A tree being drawn.
struct Drawing<'a> {
    found: Found<'a>,
    table: Table,
    room: usize,
    /// The places of the nodes right below each node.
    below: Vec<Vec<usize>>,
    tops: Vec<usize>,
}

impl<'a> Drawing<'a> {
    fn new(found: Found<'a>, style: Style) -> Drawing<'a> {
        let nodes = &found.tree.nodes;
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        let mut tops = Vec::new();
        for (place, node) in nodes.iter().enumerate() {
            match node.parent.and_then(|parent| below.get_mut(parent)) {
                Some(list) => list.push(place),
                None => tops.push(place),
            }
        }
        let columns = [
            (if found.subject.measure.blocks { "blocks" } else { "bytes" }, Align::Right),
            ("%", Align::Right),
            (if found.reverse { "begins here" } else { "own" }, Align::Right),
            (if found.subject.measure.blocks { "bytes" } else { "blocks" }, Align::Right),
            ("call", Align::Left),
        ];
        let table = Table::new(style, &columns);
        Drawing { found, table, room: live::room(style, FIGURES), below, tops }
    }

    fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        let tops = self.tops.clone();
        let folded = self.shown(self.found.tree.folded);
        let mut ahead = Vec::new();
        if let ([top], None) = (tops.as_slice(), folded) {
            ahead.push(Step::Node { place: *top, lead: String::new(), below: String::new() });
        } else {
            steps("", &tops, folded, &mut ahead);
        }
        while let Some(step) = ahead.pop() {
            match step {
                Step::Node { place, lead, below } => self.chain(place, &lead, &below, &mut ahead),
                Step::Folded { folded, lead } => self.folded(folded, &lead),
            }
        }
        self.table.write(out)
    }

    /// A call with those that it hands on to, until it branches.
    fn chain(&mut self, first: usize, lead: &str, below: &str, ahead: &mut Vec<Step>) {
        let mut chain = vec![first];
        let mut last = first;
        while let Some(next) = self.only(last) {
            chain.push(next);
            last = next;
        }
        let is_long = !self.found.whole && chain.len() > LONGEST_CHAIN;
        let middle = if is_long { CHAIN_ENDS..chain.len() - CHAIN_ENDS } else { 0..0 };
        let mut left_out = 0;
        for (n, &place) in chain.iter().enumerate() {
            let own = self.found.tree.nodes[place].own;
            if middle.contains(&n) && !self.is_much(own) {
                left_out += 1;
                continue;
            }
            self.left_out(std::mem::take(&mut left_out), below);
            self.node(place, if n == 0 { lead } else { below });
        }
        let folded = self.shown(self.found.tree.nodes[last].folded);
        steps(below, &self.below[last], folded, ahead);
    }

    /// A line for calls of a chain that are not shown.
    fn left_out(&mut self, calls: u64, lead: &str) {
        if calls > 0 {
            let calls = text::counted(calls, "call", "calls");
            self.table.row(["", "", "", "", &format!("{lead}⋮ {calls} (--whole)")]);
        }
    }

    /// The one call below, if nothing else is shown there.
    fn only(&self, place: usize) -> Option<usize> {
        let &[next] = self.below[place].as_slice() else { return None };
        self.shown(self.found.tree.nodes[place].folded).is_none().then_some(next)
    }

    /// What was folded, if it comes to something.
    fn shown(&self, folded: Folded) -> Option<Folded> {
        (folded.nodes > 0 && self.is_much(folded.load)).then_some(folded)
    }

    /// Whether it is a part that is not folded.
    fn is_much(&self, load: Load) -> bool {
        let measure = self.found.subject.measure;
        let least = measure.weight(self.found.tree.all) as f64 * self.found.least;
        let weight = measure.weight(load);
        weight > 0 && weight as f64 >= least
    }

    fn node(&mut self, place: usize, lead: &str) {
        let Node { frame, all, own, .. } = self.found.tree.nodes[place];
        let Some(frame) = self.found.subject.profile.frames.get(frame.0 as usize) else { return };
        let call = if self.found.lines || frame.kind == heaptape_analyze::profile::FrameKind::Python
        {
            text::named_frame(frame)
        } else {
            text::function(frame)
        };
        let room = self.room.saturating_sub(lead.chars().count());
        self.row(all, Some(own), format!("{lead}{}", text::short_frame(&call, room)));
    }

    fn folded(&mut self, folded: Folded, lead: &str) {
        let more = text::counted(folded.nodes, "more", "more");
        self.row(folded.load, None, format!("{lead}… {more}"));
    }

    fn row(&mut self, all: Load, own: Option<Load>, call: String) {
        let subject = &self.found.subject;
        let (measure, whole) = (subject.measure, subject.whole);
        let own = own.filter(|own| own.blocks > 0).map(|own| subject.figure(own));
        let other = if measure.blocks {
            Size(all.bytes).to_string()
        } else {
            Count(all.blocks).to_string()
        };
        self.table.row([
            subject.figure(all),
            text::share(measure.weight(all), measure.weight(whole)),
            own.unwrap_or_default(),
            other,
            call,
        ]);
    }
}

/// What is drawn next, the last one first.
enum Step {
    /// A call, what stands before it, and what before those below.
    Node { place: usize, lead: String, below: String },
    /// The rest of a call's.
    Folded { folded: Folded, lead: String },
}

/// The steps for what is right below a call.
fn steps(below: &str, places: &[usize], folded: Option<Folded>, ahead: &mut Vec<Step>) {
    if let Some(folded) = folded {
        ahead.push(Step::Folded { folded, lead: format!("{below}└─ ") });
    }
    for (n, &place) in places.iter().enumerate().rev() {
        let is_last = n + 1 == places.len() && folded.is_none();
        let (branch, on) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let (lead, below) = (format!("{below}{branch}"), format!("{below}{on}"));
        ahead.push(Step::Node { place, lead, below });
    }
}
