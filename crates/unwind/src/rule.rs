//! A rule, and how it fits in one word.

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

impl Rule {
    /// The rule as a word, which is never 0. A frame whose offsets do not fit becomes [`Rule::Unknown`].
    pub fn pack(self) -> u64 {
        self.packed().unwrap_or(UNKNOWN)
    }

    fn packed(self) -> Option<u64> {
        let (cfa, bp) = match self {
            Rule::Frame { cfa, bp } => (cfa, bp),
            Rule::Signal => return Some(SIGNAL),
            Rule::End => return Some(END),
            Rule::Unknown => return Some(UNKNOWN),
        };
        let (kind, more, offset) = match cfa {
            Cfa::Sp(offset) => (0, 0, offset),
            Cfa::Bp(offset) => (1, 0, offset),
            Cfa::DerefBp(offset, more) => (2, more, offset),
            Cfa::DerefSp(offset, more) => (3, more, offset),
            Cfa::Linkage(from) => (4, from, 0),
        };
        let (place, bp_offset) = match bp {
            Bp::Same => (0, 0),
            Bp::At(offset) => (1, offset),
            Bp::AtBp(offset) => (2, offset),
        };
        let slot = SLOT;
        if bp_offset % slot != 0 {
            return None;
        }
        let slots = i16::try_from(bp_offset / slot).ok()?;
        let small = FRAME | kind << 2 | place << 5 | u64::from(more) << 8;
        Some(small | u64::from(slots as u16) << 16 | u64::from(offset as u32) << 32)
    }

    /// The rule that a word of [`Rule::pack`] means.
    #[inline(always)]
    pub fn unpack(word: u64) -> Rule {
        let offset = (word >> 32) as i32;
        let bp_offset = i32::from((word >> 16) as i16) * SLOT;
        let more = (word >> 8) as u8;
        match word & 3 {
            FRAME => {}
            SIGNAL => return Rule::Signal,
            END => return Rule::End,
            _ => return Rule::Unknown,
        }
        let cfa = match word >> 2 & 7 {
            0 => Cfa::Sp(offset),
            1 => Cfa::Bp(offset),
            2 => Cfa::DerefBp(offset, more),
            3 => Cfa::DerefSp(offset, more),
            _ => Cfa::Linkage(more),
        };
        let bp = match word >> 5 & 3 {
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
/// Its lowest bits are no other's.
const UNKNOWN: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_fit_in_a_word_and_read_back() {
        let cfas = [
            Cfa::Sp(8),
            Cfa::Sp(i32::MAX),
            Cfa::Bp(16),
            Cfa::DerefBp(-8, 0),
            Cfa::DerefSp(24, 8),
            Cfa::Linkage(11),
        ];
        let bps = [Bp::Same, Bp::At(-16), Bp::At(-8 * 32768), Bp::AtBp(0)];
        for cfa in cfas {
            for bp in bps {
                let rule = Rule::Frame { cfa, bp };
                assert_eq!(Rule::unpack(rule.pack()), rule);
                assert_ne!(rule.pack(), 0);
            }
        }
        for rule in [Rule::Signal, Rule::End, Rule::Unknown] {
            assert_eq!(Rule::unpack(rule.pack()), rule);
        }
    }

    #[test]
    fn what_does_not_fit_is_unknown() {
        for offset in [-4, 8 * 32768] {
            let rule = Rule::Frame { cfa: Cfa::Sp(8), bp: Bp::At(offset) };
            assert_eq!(Rule::unpack(rule.pack()), Rule::Unknown);
        }
    }
}
