//! The words of a call graph: what stands in a box, at an arrow, and above all.

use heaptape_analyze::graph::{Edge, Node};
use heaptape_analyze::profile::{Frame, FrameKind};

use super::Shown;
use crate::size::{Count, Size};
use crate::text;

/// The longest name in a box, in characters: of longer ones the middle is left out.
const NAME: usize = 132;
/// The longest line of one.
const LINE: usize = 34;
/// The longest name in a tooltip.
const WHOLE: usize = 2000;

impl Shown<'_> {
    fn frame(&self, node: &Node) -> Option<&Frame> {
        self.subject.profile.frames.get(node.frame.0 as usize)
    }

    /// The name of a function in lines.
    pub(super) fn name(&self, node: &Node) -> Vec<String> {
        let label = self.frame(node).map(Frame::label).unwrap_or_default();
        lines(&text::without_middle(&text::plain(&label), NAME))
    }

    /// Where a function is from: its source file, or its module.
    pub(super) fn home(&self, node: &Node) -> Option<String> {
        let frame = self.frame(node)?;
        let file = frame.file.as_deref().map_or(frame.module_name(), text::file_name);
        let is_told = frame.function.is_empty() || file.is_empty();
        (!is_told).then(|| text::without_middle(&text::plain(file), LINE))
    }

    /// All that is known of a function.
    pub(super) fn whole_name(&self, node: &Node) -> String {
        let Some(frame) = self.frame(node) else { return String::new() };
        let mut name = frame.label().into_owned();
        if let Some(file) = &frame.file {
            name += &format!(" in {file}");
        }
        if !frame.module.is_empty() {
            name += &format!(" of {}", frame.module);
        }
        if frame.kind == FrameKind::Inlined {
            name += ", inlined";
        }
        text::without_middle(&text::plain(&name), WHOLE)
    }

    /// A function's own figure, and that with all that it calls.
    pub(super) fn figures(&self, node: &Node) -> Vec<String> {
        let with_share = |weight| format!("{} ({})", self.amount(weight), self.percent(weight));
        if node.own == node.all {
            return vec![with_share(node.own)];
        }
        let all = format!("of {}", with_share(node.all));
        if node.own == 0 { vec![format!("0 {all}")] } else { vec![with_share(node.own), all] }
    }

    /// The figure of a call.
    pub(super) fn label(&self, edge: &Edge) -> String {
        self.amount(edge.weight)
    }

    fn amount(&self, weight: u64) -> String {
        if self.subject.measure.blocks {
            Count(weight).to_string()
        } else {
            Size(weight).to_string()
        }
    }

    fn percent(&self, weight: u64) -> String {
        text::share(weight, self.whole)
    }

    /// What was recorded.
    pub(super) fn title(&self) -> String {
        text::short_command(&self.subject.profile.command)
    }

    /// What it shows, how that is to be read, and what is not shown.
    pub(super) fn legend(&self) -> Vec<String> {
        let unit = if self.subject.measure.blocks { " blocks" } else { "" };
        let mut lines = vec![format!(
            "{}{unit} {} of {}",
            self.amount(self.whole),
            self.subject.measured(),
            self.subject.who()
        )];
        if self.subject.is_selected {
            let selected = self.graph.all;
            let (amount, percent) = (self.amount(selected), self.percent(selected));
            lines.push(format!("Selected: {amount}{unit} ({percent}); percentages are of all"));
        }
        lines.push(
            "In a box: what its function made itself, of what is made with all that it calls."
                .to_owned(),
        );
        lines.extend(self.left_out());
        lines
    }

    /// One line of what is folded.
    fn left_out(&self) -> Option<String> {
        let graph = &self.graph;
        let mut parts = Vec::new();
        if graph.folded > 0 {
            let functions = text::counted(graph.folded, "smaller function", "smaller functions");
            let (own, percent) = (self.amount(graph.folded_own), self.percent(graph.folded_own));
            parts.push(format!("{functions} with {own} ({percent}) of their own"));
        }
        if graph.left_out > 0 {
            parts.push(text::counted(graph.left_out, "smaller call", "smaller calls"));
        }
        let dotted = if graph.edges.iter().any(|edge| edge.is_residual) {
            "; dotted arrows lead through them"
        } else {
            ""
        };
        (!parts.is_empty()).then(|| format!("Not shown: {}{dotted}.", parts.join(", and ")))
    }
}

/// A name in lines that are not too long, broken where its parts end if possible.
fn lines(name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = name.chars().collect();
    while rest.len() > LINE {
        let is_end = |&place: &usize| {
            let (here, before) = (rest[place], rest[place - 1]);
            matches!(before, ':' | ',' | '<' | '(' | '/' | ' ' | '_' | '.' | '-' | '+')
                && !matches!(here, ':' | ' ')
        };
        let end = (LINE / 2..=LINE).rev().find(is_end).unwrap_or(LINE);
        let after = rest.split_off(end);
        lines.push(rest.iter().collect::<String>().trim_end().to_owned());
        rest = after;
    }
    lines.push(rest.into_iter().collect());
    lines
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn names_break_where_their_parts_end() {
        assert_eq!(lines("main"), ["main"]);
        assert_eq!(lines(""), [""]);
        assert_eq!(
            lines("std::vector<std::string, std::allocator<std::string>>::push_back"),
            ["std::vector<std::string, std::", "allocator<std::string>>::push_back"]
        );
        assert_eq!(lines(&"x".repeat(70)).iter().map(String::len).collect::<Vec<_>>(), [34, 34, 2]);
    }
}
