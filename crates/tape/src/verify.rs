//! Holds a tape against the rules of an allocator, no two live blocks may overlap, and its keyframes
//! and counts against its events.

use crate::column::Unpacker;
use crate::index::{BlockHeader, Located};
use crate::item::{Columns, Item, Lent};
use crate::keyframe::{Keyframe, KeyframeHeader};
use crate::recount::Recount;
use crate::resolve::Resolver;
use crate::tally::Tally;
use crate::verify_sites::verify_sites;
use crate::{Error, ProcessNumber, Tape};
use std::collections::BTreeMap;

/// Overlaps that are told in full.
const FIRST: usize = 8;

/// Two blocks at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The index of the event that made the later block.
    pub index: u64,
    /// Its address.
    pub address: u64,
    /// Its requested size in bytes.
    pub size: u64,
    /// The address of the block that was there.
    pub other_address: u64,
    /// Its requested size in bytes.
    pub other_size: u64,
}

/// What a verify pass found.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Events read.
    pub events: u64,
    /// Blocks made at, inside or across a live block.
    pub faults: u64,
    /// The first few of them.
    pub first: Vec<Overlap>,
    /// Frees of an address never seen.
    pub unknown_frees: u64,
}

/// Reads all events of a process and checks that no two live blocks overlap, the inherited ones
/// included. Each keyframe must give the live blocks that the events give where it stands, and each
/// block's header their counts; and calls name only sites that are there. If one does not, the tape is damaged.
///
/// The memory it takes is a few times that of the live set.
pub fn verify(tape: &Tape, process: ProcessNumber) -> Result<Verdict, Error> {
    verify_sites(tape, tape.process(process)?)?;
    let mut verdict = Verdict::default();
    let mut live = BTreeMap::new();
    for block in tape.inherited(process)? {
        live.insert(block.address, block.size);
    }
    let columns = Columns { slack: true, address: true, ..Columns::REPLAY };
    let mut keyframes = Keyframes::new(tape, process, columns)?;
    let mut counts = Counts::new(tape, process)?;
    let mut events = tape.events_with(process, 0..u64::MAX, columns)?;
    loop {
        keyframes.check(events.state())?;
        counts.check()?;
        let Some(item) = events.lend()? else { break };
        counts.recount.item(&item, |address| live.get(&address).copied().unwrap_or(0));
        match item {
            Lent::Other(Item::Release(release)) => {
                live.remove(&release.address);
            }
            Lent::Event(resolved) => {
                let event = &resolved.event;
                verdict.events += 1;
                let freed = if event.call.is_release() { event.address } else { event.old };
                if freed != 0 && !event.failed() {
                    verdict.unknown_frees += u64::from(resolved.block.is_none());
                }
                match resolved.block {
                    // A block that was given up early comes back when the call fails.
                    Some(block) if resolved.early && event.failed() => {
                        verdict.place(&mut live, resolved.index, block.address, block.size);
                    }
                    Some(block) if !resolved.early && !event.failed() => {
                        live.remove(&block.address);
                    }
                    _ => {}
                }
                if !event.call.is_release() && event.address != 0 {
                    verdict.place(&mut live, resolved.index, event.address, event.size);
                }
            }
            Lent::Other(_) => {}
        }
    }
    counts.end()?;
    keyframes.end()?;
    Ok(verdict)
}

/// The keyframes of a process, folded one after the other beside its events.
struct Keyframes<'a> {
    tape: &'a Tape,
    /// Those that the events have not come to.
    rest: std::slice::Iter<'a, Located<KeyframeHeader>>,
    /// Where the next one stands.
    next: u64,
    folded: Resolver,
}

impl<'a> Keyframes<'a> {
    fn new(
        tape: &'a Tape,
        process: ProcessNumber,
        columns: Columns,
    ) -> Result<Keyframes<'a>, Error> {
        let contents = tape.process(process)?;
        let rest = contents.keyframes.iter();
        let folded = Resolver::new(contents.base, columns);
        Ok(Keyframes { tape, next: place_of_first(&rest), rest, folded })
    }

    /// Checks the keyframes that stand after the items that were read.
    #[inline]
    fn check(&mut self, read: &Resolver) -> Result<(), Error> {
        while read.items == self.next {
            let Some(located) = self.rest.next() else { break };
            self.next = place_of_first(&self.rest);
            let from = Unpacker { source: self.tape.payload(located), streams: &located.streams };
            let keyframe = Keyframe::unpack(&from).map_err(|why| why.at(located.frame))?;
            let at = &located.header;
            self.folded.fold(at, keyframe);
            let stands_here = (at.events, at.ordinal) == (read.index, read.births.next());
            if !stands_here || !self.folded.agrees_with(read) {
                return Err(wrong(located));
            }
        }
        Ok(())
    }

    /// After the last item: none may be left over.
    fn end(mut self) -> Result<(), Error> {
        self.rest.next().map_or(Ok(()), |located| Err(wrong(located)))
    }
}

/// The counts that the headers of a process's blocks carry.
struct Counts<'a> {
    /// Those whose end the events have not come to.
    rest: &'a [Located<BlockHeader>],
    recount: Recount,
}

impl<'a> Counts<'a> {
    fn new(tape: &'a Tape, process: ProcessNumber) -> Result<Counts<'a>, Error> {
        let contents = tape.process(process)?;
        let (blocks, bytes) = (contents.summary.inherited_blocks, contents.summary.inherited_bytes);
        let start = Tally::inheriting(contents.base, blocks, bytes);
        Ok(Counts { rest: &contents.blocks, recount: Recount::new(start) })
    }

    /// Checks the block that ends with the last item.
    #[inline]
    fn check(&mut self) -> Result<(), Error> {
        let counted = self.recount.tally();
        while let [located, rest @ ..] = self.rest
            && located.header.end.items == counted.items
        {
            if located.header.end != *counted {
                return Err(miscounted(located));
            }
            self.rest = rest;
        }
        Ok(())
    }

    /// After the last item: no block may be left over.
    fn end(self) -> Result<(), Error> {
        self.rest.first().map_or(Ok(()), |located| Err(miscounted(located)))
    }
}

fn miscounted(located: &Located<BlockHeader>) -> Error {
    let what = "the counts of a block are not those of its events";
    Error::Damaged { offset: located.frame, what }
}

/// The items before the first of these keyframes; a number that no item has, if there is none.
fn place_of_first(keyframes: &std::slice::Iter<'_, Located<KeyframeHeader>>) -> u64 {
    keyframes.as_slice().first().map_or(u64::MAX, |located| located.header.items)
}

fn wrong(located: &Located<KeyframeHeader>) -> Error {
    let what = "a keyframe does not hold the blocks that are alive where it stands";
    Error::Damaged { offset: located.frame, what }
}

impl Verdict {
    /// Puts a block into the map and counts a fault if it meets another.
    fn place(&mut self, live: &mut BTreeMap<u64, u64>, index: u64, address: u64, size: u64) {
        // A block of no bytes still has its address to itself.
        let end = address.saturating_add(size.max(1));
        let last = live.range(..end).next_back();
        let met = last.filter(|(other, size)| other.saturating_add((**size).max(1)) > address);
        if let Some((&other_address, &other_size)) = met {
            self.faults += 1;
            if self.first.len() < FIRST {
                self.first.push(Overlap { index, address, size, other_address, other_size });
            }
        }
        live.insert(address, size);
    }
}
