//! A growing column of numbers, split into its streams as it grows.

use crate::column::{WIDTHS, split, split_any};

/// The streams of a column (see [`crate::column`]).
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) streams: [Vec<u8>; WIDTHS],
}

impl Numbers {
    #[inline]
    pub(crate) fn push(&mut self, number: u64) {
        split(number, &mut self.streams);
    }

    /// The same, where the number is large as often as not.
    #[inline]
    pub(crate) fn push_any(&mut self, number: u64) {
        split_any(number, &mut self.streams);
    }

    pub(crate) fn clear(&mut self) {
        self.streams.iter_mut().for_each(Vec::clear);
    }

    /// An empty one with room for as much as this one holds and a little more.
    pub(crate) fn follower(&self) -> Numbers {
        let room = |stream: &Vec<u8>| Vec::with_capacity(stream.len() + stream.len() / 16);
        Numbers { streams: self.streams.each_ref().map(room) }
    }
}

impl Extend<u64> for Numbers {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, numbers: I) {
        numbers.into_iter().for_each(|number| self.push(number));
    }
}
