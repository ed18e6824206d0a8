//! Bytes of a mapped module, read in order and never outside of it.

use core::ops::Range;

/// A place to read at, and where the bytes end.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    at: usize,
    end: usize,
}

impl Bytes {
    /// The bytes from `at` on, of a module.
    ///
    /// # Safety
    /// The module's range stays mapped and readable as long as this and what comes of it are in use.
    pub(crate) unsafe fn new(at: usize, module: &Range<usize>) -> Option<Bytes> {
        module.contains(&at).then_some(Bytes { at, end: module.end })
    }

    /// The place of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Whether all are read.
    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// Takes the next `length` bytes as bytes of their own.
    pub(crate) fn take(&mut self, length: u64) -> Option<Bytes> {
        let length = usize::try_from(length).ok()?;
        let end = self.at.checked_add(length).filter(|&end| end <= self.end)?;
        let taken = Bytes { at: self.at, end };
        self.at = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = self.take(N as u64)?;
        // SAFETY: within the bytes, which are readable as promised.
        Some(unsafe { (taken.at as *const [u8; N]).read_unaligned() })
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number in seven bits a byte; bits beyond the 64th are left out.
    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        let mut next = *self;
        match next.u8()? {
            // Nearly all of them.
            byte @ 0..0x80 => {
                *self = next;
                Some(u64::from(byte))
            }
            _ => self.leb().map(|(number, _, _)| number),
        }
    }

    /// The same with a sign.
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let (number, bits, last) = self.leb()?;
        let is_negative = last & 0x40 != 0 && bits < 64;
        Some(if is_negative { number | u64::MAX << bits } else { number } as i64)
    }

    fn leb(&mut self) -> Option<(u64, u32, u8)> {
        let (mut number, mut bits) = (0, 0);
        loop {
            let byte = self.u8()?;
            if bits < 64 {
                number |= u64::from(byte & 0x7f) << bits;
            }
            bits = (bits + 7).min(70);
            if byte & 0x80 == 0 {
                return Some((number, bits, byte));
            }
        }
    }

    /// An address in the given encoding (`DW_EH_PE_*`); `None` for one that has to be looked up.
    pub(crate) fn address(&mut self, encoding: u8) -> Option<u64> {
        const RELATIVE_TO_ITSELF: u8 = 0x10;
        let place = self.at as u64;
        let number = self.number(encoding)?;
        match encoding & 0xf0 {
            0 => Some(number),
            RELATIVE_TO_ITSELF => Some(place.wrapping_add(number)),
            _ => None,
        }
    }

    /// A number in the format that the low half of an encoding tells.
    pub(crate) fn number(&mut self, encoding: u8) -> Option<u64> {
        Some(match encoding & 0x0f {
            0x0 | 0x4 | 0xc => self.u64()?,
            0x1 => self.unsigned()?,
            0x2 => u64::from(self.u16()?),
            0x3 => u64::from(self.u32()?),
            0x9 => self.signed()? as u64,
            0xa => self.u16()? as i16 as u64,
            0xb => self.u32()? as i32 as u64,
            _ => return None,
        })
    }
}
