//! The table of strings that symbols have their names in.
//!
//! Held in memory, so that no file need stay open; where it is very large, as that of a browser, each name
//! is read from the file when it is asked for.

use std::io;

use crate::source::Source;

/// Tables up to this length are held.
const HELD: u64 = 64 << 20;

/// Longer names are taken to be damage.
const LONGEST: usize = 1 << 18;

/// What most names fit in.
const FIRST: usize = 256;

/// A table of strings, each ended by a zero byte.
pub(crate) enum Strings {
    Held(Vec<u8>),
    Open { source: Source, offset: u64, size: u64 },
}

impl Strings {
    /// Those in `size` bytes at `offset` of a file.
    pub(crate) fn new(source: io::Result<Source>, offset: u64, size: u64) -> io::Result<Strings> {
        let source = source?;
        if size > HELD {
            return Ok(Strings::Open { source, offset, size });
        }
        Ok(Strings::Held(source.read(offset, size as usize)?))
    }

    /// Whether these bytes are among them; told only of a table that is held.
    pub(crate) fn hold(&self, bytes: &[u8]) -> bool {
        match self {
            Strings::Held(all) => memchr::memmem::find(all, bytes).is_some(),
            Strings::Open { .. } => false,
        }
    }

    /// The string at an index of the table; `None` when it has no end.
    pub(crate) fn get(&self, at: u32) -> Option<Vec<u8>> {
        match self {
            Strings::Held(bytes) => {
                let text = bytes.get(at as usize..)?;
                let text = text.get(..LONGEST).unwrap_or(text);
                Some(text.get(..end(text)?)?.to_vec())
            }
            Strings::Open { source, offset, size } => {
                let left = size.checked_sub(u64::from(at))?;
                let start = offset.checked_add(u64::from(at))?;
                let mut length = FIRST;
                loop {
                    let mut text = source.read(start, (length as u64).min(left) as usize).ok()?;
                    if let Some(end) = end(&text) {
                        text.truncate(end);
                        return Some(text);
                    }
                    if length >= LONGEST || length as u64 >= left {
                        return None;
                    }
                    length *= 4;
                }
            }
        }
    }
}

fn end(text: &[u8]) -> Option<usize> {
    memchr::memchr(0, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn held_and_open_are_alike() {
        let long = "x".repeat(5_000);
        let text = format!("head\0one\0{long}\0unended");
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let size = text.len() as u64 - 5;
        let source = Source::file(file);
        let held = Strings::new(source.as_ref().unwrap().again(), 5, size).unwrap();
        let open = Strings::Open { source: source.unwrap(), offset: 5, size };
        for strings in [held, open] {
            let get = |at| strings.get(at).map(|t| String::from_utf8(t).unwrap());
            assert_eq!(get(0).as_deref(), Some("one"));
            assert_eq!(get(2).as_deref(), Some("e"));
            assert_eq!(get(4).as_deref(), Some(long.as_str()));
            assert_eq!((get(5_005), get(9_000), get(u32::MAX)), (None, None, None));
        }
    }
}
