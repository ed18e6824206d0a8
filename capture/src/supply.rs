//! Chunks for threads to write into, from the arena, and the wait for them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heaptape_wire::chunk::{self, LARGE_BYTES, Owner, SMALL_BYTES};
use heaptape_wire::session::Arena;

use crate::arena::arena;
use crate::counting;
use crate::lifecycle::detach;
use crate::patience::Patience;

/// Scatters the places where waiting threads look for a chunk.
const SCATTER: usize = 0x9e37_79b9_7f4a_7c15;

/// How long a process waits that is counted, and hardly writes: the collector never lacks chunks then for so long, unless
/// somebody has written over them. What is recorded waits as long as the collector works.
const COUNTED_MS: u64 = 10_000;

/// Claims a chunk, waiting for one while the collector works; `None` ends the recording here.
pub fn claim(owner: Owner, prefers_small: bool) -> Option<(*mut u8, usize)> {
    let session = arena().session();
    if !session.is_open() {
        detach();
        return None;
    }
    let mut offers = session.offers();
    if let Some(found) = claim_now(arena(), owner, prefers_small, 0) {
        return Some(found);
    }
    let mut patience = Patience::new();
    let mut from = owner.to_word() as usize;
    loop {
        let now = session.offers();
        if core::mem::replace(&mut offers, now) != now {
            from = from.wrapping_mul(SCATTER).wrapping_add(SCATTER);
            if let Some(found) = claim_now(arena(), owner, prefers_small, from >> 16) {
                return Some(found);
            }
        }
        let is_vain = counting::is_on() && patience.has_waited(COUNTED_MS);
        if is_vain || !session.is_open() || !patience.wait() {
            detach();
            return None;
        }
    }
}

/// Claims a chunk from the arena: a small one for a thread's first, else a large one, and what there
/// is when there is none of the kind. `from` scatters where threads that wait begin to look; 0 is the
/// beginning, so that few chunks are in use while there are enough.
fn claim_now(
    arena: Arena,
    owner: Owner,
    prefers_small: bool,
    from: usize,
) -> Option<(*mut u8, usize)> {
    let session = arena.session();
    let bound = |word: &AtomicU32| word.load(Ordering::Acquire) as usize;
    let find = |owners: &[AtomicU64]| {
        let start = from.checked_rem(owners.len()).unwrap_or(0);
        chunk::claim_from(owners, owner, start)
    };
    let small = || {
        let (start, end) = (bound(&session.small_start), bound(&session.small_end));
        find(arena.small_owners().get(start..end)?).map(|i| (arena.small(start + i), SMALL_BYTES))
    };
    let large = || {
        let owners = arena.large_owners().get(..bound(&session.large_end))?;
        find(owners).map(|i| (arena.large(i), LARGE_BYTES))
    };
    if prefers_small { small().or_else(large) } else { large().or_else(small) }
}
