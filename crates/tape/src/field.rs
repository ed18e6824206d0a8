//! Numbers and texts in frame headers and small records.
//!
//! A number is a LEB128 varint of at most ten bytes, a text its length and its bytes, a list its
//! length and its members, an optional number the number plus one, or 0.

/// Appends fields to a byte string.
#[derive(Debug, Default)]
pub(crate) struct FieldWriter {
    pub(crate) bytes: Vec<u8>,
}

impl FieldWriter {
    pub(crate) fn new() -> FieldWriter {
        FieldWriter::default()
    }

    pub(crate) fn number(&mut self, mut value: u64) -> &mut FieldWriter {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
        self
    }

    /// `None` is 0, `Some(n)` is n + 1; the largest number is written as the one below it.
    pub(crate) fn option(&mut self, value: Option<u64>) -> &mut FieldWriter {
        self.number(value.map_or(0, |v| v.saturating_add(1)))
    }

    pub(crate) fn signed(&mut self, value: Option<i32>) -> &mut FieldWriter {
        self.option(value.map(|v| u64::from(v as u32)))
    }

    pub(crate) fn text(&mut self, text: &[u8]) -> &mut FieldWriter {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text);
        self
    }

    pub(crate) fn texts(&mut self, texts: &[String]) -> &mut FieldWriter {
        self.number(texts.len() as u64);
        for text in texts {
            self.text(text.as_bytes());
        }
        self
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut FieldWriter {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Four bytes, little-endian.
    pub(crate) fn checksum(&mut self, value: u32) -> &mut FieldWriter {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn numbers(&mut self, values: &[u64]) -> &mut FieldWriter {
        for &value in values {
            self.number(value);
        }
        self
    }
}

/// The bytes do not hold the fields that they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncated;

/// Reads fields off a byte string.
#[derive(Clone, Copy)]
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> FieldReader<'a> {
        FieldReader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Truncated> {
        let (&first, rest) = self.rest.split_first().ok_or(Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Truncated> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Truncated)
    }

    /// A number of allocations; one that no process can reach is none.
    pub(crate) fn ordinal(&mut self) -> Result<u64, Truncated> {
        self.number()
            .and_then(|ordinal| if ordinal < 1 << 62 { Ok(ordinal) } else { Err(Truncated) })
    }

    pub(crate) fn option(&mut self) -> Result<Option<u64>, Truncated> {
        Ok(self.number()?.checked_sub(1))
    }

    pub(crate) fn signed(&mut self) -> Result<Option<i32>, Truncated> {
        Ok(self.option()?.map(|v| v as u32 as i32))
    }

    pub(crate) fn narrow(&mut self) -> Result<u32, Truncated> {
        u32::try_from(self.number()?).map_err(|_| Truncated)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn checksum(&mut self) -> Result<u32, Truncated> {
        let bytes = self.bytes(4)?.first_chunk().ok_or(Truncated)?;
        Ok(u32::from_le_bytes(*bytes))
    }

    pub(crate) fn text(&mut self) -> Result<&'a [u8], Truncated> {
        let len = usize::try_from(self.number()?).map_err(|_| Truncated)?;
        self.bytes(len)
    }

    pub(crate) fn string(&mut self) -> Result<String, Truncated> {
        Ok(String::from_utf8_lossy(self.text()?).into_owned())
    }

    pub(crate) fn strings(&mut self) -> Result<Vec<String>, Truncated> {
        let mut all = Vec::new();
        for _ in 0..self.number()? {
            all.push(self.string()?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_page_says() {
        let page = include_str!("../../../docs/tape-format.md");
        let (_, from) = page.split_once("```fields\n").unwrap();
        let (examples, _) = from.split_once("```").unwrap();
        for example in examples.lines() {
            let (number, bytes) = example.split_once(" = ").unwrap();
            let bytes = bytes.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap());
            let bytes: Vec<u8> = bytes.collect();
            let number: u64 = number.parse().unwrap();
            assert_eq!(FieldWriter::new().number(number).bytes, bytes);
            assert_eq!(FieldReader::new(&bytes).number(), Ok(number));
        }
    }

    #[test]
    fn numbers_that_do_not_end_are_refused() {
        assert_eq!(FieldReader::new(&[0x80; 9]).number(), Err(Truncated));
        assert_eq!(FieldReader::new(&[0x80; 20]).number(), Err(Truncated));
    }
}
