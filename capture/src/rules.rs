//! How to get from a frame to the next one out, remembered by the address behind the call.
//!
//! What is not remembered is read from the module's own tables (`heaptape_unwind`), which the loader finds
//! without a lock. Any thread may write an entry at any time: its two words belong together only if one tells the other.

use core::sync::atomic::{AtomicU64, Ordering};

use heaptape_unwind::Rule;

use crate::callers;

const BITS: u32 = 15;

/// One remembered rule: the rule, and what it is of mixed with the rule.
struct Entry {
    tag: AtomicU64,
    rule: AtomicU64,
}

/// The rules of a process.
#[repr(C)]
pub struct Rules([Entry; 1 << BITS]);

impl Rules {
    /// The rule for the frame that a call from before `address` stands in.
    #[inline(always)]
    pub fn of(&self, address: usize, generation: u32) -> Rule {
        let name = address as u64 ^ u64::from(generation) << 48;
        let entry = &self.0[place(name)];
        let rule = entry.rule.load(Ordering::Relaxed);
        if entry.tag.load(Ordering::Relaxed) == name ^ rule && rule != 0 {
            Rule::unpack(rule)
        } else {
            entry.look_up(address, name)
        }
    }
}

/// Multiplicative hashing, as in the collector's maps.
#[inline(always)]
fn place(name: u64) -> usize {
    (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as usize
}

impl Entry {
    #[cold]
    #[inline(never)]
    fn look_up(&self, address: usize, name: u64) -> Rule {
        let rule = of_module(address.wrapping_sub(1));
        let packed = rule.pack();
        // Code that is in no module today may be tomorrow.
        if !matches!(rule, Rule::Unknown) {
            self.rule.store(packed, Ordering::Relaxed);
            self.tag.store(name ^ packed, Ordering::Relaxed);
        }
        rule
    }
}

fn of_module(pc: usize) -> Rule {
    let Some(found) = callers::find(pc) else { return Rule::Unknown };
    if found.eh_frame == 0 {
        return Rule::Unknown;
    }
    // SAFETY: the loader's extent of a module that has code on a stack, and so stays mapped.
    unsafe { heaptape_unwind::rule(found.eh_frame, found.start..found.end, pc) }
}
