//! The call graph as SVG.

use std::fmt::Write;

use heaptape_analyze::graph::{Edge, Node};

use super::layout::{self, Arrow, Extent, Knot, Layout, Point, Way};
use super::{FILL, STROKE, Shown, letters, shade};
use crate::Error;
use crate::stacks::Subject;

const MARGIN: f64 = 28.0;
const TITLE: f64 = 22.0;
const LEGEND: f64 = 13.0;
/// The distance of two lines, to the size of their letters.
const LEADING: f64 = 1.25;
/// The letters of a function that makes nothing itself, and how much larger the largest are.
const SMALLEST: f64 = 11.0;
const GROWTH: f64 = 13.0;
/// The letters of a function's home, to those of its name.
const HOME: f64 = 0.8;
const LABEL: f64 = 11.0;
/// Between a box's edge and its letters.
const PAD: f64 = 7.0;
const ARROW: f64 = 9.0;
const INK: &str = "#222222";
const DIM: &str = "#555555";
const FAMILY: &str = "Ubuntu Light, Ubuntu, Helvetica, Arial, sans-serif";

/// Draws the graph; the text is a whole file.
pub fn draw(subject: Subject<'_>) -> Result<String, Error> {
    let shown = Shown::of(subject)?;
    let boxes: Vec<Card> = shown.graph.nodes.iter().map(|node| Card::of(&shown, node)).collect();
    let extents: Vec<Extent> = boxes.iter().map(|card| card.extent).collect();
    let arrows: Vec<Arrow> = shown.graph.edges.iter().map(|edge| arrow(&shown, edge)).collect();
    let layout = layout::lay_out(&extents, &arrows);
    let mut drawing = Drawing { text: String::new(), shown: &shown };
    let legend = shown.legend();
    let top = MARGIN + TITLE * LEADING + legend.len() as f64 * LEGEND * LEADING + MARGIN;
    let head = legend.iter().map(|line| letters::width(line, LEGEND));
    let head = head.fold(letters::width(&shown.title(), TITLE), f64::max);
    let width = layout.extent.width.max(head) + 2.0 * MARGIN;
    let height = top + layout.extent.height + MARGIN;
    let left = (width - layout.extent.width) / 2.0;
    drawing.head(width, height, &legend);
    drawing.graph(&layout, &boxes, Point { x: left, y: top });
    drawing.text += "</svg>\n";
    Ok(drawing.text)
}

/// A line in a box.
struct Line {
    text: String,
    size: f64,
    color: &'static str,
}

/// What a box has.
struct Card {
    lines: Vec<Line>,
    extent: Extent,
}

impl Card {
    fn of(shown: &Shown<'_>, node: &Node) -> Card {
        let size = SMALLEST + GROWTH * shown.size(node.own);
        let line = |text, size, color| Line { text, size, color };
        let mut lines: Vec<Line> =
            shown.name(node).into_iter().map(|text| line(text, size, INK)).collect();
        let home = (size * HOME).max(SMALLEST * 0.9);
        lines.extend(shown.home(node).map(|text| line(text, home, DIM)));
        lines.extend(shown.figures(node).into_iter().map(|text| line(text, size, INK)));
        let width = lines.iter().map(|line| letters::width(&line.text, line.size));
        let width = width.fold(0.0, f64::max) + 2.0 * PAD;
        let height = lines.iter().map(|line| line.size * LEADING).sum::<f64>() + PAD * 1.4;
        Card { lines, extent: Extent { width, height } }
    }
}

fn arrow(shown: &Shown<'_>, edge: &Edge) -> Arrow {
    let label = shown.label(edge);
    let width = letters::width(&label, LABEL) + 8.0;
    let label = Extent { width, height: LABEL * LEADING };
    Arrow { from: edge.from, to: edge.to, weight: shown.share(edge.weight), label }
}

struct Drawing<'a> {
    text: String,
    shown: &'a Shown<'a>,
}

impl Drawing<'_> {
    fn put(&mut self, piece: std::fmt::Arguments<'_>) {
        // Nothing that is written to a text fails.
        let _ = self.text.write_fmt(piece);
    }

    fn head(&mut self, width: f64, height: f64, legend: &[String]) {
        self.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"{FAMILY}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        ));
        let mut y = MARGIN + TITLE * 0.8;
        let title = self.shown.title();
        self.letters(&title, Point { x: MARGIN, y }, TITLE, INK, "start");
        y += TITLE * 0.2 + LEGEND * 0.4;
        for line in legend {
            y += LEGEND * LEADING;
            self.letters(line, Point { x: MARGIN, y }, LEGEND, DIM, "start");
        }
    }

    fn letters(&mut self, text: &str, at: Point, size: f64, color: &str, anchor: &str) {
        let Point { x, y } = at;
        let text = xml(text);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" fill=\"{color}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    fn graph(&mut self, layout: &Layout, cards: &[Card], origin: Point) {
        let Point { x, y } = origin;
        self.put(format_args!("<g transform=\"translate({x:.1} {y:.1})\">\n"));
        let shown = self.shown;
        let ways = || shown.graph.edges.iter().zip(&layout.ways);
        // The thin ones first: what is thick lies above.
        for (edge, way) in ways().rev() {
            if let Some(way) = way {
                self.edge(edge, way);
            }
        }
        for (edge, way) in ways() {
            if let Some(way) = way {
                self.label(edge, way.label);
            }
        }
        for ((node, card), &middle) in shown.graph.nodes.iter().zip(cards).zip(&layout.boxes) {
            self.card(node, card, middle);
        }
        self.text += "</g>\n";
    }

    fn edge(&mut self, edge: &Edge, way: &Way) {
        let share = self.shown.share(edge.weight);
        let color = shade(share, STROKE);
        let width = 1.0 + 5.0 * share;
        let dots = if edge.is_residual { " stroke-dasharray=\"2 4\"" } else { "" };
        let Some((path, tip)) = path(way, width) else { return };
        self.put(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width:.2}\"{dots}/>\n\
             <path d=\"{tip}\" fill=\"{color}\"/>\n"
        ));
    }

    fn label(&mut self, edge: &Edge, Point { x, y }: Point) {
        let text = self.shown.label(edge);
        let (width, height) = (letters::width(&text, LABEL) + 4.0, LABEL * LEADING);
        let (left, top) = (x - width / 2.0, y - height / 2.0);
        self.put(format_args!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#ffffff\"/>\n"
        ));
        self.letters(&text, Point { x, y: y + LABEL * 0.35 }, LABEL, DIM, "middle");
    }

    fn card(&mut self, node: &Node, card: &Card, middle: Point) {
        let Extent { width, height } = card.extent;
        let (left, top) = (middle.x - width / 2.0, middle.y - height / 2.0);
        let share = self.shown.share(node.all);
        let (fill, stroke) = (shade(share, FILL), shade(share, STROKE));
        let title = xml(&self.shown.whole_name(node));
        self.put(format_args!(
            "<g><title>{title}</title>\n\
             <rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\" fill=\"{fill}\" stroke=\"{stroke}\"/>\n"
        ));
        let mut y = top + PAD * 0.7;
        for line in &card.lines {
            let at = Point { x: middle.x, y: y + line.size };
            self.letters(&line.text, at, line.size, line.color, "middle");
            y += line.size * LEADING;
        }
        self.text += "</g>\n";
    }
}

/// The line of an arrow, and its tip.
fn path(way: &Way, width: f64) -> Option<(String, String)> {
    let (&first, rest) = way.knots.split_first()?;
    let (&last, inner) = rest.split_last()?;
    let before = inner.last().unwrap_or(&first).at;
    let tip = last.at;
    // Arrows reach boxes from straight above, or from below.
    let length = if before.y <= tip.y { ARROW + width } else { -ARROW - width };
    let end = Knot { at: Point { y: tip.y - length, ..tip }, lean: 0.0 };
    let mut path = format!("M{:.1} {:.1}", first.at.x, first.at.y);
    let mut from = first;
    for &to in inner.iter().chain([&end]) {
        let reach = (to.at.y - from.at.y) * 0.45;
        let _ = write!(
            path,
            "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
            from.at.x + from.lean * reach,
            from.at.y + reach,
            to.at.x - to.lean * reach,
            to.at.y - reach,
            to.at.x,
            to.at.y
        );
        from = to;
    }
    let (half, Point { x, y }) = (2.5 + width, tip);
    let base = end.at.y;
    let (left, right) = (x - half, x + half);
    let tip = format!("M{x:.1} {y:.1}L{left:.1} {base:.1}L{right:.1} {base:.1}Z");
    Some((path, tip))
}

/// Text that XML allows.
fn xml(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}
