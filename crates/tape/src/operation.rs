//! What an event does, as one byte: the first column of a block.
//!
//! ```text
//! bits 0..4   the call's code, 0 for an early release
//! allocations     bit 4 failed · bit 5 an alignment follows
//! releases        bit 4 the address is unknown
//! reallocations   bits 4..6 old block: 0 known, 1 none, 2 unknown, 3 released early
//!                 bits 6..8 outcome: 0 in place, 1 moved, 2 failed, 3 freed
//! ```

use heaptape_wire::event::Call;

/// An operation byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation(pub(crate) u8);

const FLAG: u8 = 1 << 4;
const ALIGNED: u8 = 1 << 5;

/// The block that a reallocation was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Old {
    /// A live block, by its age.
    Known,
    /// None: the old address was 0.
    None,
    /// An address where no block is known.
    Unknown,
    /// The one that the thread's early release gave up.
    Released,
}

/// What a reallocation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A block at the old address.
    InPlace,
    /// A block at another address, or the first one.
    Moved,
    /// Nothing changed.
    Failed,
    /// The old block was freed.
    Freed,
}

/// An operation byte taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// The early release of a reallocation.
    EarlyRelease { known: bool },
    /// `free` or `delete`.
    Release { call: Call, known: bool },
    /// Any allocating call that takes no block.
    Allocate { call: Call, failed: bool, aligned: bool },
    /// `realloc` or `reallocarray`.
    Reallocate { call: Call, old: Old, outcome: Outcome },
}

impl Operation {
    pub(crate) fn early_release(known: bool) -> Operation {
        Operation(if known { 0 } else { FLAG })
    }

    pub(crate) fn release(call: Call, known: bool) -> Operation {
        Operation(call.code() | if known { 0 } else { FLAG })
    }

    pub(crate) fn allocate(call: Call, failed: bool, aligned: bool) -> Operation {
        let failed = if failed { FLAG } else { 0 };
        Operation(call.code() | failed | if aligned { ALIGNED } else { 0 })
    }

    pub(crate) fn reallocate(call: Call, old: Old, outcome: Outcome) -> Operation {
        Operation(call.code() | (old as u8) << 4 | (outcome as u8) << 6)
    }

    /// Takes the byte apart; `None` if no operation has it.
    #[inline]
    pub(crate) const fn deed(self) -> Option<Deed> {
        DEEDS[self.0 as usize]
    }
}

/// Every byte taken apart: a table, since the reader asks for each event.
static DEEDS: [Option<Deed>; 256] = {
    let mut all = [None; 256];
    let mut byte = 0;
    while byte < all.len() {
        all[byte] = take_apart(byte as u8);
        byte += 1;
    }
    all
};

const fn take_apart(byte: u8) -> Option<Deed> {
    let (code, flags) = (byte & 0xf, byte >> 4);
    let known = flags == 0;
    if code == 0 {
        return if flags <= 1 { Some(Deed::EarlyRelease { known }) } else { None };
    }
    let Some(call) = Call::from_code(code) else { return None };
    if call.is_reallocation() {
        return reallocation(call, flags);
    }
    if call.is_release() {
        return if flags <= 1 { Some(Deed::Release { call, known }) } else { None };
    }
    let (failed, aligned) = (flags & 1 != 0, flags & 2 != 0);
    if flags <= 3 { Some(Deed::Allocate { call, failed, aligned }) } else { None }
}

const fn reallocation(call: Call, flags: u8) -> Option<Deed> {
    let old = match flags & 3 {
        0 => Old::Known,
        1 => Old::None,
        2 => Old::Unknown,
        _ => Old::Released,
    };
    let outcome = match flags >> 2 {
        0 => Outcome::InPlace,
        1 => Outcome::Moved,
        2 => Outcome::Failed,
        _ => Outcome::Freed,
    };
    match (old, outcome) {
        (Old::None, Outcome::InPlace | Outcome::Freed) => None,
        _ => Some(Deed::Reallocate { call, old, outcome }),
    }
}

impl Deed {
    /// Whether an age stands for the block that it is given.
    #[inline]
    pub(crate) const fn has_age(self) -> bool {
        match self {
            Deed::EarlyRelease { known } | Deed::Release { known, .. } => known,
            Deed::Allocate { .. } => false,
            Deed::Reallocate { old, .. } => matches!(old, Old::Known),
        }
    }

    /// Whether a block is born.
    #[inline]
    pub(crate) const fn makes_block(self) -> bool {
        match self {
            Deed::EarlyRelease { .. } | Deed::Release { .. } => false,
            Deed::Allocate { failed, .. } => !failed,
            Deed::Reallocate { outcome, .. } => {
                matches!(outcome, Outcome::InPlace | Outcome::Moved)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_can_be_taken_apart_is_put_together_the_same() {
        let mut sound = 0;
        for byte in 0..=u8::MAX {
            let Some(deed) = Operation(byte).deed() else { continue };
            let again = match deed {
                Deed::EarlyRelease { known } => Operation::early_release(known),
                Deed::Release { call, known } => Operation::release(call, known),
                Deed::Allocate { call, failed, aligned } => {
                    Operation::allocate(call, failed, aligned)
                }
                Deed::Reallocate { call, old, outcome } => {
                    Operation::reallocate(call, old, outcome)
                }
            };
            assert_eq!(again, Operation(byte));
            sound += 1;
        }
        assert_eq!(sound, 2 + 2 * 2 + 8 * 4 + 2 * 14);
    }
}
