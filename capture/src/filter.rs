//! A seccomp filter, as the program hands it to the kernel: whether it lets one of our calls through.
//!
//! It is read and followed as the kernel does (classic BPF over the number, the architecture and the
//! arguments of a call). What depends on values that differ from call to call counts as forbidden.

use core::slice;

/// `struct sock_filter` of <linux/filter.h>.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

/// `struct sock_fprog` of <linux/filter.h>.
#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

/// Whether the filter lets a call with this number through whose first argument is any pointer and whose
/// others are 0.
///
/// # Safety
/// `program` is what the program has passed as a filter: null or a `struct sock_fprog`.
pub unsafe fn lets_through(program: usize, number: usize) -> bool {
    // SAFETY: as promised; the kernel is about to read the same.
    let instructions = unsafe {
        let Some(program) = (program as *const Program).as_ref() else { return false };
        if program.instructions.is_null() {
            return false;
        }
        slice::from_raw_parts(program.instructions, usize::from(program.length))
    };
    // A filter without an end is none that the kernel takes.
    run(instructions, number as u32).is_some_and(is_allowed)
}

fn is_allowed(answer: u32) -> bool {
    const ALLOW: u32 = 0x7fff_0000;
    const LOG: u32 = 0x7ffc_0000;
    matches!(answer & 0xffff_0000, ALLOW | LOG)
}

/// What the filter sees of the call, by the place of a 32-bit word; `None` for what differs.
fn word(at: u32, number: u32) -> Option<u32> {
    const ARCHITECTURE: u32 = 0xc000_003e;
    match at {
        0 => Some(number),
        4 => Some(ARCHITECTURE),
        // The place of the call, and its first argument.
        8..24 => None,
        24..64 if at.is_multiple_of(4) => Some(0),
        _ => None,
    }
}

/// Follows the filter to its answer; `None` where it asks for what differs, or is not well formed.
fn run(filter: &[Instruction], number: u32) -> Option<u32> {
    const CLASS: u16 = 0x07;
    const FROM_X: u16 = 0x08;
    const MODE: u16 = 0xe0;
    let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [0u32; 16], 0usize);
    loop {
        let step = *filter.get(at)?;
        at += 1;
        let k = step.k;
        let operand = if step.code & FROM_X != 0 { x } else { k };
        match step.code & CLASS {
            // Loads into A and X: a constant, a word of the call, one of the memory, the length.
            class @ (0 | 1) => {
                let value = match step.code & MODE {
                    0x00 => k,
                    0x20 => word(k, number)?,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => 64,
                    _ => return None,
                };
                *(if class == 0 { &mut a } else { &mut x }) = value;
            }
            2 => *memory.get_mut(k as usize)? = a,
            3 => *memory.get_mut(k as usize)? = x,
            4 => a = computed(step.code & 0xf0, a, operand)?,
            5 => {
                let is_true = match step.code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if is_true { step.if_true } else { step.if_false });
            }
            6 => return Some(if step.code & 0x18 == 0x10 { a } else { k }),
            // From A to X, and back.
            _ if step.code & 0xf8 == 0 => x = a,
            _ => a = x,
        }
    }
}

fn computed(operation: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.checked_shl(operand)?,
        0x70 => a.checked_shr(operand)?,
        0x80 => a.wrapping_neg(),
        0xa0 => a ^ operand,
        _ => return None,
    })
}
