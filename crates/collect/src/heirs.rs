//! Whose blocks a forked child shares, and what stays charged when their maker is gone.
//!
//! The blocks that a process had when it forked live on in the child, for which they are not charged
//! again. When the process ends or becomes another program while such heirs live, what it held
//! stays charged: at most as much as one of the heirs, the one that still has most, holds of what it
//! inherited. It is given back as heirs release those blocks, and all of it when the last of them has ended
//! or has become another program. An heir's own forks are heirs as well.
//!
//! Nothing here reads shared memory or the clock: the caller tells what heirs hold.

use std::collections::HashMap;

/// A process's place in the job's list.
type Place = usize;

/// What one process leaves, or will.
#[derive(Debug)]
struct Estate {
    of: Place,
    /// Processes that live and share blocks with it.
    heirs: Vec<Place>,
    /// What is charged for it; `None` while it lives and its charge is its own.
    left: Option<u64>,
}

/// All processes that forked, with their heirs.
#[derive(Debug, Default)]
pub(crate) struct Heirs {
    estates: Vec<Estate>,
    /// Heirs that have ended, and stand for a child of theirs that is still to come.
    leaving: Vec<Place>,
}

impl Heirs {
    /// `child` was forked by `parent`, which may have ended since.
    pub(crate) fn forked(&mut self, parent: Place, child: Place) {
        if !self.estates.iter().any(|estate| estate.of == parent) {
            self.estates.push(Estate { of: parent, heirs: Vec::new(), left: None });
        }
        for estate in &mut self.estates {
            if estate.of == parent || estate.heirs.contains(&parent) {
                estate.heirs.push(child);
            }
        }
    }

    /// `process` has ended, or is another program now, and held `bytes`. `is_awaited`: a child that it has
    /// forked is still to make itself known. What is left is settled with the next [`Heirs::settle`].
    pub(crate) fn ended(&mut self, process: Place, bytes: u64, is_awaited: bool) {
        if is_awaited && !self.estates.iter().any(|estate| estate.of == process) {
            self.estates.push(Estate { of: process, heirs: Vec::new(), left: None });
        }
        if is_awaited {
            self.leaving.push(process);
        }
        let mut is_inherited = false;
        for estate in &mut self.estates {
            estate.heirs.retain(|&heir| heir != process || is_awaited);
            if estate.of == process {
                estate.left = Some(bytes);
                is_inherited = true;
            }
        }
        if !is_inherited && bytes > 0 {
            self.estates.push(Estate { of: process, heirs: Vec::new(), left: Some(bytes) });
        }
    }

    /// The bytes that nobody holds any more. `holds`: what a process has of the blocks that it inherited.
    /// `awaits`: whether a child that an ended process has forked is still to come.
    pub(crate) fn settle(
        &mut self,
        holds: impl Fn(Place) -> u64,
        awaits: impl Fn(Place) -> bool,
    ) -> u64 {
        let mut rest: HashMap<Place, u64> = HashMap::new();
        let mut freed = 0u64;
        let (leaving, left): (Vec<Place>, Vec<Place>) =
            self.leaving.iter().partition(|&&place| awaits(place));
        for estate in &mut self.estates {
            estate.heirs.retain(|heir| !left.contains(heir));
            let is_awaited = awaits(estate.of) || estate.heirs.iter().any(|h| leaving.contains(h));
            let Some(left) = &mut estate.left else { continue };
            let rests = estate.heirs.iter().map(|&heir| {
                let rest = rest.get(&heir).copied().unwrap_or_else(|| holds(heir));
                (rest, heir)
            });
            let most = rests.max_by_key(|&(rest, heir)| (rest, std::cmp::Reverse(heir)));
            let kept = match most {
                _ if is_awaited => *left,
                Some((most, heir)) => {
                    let kept = (*left).min(most);
                    rest.insert(heir, most - kept);
                    kept
                }
                None => 0,
            };
            freed = freed.saturating_add(*left - kept);
            *left = kept;
        }
        let is_over = |estate: &Estate| match estate.left {
            Some(left) => left == 0 && !awaits(estate.of),
            None => estate.heirs.is_empty(),
        };
        self.estates.retain(|estate| !is_over(estate));
        self.leaving = leaving;
        freed
    }

    /// What is charged for processes that are gone.
    pub(crate) fn charged(&self) -> u64 {
        self.estates.iter().filter_map(|estate| estate.left).fold(0, u64::saturating_add)
    }

    /// Whether there is nothing to settle.
    pub(crate) fn is_settled(&self) -> bool {
        self.leaving.is_empty() && self.estates.iter().all(|estate| estate.left.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_charge_outlives_an_heir_whose_own_child_is_still_to_come() {
        let mut heirs = Heirs::default();
        heirs.forked(0, 1);
        heirs.ended(0, 1000, false);
        assert_eq!(heirs.settle(|_| 1000, |_| false), 0);
        // The heir has forked, too, and ends before its child makes itself known.
        heirs.ended(1, 500, true);
        assert_eq!(heirs.settle(|_| 0, |place| place == 1), 0);
        heirs.forked(1, 2);
        assert_eq!(heirs.settle(|_| 1500, |_| false), 0);
        assert_eq!(heirs.charged(), 1500);
        heirs.ended(2, 0, false);
        assert_eq!(heirs.settle(|_| 0, |_| false), 1500);
        assert!(heirs.is_settled());
    }

    #[test]
    fn a_parents_charge_stays_until_its_last_heir_has_gone() {
        let mut heirs = Heirs::default();
        heirs.forked(0, 1);
        heirs.forked(0, 2);
        heirs.forked(1, 3);
        heirs.ended(0, 1000, false);
        let held = |place| [0, 300, 900, 250][place];
        assert_eq!(heirs.settle(held, |_| false), 100);
        heirs.ended(2, 0, false);
        assert_eq!(heirs.settle(held, |_| false), 600);
        heirs.ended(1, 70, false);
        // Its own 70 are shared with its child; the grandparent's come first.
        assert_eq!(heirs.settle(held, |_| false), 50 + 70);
        assert_eq!(heirs.charged(), 250);
        heirs.ended(3, 5, false);
        assert_eq!(heirs.settle(held, |_| false), 255);
        assert!(heirs.is_settled() && heirs.estates.is_empty());
    }

    #[test]
    fn what_heirs_release_is_given_back_and_never_comes_again() {
        let mut heirs = Heirs::default();
        heirs.forked(0, 1);
        heirs.ended(0, 500, false);
        assert_eq!(heirs.settle(|_| 500, |_| false), 0);
        assert_eq!(heirs.settle(|_| 200, |_| false), 300);
        assert_eq!(heirs.settle(|_| 400, |_| false), 0);
        assert_eq!(heirs.charged(), 200);
    }

    #[test]
    fn a_child_that_is_still_to_come_is_waited_for() {
        let mut heirs = Heirs::default();
        heirs.ended(0, 500, true);
        assert_eq!(heirs.settle(|_| 0, |_| true), 0);
        heirs.forked(0, 1);
        assert_eq!(heirs.settle(|_| 400, |_| false), 100);
        heirs.ended(1, 0, false);
        assert_eq!(heirs.settle(|_| 400, |_| false), 400);
    }

    #[test]
    fn one_that_never_forked_leaves_nothing() {
        let mut heirs = Heirs::default();
        heirs.ended(0, 500, false);
        assert_eq!(heirs.settle(|_| 500, |_| false), 500);
        assert!(heirs.estates.is_empty());
    }

    /// One that lives, as a plain list of the blocks that it has: who made each.
    #[derive(Clone, Default)]
    struct Modelled {
        place: Place,
        own: Vec<u64>,
        inherited: Vec<(Place, u64)>,
    }

    impl Modelled {
        fn inherited(&self) -> u64 {
            self.inherited.iter().map(|(_, bytes)| bytes).sum()
        }
    }

    proptest! {
        /// Deeds: 0 allocates, 1 releases one of its own, 2 releases one that it inherited, 3 forks, 4 ends.
        #[test]
        fn the_charge_covers_what_lives_and_is_given_back(
            deeds in prop::collection::vec((0u8..5, any::<prop::sample::Index>(), 1u64..1000), 1..120)
        ) {
            let mut heirs = Heirs::default();
            let mut live = vec![Modelled::default()];
            let (mut places, mut charged) = (1, 0);
            for (deed, who, bytes) in deeds {
                if live.is_empty() {
                    break;
                }
                let at = who.index(live.len());
                let process = &mut live[at];
                match deed {
                    0 => {
                        process.own.push(bytes);
                        charged += bytes;
                    }
                    1 => charged -= process.own.pop().unwrap_or(0),
                    2 => drop(process.inherited.pop()),
                    3 => {
                        let mut child = process.clone();
                        let own = child.own.drain(..).map(|bytes| (process.place, bytes));
                        child.inherited.extend(own);
                        child.place = places;
                        heirs.forked(process.place, places);
                        places += 1;
                        live.push(child);
                    }
                    _ => {
                        let gone = live.swap_remove(at);
                        heirs.ended(gone.place, gone.own.iter().sum(), false);
                    }
                }
                let holds = |place| {
                    live.iter().find(|p| p.place == place).map_or(0, Modelled::inherited)
                };
                charged -= heirs.settle(holds, |_| false);
                let own: u64 = live.iter().flat_map(|p| &p.own).sum();
                prop_assert_eq!(charged, own + heirs.charged());
                // Never more than the heirs hold, and each heir's shared blocks at most once.
                let inherited: u64 = live.iter().map(Modelled::inherited).sum();
                prop_assert!(heirs.charged() <= inherited);
            }
            for gone in std::mem::take(&mut live) {
                heirs.ended(gone.place, gone.own.iter().sum(), false);
                charged -= heirs.settle(|_| u64::MAX, |_| false);
            }
            prop_assert_eq!(charged, 0);
        }
    }
}
