//! The writer's live map: which block stands at an address.
//!
//! Entries are packed into three words; the rare block that does not fit (an address above 2^48,
//! a slack of 64 KiB and more) lies in a second map.

use hashbrown::{HashMap, HashTable};

/// A live block, without its address. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its number among the allocations of its process.
    pub(crate) ordinal: u64,
    /// The index of the event that made it, in the process that made it.
    pub(crate) birth: u64,
    /// The requested size.
    pub(crate) size: u64,
    /// Usable less requested size.
    pub(crate) slack: u64,
}

const ADDRESS_BITS: u32 = 48;
const COUNT_BITS: u32 = 40;
const SIZE_BITS: u32 = 48;
const HALF_SIZE: u64 = (1 << (SIZE_BITS / 2)) - 1;

/// address 48 · slack 16 | ordinal 40 · low half of the size 24 | birth 40 · high half 24
#[derive(Clone, Copy)]
struct Entry([u64; 3]);

impl Entry {
    fn pack(address: u64, block: &Block) -> Option<Entry> {
        let fits = address < 1 << ADDRESS_BITS
            && block.slack < 1 << (64 - ADDRESS_BITS)
            && block.size < 1 << SIZE_BITS
            && block.ordinal < 1 << COUNT_BITS
            && block.birth < 1 << COUNT_BITS;
        fits.then_some(Entry([
            address | block.slack << ADDRESS_BITS,
            block.ordinal | (block.size & HALF_SIZE) << COUNT_BITS,
            block.birth | block.size >> (SIZE_BITS / 2) << COUNT_BITS,
        ]))
    }

    fn address(&self) -> u64 {
        self.0[0] & ((1 << ADDRESS_BITS) - 1)
    }

    fn block(&self) -> Block {
        let [w0, w1, w2] = self.0;
        let count = (1 << COUNT_BITS) - 1;
        Block {
            ordinal: w1 & count,
            birth: w2 & count,
            size: w1 >> COUNT_BITS | w2 >> COUNT_BITS << (SIZE_BITS / 2),
            slack: w0 >> ADDRESS_BITS,
        }
    }
}

/// Multiplicative (Knuth, TAOCP 6.4): all bits of the granule reach the upper half, which is folded
/// down to where the table takes the slot from. Keeping neighbours together was measured to be slower:
/// full groups make every probe longer.
fn hash(address: u64) -> u64 {
    let product = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// Blocks by address.
#[derive(Default)]
pub(crate) struct LiveMap {
    packed: HashTable<Entry>,
    wide: HashMap<u64, Block>,
}

impl LiveMap {
    /// The block at `address`.
    pub(crate) fn get(&self, address: u64) -> Option<Block> {
        match self.packed.find(hash(address), |e| e.address() == address) {
            Some(entry) => Some(entry.block()),
            None if self.wide.is_empty() => None,
            None => self.wide.get(&address).copied(),
        }
    }

    /// Takes the block at `address` out.
    pub(crate) fn remove(&mut self, address: u64) -> Option<Block> {
        match self.packed.find_entry(hash(address), |e| e.address() == address) {
            Ok(entry) => Some(entry.remove().0.block()),
            Err(_) if self.wide.is_empty() => None,
            Err(_) => self.wide.remove(&address),
        }
    }

    /// Puts a block at `address`; gives the block that stood there.
    pub(crate) fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        let Some(packed) = Entry::pack(address, &block) else {
            let before = self.remove(address);
            self.wide.insert(address, block);
            return before;
        };
        use hashbrown::hash_table::Entry as Slot;
        let same = |e: &Entry| e.address() == address;
        match self.packed.entry(hash(address), same, |e| hash(e.address())) {
            Slot::Occupied(mut slot) => Some(std::mem::replace(slot.get_mut(), packed).block()),
            Slot::Vacant(slot) => {
                slot.insert(packed);
                if self.wide.is_empty() { None } else { self.wide.remove(&address) }
            }
        }
    }

    /// All blocks with their addresses, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        let packed = self.packed.iter().map(|e| (e.address(), e.block()));
        packed.chain(self.wide.iter().map(|(&address, &block)| (address, block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_shape_come_back() {
        let big = [0, 1, HALF_SIZE, 1 << 30, (1 << 48) - 1, 1 << 48, u64::MAX];
        let mut map = LiveMap::default();
        for address in [8, 1 << 47, (1 << 48) - 8, 1 << 48, u64::MAX] {
            let mut before = None;
            for size in big {
                for slack in [0, 0xffff, 0x1_0000, u64::MAX] {
                    let block = Block { ordinal: size >> 3, birth: size >> 2, size, slack };
                    assert_eq!(map.insert(address, block), before);
                    assert_eq!(map.get(address), Some(block));
                    before = Some(block);
                }
            }
            assert_eq!(map.iter().count(), 1);
            assert_eq!(map.remove(address), before);
            assert_eq!(map.remove(address), None);
        }
    }
}
