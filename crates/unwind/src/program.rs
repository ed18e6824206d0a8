//! How a function's frame changes from instruction to instruction, followed up to one of them (DWARF 5, section 6.4.2).

use crate::arch::{BP, LINKAGE, LINKAGE_PUSH, RETURN, RETURN_AT, SP};
use crate::bytes::Bytes;
use crate::entry::{Common, Function};
use crate::rule::{Bp, Cfa, Rule};

/// Where a register's value before the call is found.
#[derive(Clone, Copy, PartialEq)]
enum Saved {
    Same,
    Undefined,
    /// On the stack, so far from the frame's own address.
    At(i64),
    /// Where an expression says that begins with a register that is followed, the frame pointer's: so far above it.
    AtBp(i64),
    Unknown,
}

/// Where the frame's own address is found.
#[derive(Clone, Copy)]
enum Address {
    /// So far above the value of a register.
    Register(u64, i64),
    Expression(Cfa),
    Unknown,
}

/// All that is followed.
#[derive(Clone, Copy)]
struct Row {
    address: Address,
    bp: Saved,
    back: Saved,
}

/// States that can be remembered at the same time; compilers need one or two.
const REMEMBERED: usize = 4;

/// The rule for an address in the function's code.
pub(crate) fn run(function: &Function, pc: u64) -> Option<Rule> {
    if function.common.is_signal {
        return Some(Rule::Signal);
    }
    let blank = Row { address: Address::Unknown, bp: Saved::Same, back: Saved::At(RETURN_AT) };
    let mut run = Run {
        common: &function.common,
        row: blank,
        initial: blank,
        remembered: [blank; REMEMBERED],
        depth: 0,
        at: function.code.start,
        pc,
    };
    run.follow(function.common.program)?;
    run.initial = run.row;
    run.follow(function.program)?;
    run.row.rule()
}

struct Run<'a> {
    common: &'a Common,
    row: Row,
    /// What a register is restored to.
    initial: Row,
    remembered: [Row; REMEMBERED],
    depth: usize,
    /// Where in the code the row is true from.
    at: u64,
    pc: u64,
}

impl Run<'_> {
    /// Follows the steps until one comes behind the address that is sought.
    fn follow(&mut self, mut program: Bytes) -> Option<()> {
        while !program.is_empty() {
            if !self.step(&mut program)? {
                break;
            }
        }
        Some(())
    }

    /// Takes a step; whether it was not too far.
    fn step(&mut self, bytes: &mut Bytes) -> Option<bool> {
        let code = bytes.u8()?;
        let low = u64::from(code & 0x3f);
        match code >> 6 {
            1 => return Some(self.advance(low)),
            2 => {
                let offset = bytes.unsigned()? as i64;
                self.save(low, Saved::At(self.scaled(offset)));
                return Some(true);
            }
            3 => {
                self.restore(low);
                return Some(true);
            }
            _ => {}
        }
        match code {
            // nop, GNU_args_size
            0x00 => {}
            0x2e => drop(bytes.unsigned()?),
            // set_loc, advance_loc1, 2, 4
            0x01 => return None,
            0x02 => {
                let steps = u64::from(bytes.u8()?);
                return Some(self.advance(steps));
            }
            0x03 => {
                let steps = u64::from(bytes.u16()?);
                return Some(self.advance(steps));
            }
            0x04 => {
                let steps = u64::from(bytes.u32()?);
                return Some(self.advance(steps));
            }
            // offset_extended, offset_extended_sf, GNU_negative_offset_extended
            0x05 | 0x11 | 0x2f => {
                let register = bytes.unsigned()?;
                let offset = if code == 0x11 { bytes.signed()? } else { bytes.unsigned()? as i64 };
                let offset = if code == 0x2f { offset.wrapping_neg() } else { offset };
                self.save(register, Saved::At(self.scaled(offset)));
            }
            // restore_extended, undefined, same_value
            0x06 => {
                let register = bytes.unsigned()?;
                self.restore(register);
            }
            0x07 => self.save(bytes.unsigned()?, Saved::Undefined),
            0x08 => self.save(bytes.unsigned()?, Saved::Same),
            // register: in another one, which is not followed
            0x09 => {
                let register = bytes.unsigned()?;
                bytes.unsigned()?;
                self.save(register, Saved::Unknown);
            }
            // remember_state, restore_state
            0x0a => {
                *self.remembered.get_mut(self.depth)? = self.row;
                self.depth += 1;
            }
            0x0b => {
                self.depth = self.depth.checked_sub(1)?;
                self.row = *self.remembered.get(self.depth)?;
            }
            // def_cfa, def_cfa_sf
            0x0c | 0x12 => {
                let register = bytes.unsigned()?;
                let offset = match code {
                    0x0c => bytes.unsigned()? as i64,
                    _ => {
                        let offset = bytes.signed()?;
                        self.scaled(offset)
                    }
                };
                self.row.address = Address::Register(register, offset);
            }
            // def_cfa_register
            0x0d => {
                let register = bytes.unsigned()?;
                self.row.address = match self.row.address {
                    Address::Register(_, offset) => Address::Register(register, offset),
                    _ => Address::Unknown,
                };
            }
            // def_cfa_offset, def_cfa_offset_sf
            0x0e | 0x13 => {
                let offset = match code {
                    0x0e => bytes.unsigned()? as i64,
                    _ => {
                        let offset = bytes.signed()?;
                        self.scaled(offset)
                    }
                };
                self.row.address = match self.row.address {
                    Address::Register(register, _) => Address::Register(register, offset),
                    _ => Address::Unknown,
                };
            }
            // def_cfa_expression
            0x0f => {
                let length = bytes.unsigned()?;
                let expression = bytes.take(length)?;
                self.row.address = match address_by(expression) {
                    Some(cfa) => Address::Expression(cfa),
                    None => Address::Unknown,
                };
            }
            // expression
            0x10 => {
                let register = bytes.unsigned()?;
                let length = bytes.unsigned()?;
                let expression = bytes.take(length)?;
                self.save(register, place_by(expression).map_or(Saved::Unknown, Saved::AtBp));
            }
            // val_offset, val_offset_sf, val_expression: not in memory
            0x14 | 0x15 => {
                let register = bytes.unsigned()?;
                bytes.unsigned()?;
                self.save(register, Saved::Unknown);
            }
            0x16 => {
                let register = bytes.unsigned()?;
                let length = bytes.unsigned()?;
                bytes.take(length)?;
                self.save(register, Saved::Unknown);
            }
            _ => return None,
        }
        Some(true)
    }

    fn advance(&mut self, steps: u64) -> bool {
        self.at = self.at.wrapping_add(steps.wrapping_mul(self.common.code_align));
        self.at <= self.pc
    }

    fn scaled(&self, offset: i64) -> i64 {
        offset.wrapping_mul(self.common.data_align)
    }

    fn save(&mut self, register: u64, saved: Saved) {
        match register {
            BP => self.row.bp = saved,
            RETURN => self.row.back = saved,
            _ => {}
        }
    }

    fn restore(&mut self, register: u64) {
        match register {
            BP => self.row.bp = self.initial.bp,
            RETURN => self.row.back = self.initial.back,
            _ => {}
        }
    }
}

impl Row {
    fn rule(&self) -> Option<Rule> {
        match self.back {
            Saved::Undefined => return Some(Rule::End),
            Saved::At(RETURN_AT) => {}
            _ => return None,
        }
        let narrow = |offset: i64| i32::try_from(offset).ok();
        let cfa = match self.address {
            Address::Register(SP, offset) => Cfa::Sp(narrow(offset)?),
            Address::Register(BP, offset) => Cfa::Bp(narrow(offset)?),
            Address::Expression(cfa) => cfa,
            _ => return None,
        };
        let bp = match self.bp {
            Saved::Same | Saved::Undefined => Bp::Same,
            Saved::At(offset) => Bp::At(narrow(offset)?),
            Saved::AtBp(offset) => Bp::AtBp(narrow(offset)?),
            Saved::Unknown => return None,
        };
        Some(Rule::Frame { cfa, bp })
    }
}

/// The value of the register that an operation (`DW_OP_breg0` and on) begins with, and what is added.
fn register(bytes: &mut Bytes) -> Option<(u64, i32)> {
    const FIRST: u8 = 0x70;
    let register = bytes.u8()?.checked_sub(FIRST)?;
    Some((u64::from(register), i32::try_from(bytes.signed()?).ok()?))
}

/// The frame's address by an expression, of the few kinds that compilers and linkers write.
fn address_by(expression: Bytes) -> Option<Cfa> {
    const DEREF: u8 = 0x06;
    const PLUS: u8 = 0x23;
    if let Some(push) = linkage(expression) {
        return Some(Cfa::Linkage(push));
    }
    let mut bytes = expression;
    let (register, offset) = register(&mut bytes)?;
    if bytes.is_empty() {
        return match register {
            SP => Some(Cfa::Sp(offset)),
            BP => Some(Cfa::Bp(offset)),
            _ => None,
        };
    }
    if bytes.u8()? != DEREF {
        return None;
    }
    let more = match bytes.is_empty() {
        true => 0,
        false if bytes.u8()? == PLUS => u8::try_from(bytes.unsigned()?).ok()?,
        false => return None,
    };
    match register {
        _ if !bytes.is_empty() => None,
        SP => Some(Cfa::DerefSp(offset, more)),
        BP => Some(Cfa::DerefBp(offset, more)),
        _ => None,
    }
}

/// From which byte of an entry on a linkage table has pushed a word.
fn linkage(mut bytes: Bytes) -> Option<u8> {
    const LITERAL: u8 = 0x30;
    let mut push = 0;
    for (i, expected) in LINKAGE.into_iter().enumerate() {
        let byte = bytes.u8()?;
        match i {
            LINKAGE_PUSH => push = byte.checked_sub(LITERAL).filter(|&push| push < 16)?,
            _ if byte == expected => {}
            _ => return None,
        }
    }
    bytes.is_empty().then_some(push)
}

/// The place of a saved register by an expression: so far above the frame pointer.
fn place_by(mut bytes: Bytes) -> Option<i64> {
    let (register, offset) = register(&mut bytes)?;
    (register == BP && bytes.is_empty()).then_some(i64::from(offset))
}
