//! Callers as small numbers: each by its place among those that the block has seen.

use crate::column::delta;
use crate::numbers::Numbers;
use crate::stacks::{Named, Stacks};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

/// Callers that are found without the map.
const RECENT: usize = 4096;

/// The callers of a block so far.
pub(crate) struct Callers {
    known: HashMap<u64, u64>,
    /// The last caller that came to each place, and its number plus one; 0 for none.
    recent: Box<[(u64, u64); RECENT]>,
    /// The last address, and the last site, that got a number.
    last: u64,
    last_site: u32,
}

/// The callers that a block's codes stand for.
#[derive(Debug, Default)]
pub(crate) struct CallerNames {
    /// An address each, as a difference; on a tape with sites 0 for an address, or else a site.
    pub(crate) names: Numbers,
    /// The addresses, on a tape with sites.
    pub(crate) addresses: Numbers,
}

impl CallerNames {
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.addresses.clear();
    }
}

impl Callers {
    pub(crate) fn new() -> Callers {
        Callers { known: HashMap::new(), recent: Box::new([(0, 0); RECENT]), last: 0, last_site: 0 }
    }

    /// Forgets all, for the next block of events.
    pub(crate) fn reset(&mut self) {
        self.known.clear();
        self.recent.fill((0, 0));
        (self.last, self.last_site) = (0, 0);
    }

    /// The number of a caller. That of a new one is the next, and its name goes to `names`, as a
    /// difference. `stacks` are those of the process, on a tape with sites.
    #[inline]
    pub(crate) fn code(
        &mut self,
        caller: u64,
        names: &mut CallerNames,
        stacks: Option<&Stacks>,
    ) -> u64 {
        match self.recent[place(caller)] {
            (name, after) if name == caller && after > 0 => after - 1,
            _ => self.look_up(caller, names, stacks),
        }
    }

    #[cold]
    fn look_up(&mut self, caller: u64, names: &mut CallerNames, stacks: Option<&Stacks>) -> u64 {
        let named = stacks.map(|stacks| stacks.named(caller));
        if named == Some(Named::Unknown) {
            // It may be told yet, so that it is not remembered.
            return self.code(0, names, stacks);
        }
        let next = self.known.len() as u64;
        let code = match self.known.entry(caller) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                match named {
                    Some(Named::Site(site)) => {
                        let last = std::mem::replace(&mut self.last_site, site);
                        names.names.push(delta(last.into(), site.into()) + 1);
                    }
                    _ => {
                        let addresses = match named {
                            Some(_) => {
                                names.names.push(0);
                                &mut names.addresses
                            }
                            None => &mut names.names,
                        };
                        addresses.push(delta(std::mem::replace(&mut self.last, caller), caller));
                    }
                }
                *new.insert(next)
            }
        };
        self.recent[place(caller)] = (caller, code + 1);
        code
    }
}

fn place(caller: u64) -> usize {
    (caller ^ caller >> 10) as usize % RECENT
}
