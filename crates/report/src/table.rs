//! Tables for people: aligned columns, wrapped to the width of the terminal.

use std::io::{self, Write};

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Width, presets,
};

use crate::text;

/// The width of what is no terminal: each line is as long as it needs to be.
pub const UNLIMITED: u16 = u16::MAX;

/// Text is wrapped to no less than this, blanks at the end included.
const TEXT_WIDTH: u16 = 16;

/// The longest text of a cell, in characters: the widths of a table are reckoned in 16 bits, and a
/// character may take two columns.
const LONGEST: usize = 30_000;

/// How tables look where they are going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The width in columns, or [`UNLIMITED`].
    pub width: u16,
    /// Whether the heads are printed bold.
    pub color: bool,
}

/// Where a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left, and whole: names.
    Left,
    /// At the left, over several lines if need be: text.
    Text,
    /// At the left, whole, or where a report lays the table out without its middle: long names.
    Name,
    /// At the right: numbers.
    Right,
}

/// A table that grows by rows.
pub struct Table {
    inner: comfy_table::Table,
    aligns: Vec<Align>,
    one_line: bool,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(style: Style, columns: &[(&str, Align)]) -> Table {
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::NOTHING);
        if style.width == UNLIMITED {
            inner.set_content_arrangement(ContentArrangement::Disabled);
        } else {
            inner.set_content_arrangement(ContentArrangement::Dynamic);
            inner.set_width(style.width);
        }
        inner.set_truncation_indicator("…");
        if style.color {
            inner.enforce_styling();
        } else {
            inner.force_no_tty();
        }
        let aligns: Vec<Align> = columns.iter().map(|c| c.1).collect();
        let heads = columns.iter().map(|&(head, align)| {
            let cell = cell(head.to_owned(), align);
            if style.color { cell.add_attribute(Attribute::Bold) } else { cell }
        });
        inner.set_header(Row::from(heads.collect::<Vec<_>>()));
        for (column, align) in inner.column_iter_mut().zip(&aligns) {
            column.set_padding((0, 2));
            column.set_constraint(match align {
                // A number or a name broken over two lines would be misread.
                Align::Right | Align::Left | Align::Name => ColumnConstraint::ContentWidth,
                Align::Text => ColumnConstraint::LowerBoundary(Width::Fixed(TEXT_WIDTH)),
            });
        }
        Table { inner, aligns, one_line: false }
    }

    /// From here on a row has one line, and its text is cut where it is too long.
    pub fn one_line(mut self) -> Table {
        self.one_line = true;
        self
    }

    /// Adds a row; there is one text for each column. Control characters are written out.
    pub fn row<S: Into<String>>(&mut self, texts: impl IntoIterator<Item = S>) {
        let cells = texts.into_iter().zip(&self.aligns).map(|(text, &a)| cell(text.into(), a));
        let mut row = Row::from(cells.collect::<Vec<_>>());
        if self.one_line {
            row.max_height(1);
        }
        self.inner.add_row(row);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Writes the table, each line ended and without blanks at its end.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for line in self.inner.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn cell(text: String, align: Align) -> Cell {
    let mut text = text::plain(&text);
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    Cell::new(text).set_alignment(match align {
        Align::Left | Align::Text | Align::Name => CellAlignment::Left,
        Align::Right => CellAlignment::Right,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(width: u16, rows: &[[&str; 2]]) -> String {
        let style = Style { width, color: false };
        let mut table = Table::new(style, &[("name", Align::Text), ("bytes", Align::Right)]);
        for row in rows {
            table.row(*row);
        }
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_stand_right() {
        let text = render(80, &[["a", "1"], ["bb", "1000000"]]);
        assert_eq!(
            text,
            "name              bytes\na                     1\nbb              1000000\n"
        );
    }

    #[test]
    fn one_line_is_cut() {
        let mut table = Table::new(
            Style { width: 24, color: false },
            &[("bytes", Align::Right), ("text", Align::Text)],
        )
        .one_line();
        table.row(["123456789", "a long text that goes on and on"]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("123456789") && text.contains('…'), "{text}");
    }

    #[test]
    fn nothing_is_cut_where_no_width_is() {
        let style = Style { width: UNLIMITED, color: false };
        let mut table = Table::new(style, &[("text", Align::Text)]).one_line();
        let long = "word ".repeat(5_000);
        table.row([format!("{long}\n.")]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("text\n{long}\\n.\n"));
        table.row(["\u{754c}".repeat(200_000)]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with("…\n"));
    }

    #[test]
    fn a_narrow_terminal_wraps() {
        let text = render(24, &[["a long name that goes on", "1000"]]);
        assert!(text.lines().all(|line| line.len() <= 24), "{text}");
        assert!(text.lines().count() > 2);
    }
}
