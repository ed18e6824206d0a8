//! Callers as small numbers: each by its place among those that the block has seen.

use crate::column::delta;
use crate::numbers::Numbers;
use hashbrown::HashMap;

/// Callers that are found without the map.
const RECENT: usize = 4096;

/// The callers of a block so far.
pub(crate) struct Callers {
    known: HashMap<u64, u64>,
    /// The last caller that came to each place, and its number plus one; 0 for none.
    recent: Box<[(u64, u64); RECENT]>,
    /// The last caller that got a number.
    last: u64,
}

impl Callers {
    pub(crate) fn new() -> Callers {
        Callers { known: HashMap::new(), recent: Box::new([(0, 0); RECENT]), last: 0 }
    }

    /// Forgets all, for the next block of events.
    pub(crate) fn reset(&mut self) {
        self.known.clear();
        self.recent.fill((0, 0));
        self.last = 0;
    }

    /// The number of a caller. That of a new one is the next, and its name goes to `names`, as a
    /// difference.
    #[inline]
    pub(crate) fn code(&mut self, caller: u64, names: &mut Numbers) -> u64 {
        match self.recent[place(caller)] {
            (name, after) if name == caller && after > 0 => after - 1,
            _ => self.look_up(caller, names),
        }
    }

    #[cold]
    fn look_up(&mut self, caller: u64, names: &mut Numbers) -> u64 {
        let next = self.known.len() as u64;
        let code = *self.known.entry(caller).or_insert_with(|| {
            names.push(delta(std::mem::replace(&mut self.last, caller), caller));
            next
        });
        self.recent[place(caller)] = (caller, code + 1);
        code
    }
}

fn place(caller: u64) -> usize {
    (caller ^ caller >> 10) as usize % RECENT
}
