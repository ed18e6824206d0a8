//! Size classes: which bin a block of so many requested bytes falls into.
//!
//! There are eight per power of two from 16 bytes up, each with its upper edge; 0 to 16 bytes is one.

/// The number of bins.
pub const BINS: usize = 1 + (u64::BITS - FIRST_POWER) as usize * STEPS as usize;
/// The first bin ends at 2 to this power.
const FIRST_POWER: u32 = 4;
/// Bins in a power of two.
const STEPS: u64 = 8;

/// The bin of a size in bytes: a number below [`BINS`].
#[inline(always)]
pub const fn bin_of(bytes: u64) -> usize {
    // The upper edge belongs to the bin, so everything is reckoned one below. What is smaller than the first edge
    // counts as that, which spares a branch that no processor could foresee.
    let least = 1 << FIRST_POWER;
    let below = (if bytes > least { bytes } else { least }) - 1;
    let power = below.ilog2() as usize;
    // The highest bits are `STEPS` and the step.
    let leading = below >> (power - STEPS.ilog2() as usize);
    power * STEPS as usize + leading as usize + 1 - (FIRST_POWER as usize + 1) * STEPS as usize
}

/// The upper edge of a bin in bytes; of the last one, and of numbers that no bin has, 2^64 − 1.
pub const fn upper_edge(bin: usize) -> u64 {
    if bin == 0 {
        return 1 << FIRST_POWER;
    }
    if bin >= BINS {
        return u64::MAX;
    }
    let place = bin as u32 - 1;
    let power = FIRST_POWER + place / STEPS as u32;
    let steps = STEPS + 1 + place as u64 % STEPS;
    let edge = (steps as u128) << (power - 3);
    if edge > u64::MAX as u128 { u64::MAX } else { edge as u64 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_size_lies_in_a_bin_whose_edges_enclose_it() {
        let mut sizes: [u64; 64 * 5] = [0; 64 * 5];
        for (i, size) in sizes.iter_mut().enumerate() {
            let power = 1u64 << (i / 5);
            *size = [power - 1, power, power + 1, power + power / 8, power + power / 3][i % 5];
        }
        for size in sizes {
            let bin = bin_of(size);
            assert!(bin < BINS, "{size}");
            assert!(size <= upper_edge(bin), "{size}");
            assert!(bin == 0 || size > upper_edge(bin - 1), "{size}");
        }
    }
}
