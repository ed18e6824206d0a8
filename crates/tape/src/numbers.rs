//! A growing list of numbers, most of which are small.

/// Four bytes for each number, and eight more for those that need them.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    low: Vec<u32>,
    high: Vec<u64>,
}

/// Stands for the next number in `high`.
const HIGH: u32 = u32::MAX;

impl Numbers {
    pub(crate) fn with_capacity(numbers: usize) -> Numbers {
        Numbers { low: Vec::with_capacity(numbers), high: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.low.clear();
        self.high.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, number: u64) {
        if number < u64::from(HIGH) {
            self.low.push(number as u32);
        } else {
            self.low.push(HIGH);
            self.high.push(number);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.low.len()
    }

    /// Bytes that it holds in memory.
    pub(crate) fn memory(&self) -> usize {
        self.low.capacity() * 4 + self.high.capacity() * 8
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut high = self.high.iter();
        self.low.iter().map(move |&low| match low {
            HIGH => high.next().copied().unwrap_or(0),
            low => u64::from(low),
        })
    }
}
