//! The tables of an export: the name, type and meaning of every column, once.
//!
//! A [`Record`] is one row; it gives its cells in the order of its table's columns, whatever the format. So
//! CSV and Parquet cannot differ, and a test holds the user guide against the same
//! list. Nothing is written here.

mod blocks;
mod calls;

pub use blocks::BlockRecord;
pub use calls::CallRecord;

/// What a column holds, and its type in Parquet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A small number: `UINT_32`.
    Small,
    /// A count, an index or a size in bytes: `UINT_64`.
    Whole,
    /// Milliseconds since the recording began: `INT64`, so that a difference may be negative.
    Millis,
    /// An address or an offset: `UINT_64`, in CSV hexadecimal with `0x`.
    Address,
    /// `true` or `false`: `BOOLEAN`.
    Flag,
    /// A text: `STRING`.
    Text,
}

impl Kind {
    /// The name of its Parquet type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Small => "UINT_32",
            Kind::Whole | Kind::Address => "UINT_64",
            Kind::Millis => "INT64",
            Kind::Flag => "BOOLEAN",
            Kind::Text => "STRING",
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether a cell may be empty (in Parquet: null).
    pub nullable: bool,
    /// What it means, and when it is empty.
    pub doc: &'static str,
}

/// The columns of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// What a reader knows the columns by, such as `heaptape.calls/1`.
    pub schema: &'static str,
    /// The columns, in order.
    pub columns: &'static [Column],
}

/// A value of the [`Kind`] with the same name; `None` is an empty cell. An empty text is an empty cell too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// See [`Kind::Small`].
    Small(Option<u32>),
    /// See [`Kind::Whole`].
    Whole(Option<u64>),
    /// See [`Kind::Millis`].
    Millis(Option<u64>),
    /// See [`Kind::Address`].
    Address(Option<u64>),
    /// See [`Kind::Flag`].
    Flag(Option<bool>),
    /// See [`Kind::Text`].
    Text(Option<&'a str>),
}

/// Takes the cells of a row, one after the other.
pub trait Cells {
    /// Takes the next cell.
    fn cell(&mut self, cell: Cell<'_>);
}

/// One row of a table.
pub trait Record {
    /// Its table.
    const TABLE: Table;

    /// Gives its cells in the order of the columns.
    fn cells(&self, to: &mut impl Cells);
}

/// Makes a [`Record`] of a struct: for each column its name, kind, whether its cell is there `always` or `maybe` (then
/// the value is an `Option`), the value, and what it means.
macro_rules! record {
    ($record:ident, $schema:literal, $this:ident, {
        $($name:ident: $kind:ident $there:ident($value:expr), $doc:literal;)+
    }) => {
        impl $crate::columns::Record for $record<'_> {
            const TABLE: $crate::columns::Table = $crate::columns::Table {
                schema: $schema,
                columns: &[$($crate::columns::Column {
                    name: stringify!($name),
                    kind: $crate::columns::Kind::$kind,
                    nullable: $crate::columns::nullable!($there),
                    doc: $doc,
                }),+],
            };

            #[inline]
            fn cells(&self, to: &mut impl $crate::columns::Cells) {
                let $this = self;
                $(to.cell($crate::columns::Cell::$kind(
                    $crate::columns::value!($there $value)
                ));)+
            }
        }
    };
}

macro_rules! nullable {
    (always) => {
        false
    };
    (maybe) => {
        true
    };
}

macro_rules! value {
    (always $value:expr) => {
        Some($value)
    };
    (maybe $value:expr) => {
        $value
    };
}

use {nullable, record, value};

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// The lines of the guide's table of columns.
    fn lines(table: &Table) -> String {
        let line = |column: &Column| {
            let (name, kind) = (column.name, column.kind.name());
            let empty = if column.nullable { ", may be empty" } else { "" };
            format!("| `{name}` | {kind}{empty} | {} |\n", column.doc)
        };
        table.columns.iter().map(line).collect()
    }

    #[test]
    fn the_guide_tells_of_every_column() {
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide.md");
        let guide = fs::read_to_string(guide).expect("the guide");
        for table in [CallRecord::TABLE, BlockRecord::TABLE] {
            let lines = lines(&table);
            assert!(guide.contains(&lines), "the guide's table should be:\n{lines}");
            assert!(guide.contains(table.schema), "{}", table.schema);
        }
    }

    #[test]
    fn no_column_comes_twice() {
        for table in [CallRecord::TABLE, BlockRecord::TABLE] {
            let mut names: Vec<_> = table.columns.iter().map(|c| c.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), table.columns.len(), "{}", table.schema);
        }
    }
}
