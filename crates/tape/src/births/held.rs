//! A live block as the reader keeps it, and the three words that hold nearly every one.

use crate::item::{CallerNumber, Maker};

/// A live block as the reader keeps it. Sizes are bytes; what was not asked for is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Held {
    /// The index of the event that made it.
    pub(crate) birth: u64,
    pub(crate) size: u64,
    pub(crate) slack: u64,
    pub(crate) address: u64,
    pub(crate) maker: MakerCode,
}

/// Who made a block, in one word: the caller's number plus one, the thread above it; 0 for unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct MakerCode(pub(super) u64);

impl MakerCode {
    #[inline]
    pub(crate) fn of(maker: Option<Maker>) -> MakerCode {
        let code = |m: Maker| (u64::from(m.caller.0) + 1) | u64::from(m.thread) << 32;
        MakerCode(maker.map_or(0, code))
    }

    #[inline]
    pub(crate) fn maker(self) -> Option<Maker> {
        let caller = (self.0 as u32).checked_sub(1).map(CallerNumber)?;
        Some(Maker { caller, thread: (self.0 >> 32) as u32 })
    }
}

const SIZE_BITS: u32 = 24;
const BIRTH_BITS: u32 = 64 - SIZE_BITS;
const SLACK_BITS: u32 = 16;
const ADDRESS_BITS: u32 = 64 - SLACK_BITS;

/// The words of a packed block.
pub(super) const WORDS: usize = 3;

/// A block in few words: size 24 · birth 40, slack 16 · address 48, maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed(pub(super) [u64; WORDS]);

impl Packed {
    /// Stands for a block that does not fit; no block is packed like this.
    pub(super) const WIDE: Packed = Packed([u64::MAX; WORDS]);
    pub(super) const EMPTY: Packed = Packed([0; WORDS]);

    /// `None` for a block that does not fit.
    #[inline]
    pub(super) fn pack(held: Held) -> Option<Packed> {
        let too_long = held.birth >> BIRTH_BITS
            | (held.size + u64::from(held.size < u64::MAX)) >> SIZE_BITS
            | held.slack >> SLACK_BITS
            | held.address >> ADDRESS_BITS;
        let Held { birth, size, slack, address, maker } = held;
        let words = [birth | size << BIRTH_BITS, address | slack << ADDRESS_BITS, maker.0];
        (too_long == 0).then_some(Packed(words))
    }

    /// `None` for [`Packed::WIDE`].
    #[inline]
    pub(super) fn unpack(self) -> Option<Held> {
        let Packed([first, second, maker]) = self;
        (first >> BIRTH_BITS != (1 << SIZE_BITS) - 1).then_some(Held {
            birth: first & ((1 << BIRTH_BITS) - 1),
            size: first >> BIRTH_BITS,
            slack: second >> ADDRESS_BITS,
            address: second & ((1 << ADDRESS_BITS) - 1),
            maker: MakerCode(maker),
        })
    }

    /// Something of it, which means nothing: for bringing it into the processor's caches.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.0[0] ^ self.0[2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field at the ends of what fits and of what there is.
    #[test]
    fn a_block_comes_back_or_does_not_fit() {
        let numbers = |bits: u32| [0, 1, (1 << bits) - 2, (1 << bits) - 1, 1 << bits, u64::MAX];
        let mut fitted = 0;
        for birth in numbers(BIRTH_BITS) {
            for size in numbers(SIZE_BITS) {
                for slack in numbers(SLACK_BITS) {
                    for address in numbers(ADDRESS_BITS) {
                        for maker in [0, u64::MAX].map(MakerCode) {
                            let held = Held { birth, size, slack, address, maker };
                            let Some(packed) = Packed::pack(held) else { continue };
                            assert_eq!(packed.unpack(), Some(held));
                            fitted += 1;
                        }
                    }
                }
            }
        }
        // The largest size that the bits could hold stands for what does not fit.
        assert_eq!(fitted, 4 * 3 * 4 * 4 * 2);
        assert_eq!(Packed::WIDE.unpack(), None);
    }
}
