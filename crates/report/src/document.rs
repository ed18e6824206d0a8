//! A report as a list of parts, written for a terminal or as Markdown.
//!
//! What the parts say comes from the other modules; here is only how they look.

use std::io::{self, Write};

use crate::table::{Align, Style, Table, UNLIMITED};
use crate::text;

/// The longest line of running text, in columns, where the output has no width of its own.
const TEXT_WIDTH: u16 = 100;

/// A part of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The name of the report.
    Title(String),
    /// The name of what follows.
    Heading(String),
    /// The sentence that the rest stands on, and whether all is well.
    Verdict(bool, String),
    /// A paragraph.
    Text(String),
    /// Sentences that stand for themselves.
    List(Vec<String>),
    /// Rows of figures.
    Table(Rows),
    /// Lines that are kept as they are.
    Plot(Vec<String>),
}

/// A table that is not laid out yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Rows {
    /// An empty table with these columns.
    pub fn new(columns: &[(&'static str, Align)]) -> Rows {
        Rows { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; there is one text for each column.
    pub fn row<S: Into<String>>(&mut self, texts: impl IntoIterator<Item = S>) {
        self.rows.push(texts.into_iter().map(Into::into).collect());
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Writes a report for a terminal.
pub fn write_terminal(out: &mut impl Write, parts: &[Part], style: Style) -> io::Result<()> {
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        match part {
            Part::Title(text) | Part::Heading(text) => {
                let text = text::plain(text);
                match (style.color, part) {
                    (true, _) => writeln!(out, "\x1b[1m{text}\x1b[0m")?,
                    (false, Part::Title(_)) => {
                        writeln!(out, "{text}\n{}", "=".repeat(underline(&text, style)))?
                    }
                    (false, _) => writeln!(out, "{text}\n{}", "-".repeat(underline(&text, style)))?,
                }
            }
            Part::Verdict(is_good, text) => verdict(out, *is_good, &text::plain(text), style)?,
            Part::Text(text) => wrap(out, &text::plain(text), "", style)?,
            Part::List(texts) => {
                for text in texts {
                    wrap(out, &text::plain(text), "• ", style)?;
                }
            }
            Part::Table(rows) => laid_out(rows, style).write(out)?,
            Part::Plot(lines) => lines.iter().try_for_each(|line| writeln!(out, "{line}"))?,
        }
    }
    Ok(())
}

fn width(style: Style) -> usize {
    usize::from(if style.width == UNLIMITED { TEXT_WIDTH } else { style.width.min(TEXT_WIDTH) })
}

fn underline(text: &str, style: Style) -> usize {
    text.chars().count().min(width(style))
}

/// Writes a sentence in green or in red, line by line, as pagers forget a colour at the line's end.
fn verdict(out: &mut impl Write, is_good: bool, text: &str, style: Style) -> io::Result<()> {
    if !style.color {
        return wrap(out, text, "", style);
    }
    let color = if is_good { 32 } else { 31 };
    let lines = textwrap::wrap(text, width(style));
    lines.iter().try_for_each(|line| writeln!(out, "\x1b[1;{color}m{line}\x1b[0m"))
}

/// Writes running text behind a mark, below which its further lines begin.
pub(crate) fn wrap(out: &mut impl Write, text: &str, mark: &str, style: Style) -> io::Result<()> {
    let indent = " ".repeat(mark.chars().count());
    let options =
        textwrap::Options::new(width(style)).initial_indent(mark).subsequent_indent(&indent);
    for line in textwrap::wrap(text, options) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Rows have one line each where there is no running text in them; a name that is too long lacks its middle.
fn laid_out(rows: &Rows, style: Style) -> Table {
    let mut table = Table::new(style, &rows.columns);
    let room = room_for_name(rows, style);
    for row in &rows.rows {
        let cells = row.iter().zip(&rows.columns).map(|(cell, column)| match column.1 {
            Align::Name => text::without_middle(&text::plain(cell), room),
            _ => cell.clone(),
        });
        table.row(cells);
    }
    table
}

/// The columns that the others leave for a name.
fn room_for_name(rows: &Rows, style: Style) -> usize {
    const LEAST: usize = 24;
    let width = |n: usize| {
        let cells = rows.rows.iter().filter_map(|row| row.get(n));
        cells.map(|cell| cell.chars().count()).chain([rows.columns[n].0.chars().count()]).max()
    };
    let others = (0..rows.columns.len()).filter(|&n| rows.columns[n].1 != Align::Name);
    // Each column is followed by two blanks, that of the name too.
    let taken: usize = others.filter_map(|n| Some(width(n)? + 2)).sum::<usize>() + 2;
    usize::from(style.width).saturating_sub(taken).max(LEAST)
}

/// Writes a report as Markdown.
pub fn write_markdown(out: &mut impl Write, parts: &[Part]) -> io::Result<()> {
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        match part {
            Part::Title(text) => writeln!(out, "# {}", escaped(text))?,
            Part::Heading(text) => writeln!(out, "## {}", escaped(text))?,
            Part::Verdict(_, text) => writeln!(out, "**{}**", escaped(text))?,
            Part::Text(text) => writeln!(out, "{}", escaped(text))?,
            Part::List(texts) => {
                texts.iter().try_for_each(|t| writeln!(out, "- {}", escaped(t)))?
            }
            Part::Table(rows) => markdown_table(out, rows)?,
            Part::Plot(lines) => {
                writeln!(out, "```text")?;
                lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
                writeln!(out, "```")?;
            }
        }
    }
    Ok(())
}

fn markdown_table(out: &mut impl Write, rows: &Rows) -> io::Result<()> {
    let line = |cells: &mut dyn Iterator<Item = String>| {
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    };
    writeln!(out, "{}", line(&mut rows.columns.iter().map(|c| escaped(c.0))))?;
    let rules = |align| if align == Align::Right { "---:" } else { "---" }.to_owned();
    writeln!(out, "{}", line(&mut rows.columns.iter().map(|c| rules(c.1))))?;
    rows.rows
        .iter()
        .try_for_each(|row| writeln!(out, "{}", line(&mut row.iter().map(|c| escaped(c)))))
}

/// Text that Markdown shows as it is: on one line, and without what it would take for markup.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text::plain(text).chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<Part> {
        let mut rows = Rows::new(&[("size", Align::Right), ("caller", Align::Name)]);
        rows.row(["12 B", "f<int>(a|b)\x1b[2J"]);
        vec![
            Part::Title("a\nb".into()),
            Part::Verdict(false, "word ".repeat(30)),
            Part::Text("word ".repeat(40)),
            Part::List(vec!["one two ".repeat(20)]),
            Part::Table(rows),
            Part::Plot(vec!["▁█".into()]),
        ]
    }

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_none_moves_its_cursor() {
        for color in [false, true] {
            let style = Style { width: 40, color };
            let text = written(|out| write_terminal(out, &parts(), style));
            let wide = |line: &&str| line.chars().count() > 40;
            if !color {
                assert_eq!(text.lines().find(wide), None);
                assert!(!text.contains('\x1b'));
            }
            assert!(!text.contains("\x1b[2J"));
            assert!(text.contains("\n  one"), "{text}");
        }
    }

    #[test]
    fn markdown_shows_names_as_they_are() {
        let text = written(|out| write_markdown(out, &parts()));
        assert!(text.starts_with("# a\\\\nb\n"), "{text}");
        assert!(text.contains("| 12 B | f&lt;int&gt;(a\\|b)\\\\u{1b}\\[2J |"), "{text}");
        assert!(text.contains("| ---: | --- |"));
        assert!(text.contains("```text\n▁█\n```"));
    }
}
