//! Flame graphs: an SVG in which the width of each call is what was made below it, with search and zoom by its own script.
//!
//! What is drawn is the call tree without what is too little to be seen: that is added up in a frame of its own, so that all widths
//! stay right. The drawing is inferno's; bytes are written with their units.

use std::io::{self, Write};

use heaptape_analyze::tree::{Grain, Node, Plan, Tree};
use inferno::flamegraph::color::{BasicPalette, Palette};
use inferno::flamegraph::{self, Options, TextTruncateDirection};

use crate::Error;
use crate::folded;
use crate::size::{Count, Size};
use crate::stacks::Subject;
use crate::text;

/// What has a smaller part of all that is selected is no frame of its own.
const LEAST: f64 = 0.0005;
/// No more frames than these are drawn.
const MOST: usize = 10_000;
/// No deeper than this.
const DEEPEST: usize = 256;
/// The sums are exact up to this in floating point, which the drawing uses.
const EXACT: u64 = 1 << 52;
/// The longest name of a frame, in characters.
const NAME: usize = 400;

/// Draws the graph.
pub fn write(out: &mut impl Write, subject: Subject<'_>) -> Result<(), Error> {
    let lines = Lines::of(subject);
    if lines.paths.is_empty() {
        return Err(Error::Nothing { measured: subject.measured() });
    }
    let mut options = Options::default();
    options.title = title(subject);
    options.subtitle = Some(subtitle(subject));
    options.colors = Palette::Basic(BasicPalette::Mem);
    options.deterministic = true;
    options.hash = true;
    options.count_name = UNIT.to_owned();
    options.name_type = "Call:".to_owned();
    options.image_width = Some(1200);
    options.min_width = 0.0;
    options.text_truncate_direction = TextTruncateDirection::Right;
    // So the lines are taken as they come, but for that the last comes first. Else they would have to stand in the order
    // of their bytes, in which the paths below a call need not be neighbours.
    options.flame_chart = true;
    let drawn = lines.drawn();
    let drawn = drawn.iter().rev().map(String::as_str);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, drawn, &mut svg).map_err(|why| cannot(&why))?;
    let svg = String::from_utf8_lossy(&svg);
    with_units(out, &svg, lines.shift, subject).map_err(|why| cannot(&why))
}

fn cannot(why: &io::Error) -> Error {
    Error::Draw(why.to_string())
}

fn title(subject: Subject<'_>) -> String {
    text::short_command(&subject.profile.command)
}

fn subtitle(subject: Subject<'_>) -> String {
    let unit = if subject.measure.blocks { " blocks" } else { "" };
    let all = format!("{}{unit} {}", subject.figure(subject.whole), subject.measured());
    if !subject.is_selected {
        return all;
    }
    let selected = subject.measure.metric.of(&subject.profile.deeds());
    format!("{} selected of {all}", subject.figure(selected))
}

/// What stands for the unit in what inferno writes; [`with_units`] takes it out.
const UNIT: &str = "heaptape-unit";

/// Writes the drawing; where it says `1,234 UNIT, 5.00%` the figure gets the form that people read, and the part is that of
/// everything: inferno knows only what is drawn.
fn with_units(out: &mut impl Write, svg: &str, shift: u32, subject: Subject<'_>) -> io::Result<()> {
    let marker = format!(" {UNIT}");
    let whole = subject.measure.weight(subject.whole);
    let mut parts = svg.split(&marker);
    let mut part = parts.next().unwrap_or_default();
    for next in parts {
        let digit = |c: char| c.is_ascii_digit() || c == ',';
        let before = part.trim_end_matches(digit);
        let number: String = part[before.len()..].chars().filter(|&c| c != ',').collect();
        let weight = number.parse::<u64>().unwrap_or_default() << shift;
        out.write_all(before.as_bytes())?;
        if subject.measure.blocks {
            write!(out, "{} blocks", Count(weight))?;
        } else {
            write!(out, "{}", Size(weight))?;
        }
        part = next;
        if let Some(rest) = behind_percentage(next) {
            let percent = 100.0 * weight as f64 / whole.max(weight).max(1) as f64;
            write!(out, ", {percent:.2}%")?;
            part = rest;
        }
    }
    out.write_all(part.as_bytes())
}

/// What follows a percentage behind a comma, if one stands there.
fn behind_percentage(text: &str) -> Option<&str> {
    let number = text.strip_prefix(", ")?;
    number.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').strip_prefix('%')
}

/// What stands between the names of a path until it is drawn: it comes before all that can be in a name, so that paths
/// are in the order of their names.
const BETWEEN: &str = "\u{1}";

/// The tree as paths with what was made at their ends.
struct Lines {
    paths: Vec<(String, u64)>,
    /// By how many bits the figures are cut, where their sum is too large.
    shift: u32,
}

impl Lines {
    fn of(subject: Subject<'_>) -> Lines {
        let measure = subject.measure;
        let plan = Plan {
            measure,
            reverse: false,
            grain: Grain::PythonLine,
            least: LEAST,
            depth: DEEPEST,
            most: MOST,
        };
        let tree = Tree::of(subject.profile, &plan);
        let all = measure.weight(tree.all);
        let shift = (0..64).find(|shift| all >> shift <= EXACT).unwrap_or_default();
        let mut lines = Lines { paths: Vec::new(), shift };
        let mut path: Vec<String> = Vec::new();
        for (place, node) in tree.nodes.iter().enumerate() {
            path.truncate(node.depth);
            path.push(name(subject, node));
            lines.add(&path, None, measure.weight(node.own));
            let is_leaf = tree.nodes.get(place + 1).is_none_or(|next| next.depth <= node.depth);
            // Of a call that nothing is shown below, what is folded makes it no wider.
            let below = (!is_leaf).then(|| smaller(node.folded.nodes));
            lines.add(&path, below, measure.weight(node.folded.load));
        }
        lines.add(&[], Some(smaller(tree.folded.nodes)), measure.weight(tree.folded.load));
        lines.paths.sort();
        lines
    }

    /// As folded stacks: those with the same beginning are neighbours.
    fn drawn(&self) -> Vec<String> {
        let line =
            |(path, weight): &(String, u64)| format!("{} {weight}", path.replace(BETWEEN, ";"));
        self.paths.iter().map(line).collect()
    }

    fn add(&mut self, path: &[String], last: Option<String>, weight: u64) {
        let weight = weight >> self.shift;
        if weight == 0 {
            return;
        }
        let names: Vec<&str> = path.iter().chain(&last).map(String::as_str).collect();
        self.paths.push((names.join(BETWEEN), weight));
    }
}

fn name(subject: Subject<'_>, node: &Node) -> String {
    let frame = subject.profile.frames.get(node.frame.0 as usize);
    let name = frame.map_or_else(|| "?".to_owned(), folded::name);
    text::without_middle(&name, NAME)
}

fn smaller(nodes: u64) -> String {
    format!("({})", text::counted(nodes, "smaller call", "smaller calls"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::sample::{SERVICE, subject};
    use heaptape_analyze::profile::Profile;

    fn drawn(text: &str) -> Result<String, Error> {
        let profile: Profile = text.parse().unwrap();
        let mut out = Vec::new();
        write(&mut out, subject(&profile))?;
        Ok(String::from_utf8(out).unwrap())
    }

    /// The tooltips.
    fn titles(svg: &str) -> Vec<String> {
        let ends = svg.split("<title>").skip(1);
        ends.map(|rest| rest.split("</title>").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_call_has_its_share() {
        let svg = drawn(SERVICE).unwrap();
        let titles = titles(&svg);
        for title in [
            "all (400.0 MiB, 100.00%)",
            "main (400.0 MiB, 100.00%)",
            "test1 (100.0 MiB, 25.00%)",
            "test2 (200.0 MiB, 50.00%)",
            "malloc_wrapper (200.0 MiB, 50.00%)",
        ] {
            assert!(titles.iter().any(|t| t == title), "{title}: {titles:?}");
        }
        assert!(svg.contains("<script") && !svg.contains(UNIT));
        assert!(!svg.contains("href=\"http") && !svg.contains("src="), "self-contained");
    }

    #[test]
    fn parts_are_of_everything_whatever_is_selected() {
        let all: Profile = SERVICE.parse().unwrap();
        let mut selected = all.clone();
        selected.select(Some(&|frame| &*frame.function == "test2"), None);
        let mut out = Vec::new();
        let whole = all.deeds().at_peak;
        write(&mut out, Subject { whole, is_selected: true, ..subject(&selected) }).unwrap();
        let titles = titles(&String::from_utf8(out).unwrap());
        for name in ["all", "main", "test2", "malloc_wrapper"] {
            let title = format!("{name} (200.0 MiB, 50.00%)");
            assert!(titles.contains(&title), "{title}: {titles:?}");
        }
    }

    #[test]
    fn what_is_little_is_added_up() {
        let mut text = "main;large 1000000\n".to_owned();
        for n in 0..5000 {
            text += &format!("main;f{n} 100\n");
        }
        let svg = drawn(&text).unwrap();
        let titles = titles(&svg);
        assert!(titles.iter().any(|t| t.starts_with("(5,000 smaller calls) (488.3 KiB, 33.33%")));
        assert_eq!(titles.len(), 4, "{titles:?}");
    }

    #[test]
    fn a_function_is_one_frame_below_its_caller_whatever_others_are_called() {
        let svg = drawn("main;test 5\nmain;test1 100\nmain;test;x 4\nmain;test (a) 7\n").unwrap();
        let titles = titles(&svg);
        let tests = titles.iter().filter(|title| title.starts_with("test (9 B,")).count();
        assert_eq!((tests, titles.len()), (1, 6), "{titles:?}");
    }

    #[test]
    fn where_every_caller_is_little_the_largest_are_drawn() {
        let text: String = (0..5000).map(|n| format!("f{n} {}\n", 1000 + n % 7)).collect();
        let svg = drawn(&text).unwrap();
        let titles = titles(&svg);
        assert!(
            titles.iter().any(|title| title.starts_with("(4,990 smaller calls)")),
            "{titles:?}"
        );
        assert_eq!(titles.len(), 12, "{titles:?}");
    }

    #[test]
    fn no_input_is_too_large_or_too_odd() {
        let deep = "f<a;b>\u{1b};".repeat(2000) + "x 9";
        for text in ["a 18446744073709551615\nb 18446744073709551615", "a&<b>\"' 1", &deep] {
            let svg = drawn(text).unwrap();
            assert!(svg.len() < 1 << 20 && svg.trim_end().ends_with("</svg>"));
        }
        for nothing in ["", "a 0"] {
            let why = drawn(nothing).unwrap_err().to_string();
            assert_eq!(why, "There is nothing to draw: nothing was live at the peak.");
        }
    }
}
