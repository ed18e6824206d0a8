//! Interpreted code of a process, several pieces to a frame: file, function, first line.

use crate::column::{Column, Packer};
use crate::field::{FieldReader, FieldWriter, Truncated};
use crate::site::Code;
use std::io;

/// New code as the writer gathers it.
#[derive(Debug, Default)]
pub(crate) struct RawCodes {
    before: u64,
    new: u64,
    pub(crate) fields: FieldWriter,
}

impl RawCodes {
    pub(crate) fn is_empty(&self) -> bool {
        self.new == 0
    }

    /// An empty one that goes on behind this one.
    pub(crate) fn follower(&self) -> RawCodes {
        RawCodes { before: self.before + self.new, ..RawCodes::default() }
    }

    pub(crate) fn code(&mut self, code: &Code) {
        self.fields.text(code.file.as_bytes()).text(code.function.as_bytes());
        self.fields.number(u64::from(code.line));
        self.new += 1;
    }

    pub(crate) fn pack(&self, packer: &mut Packer, header: &mut FieldWriter) -> io::Result<()> {
        header.numbers(&[self.before, self.new]);
        packer.bytes(Column::Code, &self.fields.bytes)
    }
}

/// The header of a frame of codes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodesHeader {
    /// Pieces of code before, and in the frame.
    pub(crate) before: u64,
    pub(crate) new: u64,
}

impl CodesHeader {
    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<CodesHeader, Truncated> {
        Ok(CodesHeader { before: fields.number()?, new: fields.number()? })
    }
}

/// Reads the payload of a frame of codes.
pub(crate) fn read_codes(header: &CodesHeader, bytes: &[u8]) -> Result<Vec<Code>, Truncated> {
    let mut fields = FieldReader::new(bytes);
    let mut all = Vec::new();
    while !fields.is_empty() {
        let (file, function) = (fields.string()?, fields.string()?);
        all.push(Code { file, function, line: fields.narrow()? });
    }
    if all.len() as u64 == header.new { Ok(all) } else { Err(Truncated) }
}
