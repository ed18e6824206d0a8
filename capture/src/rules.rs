//! How to get from a frame to the next one out, remembered by the address behind the call.
//!
//! What is not remembered is read from the module's own tables (`heaptape_unwind`), which the loader finds without a lock. An
//! entry is one word, the whole address and the rule, so that any thread may write it at any time. The calls of 64 bytes of
//! code lie in one line of the table, as they lie side by side on stacks, too.

use core::sync::atomic::{AtomicU64, Ordering};

use heaptape_unwind::Rule;

use crate::{callers, executable, python};

/// Bits of an address, without those of its line's 64 bytes of code.
const BLOCK_BITS: u32 = 41;
const LINE_BITS: u32 = 13;
/// Entries of a line.
const WAYS: usize = 8;

/// An entry's rule; the rest is its tag.
const RULE_MASK: u64 = (1 << Rule::BITS) - 1;

/// Eight remembered rules; 0 for none.
#[repr(C, align(64))]
struct Line([AtomicU64; WAYS]);

/// The rules of a process.
#[repr(C)]
pub struct Rules([Line; 1 << LINE_BITS]);

/// Where an address's rule may stand, and what its entry begins with.
struct Place {
    line: usize,
    way: usize,
    tag: u64,
}

impl Place {
    #[inline(always)]
    fn of(address: usize) -> Place {
        const ODD: u64 = 0x013_7c59_a5b3;
        let block = address as u64 >> 6;
        // One to one: what is no part of the line's number is in the tag.
        let mixed = block.wrapping_mul(ODD) & ((1 << BLOCK_BITS) - 1);
        let (line, rest) = (mixed >> (BLOCK_BITS - LINE_BITS), mixed << LINE_BITS);
        let rest = rest & ((1 << BLOCK_BITS) - 1);
        let tag = (rest >> LINE_BITS) << 6 | (address as u64 & 63);
        Place { line: line as usize, way: address >> 3 & (WAYS - 1), tag: tag << Rule::BITS }
    }
}

impl Rules {
    /// The rule for the frame that a call from before `address` stands in.
    #[inline(always)]
    pub fn of(&self, address: usize) -> Rule {
        let place = Place::of(address);
        let Line(ways) = &self.0[place.line];
        for way in [place.way, place.way ^ 1] {
            let entry = ways[way].load(Ordering::Relaxed);
            if entry & !RULE_MASK == place.tag && entry != 0 {
                return Rule::unpack(entry);
            }
        }
        self.look_up(address, &place)
    }

    /// Modules are gone: other code may come to their addresses.
    pub fn forget(&self) {
        self.0.iter().flat_map(|line| &line.0).for_each(|entry| entry.store(0, Ordering::Relaxed));
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self, address: usize, place: &Place) -> Rule {
        let rule = of_module(address.wrapping_sub(1));
        // A rule that is rare is looked up each time.
        if let Some(packed) = rule.pack() {
            let Line(ways) = &self.0[place.line];
            let is_free = |way: &usize| ways[*way].load(Ordering::Relaxed) == 0;
            let way = [place.way, place.way ^ 1].into_iter().find(is_free).unwrap_or(place.way);
            ways[way].store(place.tag | packed, Ordering::Relaxed);
        }
        rule
    }
}

fn of_module(pc: usize) -> Rule {
    // Code that is in no module today may be tomorrow.
    let Some(found) = callers::find(pc) else { return Rule::Unknown };
    python::meet(&found);
    let extent = match found.start..found.end {
        extent if extent.contains(&found.eh_frame) => extent,
        // Of an executable with gaps between its segments the loader names the one with the code alone.
        _ if found.is_executable() => executable::extent(),
        _ => return Rule::Unknown,
    };
    // SAFETY: the loader's extent of a module that has code on a stack, and so stays mapped.
    match unsafe { heaptape_unwind::rule(found.eh_frame, extent, pc) } {
        // The first instructions of a program are the loader's, which calls nobody its caller.
        Rule::Unknown if callers::is_loader(&found) => Rule::End,
        rule => rule,
    }
}
