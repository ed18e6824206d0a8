//! Which events made a block: a bit for each event since the last keyframe.
//!
//! The live map does not say which event made a block; a keyframe has to.

use crate::operation::{Deed, Operation};

const WORD: usize = u64::BITS as usize;

/// The events since a keyframe, as bits.
#[derive(Debug, Default)]
pub(crate) struct Made {
    words: Vec<u64>,
    /// The word that is not full yet.
    word: u64,
    events: usize,
}

/// For each operation whether it is an event, and whether it makes a block.
static MAKES: [(u8, u8); 256] = {
    let mut all = [(0, 0); 256];
    let mut byte = 0;
    while byte < all.len() {
        if let Some(deed) = Operation(byte as u8).deed() {
            let is_event = !matches!(deed, Deed::EarlyRelease { .. });
            all[byte] = (is_event as u8, deed.makes_block() as u8);
        }
        byte += 1;
    }
    all
};

impl Made {
    /// Adds the events of a block.
    pub(crate) fn add(&mut self, operations: &[u8]) {
        let (mut word, mut events) = (self.word, self.events);
        for &operation in operations {
            let (is_event, made) = MAKES[usize::from(operation)];
            word |= u64::from(made) << (events % WORD);
            events += usize::from(is_event);
            if is_event > 0 && events.is_multiple_of(WORD) {
                self.words.push(std::mem::take(&mut word));
            }
        }
        (self.word, self.events) = (word, events);
    }

    /// The events that made the blocks `nth`, as numbers since the keyframe. `nth` counts the blocks
    /// made since, from 0, and ascends.
    pub(crate) fn events_of(&self, nth: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
        let mut words = self.words.iter().chain([&self.word]).zip((0..).step_by(WORD));
        let (mut word, mut first, mut before) = (0u64, 0u64, 0);
        nth.map_while(move |nth| {
            while before + u64::from(word.count_ones()) <= nth {
                before += u64::from(word.count_ones());
                (word, first) = words.next().map(|(&word, first)| (word, first))?;
            }
            while before < nth {
                word &= word - 1;
                before += 1;
            }
            Some(first + u64::from(word.trailing_zeros()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_wire::event::Call;

    #[test]
    fn each_block_is_made_by_its_event() {
        let malloc = Operation::allocate(Call::Malloc, false, false).0;
        let others = [
            Operation::release(Call::Free, true).0,
            Operation::early_release(true).0,
            Operation::allocate(Call::Malloc, true, false).0,
        ];
        let mut made = Made::default();
        let mut makers = Vec::new();
        let mut events = 0;
        for step in 0..1000usize {
            // Stretches of nothing but allocations, and of none at all.
            let operation = match step / 100 % 3 {
                0 => malloc,
                1 => others[step % 3],
                _ => {
                    if step % 7 == 0 {
                        malloc
                    } else {
                        others[step % 3]
                    }
                }
            };
            made.add(&[operation]);
            if operation == malloc {
                makers.push(events);
            }
            events += u64::from(operation != others[1]);
        }
        let all = made.events_of(0..makers.len() as u64);
        assert_eq!(all.collect::<Vec<_>>(), makers);
        let some = [3, 4, 90, 150, 151, makers.len() - 1];
        let found = made.events_of(some.iter().map(|&nth| nth as u64));
        assert_eq!(found.collect::<Vec<_>>(), some.map(|nth| makers[nth]));
    }
}
