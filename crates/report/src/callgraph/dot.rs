//! The call graph in the language of Graphviz.

use std::io::Write;

use super::{FILL, STROKE, Shown, shade};
use crate::Error;
use crate::stacks::Subject;

/// Writes the graph.
pub fn write(out: &mut impl Write, subject: Subject<'_>) -> Result<(), Error> {
    let shown = Shown::of(subject)?;
    out.write_all(text(&shown).as_bytes()).map_err(|why| Error::Draw(why.to_string()))
}

fn text(shown: &Shown<'_>) -> String {
    let title = shown.title();
    let mut text = format!("digraph {} {{\n", quoted(&title));
    let legend = [vec![title], shown.legend()].concat();
    text += &format!(
        "  graph [label={} labelloc=t labeljust=l fontname=\"sans-serif\" fontsize=14]\n",
        block(&legend, "\\l")
    );
    text += "  node [shape=box style=\"filled,rounded\" fontname=\"sans-serif\"]\n";
    text += "  edge [fontname=\"sans-serif\" fontsize=11]\n";
    for (number, node) in shown.graph.nodes.iter().enumerate() {
        let mut lines = shown.name(node);
        lines.extend(shown.home(node));
        lines.extend(shown.figures(node));
        let share = shown.share(node.all);
        text += &format!(
            "  n{number} [label={} tooltip={} fontsize={:.0} fillcolor=\"{}\" color=\"{}\"]\n",
            block(&lines, "\\n"),
            quoted(&shown.whole_name(node)),
            9.0 + 15.0 * shown.size(node.own),
            shade(share, FILL),
            shade(share, STROKE),
        );
    }
    for edge in &shown.graph.edges {
        let share = shown.share(edge.weight);
        let style = if edge.is_residual { "dotted" } else { "solid" };
        text += &format!(
            "  n{} -> n{} [label={} penwidth={:.2} weight={} style={style} color=\"{}\"]\n",
            edge.from,
            edge.to,
            quoted(&format!(" {}", shown.label(edge))),
            1.0 + 5.0 * share,
            1 + (share * 100.0) as u32,
            shade(share, STROKE),
        );
    }
    text + "}\n"
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// Lines, each with what ends it.
fn block(lines: &[String], end: &str) -> String {
    let lines: Vec<String> = lines.iter().map(|line| escaped(line) + end).collect();
    format!("\"{}\"", lines.concat())
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
