//! Axes: where a value lies, and the values that are labelled.

use std::ops::Range;

use heaptape_analyze::timeline;

use crate::size::Count;

/// Labels along one axis, about.
const LABELS: u64 = 8;

/// The axis of bytes, upwards from `bottom`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bytes {
    least: u64,
    most: u64,
    log: bool,
}

impl Bytes {
    /// One on which `least` (of what is not 0) to `most` have room.
    pub(super) fn new(least: u64, most: u64, log: bool) -> Bytes {
        let most = most.max(16);
        if log {
            // Whole powers of two, and so much above that a label has room.
            let least = 1 << least.clamp(1, most / 2).ilog2();
            return Bytes { least, most: most.saturating_add(most / 2), log };
        }
        Bytes { least: 0, most: most.saturating_add(most / 12), log }
    }

    /// Where a value lies, from 0 at the bottom to 1 at the top. On a logarithmic axis all that is too small
    /// lies at the bottom.
    pub(super) fn place(&self, bytes: u64) -> f64 {
        let place = if self.log {
            let log = |bytes: u64| (bytes.max(self.least) as f64).log2();
            (log(bytes) - log(self.least)) / (log(self.most) - log(self.least)).max(0.1)
        } else {
            bytes as f64 / self.most as f64
        };
        place.clamp(0.0, 1.0)
    }

    /// The values that are labelled.
    pub(super) fn ticks(&self) -> Vec<u64> {
        if self.log {
            let (first, last) = (self.least.ilog2(), self.most.ilog2());
            let step = [1, 2, 5, 10, 20].into_iter().find(|step| (last - first) / step < 9);
            let step = step.unwrap_or(20);
            // Where units begin there is a label.
            let first = first.next_multiple_of(step);
            return (first..=last).step_by(step as usize).map(|power| 1 << power).collect();
        }
        let step = self.most.div_ceil(LABELS).checked_next_power_of_two().unwrap_or(1 << 63);
        (0..=self.most / step).map(|n| n * step).collect()
    }
}

/// A whole number of bytes, as short as it can be told exactly: `512 MiB`, `1.25 GiB`.
pub(super) fn bytes_label(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes == 0 {
        return "0".to_owned();
    }
    let unit = bytes.ilog2() as usize / 10;
    let number = bytes as f64 / (1u64 << (10 * unit)) as f64;
    format!("{number} {}", UNITS[unit.min(6)])
}

/// The values of an index or a time that are labelled, with their labels.
pub(super) fn ticks(axis: timeline::Axis, range: &Range<u64>) -> Vec<(u64, String)> {
    let length = range.end.saturating_sub(range.start).max(1);
    let step = match axis {
        timeline::Axis::Index => round_step(length, &[]),
        timeline::Axis::Time => time_step(length),
    };
    let first = range.start.next_multiple_of(step);
    let mut all = Vec::new();
    let mut at = first;
    while at <= range.end && all.len() <= 2 * LABELS as usize {
        let label = match axis {
            timeline::Axis::Index => index_label(at, step),
            timeline::Axis::Time => time_label(at, step),
        };
        all.push((at, label));
        at = at.saturating_add(step);
    }
    all
}

/// A step of 1, 2 or 5 times a power of ten that cuts a length into few parts; from `beyond`, one of them.
fn round_step(length: u64, beyond: &[u64]) -> u64 {
    let powers = (0..19).map(|power| 10u64.pow(power));
    let rounds = powers.flat_map(|power| [1, 2, 5].map(|n: u64| n.saturating_mul(power)));
    let limit = beyond.first().copied().unwrap_or(u64::MAX);
    let mut all = rounds.filter(|&step| step < limit).chain(beyond.iter().copied());
    all.find(|step| length / step <= LABELS).unwrap_or(length)
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

fn time_step(length: u64) -> u64 {
    let mut beyond = vec![MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE];
    beyond.extend([1, 2, 4, 6, 12, 24, 48, 96, 240, 480, 2400].map(|hours| hours * HOUR));
    round_step(length, &beyond)
}

fn index_label(at: u64, step: u64) -> String {
    match at {
        0 => "0".to_owned(),
        _ if step.is_multiple_of(1_000_000) => format!("{} M", Count(at / 1_000_000)),
        _ => Count(at).to_string(),
    }
}

fn time_label(at: u64, step: u64) -> String {
    if step.is_multiple_of(HOUR) {
        return format!("{} h", at / HOUR);
    }
    if step.is_multiple_of(MINUTE) {
        return format!("{} min", at / MINUTE);
    }
    let decimals = [1000, 100, 10].into_iter().filter(|n| !step.is_multiple_of(*n)).count();
    format!("{:.decimals$} s", at as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_analyze::timeline::Axis;

    #[test]
    fn sizes_are_labelled_in_powers_of_1024() {
        let labels = |most: u64| -> Vec<String> {
            Bytes::new(0, most, false).ticks().into_iter().map(bytes_label).collect()
        };
        let all = labels(1 << 30);
        assert_eq!(all, ["0", "256 MiB", "512 MiB", "768 MiB", "1 GiB"]);
        assert_eq!(labels(5 << 29)[..3], ["0", "512 MiB", "1 GiB"]);
        assert_eq!(labels(5 << 29)[3], "1.5 GiB");
        for most in [0, 1, 15, 16, 17, 1000, 12345, 1 << 40, u64::MAX / 2, u64::MAX] {
            let axis = Bytes::new(0, most, false);
            assert!((4..=9).contains(&axis.ticks().len()), "{most}: {:?}", axis.ticks());
            assert!(axis.place(most) <= 1.0 && axis.place(most) >= axis.place(most / 2));
        }
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_two() {
        for (least, most) in [(1, 1), (0, 0), (100, 200), (1, 1 << 40), (5000, u64::MAX)] {
            let axis = Bytes::new(least, most, true);
            let ticks = axis.ticks();
            assert!((1..=10).contains(&ticks.len()), "{least}..{most}: {ticks:?}");
            assert!(ticks.iter().all(|tick| tick.is_power_of_two()));
            assert!(axis.place(0) == 0.0 && axis.place(u64::MAX) == 1.0);
        }
        let axis = Bytes::new(1 << 10, 1 << 30, true);
        assert_eq!(bytes_label(axis.ticks()[0]), "1 KiB");
    }

    #[test]
    fn indexes_have_their_thousands_apart_or_are_millions() {
        let of = |range| -> Vec<String> {
            ticks(Axis::Index, &range).into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(
            of(0..4_000),
            ["0", "500", "1,000", "1,500", "2,000", "2,500", "3,000", "3,500", "4,000"]
        );
        assert_eq!(of(0..200_000_000)[1], "50 M");
        assert_eq!(of(0..1), ["0", "1"]);
        assert_eq!(of(1_999_000..2_001_000)[1], "1,999,500");
        assert!(of(0..u64::MAX).len() > 1);
    }

    #[test]
    fn times_have_seconds_minutes_or_hours() {
        let of = |range| ticks(Axis::Time, &range)[1].1.clone();
        assert_eq!(of(0..1600), "0.2 s");
        assert_eq!(of(0..40), "0.005 s");
        assert_eq!(of(0..16_000), "2 s");
        assert_eq!(of(0..600_000), "2 min");
        assert_eq!(of(0..8 * HOUR), "1 h");
        assert_eq!(of(0..400 * HOUR), "48 h");
    }
}
