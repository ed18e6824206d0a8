//! A rule, and how it fits in a part of a word.

use crate::arch::SLOT;

/// Where the frame's own address (the stack pointer before its call) is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// So far above the stack pointer.
    Sp(i32),
    /// So far above the frame pointer's register.
    Bp(i32),
    /// In memory, so far above the frame pointer's register, and so much more: the stack was aligned anew.
    DerefBp(i32, u8),
    /// In memory, so far above the stack pointer, and so much more.
    DerefSp(i32, u8),
    /// In a procedure linkage table: 8 above the stack pointer, and 8 more from this byte of the entry's 16 on.
    Linkage(u8),
}

/// Where the caller's frame pointer register is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bp {
    /// It was not touched.
    Same,
    /// On the stack, so far from the frame's own address.
    At(i32),
    /// In memory, so far above the register itself.
    AtBp(i32),
}

/// How to get from a frame to the one that called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An ordinary frame: its return address stands right below its own address.
    Frame {
        /// Where that is.
        cfa: Cfa,
        /// Where the caller's register is.
        bp: Bp,
    },
    /// The kernel has called a signal handler: the registers are in the `ucontext_t` at the stack pointer.
    Signal,
    /// The outermost frame.
    End,
    /// There is no rule, or none that is understood.
    Unknown,
}

// A rule in a part of a word: what it is, how the address and the register are found, and the offsets in slots of the stack.
//
//     bit 0..2 1 a frame, 2 a signal's, 3 the outermost · 2..4 the address · 4..6 the register · 6..16 its offset · 16..30 the other
impl Rule {
    /// The bits that a rule takes.
    pub const BITS: u32 = 30;

    /// The rule as a number of [`Rule::BITS`] bits, which is never 0. `None` for one that is rare: it has to be looked up each time.
    pub fn pack(self) -> Option<u64> {
        let (cfa, bp) = match self {
            Rule::Frame { cfa, bp } => (cfa, bp),
            Rule::Signal => return Some(SIGNAL),
            Rule::End => return Some(END),
            Rule::Unknown => return None,
        };
        let (kind, offset) = match cfa {
            Cfa::Sp(offset) => (0, offset),
            Cfa::Bp(offset) => (1, offset),
            Cfa::DerefBp(offset, 0) => (2, offset),
            _ => return None,
        };
        let (place, bp_offset) = match bp {
            Bp::Same => (0, 0),
            Bp::At(offset) => (1, offset),
            Bp::AtBp(offset) => (2, offset),
        };
        let offset = in_slots(offset, CFA_BITS)? << CFA_AT;
        Some(FRAME | kind << 2 | place << 4 | in_slots(bp_offset, BP_BITS)? << BP_AT | offset)
    }

    /// The rule that a number of [`Rule::pack`] means; bits above it are passed over.
    #[inline(always)]
    pub fn unpack(word: u64) -> Rule {
        let offset = slots(word, CFA_AT, CFA_BITS);
        let bp_offset = slots(word, BP_AT, BP_BITS);
        match word & 3 {
            SIGNAL => return Rule::Signal,
            END => return Rule::End,
            _ => {}
        }
        let cfa = match word >> 2 & 3 {
            0 => Cfa::Sp(offset),
            1 => Cfa::Bp(offset),
            _ => Cfa::DerefBp(offset, 0),
        };
        let bp = match word >> 4 & 3 {
            0 => Bp::Same,
            1 => Bp::At(bp_offset),
            _ => Bp::AtBp(bp_offset),
        };
        Rule::Frame { cfa, bp }
    }
}

const FRAME: u64 = 1;
const SIGNAL: u64 = 2;
const END: u64 = 3;
const BP_AT: u32 = 6;
const BP_BITS: u32 = 10;
const CFA_AT: u32 = 16;
const CFA_BITS: u32 = Rule::BITS - CFA_AT;

/// An offset in slots, in so many bits with a sign.
fn in_slots(offset: i32, bits: u32) -> Option<u64> {
    let slots = offset / SLOT;
    let (most, is_whole) = (1 << (bits - 1), offset % SLOT == 0);
    (is_whole && (-most..most).contains(&slots)).then_some(slots as u64 & ((1 << bits) - 1))
}

/// The offset in so many bits from `at` on, the highest of which is its sign.
#[inline(always)]
fn slots(word: u64, at: u32, bits: u32) -> i32 {
    ((word << (u64::BITS - at - bits)) as i64 >> (u64::BITS - bits)) as i32 * SLOT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_fit_in_a_part_of_a_word_and_read_back() {
        let cfas =
            [Cfa::Sp(8), Cfa::Sp(-8 * 8192), Cfa::Sp(8 * 8191), Cfa::Bp(16), Cfa::DerefBp(-8, 0)];
        let bps = [Bp::Same, Bp::At(-16), Bp::At(-8 * 512), Bp::At(8 * 511), Bp::AtBp(0)];
        let frames = cfas.into_iter().flat_map(|cfa| bps.map(|bp| Rule::Frame { cfa, bp }));
        for rule in frames.chain([Rule::Signal, Rule::End]) {
            let packed = rule.pack().unwrap();
            assert!(packed != 0 && packed >> Rule::BITS == 0);
            // What stands beside it is no part of it.
            for beside in [0, u64::MAX << Rule::BITS] {
                assert_eq!(Rule::unpack(packed | beside), rule);
            }
        }
    }

    #[test]
    fn what_is_rare_or_does_not_fit_is_not_packed() {
        let sp = Cfa::Sp(8);
        for offset in [-4, 8 * 512, -8 * 513, i32::MIN, i32::MAX] {
            assert_eq!(Rule::Frame { cfa: sp, bp: Bp::At(offset) }.pack(), None);
        }
        for cfa in [
            Cfa::Sp(12),
            Cfa::Sp(8 * 8192),
            Cfa::Bp(i32::MIN),
            Cfa::DerefBp(-8, 8),
            Cfa::DerefSp(24, 0),
            Cfa::Linkage(11),
        ] {
            assert_eq!(Rule::Frame { cfa, bp: Bp::Same }.pack(), None);
        }
        assert_eq!(Rule::Unknown.pack(), None);
    }
}
