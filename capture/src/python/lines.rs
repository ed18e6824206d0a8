//! Which line of its source an instruction is from: the table that each code object has since 3.11
//! (`Objects/locations.md` of the interpreter's sources).

use super::layout::Layout;
use super::{byte, is_pointer, word};

/// Where in an object of bytes their number stands, and where they begin.
const LENGTH: usize = 16;
const BYTES: usize = 32;

/// The bytes of the table that are left.
struct Table {
    at: usize,
    end: usize,
}

impl Table {
    fn next(&mut self) -> Option<u8> {
        if self.at >= self.end {
            return None;
        }
        self.at += 1;
        // SAFETY: within the object of bytes.
        Some(unsafe { byte(self.at - 1) })
    }

    /// A number in six bits a byte.
    fn number(&mut self) -> Option<u64> {
        let (mut number, mut bits) = (0, 0);
        loop {
            let next = self.next()?;
            if bits < 60 {
                number |= u64::from(next & 63) << bits;
            }
            bits += 6;
            if next & 64 == 0 {
                return Some(number);
            }
        }
    }

    /// The same with its sign in the lowest bit.
    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        let magnitude = (number >> 1) as i64;
        Some(if number & 1 == 0 { magnitude } else { -magnitude })
    }
}

/// The line that a code begins on.
///
/// # Safety
/// `code` is a code object.
#[inline(always)]
pub unsafe fn first(layout: &Layout, code: usize) -> u32 {
    // SAFETY: as promised.
    unsafe { ((code + layout.first_line) as *const u32).read_volatile() }
}

/// The line of the instruction at this offset of the code in bytes; 0 for none.
///
/// # Safety
/// `code` is a code object.
pub unsafe fn line(layout: &Layout, code: usize, at: u32) -> u32 {
    // SAFETY: as promised.
    let (table, first) = unsafe { (word(code + layout.lines), first(layout, code)) };
    if !is_pointer(table) {
        return 0;
    }
    // SAFETY: the code's object of bytes.
    let length = unsafe { word(table + LENGTH) };
    let mut table = Table { at: table + BYTES, end: table + BYTES + length.min(1 << 24) };
    find(&mut table, i64::from(first as i32), u64::from(at / 2)).unwrap_or(0)
}

/// Goes through the table up to a unit of the code.
fn find(table: &mut Table, mut line: i64, unit: u64) -> Option<u32> {
    const SHORT: u8 = 9;
    const NO_COLUMNS: u8 = 13;
    const LONG: u8 = 14;
    let mut units = 0;
    loop {
        let head = table.next()?;
        let kind = head >> 3 & 15;
        units += u64::from(head & 7) + 1;
        match kind {
            0..=SHORT => {
                table.next()?;
            }
            10..=12 => {
                line += i64::from(kind) - 10;
                table.next()?;
                table.next()?;
            }
            NO_COLUMNS => line += table.signed()?,
            LONG => {
                line += table.signed()?;
                for _ in 0..3 {
                    table.number()?;
                }
            }
            _ => {}
        }
        if unit < units {
            return if kind > LONG { None } else { u32::try_from(line).ok() };
        }
    }
}
