//! Gives a damaged tape right checksums again, so that what lies behind them is tried.
//!
//! It is written from `docs/tape-format.md`, not with the crate.

/// Reads varints.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

fn le(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte))
}

/// Corrects the checksums of the opening, of every frame's head, and of every stream, as far as
/// the lengths lead.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let mut at = 16;
    while at + 24 <= bytes.len() {
        let (header_len, payload_len) = (le(&bytes[at + 8..at + 12]), le(&bytes[at + 12..at + 18]));
        let header = at + 24..at + 24 + header_len;
        let payload = header.end..header.end + payload_len;
        if payload.end > bytes.len() {
            return;
        }
        let numbers = match bytes[at] {
            3 => 27,
            4 => 6,
            5 => 3,
            10 => 7,
            11 => 2,
            _ => 0,
        };
        if numbers > 0 {
            reseal_streams(bytes, header.clone(), payload.start, numbers);
        }
        let mut sum = crc32fast::Hasher::new();
        sum.update(&bytes[at..at + 20]);
        sum.update(&bytes[header]);
        bytes[at + 20..at + 24].copy_from_slice(&sum.finalize().to_le_bytes());
        at = payload.end;
    }
}

/// Corrects the checksums in a directory that stands behind some numbers of a header.
fn reseal_streams(
    bytes: &mut [u8],
    header: std::ops::Range<usize>,
    payload: usize,
    numbers: usize,
) -> Option<()> {
    let mut at = header.start;
    let mut offset = payload;
    let skip = |n: usize, at: &mut usize, bytes: &[u8]| {
        let mut fields = Fields { bytes: &bytes[..header.end], at: *at };
        let last = (0..n).map(|_| fields.number()).last().flatten();
        *at = fields.at;
        last
    };
    skip(numbers, &mut at, bytes)?;
    for _ in 0..skip(1, &mut at, bytes)? {
        let stored = usize::try_from(skip(4, &mut at, bytes)?).ok()?;
        let end = offset.checked_add(stored)?;
        let sum = crc32fast::hash(bytes.get(offset..end)?);
        bytes.get_mut(at..at + 4)?.copy_from_slice(&sum.to_le_bytes());
        at += 4;
        offset = end;
    }
    Some(())
}
