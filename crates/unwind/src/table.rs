//! Which entry an address belongs to: the sorted table of `.eh_frame_hdr`.

use core::ops::Range;

use crate::Rule;
use crate::bytes::Bytes;
use crate::entry::Function;
use crate::program;

/// Addresses in the table: differences to its begin, in 32 bits with a sign (`DW_EH_PE_datarel | sdata4`).
const TABLE: u8 = 0x3b;
const ROW_BYTES: u64 = 8;

/// The rule for the frame of the function that the instruction at `pc` is in.
///
/// `header` is the address of the module's `.eh_frame_hdr` (its segment `PT_GNU_EH_FRAME`), `module` the addresses from its first
/// byte to behind its last. A module without a table has no rules, as each linker of the last twenty years writes one.
///
/// # Safety
/// From its first segment that is mapped to its last the module can be read, and stays so during the call: where a segment between
/// them can't be, a damaged table could lead there.
pub unsafe fn rule(header: usize, module: Range<usize>, pc: usize) -> Rule {
    // SAFETY: as promised.
    unsafe { find(header, &module, pc) }.unwrap_or(Rule::Unknown)
}

/// # Safety
/// As for [`rule`].
unsafe fn find(header: usize, module: &Range<usize>, pc: usize) -> Option<Rule> {
    // SAFETY: as promised.
    let mut bytes = unsafe { Bytes::new(header, module) }?;
    let [version, frames, count, table] = [bytes.u8()?, bytes.u8()?, bytes.u8()?, bytes.u8()?];
    if version != 1 || table != TABLE {
        return None;
    }
    bytes.number(frames)?;
    let rows = bytes.number(count)?;
    let sought = pc.wrapping_sub(header) as i64;
    let row = last_row(bytes, rows, sought)?;
    // SAFETY: as promised.
    let function = unsafe { Function::read(header.wrapping_add_signed(row as isize), module) }?;
    if !function.code.contains(&(pc as u64)) {
        return None;
    }
    program::run(&function, pc as u64)
}

/// Where the entry stands of the last row whose code does not begin behind `sought`, from the table's begin.
fn last_row(rows: Bytes, count: u64, sought: i64) -> Option<i32> {
    let row = |number: u64| {
        let mut bytes = rows;
        bytes.take(number.checked_mul(ROW_BYTES)?)?;
        Some((bytes.u32()? as i32, bytes.u32()? as i32))
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if i64::from(row(middle)?.0) <= sought { low = middle + 1 } else { high = middle }
    }
    row(low.checked_sub(1)?).map(|(_, entry)| entry)
}
