//! How a figure changed over the run, from its values at even moments: a word for a row of numbers.
//!
//! Nothing is smoothed. Who keeps a cache that is full early is steady; who adds to a list all the time grows.

use crate::account::EIGHTHS;
use crate::lives::Load;
use crate::timeline::Axis;

/// What moments are even on: time where a process lived for so many milliseconds that the coarse clock tells
/// them apart, else calls. (A program that does most of its calls as it starts has hardly run by then.)
pub fn axis_of(duration: u64) -> Axis {
    const LONG: u64 = 256;
    if duration >= LONG { Axis::Time } else { Axis::Index }
}

/// What became of a sum of live bytes from eighth to eighth of the run. Moments are counted from 1, the end is 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It rose to a new height in at least half of the eighths since it first was there, three at the least, and
    /// in the last; and in the last two by at least half of what two eighths brought on average. It is first
    /// seen at this moment.
    Growing(usize),
    /// The same, but in the last two eighths it rose by less: it levels off, as what fills up does.
    Slowing(usize),
    /// It had its height at this moment, and has it still.
    Steady(usize),
    /// It rose more than once, the last time before this moment, and has stayed there.
    Until(usize),
    /// It rose in the last eighth, and not all the time before.
    Late,
    /// It was highest at this moment, and is less now.
    Highest(usize),
}

impl Growth {
    /// What these loads, one for each eighth, did.
    pub fn of(at: &[Load; EIGHTHS]) -> Growth {
        const LAST: usize = EIGHTHS - 1;
        // Blocks of no bytes are there, too.
        let value = |n: usize| (at[n].bytes, at[n].blocks);
        let first = (0..EIGHTHS).find(|&n| at[n].blocks > 0).unwrap_or(LAST);
        let (mut most, mut rises, mut last_rise) = (value(first), 0, first);
        for n in first + 1..EIGHTHS {
            if value(n) > most {
                (most, rises, last_rise) = (value(n), rises + 1, n);
            }
        }
        if last_rise == LAST {
            return match rises >= 3 && 2 * rises >= LAST - first {
                true if goes_on(value(first), value(LAST - 2), most, LAST - first) => {
                    Growth::Growing(first + 1)
                }
                true => Growth::Slowing(first + 1),
                false => Growth::Late,
            };
        }
        if (last_rise..EIGHTHS).any(|n| value(n) != most) {
            return Growth::Highest(last_rise + 1);
        }
        if rises == 0 { Growth::Steady(first + 1) } else { Growth::Until(last_rise + 1) }
    }

    /// Whether it would go on if the program did.
    pub fn is_growing(self) -> bool {
        matches!(self, Growth::Growing(_))
    }

    /// A name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Growth::Growing(_) => "growing",
            Growth::Slowing(_) => "slowing",
            Growth::Steady(_) => "steady",
            Growth::Until(_) => "until",
            Growth::Late => "late",
            Growth::Highest(_) => "highest",
        }
    }

    /// The eighth that it is told with.
    pub fn eighth(self) -> usize {
        match self {
            Growth::Growing(n)
            | Growth::Slowing(n)
            | Growth::Steady(n)
            | Growth::Until(n)
            | Growth::Highest(n) => n,
            Growth::Late => EIGHTHS,
        }
    }
}

/// Whether what rose from the first to the last in so many eighths rose by half as much as on average in the last
/// two. Each is bytes and blocks; blocks count where the bytes are the same.
fn goes_on(first: (u64, u64), before: (u64, u64), last: (u64, u64), eighths: usize) -> bool {
    let rise = |from: (u64, u64)| match last.0.saturating_sub(first.0) {
        0 => last.1.saturating_sub(from.1),
        _ => last.0.saturating_sub(from.0),
    };
    u128::from(rise(before)) * eighths as u128 >= u128::from(rise(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: [u64; EIGHTHS]) -> Growth {
        Growth::of(&bytes.map(|bytes| Load { bytes, blocks: u64::from(bytes > 0) }))
    }

    #[test]
    fn rows_of_numbers_and_their_words() {
        for (bytes, growth) in [
            ([1, 2, 3, 4, 5, 6, 7, 8], Growth::Growing(1)),
            ([0, 0, 0, 1, 2, 3, 4, 5], Growth::Growing(4)),
            ([1, 1, 2, 2, 3, 3, 4, 5], Growth::Growing(1)),
            // A slow leak of somebody who keeps much.
            ([900, 901, 902, 903, 904, 905, 906, 907], Growth::Growing(1)),
            // A table that fills up.
            ([69, 91, 101, 105, 108, 109, 110, 111], Growth::Slowing(1)),
            ([0, 90, 91, 92, 92, 92, 92, 100], Growth::Growing(2)),
            ([5; 8], Growth::Steady(1)),
            ([0, 0, 5, 5, 5, 5, 5, 5], Growth::Steady(3)),
            ([1, 2, 3, 3, 3, 3, 3, 3], Growth::Until(3)),
            ([0, 0, 0, 0, 0, 0, 0, 9], Growth::Late),
            ([5, 5, 5, 5, 5, 5, 5, 9], Growth::Late),
            // Three of seven would be a matter of chance for what goes up and down.
            ([5, 4, 6, 4, 5, 7, 4, 8], Growth::Late),
            ([5, 9, 5, 4, 5, 7, 4, 8], Growth::Highest(2)),
            ([0; 8], Growth::Late),
        ] {
            assert_eq!(of(bytes), growth, "{bytes:?}");
        }
    }

    #[test]
    fn blocks_without_bytes_grow_in_number() {
        let mut at = [Load::default(); EIGHTHS];
        (0..).zip(&mut at).for_each(|(n, load)| load.blocks = n);
        assert_eq!(Growth::of(&at), Growth::Growing(2));
    }
}
