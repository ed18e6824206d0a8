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
    At(i32),
    /// Where an expression says that begins with a register that is followed, the frame pointer's: so far above it.
    AtBp(i32),
    Unknown,
}

/// Where the frame's own address is found.
#[derive(Clone, Copy)]
enum Address {
    /// So far above the value of a register.
    Register(u8, i32),
    Expression(Cfa),
    Unknown,
}

/// All that is followed. (States are remembered on a stack that may be small, so numbers are no longer than a rule's.)
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
    #[inline(always)]
    fn step(&mut self, bytes: &mut Bytes) -> Option<bool> {
        let code = bytes.u8()?;
        let low = u64::from(code & 0x3f);
        match code >> 6 {
            1 => return Some(self.advance(low)),
            2 => {
                let offset = bytes.unsigned()? as i64;
                self.save(low, self.saved_at(offset));
            }
            3 => self.restore(low),
            _ => return self.longer_step(code, bytes),
        }
        Some(true)
    }

    /// The same, of a step whose code takes the whole byte.
    #[inline(always)]
    fn longer_step(&mut self, code: u8, bytes: &mut Bytes) -> Option<bool> {
        match code {
            // nop, GNU_args_size
            0x00 => {}
            0x2e => drop(bytes.unsigned()?),
            // advance_loc1, 2, 4
            0x02 => return bytes.u8().map(|steps| self.advance(u64::from(steps))),
            0x03 => return bytes.u16().map(|steps| self.advance(u64::from(steps))),
            0x04 => return bytes.u32().map(|steps| self.advance(u64::from(steps))),
            // set_loc
            0x01 => {
                self.at = bytes.address(self.common.encoding)?;
                return Some(self.at <= self.pc);
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
            // def_cfa_offset
            0x0e => {
                let offset = narrow(bytes.unsigned()? as i64);
                self.row.address = self.row.address.above(offset);
            }
            0x0c | 0x0d | 0x0f | 0x12 | 0x13 => self.row.address = self.address(code, bytes)?,
            _ => {
                let register = bytes.unsigned()?;
                self.change(code, register, bytes)?;
            }
        }
        Some(true)
    }

    /// Where the frame's own address is from here on.
    fn address(&self, code: u8, bytes: &mut Bytes) -> Option<Address> {
        let before = self.row.address;
        Some(match code {
            // def_cfa_register
            0x0d => before.at(number(bytes)?),
            // def_cfa_offset_sf
            0x13 => before.above(narrow(self.scaled(bytes.signed()?))),
            // def_cfa, def_cfa_sf
            0x0c => Address::of(number(bytes)?, narrow(bytes.unsigned()? as i64)),
            0x12 => Address::of(number(bytes)?, narrow(self.scaled(bytes.signed()?))),
            // def_cfa_expression
            _ => {
                let length = bytes.unsigned()?;
                address_by(bytes.take(length)?).map_or(Address::Unknown, Address::Expression)
            }
        })
    }

    /// Where a register is found from here on.
    fn change(&mut self, code: u8, register: u64, bytes: &mut Bytes) -> Option<()> {
        let saved = match code {
            // offset_extended, offset_extended_sf, GNU_negative_offset_extended
            0x05 => self.saved_at(bytes.unsigned()? as i64),
            0x11 => self.saved_at(bytes.signed()?),
            0x2f => self.saved_at((bytes.unsigned()? as i64).wrapping_neg()),
            // restore_extended
            0x06 => {
                self.restore(register);
                return Some(());
            }
            // undefined, same_value
            0x07 => Saved::Undefined,
            0x08 => Saved::Same,
            // expression
            0x10 => {
                let length = bytes.unsigned()?;
                place_by(bytes.take(length)?).map_or(Saved::Unknown, Saved::AtBp)
            }
            // register, val_offset, val_offset_sf, val_expression: not in memory
            0x09 | 0x14 | 0x15 => {
                bytes.unsigned()?;
                Saved::Unknown
            }
            0x16 => {
                let length = bytes.unsigned()?;
                bytes.take(length)?;
                Saved::Unknown
            }
            _ => return None,
        };
        self.save(register, saved);
        Some(())
    }

    fn advance(&mut self, steps: u64) -> bool {
        self.at = self.at.wrapping_add(steps.wrapping_mul(self.common.code_align));
        self.at <= self.pc
    }

    fn saved_at(&self, offset: i64) -> Saved {
        narrow(self.scaled(offset)).map_or(Saved::Unknown, Saved::At)
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

impl Address {
    fn of(register: u8, offset: Option<i32>) -> Address {
        offset.map_or(Address::Unknown, |offset| Address::Register(register, offset))
    }

    /// The same, of another register.
    fn at(self, register: u8) -> Address {
        match self {
            Address::Register(_, offset) => Address::Register(register, offset),
            _ => Address::Unknown,
        }
    }

    /// The same, so far above the register.
    #[inline(always)]
    fn above(self, offset: Option<i32>) -> Address {
        match self {
            Address::Register(register, _) => Address::of(register, offset),
            _ => Address::Unknown,
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
        let cfa = match self.address {
            Address::Register(register, offset) => match u64::from(register) {
                SP => Cfa::Sp(offset),
                BP => Cfa::Bp(offset),
                _ => return None,
            },
            Address::Expression(cfa) => cfa,
            Address::Unknown => return None,
        };
        let bp = match self.bp {
            Saved::Same | Saved::Undefined => Bp::Same,
            Saved::At(offset) => Bp::At(offset),
            Saved::AtBp(offset) => Bp::AtBp(offset),
            Saved::Unknown => return None,
        };
        Some(Rule::Frame { cfa, bp })
    }
}

/// A register's number, as far as it can be one that is followed.
fn number(bytes: &mut Bytes) -> Option<u8> {
    bytes.unsigned().map(|register| u8::try_from(register).unwrap_or(u8::MAX))
}

/// An offset, if a rule can hold it.
fn narrow(offset: i64) -> Option<i32> {
    i32::try_from(offset).ok()
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
fn place_by(mut bytes: Bytes) -> Option<i32> {
    let (register, offset) = register(&mut bytes)?;
    (register == BP && bytes.is_empty()).then_some(offset)
}
