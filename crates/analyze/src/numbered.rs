//! Values by the number of a thread.
//!
//! Threads are numbered from 0, so nearly all lie in a row. A damaged tape may name any number: those beyond
//! what a process has had so far are kept apart, and take no more room than there are of them.

use std::collections::BTreeMap;

/// Numbers below this lie in a row.
const ROW: usize = 1 << 20;

/// A value for each number that was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbered<T> {
    row: Vec<T>,
    apart: BTreeMap<u32, T>,
}

impl<T: Clone + Default> Numbered<T> {
    /// The value of a number, which is the default until it is changed.
    #[inline]
    pub(crate) fn at(&mut self, number: u32) -> &mut T {
        if number as usize >= self.row.len() {
            return self.another(number);
        }
        &mut self.row[number as usize]
    }

    #[cold]
    fn another(&mut self, number: u32) -> &mut T {
        if number as usize >= ROW {
            return self.apart.entry(number).or_default();
        }
        self.row.resize(number as usize + 1, T::default());
        &mut self.row[number as usize]
    }

    /// The value of a number, if it or a higher one was asked for.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.row.get(number as usize).or_else(|| self.apart.get(&number))
    }

    /// All, with their numbers.
    pub(crate) fn into_all(self) -> impl Iterator<Item = (u32, T)> {
        (0..).zip(self.row).chain(self.apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_all_reason_takes_no_room() {
        let mut values: Numbered<[u64; 8]> = Numbered::default();
        for number in [3, u32::MAX, 0, u32::MAX - 1, ROW as u32] {
            values.at(number)[0] += u64::from(number) + 1;
            values.at(number)[1] += 1;
        }
        assert!(values.row.len() == 4 && values.apart.len() == 3);
        assert_eq!(values.get(u32::MAX).map(|v| v[1]), Some(1));
        assert_eq!((values.get(2).map(|v| v[1]), values.get(4)), (Some(0), None));
        let numbers: Vec<u32> = values.into_all().map(|(number, _)| number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, ROW as u32, u32::MAX - 1, u32::MAX]);
    }
}
