//! A table as `heaptape export` writes it: read as CSV and as Parquet, which must say the same.

use crate::harness::running::{Outcome, run};
use crate::harness::{heaptape, scratch};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

/// Whether the heaptape under test writes Parquet.
pub(crate) const HAS_PARQUET: bool = cfg!(feature = "parquet");

/// A table that was exported.
pub(crate) struct Exported {
    pub(crate) names: Vec<String>,
    pub(crate) rows: Vec<Line>,
}

/// A row of it: the cells as the CSV has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line(HashMap<String, String>);

impl Line {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("no column {name}"))
    }

    /// A number; `None` for an empty cell.
    pub(crate) fn maybe(&self, name: &str) -> Option<u64> {
        let text = self.text(name);
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None if text.is_empty() => return None,
            None => text.parse(),
        };
        Some(parsed.unwrap_or_else(|_| panic!("{name} is {text}")))
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.maybe(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

/// `heaptape export TAPE --table TABLE --to FORMAT OPTIONS…`
pub(crate) fn export(tape: &Path, table: &str, format: &str, options: &[&str]) -> Outcome {
    run(heaptape(["export", "--table", table, "--to", format]).arg(tape).args(options))
}

/// A table of a tape. The formats must agree in every cell, and the tape must be told nothing about.
pub(crate) fn exported(tape: &Path, table: &str, options: &[&str]) -> Exported {
    let csv = export(tape, table, "csv", options);
    assert_eq!((csv.code(), csv.stderr_text().as_str()), (0, ""));
    let mut reader = csv::Reader::from_reader(&csv.stdout[..]);
    let names: Vec<String> = reader.headers().expect("names").iter().map(str::to_owned).collect();
    let records = reader.records().map(|r| r.expect("a row"));
    let records: Vec<Vec<String>> =
        records.map(|r| r.iter().map(str::to_owned).collect()).collect();
    if HAS_PARQUET {
        let written = export(tape, table, "parquet", options);
        assert_eq!((written.code(), written.stderr_text().as_str()), (0, ""));
        same(&names, &records, &written.stdout);
    }
    let line = |cells: Vec<String>| Line(names.iter().cloned().zip(cells).collect());
    let rows = records.into_iter().map(line).collect();
    Exported { names, rows }
}

fn same(names: &[String], csv: &[Vec<String>], parquet: &[u8]) {
    let reader = open(parquet);
    let schema = reader.metadata().file_metadata().schema_descr();
    assert!(schema.columns().iter().map(|c| c.name()).eq(names.iter().map(String::as_str)));
    assert_eq!(reader.metadata().file_metadata().num_rows(), csv.len() as i64);
    let rows = reader.get_row_iter(None).expect("rows").map(|r| r.expect("a row"));
    for (at, (row, cells)) in rows.zip(csv).enumerate() {
        for ((name, field), cell) in row.get_column_iter().zip(cells) {
            assert_eq!(&text(field, cell.starts_with("0x")), cell, "{name} of row {at}");
        }
    }
}

/// A Parquet file.
pub(crate) fn open(bytes: &[u8]) -> SerializedFileReader<File> {
    let folder = scratch();
    let file = folder.path().join("x.parquet");
    fs::write(&file, bytes).expect("a file");
    SerializedFileReader::new(File::open(&file).expect("a file")).expect("Parquet")
}

fn text(field: &Field, hexadecimal: bool) -> String {
    match field {
        Field::Null => String::new(),
        Field::Bool(value) => value.to_string(),
        Field::UInt(value) => value.to_string(),
        Field::ULong(value) if hexadecimal => format!("{value:#x}"),
        Field::ULong(value) => value.to_string(),
        Field::Long(value) => value.to_string(),
        Field::Str(value) => value.clone(),
        other => panic!("no column is {other:?}"),
    }
}
