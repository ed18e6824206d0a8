//! The live set at a moment: as a list of its largest blocks, or added up by caller or by bin.
//!
//! The blocks come from the tape's reader; callers are resolved by a function that is handed in.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use heaptape_tape::{LiveBlock, ProcessNumber, Tape};

use crate::Error;
use crate::bins::Bin;
use crate::modules::{Module, Place};

/// The blocks that are alive after the first `made` events of a process; with 0 those that it
/// inherited by fork.
pub fn after(tape: &Tape, process: ProcessNumber, made: u64) -> Result<Vec<LiveBlock>, Error> {
    Ok(match made.checked_sub(1) {
        Some(last) => tape.live_at(process, last)?,
        None => tape.inherited(process)?,
    })
}

/// The sums over a live set, or over a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many blocks.
    pub blocks: u64,
    /// Their requested bytes.
    pub requested: u64,
    /// Their usable bytes.
    pub usable: u64,
    /// The requested bytes of the largest.
    pub largest: u64,
    /// How many of them are in a realloc under way that has given their address up.
    pub released: u64,
}

impl Sum {
    /// The sums over these blocks.
    pub fn of<'a>(blocks: impl IntoIterator<Item = &'a LiveBlock>) -> Sum {
        let mut sum = Sum::default();
        blocks.into_iter().for_each(|b| sum.add(b));
        sum
    }

    fn add(&mut self, block: &LiveBlock) {
        self.blocks += 1;
        self.requested = self.requested.saturating_add(block.size);
        self.usable = self.usable.saturating_add(block.size.saturating_add(block.slack));
        self.largest = self.largest.max(block.size);
        self.released += u64::from(block.released);
    }

    fn join(&mut self, other: &Sum) {
        self.blocks += other.blocks;
        self.requested = self.requested.saturating_add(other.requested);
        self.usable = self.usable.saturating_add(other.usable);
        self.largest = self.largest.max(other.largest);
        self.released += other.released;
    }
}

/// Puts the largest blocks first, of equals the oldest.
pub fn sort(blocks: &mut [LiveBlock]) {
    blocks.sort_unstable_by_key(|b| (Reverse(b.size), b.ordinal, b.address));
}

/// Where blocks were made: a place in a module, or a bare address where none was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The return address in the first block's process; 0 when unknown.
    pub address: u64,
    /// Where that is.
    pub place: Option<Place>,
}

/// The blocks of one caller or of one bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<K> {
    /// What they have in common.
    pub key: K,
    /// Their sums.
    pub sum: Sum,
}

/// Adds the blocks up by caller, the largest sum first. The same place of a file is one caller,
/// wherever it was mapped.
pub fn by_caller<E>(
    blocks: &[LiveBlock],
    mut place: impl FnMut(&LiveBlock) -> Result<Option<Place>, E>,
) -> Result<Vec<Part<Caller>>, E> {
    // First by mapping, which needs no path to be looked at for every block.
    let mut mapped: HashMap<(Option<*const Module>, u64), Part<Caller>> = HashMap::new();
    for block in blocks {
        let place = place(block)?;
        let key = (place.as_ref().map(|p| Arc::as_ptr(&p.module)), block.caller);
        let part = mapped.entry(key).or_insert_with(|| Part {
            key: Caller { address: block.caller, place },
            sum: Sum::default(),
        });
        part.sum.add(block);
    }
    let mut parts = join_mappings(mapped.into_values());
    parts.sort_by_key(|p| (Reverse((p.sum.requested, p.sum.blocks)), p.key.address));
    Ok(parts)
}

/// Joins the parts that are the same place of the same file.
fn join_mappings(mapped: impl Iterator<Item = Part<Caller>>) -> Vec<Part<Caller>> {
    let mut joined: HashMap<(Option<String>, u64), Part<Caller>> = HashMap::new();
    for part in mapped {
        let key = match &part.key.place {
            Some(place) => (Some(place.module.path.clone()), place.offset),
            None => (None, part.key.address),
        };
        match joined.entry(key) {
            Entry::Vacant(new) => {
                new.insert(part);
            }
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.sum.join(&part.sum);
                // Which of them names the caller must not depend on the order of a hash map.
                if part.key.address < known.key.address {
                    known.key = part.key;
                }
            }
        }
    }
    joined.into_values().collect()
}

/// Adds the blocks up by bin, the smallest first; bins without a block are left out.
pub fn by_bin(blocks: &[LiveBlock]) -> Vec<Part<Bin>> {
    let mut found: HashMap<Bin, Sum> = HashMap::new();
    for block in blocks {
        found.entry(Bin::of_bytes(block.size)).or_default().add(block);
    }
    let mut parts: Vec<_> = found.into_iter().map(|(key, sum)| Part { key, sum }).collect();
    parts.sort_by_key(|p| p.key);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn block(ordinal: u64, size: u64, caller: u64) -> LiveBlock {
        LiveBlock {
            address: 0x1000 + ordinal * 0x100,
            size,
            slack: 8,
            align: 0,
            birth: ordinal,
            ordinal,
            process: ProcessNumber(0),
            thread: 0,
            caller,
            site: None,
            time: 0,
            released: false,
        }
    }

    fn place(block: &LiveBlock) -> Result<Option<Place>, Infallible> {
        let module =
            Module { path: "/lib/x".into(), build_id: Vec::new(), bias: 0, start: 0, end: 0x100 };
        // Two mappings of one file: 0x10 and 0x110 are the same place.
        let known = block.caller < 0x200;
        let offset = block.caller % 0x100;
        Ok(known.then(|| Place { offset, module: Arc::new(module), function: None }))
    }

    #[test]
    fn one_place_of_a_file_is_one_caller() {
        let blocks = [block(0, 10, 0x10), block(1, 5, 0x110), block(2, 40, 0x900)];
        let parts = by_caller(&blocks, place).unwrap();
        let sums: Vec<_> = parts.iter().map(|p| (p.sum.requested, p.sum.blocks)).collect();
        assert_eq!(sums, [(40, 1), (15, 2)]);
        assert_eq!(parts[0].key.place, None);
        assert_eq!((parts[1].sum.usable, parts[1].sum.largest), (31, 10));
    }

    #[test]
    fn bins_and_order() {
        let mut blocks = [block(0, 10, 0), block(1, 40, 0), block(2, 16, 0), block(3, 40, 0)];
        let bins: Vec<_> = by_bin(&blocks).iter().map(|p| (p.key.unit(), p.sum.blocks)).collect();
        assert_eq!(bins, [(16, 2), (40, 2)]);
        sort(&mut blocks);
        assert_eq!(blocks.map(|b| b.ordinal), [1, 3, 2, 0]);
        assert_eq!(Sum::of(&blocks).requested, 106);
    }
}
