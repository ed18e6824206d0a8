//! The reserve: a little of the limit, set aside when a process begins. After a refusal it serves libraries
//! that have to say so: a message, an exception on its way, `MPI_Abort`.

use core::sync::atomic::{AtomicU64, Ordering};

use heaptape_wire::ledger::Kind;

use crate::callers::{self, Found};
use crate::lane::Lane;
use crate::{charges, lane, refusing, spending, starting};

/// Bytes that are set aside.
const BYTES: u64 = 32 << 10;

/// What is left of it.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// A process begins, and has its first lane.
pub fn begin(lane: Lane) {
    let is_there = lane.purse.is_some() && charges::charge(lane, Kind::Reserve, BYTES);
    LEFT.store(if is_there { BYTES } else { 0 }, Ordering::Relaxed);
}

/// Serves a caller that may be served, after a refusal.
pub fn take(bytes: u64, caller: usize) -> bool {
    let less = |left: u64| left.checked_sub(bytes);
    let is_served = refusing::has_refused()
        && callers::find(caller).is_some_and(|found| is_served(&found))
        && LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
    if is_served {
        note(bytes.wrapping_neg());
    }
    is_served
}

/// What was served is given back.
pub fn put_back(bytes: u64) {
    LEFT.fetch_add(bytes, Ordering::Relaxed);
    note(bytes);
}

/// What it serves stands with the blocks, and in this row no longer.
fn note(more: u64) {
    charges::note(Kind::Reserve, more);
    if let Some(lane) = lane::now() {
        spending::note_blocks(lane, (more as i64).wrapping_neg());
    }
}

/// Whether a module is served: the libraries of the language, and those of MPI.
fn is_served(found: &Found) -> bool {
    const MPI: [&[u8]; 7] =
        [b"libmpi", b"libopen-", b"libpmi", b"mca_", b"libprrte", b"libfabric", b"libuc"];
    starting::is_of_language(found) || MPI.iter().any(|name| found.has_name(name))
}
