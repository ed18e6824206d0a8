//! Sizes as people write them: read from text, and printed.
//!
//! Reading: a number, perhaps with a fraction, then perhaps blanks and a unit. The letters K, M, G,
//! T, P, E stand for powers of 1024 in every spelling: `1K = 1KB = 1KiB = 1 KBytes = 1024`.
//! Fractions are exact and what is left of a byte is cut off: `0.9GB` is 966,367,641 bytes.

use std::fmt;
use std::str::FromStr;

/// The largest size that can be given, in bytes: 2^63 − 1.
pub const MAX_SIZE: u64 = i64::MAX as u64;

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It has no number, or something that is no unit behind it.
    #[error("'{0}' is not a size: give a number of bytes, or one with a unit, such as 512K or 1.5GB.")]
    Nonsense(String),
    /// It is below zero.
    #[error("'{0}' is a negative size: it must be zero or more.")]
    Negative(String),
    /// It is beyond [`MAX_SIZE`].
    #[error("'{0}' is too large a size: the largest is 9223372036854775807 bytes.")]
    TooLarge(String),
    /// A range of sizes whose end is below its beginning.
    #[error("The range of sizes '{0}' ends before it begins.")]
    Backwards(String),
}

/// Reads a size, in bytes.
///
/// ```
/// use heaptape_report::size;
/// assert_eq!(size::parse("0.9GB"), Ok(966_367_641));
/// assert_eq!(size::parse("1 KBytes"), Ok(1024));
/// ```
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let nonsense = || SizeError::Nonsense(text.to_owned());
    let trimmed = text.trim();
    let (negative, trimmed) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed),
    };
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(nonsense());
    }
    let shift = shift_of(unit.trim()).ok_or_else(nonsense)?;
    if negative {
        return Err(SizeError::Negative(text.to_owned()));
    }
    whole_bytes(whole, shift)
        .and_then(|bytes| bytes.checked_add(fraction_bytes(fraction, shift)))
        .filter(|&bytes| bytes <= MAX_SIZE)
        .ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

/// Sizes from A to B, B included; written `A..B`, `A..`, `..B`, or one size alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeSpan {
    /// The smallest, in bytes.
    pub least: u64,
    /// The largest, in bytes.
    pub most: u64,
}

impl FromStr for SizeSpan {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let Some((least, most)) = text.split_once("..") else {
            let size = parse(text)?;
            return Ok(SizeSpan { least: size, most: size });
        };
        let least = if least.trim().is_empty() { 0 } else { parse(least)? };
        let most = if most.trim().is_empty() { u64::MAX } else { parse(most)? };
        if most < least {
            return Err(SizeError::Backwards(text.to_owned()));
        }
        Ok(SizeSpan { least, most })
    }
}

/// The power of two that a unit stands for.
fn shift_of(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_lowercase();
    let (shift, rest) = match unit.chars().next().and_then(|c| "kmgtpe".find(c)) {
        Some(place) => (10 * (place as u32 + 1), &unit[1..]),
        None => (0, unit.as_str()),
    };
    let rest = if shift > 0 { rest.strip_prefix('i').unwrap_or(rest) } else { rest };
    matches!(rest, "" | "b" | "byte" | "bytes").then_some(shift)
}

/// `None` when it does not fit 64 bits. `whole` is digits only, or empty.
fn whole_bytes(whole: &str, shift: u32) -> Option<u64> {
    let number = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    number.checked_mul(1 << shift)
}

/// The whole bytes of `0.digits` times 2^shift: each doubling of the decimal fraction carries the
/// next bit out, so nothing is rounded however many digits there are.
fn fraction_bytes(digits: &str, shift: u32) -> u64 {
    let mut digits: Vec<u8> = digits.bytes().map(|b| b - b'0').collect();
    let mut bytes = 0;
    for _ in 0..shift {
        let mut carry = 0;
        for digit in digits.iter_mut().rev() {
            let doubled = *digit * 2 + carry;
            *digit = doubled % 10;
            carry = doubled / 10;
        }
        bytes = bytes << 1 | u64::from(carry);
    }
    bytes
}

/// A number of bytes that prints as `933.2 MiB`; below 1 KiB as `933 B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut text = String::new();
        for (i, unit) in UNITS.iter().enumerate() {
            let divisor = 1u128 << (10 * (i + 1));
            // Tenths, rounded half up.
            let tenths = (u128::from(self.0) * 20 + divisor) / (2 * divisor);
            text = format!("{}.{} {unit}", tenths / 10, tenths % 10);
            if tenths < 10_240 {
                break;
            }
        }
        f.pad(&text)
    }
}

/// A count that prints with its thousands apart: `10,000,000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() * 4 / 3);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// Milliseconds that print as seconds: `12.345 s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:03} s", self.0 / 1000, self.0 % 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_unit() {
        for text in [
            "1K", "1k", "1KB", "1kb", "1KiB", "1kib", "1KIB", "1 KBytes", "1 kbyte", "1  K", " 1K ",
            "1.0K", "1.K", "1024", "1024B", "1024 bytes", "1024Byte", "01024", "1Ki", "1 KiBytes",
            "1\tK",
        ] {
            assert_eq!(parse(text), Ok(1024), "{text:?}");
        }
        for (i, unit) in ["K", "M", "G", "T", "P", "E"].iter().enumerate() {
            let bytes = 1u64 << (10 * (i + 1));
            for end in ["", "B", "iB", "bytes"] {
                assert_eq!(parse(&format!("1{unit}{end}")), Ok(bytes));
                assert_eq!(parse(&format!("1{}{end}", unit.to_lowercase())), Ok(bytes));
            }
        }
    }

    #[test]
    fn fractions_are_exact_and_cut() {
        assert_eq!(parse("0.9GB"), Ok(966_367_641));
        assert_eq!(parse(".5K"), Ok(512));
        assert_eq!(parse("1.5"), Ok(1));
        assert_eq!(parse("0.1K"), Ok(102));
        assert_eq!(parse("0.1E"), Ok(115_292_150_460_684_697));
        assert_eq!(parse("1.9999999999999999999999999K"), Ok(2047));
        assert_eq!(parse("0.0009765625K"), Ok(1));
        assert_eq!(parse("7.999999999999999999999999999999999999E"), Ok(MAX_SIZE));
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("0.0G"), Ok(0));
    }

    #[test]
    fn the_edge_of_what_can_be_given() {
        assert_eq!(parse("9223372036854775807"), Ok(MAX_SIZE));
        for text in ["9223372036854775808", "8E", "8.0 EB", "16E", "99999999999999999999"] {
            assert_eq!(parse(text), Err(SizeError::TooLarge(text.into())), "{text:?}");
        }
        assert_eq!(parse("8191P"), Ok(8191 << 50));
    }

    #[test]
    fn negative_sizes() {
        for text in ["-1", "-0.5G", " -1K", "-0"] {
            assert_eq!(parse(text), Err(SizeError::Negative(text.into())));
        }
        assert_eq!(
            parse("-5M").unwrap_err().to_string(),
            "'-5M' is a negative size: it must be zero or more."
        );
    }

    #[test]
    fn nonsense() {
        for text in [
            "", " ", ".", "K", "one", "1X", "1KK", "1K B", "1Kii", "1.2.3", "1,5K", "+1", "--1", "1i",
            "1iB", "1KiBi", "0x10", "1e6", "½", "1 K b", "K1", "1µB", "-", "-x", "1Zi", "∞",
        ] {
            assert_eq!(parse(text), Err(SizeError::Nonsense(text.into())), "{text:?}");
        }
    }

    #[test]
    fn ranges() {
        let span = |text: &str| text.parse::<SizeSpan>().map(|s| (s.least, s.most));
        assert_eq!(span("1K..2K"), Ok((1024, 2048)));
        assert_eq!(span("0.5K..1.5K"), Ok((512, 1536)));
        assert_eq!(span("1M.."), Ok((1 << 20, u64::MAX)));
        assert_eq!(span("..16"), Ok((0, 16)));
        assert_eq!(span("24"), Ok((24, 24)));
        assert_eq!(span("2K..1K"), Err(SizeError::Backwards("2K..1K".into())));
        assert!(span("a..2").is_err() && span("").is_err());
    }

    #[test]
    fn printing() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1075, "1.0 KiB"),
            (1076, "1.1 KiB"),
            (978_531_123, "933.2 MiB"),
            (1_048_575, "1.0 MiB"),
            (1_048_524, "1023.9 KiB"),
            (u64::MAX, "16.0 EiB"),
            (MAX_SIZE, "8.0 EiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text, "{bytes}");
        }
        assert_eq!(format!("{:>10}|", Size(5)), "       5 B|");
    }

    #[test]
    fn counts_and_times() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (10_000_000, "10,000,000")] {
            assert_eq!(Count(n).to_string(), text);
        }
        assert_eq!(Millis(12_005).to_string(), "12.005 s");
    }
}
