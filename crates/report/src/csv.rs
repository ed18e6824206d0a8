//! Tables as comma-separated values (RFC 4180 with plain line feeds).
//!
//! One line a row, below the names of the columns. Addresses and offsets are hexadecimal with `0x`; what does not
//! apply or is not known is empty.

use std::io::{self, Write};

use crate::columns::{Cell, Cells, Record, Table};

/// Writes rows.
pub struct Csv<W: Write> {
    writer: csv::Writer<W>,
    line: Line,
}

/// The row that is being put together.
struct Line {
    record: csv::ByteRecord,
    digits: itoa::Buffer,
}

impl<W: Write> Csv<W> {
    /// Writes the names of the columns.
    pub fn new(out: W, table: &Table) -> io::Result<Csv<W>> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(table.columns.iter().map(|c| c.name)).map_err(io_error)?;
        let line = Line { record: csv::ByteRecord::new(), digits: itoa::Buffer::new() };
        Ok(Csv { writer, line })
    }

    /// Writes a row of the table.
    pub fn row(&mut self, row: &impl Record) -> io::Result<()> {
        self.line.record.clear();
        row.cells(&mut self.line);
        self.writer.write_byte_record(&self.line.record).map_err(io_error)
    }

    /// Writes out what is buffered.
    pub fn finish(self) -> io::Result<W> {
        let mut out = self.writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
        out.flush()?;
        Ok(out)
    }
}

impl Cells for Line {
    #[inline]
    fn cell(&mut self, cell: Cell<'_>) {
        match cell {
            Cell::Small(value) => self.number(value.map(u64::from)),
            Cell::Whole(value) | Cell::Millis(value) => self.number(value),
            Cell::Address(value) => self.hex(value),
            Cell::Flag(value) => self.text(value.map_or("", |v| if v { "true" } else { "false" })),
            Cell::Text(value) => self.text(value.unwrap_or_default()),
        }
    }
}

impl Line {
    fn text(&mut self, text: &str) {
        self.record.push_field(text.as_bytes());
    }

    fn number(&mut self, value: Option<u64>) {
        let digits = value.map_or("", |v| self.digits.format(v));
        self.record.push_field(digits.as_bytes());
    }

    fn hex(&mut self, value: Option<u64>) {
        let mut digits = *b"0x0000000000000000";
        let length = value.map_or(0, |v| put_hex(v, &mut digits));
        self.record.push_field(digits.get(..length).unwrap_or_default());
    }
}

/// Puts the digits behind the `0x` and returns the length of both. With this and `itoa` an export is a
/// quarter faster than with the formatting of the standard library.
fn put_hex(value: u64, text: &mut [u8; 18]) -> usize {
    let digits = (u64::BITS - value.leading_zeros()).div_ceil(4).max(1) as usize;
    let mut rest = value;
    for place in text.iter_mut().skip(2).take(digits).rev() {
        *place = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    2 + digits
}

/// The system's own error, so that a broken pipe is known as one.
fn io_error(error: csv::Error) -> io::Error {
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        _ => io::Error::other(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::CallRecord;
    use heaptape_analyze::Call;
    use heaptape_analyze::Effect;
    use heaptape_analyze::calls::Row;
    use heaptape_analyze::modules::{Module, Place};
    use std::sync::Arc;

    #[test]
    fn hexadecimal() {
        for value in [0, 1, 0xf, 0x10, 0xabc_def0, u64::MAX, 1 << 63] {
            let mut text = *b"0x0000000000000000";
            let length = put_hex(value, &mut text);
            assert_eq!(std::str::from_utf8(&text[..length]), Ok(format!("{value:#x}").as_str()));
        }
    }

    /// Nobody reads what is written to it.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_broken_pipe_is_known_as_one() {
        let csv = Csv::new(Closed, &CallRecord::TABLE).unwrap();
        assert_eq!(csv.finish().err().map(|e| e.kind()), Some(io::ErrorKind::BrokenPipe));
    }

    #[test]
    fn a_realloc_and_a_free() {
        let module = Module {
            path: "/opt/a, b/lib.so".into(),
            build_id: Vec::new(),
            bias: 0,
            start: 0,
            end: 0,
        };
        let realloc = Row {
            index: 7,
            time: 12,
            thread: 1,
            call: Call::Realloc,
            address: 0x2000,
            size: 100,
            slack: 4,
            align: 0,
            old_address: Some(0x1000),
            old_size: Some(24),
            birth: Some(3),
            age: Some(2),
            early: true,
            effect: Effect::Moved,
            caller: 0x4010,
            site: Some(heaptape_analyze::SiteNumber(12)),
            place: Some(Place {
                module: Arc::new(module),
                offset: 0x10,
                function: Some("f(int, char)".into()),
            }),
        };
        let free = Row {
            index: 8,
            call: Call::Free,
            size: 0,
            slack: 0,
            old_address: None,
            birth: None,
            effect: Effect::Freed,
            caller: 0,
            site: None,
            place: None,
            ..realloc.clone()
        };
        let mut csv = Csv::new(Vec::new(), &CallRecord::TABLE).unwrap();
        csv.row(&CallRecord { process: 0, pid: Some(77), row: &realloc }).unwrap();
        csv.row(&CallRecord { process: 1, pid: None, row: &free }).unwrap();
        let text = String::from_utf8(csv.finish().unwrap()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let names: Vec<&str> = CallRecord::TABLE.columns.iter().map(|c| c.name).collect();
        assert_eq!(lines[0], names.join(","));
        assert_eq!(
            lines[1],
            "0,77,7,12,1,realloc,0x2000,100,4,0,0x1000,24,3,2,true,true,0x4010,\"/opt/a, b/lib.so\",0x10,\"f(int, char)\",12"
        );
        assert_eq!(lines[2], "1,,8,12,1,free,0x2000,0,0,0,,24,,2,,,,,,,");
    }
}
