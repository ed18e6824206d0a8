//! The writer's live map: which block stands at an address.
//!
//! Every event looks up or changes it, and it seldom fits in the processor's caches. Hence a table of
//! its own: an address has one bucket, a cache line of four slots, which are compared without a branch
//! that could be foreseen wrongly; and the writer fetches the buckets of a whole batch of events before
//! it deals with the first ([`LiveMap::fetch`]). The few blocks whose bucket is full, or that do not fit
//! in a slot, lie in a second map, and their bucket counts them.

use hashbrown::HashMap;

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

const KEY_SHIFT: u32 = 19;
const SLACK_SHIFT: u32 = 3;
const SLACK_BITS: u32 = KEY_SHIFT - SLACK_SHIFT;
/// The low bits of a bucket's first word: its blocks in the second map; all set for too many to count.
const OUTSIDE: u64 = (1 << SLACK_SHIFT) - 1;
const ORDINAL_BITS: u32 = 40;
const SIZE_BITS: u32 = 64 - ORDINAL_BITS;
const WAYS: usize = 4;

/// key 45 · slack 16 · outside 3 | size 24 · ordinal 40. Key 0 is a free slot.
type Slot = [u64; 2];

/// A cache line of slots.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket([Slot; WAYS]);

/// An address as it stands in a slot; one that can't stand there is longer than any that can.
#[inline]
fn key(address: u64) -> u64 {
    address.rotate_right(3) | u64::from(address == 0) << 63
}

#[inline]
fn pack(key: u64, block: &Block) -> Option<Slot> {
    let too_long = key >> (64 - KEY_SHIFT)
        | block.slack >> SLACK_BITS
        | block.size >> SIZE_BITS
        | block.ordinal >> ORDINAL_BITS;
    let slot =
        [key << KEY_SHIFT | block.slack << SLACK_SHIFT, block.size << ORDINAL_BITS | block.ordinal];
    (too_long == 0).then_some(slot)
}

fn unpack([place, what]: Slot) -> Block {
    Block {
        ordinal: what & ((1 << ORDINAL_BITS) - 1),
        size: what >> ORDINAL_BITS,
        slack: place >> SLACK_SHIFT & ((1 << SLACK_BITS) - 1),
    }
}

fn address([place, _]: Slot) -> u64 {
    place >> KEY_SHIFT << 3
}

impl Bucket {
    const EMPTY: Bucket = Bucket([[0; 2]; WAYS]);

    /// The first slot with this key, [`WAYS`] if there is none.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let same = |way: usize| usize::from(self.0[way][0] >> KEY_SHIFT == key) << way;
        (same(0) | same(1) | same(2) | same(3) | 1 << WAYS).trailing_zeros() as usize
    }

    #[inline]
    fn outside(&self) -> u64 {
        self.0[0][0] & OUTSIDE
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

    /// Brings the bucket of an address into the processor's caches; what it gives means nothing.
    #[inline]
    pub(crate) fn fetch(&self, address: u64) -> u64 {
        self.buckets.get(self.home(address)).map_or(0, Bucket::outside)
    }

    /// The block at `address`.
    pub(crate) fn get(&self, address: u64) -> Option<Block> {
        let bucket = self.buckets.get(self.home(address))?;
        match bucket.0.get(bucket.find(key(address))) {
            Some(&slot) => Some(unpack(slot)),
            None if bucket.outside() == 0 => None,
            None => self.outside.get(&address).copied(),
        }
    }

    /// Takes the block at `address` out.
    #[inline]
    pub(crate) fn remove(&mut self, address: u64) -> Option<Block> {
        let home = self.home(address);
        let bucket = self.buckets.get_mut(home)?;
        let way = bucket.find(key(address));
        if way < WAYS {
            let block = unpack(bucket.0[way]);
            bucket.0[way][0] &= OUTSIDE;
            self.used -= 1;
            return Some(block);
        }
        if bucket.outside() == 0 { None } else { self.remove_outside(home, address) }
    }

    #[cold]
    fn remove_outside(&mut self, home: usize, address: u64) -> Option<Block> {
        let block = self.outside.remove(&address)?;
        let bucket = &mut self.buckets[home];
        if bucket.outside() < OUTSIDE {
            bucket.0[0][0] -= 1;
        }
        Some(block)
    }

    /// Puts a block at `address`; gives the block that stood there.
    #[inline]
    pub(crate) fn insert(&mut self, address: u64, block: Block) -> Option<Block> {
        if self.used >= self.buckets.len() * WAYS / 2 {
            self.grow();
        }
        let home = self.home(address);
        let bucket = self.buckets.get_mut(home)?;
        let key = key(address);
        let is_new = bucket.find(key) == WAYS && bucket.outside() == 0;
        let way = bucket.find(0);
        if is_new
            && way < WAYS
            && let Some(packed) = pack(key, &block)
        {
            bucket.0[way] = packed;
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
        match pack(key(address), &block) {
            Some([place, what]) if way < WAYS => {
                bucket.0[way] = [place | bucket.0[way][0], what];
                self.used += 1;
            }
            _ => {
                self.outside.insert(address, block);
                bucket.0[0][0] += u64::from(bucket.outside() < OUTSIDE);
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
        for slot in
            before.into_iter().flat_map(|bucket| bucket.0).filter(|&slot| address(slot) != 0)
        {
            self.insert(address(slot), unpack(slot));
        }
        for (address, block) in outside {
            self.insert(address, block);
        }
    }

    /// All blocks with their addresses, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Block)> + '_ {
        let slots = self.buckets.iter().flat_map(|bucket| bucket.0);
        let packed = slots.filter(|&slot| address(slot) != 0);
        let packed = packed.map(|slot| (address(slot), unpack(slot)));
        packed.chain(self.outside.iter().map(|(&address, &block)| (address, block)))
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
        for address in [0, 1, 8, 9, 1 << 47, (1 << 48) - 8, 1 << 48, (1 << 48) + 8, u64::MAX] {
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
