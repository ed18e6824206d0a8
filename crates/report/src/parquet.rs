//! Tables as Apache Parquet files, compressed with zstd.
//!
//! A row group is collected in memory, column by column, and written when it is full, so that memory does not grow
//! with the table. Nothing is sought: the file may be a pipe.

mod column;

use std::io::{self, Write};
use std::sync::Arc;

use heaptape_analyze::Header;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

use crate::columns::{Cell, Cells, Column, Kind, Record, Table};
use crate::text;
use column::Collected;

/// Rows of a row group.
const GROUP: usize = 128 << 10;
/// The level of zstd: a higher one costs more time than it saves space.
const LEVEL: i32 = 1;

/// Writes rows.
pub struct Parquet<W: Write + Send> {
    file: SerializedFileWriter<W>,
    group: Group,
    rows: usize,
}

/// The row group that is being put together.
struct Group {
    columns: Vec<Collected>,
    /// Where the next cell goes.
    next: usize,
}

impl<W: Write + Send> Parquet<W> {
    /// Begins the file of a table, made of a tape with this header.
    pub fn new(out: W, table: &Table, header: &Header) -> io::Result<Parquet<W>> {
        let schema = Arc::new(schema(table).map_err(io_error)?);
        let properties = properties(table, header).map_err(io_error)?;
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties));
        let columns = table.columns.iter().map(Collected::new).collect();
        Ok(Parquet { file: file.map_err(io_error)?, group: Group { columns, next: 0 }, rows: 0 })
    }

    /// Takes a row of the table.
    pub fn row(&mut self, row: &impl Record) -> io::Result<()> {
        self.group.next = 0;
        row.cells(&mut self.group);
        self.rows += 1;
        if self.rows == GROUP { self.write_group().map_err(io_error) } else { Ok(()) }
    }

    /// Writes the last rows and the end of the file.
    pub fn finish(mut self) -> io::Result<()> {
        let rest = if self.rows == 0 { Ok(()) } else { self.write_group() };
        rest.and_then(|()| self.file.close()).map(drop).map_err(io_error)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        self.rows = 0;
        let mut group = self.file.next_row_group()?;
        for column in &mut self.group.columns {
            if let Some(mut to) = group.next_column()? {
                column.write(&mut to)?;
                to.close()?;
            }
        }
        group.close().map(drop)
    }
}

impl Cells for Group {
    #[inline]
    fn cell(&mut self, cell: Cell<'_>) {
        if let Some(column) = self.columns.get_mut(self.next) {
            column.push(cell);
        }
        self.next += 1;
    }
}

fn schema(table: &Table) -> Result<Type, ParquetError> {
    let columns = table.columns.iter().map(|column| field(column).map(Arc::new));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder("heaptape").with_fields(columns).build()
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let unsigned = |bit_width| Some(LogicalType::integer(bit_width, false));
    let (physical, logical) = match column.kind {
        Kind::Small => (Physical::INT32, unsigned(32)),
        Kind::Whole | Kind::Address => (Physical::INT64, unsigned(64)),
        Kind::Millis => (Physical::INT64, None),
        Kind::Flag => (Physical::BOOLEAN, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let presence = if column.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let field = Type::primitive_type_builder(column.name, physical);
    field.with_logical_type(logical).with_repetition(presence).build()
}

fn properties(table: &Table, header: &Header) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_dictionary_enabled(false)
        .set_key_value_metadata(Some(about(table, header)));
    // Names repeat; most numbers do not.
    for column in table.columns.iter().filter(|c| matches!(c.kind, Kind::Text | Kind::Small)) {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(column.name), true);
    }
    Ok(properties.build())
}

/// What the file says about itself.
fn about(table: &Table, header: &Header) -> Vec<KeyValue> {
    let started = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(header.started);
    [
        ("heaptape.schema", table.schema.to_owned()),
        ("heaptape.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("heaptape.command", text::command(&header.command)),
        ("heaptape.host", header.host.clone()),
        ("heaptape.started", humantime::format_rfc3339_nanos(started).to_string()),
    ]
    .map(|(key, value)| KeyValue::new(key.to_owned(), value))
    .to_vec()
}

/// The system's own error, so that a broken pipe is known as one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::CallRecord;

    /// Takes so many bytes, and then nobody reads any more.
    struct Closing(usize);

    impl Write for Closing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            if self.0 == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
        }
    }

    #[test]
    fn a_broken_pipe_is_known_as_one_wherever_it_breaks() {
        for bytes in [0, 2, 4, 10, 500] {
            let file = Parquet::new(Closing(bytes), &CallRecord::TABLE, &Header::default());
            let kind = file.and_then(Parquet::finish).map_err(|e| e.kind());
            assert_eq!(kind, Err(io::ErrorKind::BrokenPipe), "after {bytes} bytes");
        }
    }
}
