//! The writer's live map: which block stands at an address.
//!
//! Every event looks up or changes it, and it seldom fits in the processor's caches. Hence a table of
//! its own: an address has one bucket, a cache line of four slots, which are compared without a branch
//! that could be foreseen wrongly; and the writer is told of an event some time before it deals with it, and has its
//! bucket fetched meanwhile ([`LiveMap::fetch`]). The few blocks whose bucket is full, or that do not fit
//! in a slot, lie in a second map, and their bucket counts them.

use hashbrown::HashMap;
use heaptape_wire::arch;

/// A live block, without its address. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its number among the allocations of its process.
    pub(crate) ordinal: u64,
    /// The requested size.
    pub(crate) size: u64,
    /// Usable less requested size.
    pub(crate) slack: u64,
}

const WAYS: usize = 4;

/// Bits of an address that a slot can hold; the lowest three are 0.
const ADDRESS_BITS: u32 = 48;
const SLACK_BITS: u32 = 16;
const ORDINAL_BITS: u32 = 40;
const SIZE_BITS: u32 = 64 - ORDINAL_BITS;
/// The low bits of a bucket's first `rest`: its blocks in the second map; all set for too many to count.
const OUTSIDE: u32 = 7;
const OUTSIDE_BITS: u32 = 3;
const HIGH_SHIFT: u32 = OUTSIDE_BITS + SLACK_BITS;

/// A cache line of four slots. No two of them have the same key.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// Bits 3 to 34 of the address; 0 for a free slot.
    keys: [u32; WAYS],
    /// The bits of the address above those 13 · slack 16 · outside 3.
    rest: [u32; WAYS],
    /// size 24 · ordinal 40
    what: [u64; WAYS],
}

/// A block as it stands in a slot.
struct Slot {
    key: u32,
    rest: u32,
    what: u64,
}

#[inline]
fn pack(address: u64, block: &Block) -> Option<Slot> {
    let too_long = address >> ADDRESS_BITS
        | address & 7
        | block.slack >> SLACK_BITS
        | block.size >> SIZE_BITS
        | block.ordinal >> ORDINAL_BITS;
    let slot = Slot {
        key: key(address),
        rest: high(address) << HIGH_SHIFT | (block.slack as u32) << OUTSIDE_BITS,
        what: block.size << ORDINAL_BITS | block.ordinal,
    };
    (too_long == 0 && slot.key != 0).then_some(slot)
}

#[inline]
fn key(address: u64) -> u32 {
    (address >> 3) as u32
}

#[inline]
fn high(address: u64) -> u32 {
    (address >> (u32::BITS + 3)) as u32
}

impl Bucket {
    const EMPTY: Bucket = Bucket { keys: [0; WAYS], rest: [0; WAYS], what: [0; WAYS] };

    /// The first slot with this key, [`WAYS`] if there is none.
    #[inline]
    fn find(&self, key: u32) -> usize {
        (arch::find(&self.keys, key) | 1 << WAYS).trailing_zeros() as usize
    }

    /// The slot of the block at `address`.
    #[inline]
    fn find_block(&self, address: u64) -> Option<usize> {
        let way = self.find(key(address));
        let high = u64::from(*self.rest.get(way)? >> HIGH_SHIFT);
        let is_it = high == address >> 35 && address & 7 == 0 && key(address) != 0;
        is_it.then_some(way)
    }

    #[inline]
    fn block(&self, way: usize) -> Block {
        Block {
            ordinal: self.what[way] & ((1 << ORDINAL_BITS) - 1),
            size: self.what[way] >> ORDINAL_BITS,
            slack: u64::from(self.rest[way] >> OUTSIDE_BITS & ((1 << SLACK_BITS) - 1)),
        }
    }

    #[inline]
    fn set(&mut self, way: usize, slot: Slot) {
        self.keys[way] = slot.key;
        self.rest[way] = slot.rest | self.rest[way] & OUTSIDE;
        self.what[way] = slot.what;
    }

    /// Blocks of this bucket that lie in the second map.
    #[inline]
    fn outside(&self) -> u32 {
        self.rest[0] & OUTSIDE
    }

    /// The blocks in the slots, with their addresses.
    fn blocks(&self) -> impl Iterator<Item = (u64, Block)> + use<> {
        let bucket = *self;
        (0..WAYS).filter(move |&way| bucket.keys[way] != 0).map(move |way| {
            let high = u64::from(bucket.rest[way] >> HIGH_SHIFT) << u32::BITS;
            ((high | u64::from(bucket.keys[way])) << 3, bucket.block(way))
        })
    }
}

/// Blocks by address.
#[derive(Default)]
pub(crate) struct LiveMap {
    /// None, or a power of two of them.
    buckets: Vec<Bucket>,
    /// What leaves of a 64-bit word the bits that number a bucket.
    shift: u32,
    /// Blocks in buckets.
    used: usize,
    outside: HashMap<u64, Block>,
}

impl LiveMap {
    /// The bucket of an address: multiplicative hashing (Knuth, The Art of Computer Programming, 6.4).
    #[inline]
    fn home(&self, address: u64) -> usize {
        ((address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Has the bucket of an address brought into the processor's caches.
    #[inline]
    pub(crate) fn fetch(&self, address: u64) {
        if let Some(bucket) = self.buckets.get(self.home(address)) {
            arch::fetch(bucket);
        }
    }

    /// The block at `address`.
    pub(crate) fn get(&self, address: u64) -> Option<Block> {
        let bucket = self.buckets.get(self.home(address))?;
        match bucket.find_block(address) {
            Some(way) => Some(bucket.block(way)),
            None if bucket.outside() == 0 => None,
            None => self.outside.get(&address).copied(),
        }
    }

    /// Takes the block at `address` out.
    #[inline(always)]
    pub(crate) fn remove(&mut self, address: u64) -> Option<Block> {
        let home = self.home(address);
        let bucket = self.buckets.get_mut(home)?;
        if let Some(way) = bucket.find_block(address) {
            bucket.keys[way] = 0;
            self.used -= 1;
            return Some(bucket.block(way));
        }
        if bucket.outside() == 0 { None } else { self.remove_outside(home, address) }
    }

    #[cold]
    fn remove_outside(&mut self, home: usize, address: u64) -> Option<Block> {
        let block = self.outside.remove(&address)?;
        let bucket = &mut self.buckets[home];
        if bucket.outside() < OUTSIDE {
            bucket.rest[0] -= 1;
        }
        Some(block)
    }

    /// Puts a block at `address`; gives the block that stood there.
    #[inline(always)]
    pub(crate) fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        if self.used >= self.buckets.len() * WAYS / 2 {
            self.grow();
        }
        let home = self.home(address);
        let bucket = self.buckets.get_mut(home)?;
        let is_new = bucket.find(key(address)) == WAYS && bucket.outside() == 0;
        let way = bucket.find(0);
        if is_new
            && way < WAYS
            && let Some(packed) = pack(address, &block)
        {
            bucket.set(way, packed);
            self.used += 1;
            return None;
        }
        self.insert_outside(home, address, block)
    }

    /// Puts a block into the second map, or into a bucket that has blocks there.
    #[cold]
    fn insert_outside(&mut self, home: usize, address: u64, block: Block) -> Option<Block> {
        let before = self.remove(address);
        let bucket = &mut self.buckets[home];
        let way = bucket.find(0);
        match pack(address, &block) {
            Some(packed) if way < WAYS && bucket.find(packed.key) == WAYS => {
                bucket.set(way, packed);
                self.used += 1;
            }
            _ => {
                self.outside.insert(address, block);
                bucket.rest[0] += u32::from(bucket.outside() < OUTSIDE);
            }
        }
        before
    }

    #[cold]
    fn grow(&mut self) {
        let buckets = vec![Bucket::EMPTY; (self.buckets.len() * 2).max(WAYS)];
        self.shift = u64::BITS - buckets.len().trailing_zeros();
        let before = std::mem::replace(&mut self.buckets, buckets);
        let outside = std::mem::take(&mut self.outside);
        self.used = 0;
        let inside = before.iter().flat_map(Bucket::blocks);
        for (address, block) in inside.chain(outside) {
            self.insert(address, block);
        }
    }

    /// All blocks with their addresses, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        let inside = self.buckets.iter().flat_map(Bucket::blocks);
        inside.chain(self.outside.iter().map(|(&address, &block)| (address, block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_grows_large_keeps_its_blocks() {
        let mut map = LiveMap::default();
        let block = |n: u64| Block { ordinal: n, size: n % 100, slack: 8 };
        let count = 200_000;
        for n in 0..count {
            assert_eq!(map.insert(n * 48, block(n)), None);
        }
        assert!(map.outside.len() < count as usize / 10, "{} outside", map.outside.len());
        for n in 0..count {
            assert_eq!(map.remove(n * 48), Some(block(n)));
        }
        assert_eq!(map.iter().count(), 0);
    }

    #[test]
    fn blocks_of_any_shape_come_back() {
        let big = [0, 1, 1 << 24, (1 << 24) - 1, 1 << 30, (1 << 48) - 1, 1 << 48, u64::MAX];
        let mut map = LiveMap::default();
        for address in [
            0,
            1,
            8,
            9,
            1 << 47,
            (1 << 48) - 8,
            1 << 48,
            (1 << 48) + 8,
            1 << 35,
            (1 << 35) + 8,
            u64::MAX,
        ] {
            let mut before = None;
            for size in big {
                for slack in [0, 0xffff, 0x1_0000, u64::MAX] {
                    let block = Block { ordinal: size >> 3, size, slack };
                    assert_eq!(map.insert(address, block), before);
                    assert_eq!(map.get(address), Some(block));
                    before = Some(block);
                }
            }
            assert_eq!(map.iter().collect::<Vec<_>>(), [(address, before.unwrap())]);
            assert_eq!(map.remove(address), before);
            assert_eq!(map.remove(address), None);
        }
    }

    /// Against a plain map, with so few buckets that most of them overflow.
    #[test]
    fn blocks_that_share_a_bucket_come_back() {
        let (mut map, mut truth) = (LiveMap::default(), HashMap::new());
        let mut random = 1u64;
        for ordinal in 0..100_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let address = (random >> 33) % 40 * 8;
            let slack = if random >> 60 == 0 { 1 << 20 } else { 4 };
            let block = Block { ordinal, size: 5, slack };
            match random >> 59 & 1 {
                0 => assert_eq!(map.insert(address, block), truth.insert(address, block)),
                _ => assert_eq!(map.remove(address), truth.remove(&address)),
            }
            assert_eq!(map.get(address), truth.get(&address).copied());
        }
        assert_eq!(map.iter().collect::<HashMap<_, _>>(), truth);
    }
}
