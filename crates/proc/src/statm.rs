//! `/proc/PID/statm`: sizes in pages, the cheapest figures there are.
//!
//! Source: proc_pid_statm(5). The kernel's counters behind it may lag by some pages per thread.

use crate::Error;

/// The file's fields, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statm {
    /// Address space.
    pub size: u64,
    /// Resident pages of all kinds.
    pub resident: u64,
    /// Resident pages of files and shared memory.
    pub shared: u64,
    /// Code.
    pub text: u64,
    /// Data and stack.
    pub data: u64,
}

/// Reads the line; `page_size` is the kernel's, in bytes.
pub fn parse(text: &str, page_size: u64) -> Result<Statm, Error> {
    let mut pages = text.split_whitespace().map(|v| v.parse::<u64>().ok()?.checked_mul(page_size));
    let mut next = || pages.next().flatten();
    (|| {
        let (size, resident, shared, text) = (next()?, next()?, next()?, next()?);
        let _lib_always_zero = next()?;
        Some(Statm { size, resident, shared, text, data: next()? })
    })()
    .ok_or_else(|| Error::malformed("/proc/PID/statm", text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_bytes() {
        let s = parse("2500 1024 700 200 0 90 0\n", 4096).unwrap();
        assert_eq!((s.size, s.resident, s.shared), (10_240_000, 4_194_304, 2_867_200));
        assert_eq!((s.text, s.data), (819_200, 368_640));
    }

    #[test]
    fn nonsense_is_malformed() {
        for text in ["", "1 2 3", "1 2 x 4 0 6", "18446744073709551615 1 1 1 0 1"] {
            assert!(parse(text, 4096).is_err(), "{text:?}");
        }
    }
}
