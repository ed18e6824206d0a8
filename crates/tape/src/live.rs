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

/// Blocks from which on neighbours in memory are neighbours in the map: it is then too large for
/// the caches, and programs make and free blocks that lie side by side. In a small map they are
/// better spread, since neighbours crowd each other.
const LARGE: usize = 7 << 14;

/// How addresses are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Spread,
    Neighbours,
}

impl Order {
    #[inline]
    fn hash(self, address: u64) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        // The top bits tell entries apart that lie in one place of the map.
        const TAG: u64 = 0x7f << 57;
        let product = (address >> 3).wrapping_mul(ODD);
        match self {
            Order::Spread => product ^ product >> 32,
            Order::Neighbours => {
                let page = (address >> 12).wrapping_mul(ODD) >> 20;
                page.wrapping_add(address >> 5 & 0x7f) & !TAG | product & TAG
            }
        }
    }
}

/// Blocks by address.
#[derive(Default)]
pub(crate) struct LiveMap {
    packed: HashTable<Entry>,
    order: Order,
    wide: HashMap<u64, Block>,
}

impl LiveMap {
    /// The block at `address`.
    pub(crate) fn get(&self, address: u64) -> Option<Block> {
        match self.packed.find(self.order.hash(address), |e| e.address() == address) {
            Some(entry) => Some(entry.block()),
            None if self.wide.is_empty() => None,
            None => self.wide.get(&address).copied(),
        }
    }

    /// Takes the block at `address` out.
    pub(crate) fn remove(&mut self, address: u64) -> Option<Block> {
        match self.packed.find_entry(self.order.hash(address), |e| e.address() == address) {
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
        let order = self.order;
        let slot = self.packed.entry(order.hash(address), same, |e| order.hash(e.address()));
        match slot {
            Slot::Occupied(mut slot) => Some(std::mem::replace(slot.get_mut(), packed).block()),
            Slot::Vacant(slot) => {
                slot.insert(packed);
                if self.packed.len() == LARGE && order == Order::Spread {
                    self.bring_neighbours_together();
                }
                if self.wide.is_empty() { None } else { self.wide.remove(&address) }
            }
        }
    }

    #[cold]
    fn bring_neighbours_together(&mut self) {
        self.order = Order::Neighbours;
        let hash = |e: &Entry| Order::Neighbours.hash(e.address());
        let before = std::mem::replace(&mut self.packed, HashTable::with_capacity(2 * LARGE));
        for entry in before {
            self.packed.insert_unique(hash(&entry), entry, hash);
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
    fn a_map_that_grows_large_keeps_its_blocks() {
        let mut map = LiveMap::default();
        let block = |n: u64| Block { ordinal: n, birth: n, size: n % 100, slack: 8 };
        let count = LARGE as u64 * 2;
        for n in 0..count {
            assert_eq!(map.insert(n * 48, block(n)), None);
        }
        assert_eq!(map.order, Order::Neighbours);
        for n in 0..count {
            assert_eq!(map.remove(n * 48), Some(block(n)));
        }
        assert_eq!(map.iter().count(), 0);
    }

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
