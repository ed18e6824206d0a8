//! Curves from the kernel's samples: a level holds from one sample to the next.
//!
//! The samples come from a tape's marks; of several processes they are added up at each moment. Nothing is
//! guessed: before the first sample there is no curve.

use std::ops::Range;

use heaptape_tape::{Mark, Sample};

use super::{Column, Curve, Figure, Source};
use crate::Error;
use crate::timeline::Axis;

/// What the kernel said of a run: places on the axis with the two figures.
#[derive(Default)]
pub(super) struct Samples {
    system: Vec<(u64, u64)>,
    resident: Vec<(u64, u64)>,
}

impl Samples {
    /// Reads them.
    pub(super) fn of(source: &Source<'_>, axis: Axis) -> Result<Samples, Error> {
        let mut told = Told::default();
        for (place, process) in source.processes.iter().enumerate() {
            for mark in source.tape.marks(process.number)? {
                let Mark::Sample(Sample { time, index, system, resident, .. }) = mark? else {
                    continue;
                };
                let at = if axis == Axis::Time { time } else { index };
                told.system.extend(system.map(|bytes| (at, place, bytes)));
                told.resident.extend(resident.map(|bytes| (at, place, bytes)));
            }
            if let (Some(ended), Axis::Time) = (process.ended, axis) {
                // What ended holds nothing any more. Alone, it is the end of the curve as well.
                if source.processes.len() > 1 {
                    told.system.push((ended, place, 0));
                    told.resident.push((ended, place, 0));
                }
            }
        }
        let processes = source.processes.len();
        Ok(Samples {
            system: sums(told.system, processes),
            resident: sums(told.resident, processes),
        })
    }

    /// Their curves over a part of the axis.
    pub(super) fn curves(&self, range: &Range<u64>, per_column: u64) -> Vec<Curve> {
        [(Figure::System, &self.system), (Figure::Resident, &self.resident)]
            .into_iter()
            .filter_map(|(figure, points)| curve(figure, points, range, per_column))
            .collect()
    }
}

/// Samples of each process: where on the axis, whose, bytes.
#[derive(Default)]
struct Told {
    system: Vec<(u64, usize, u64)>,
    resident: Vec<(u64, usize, u64)>,
}

/// What all processes held together after each sample.
fn sums(mut told: Vec<(u64, usize, u64)>, processes: usize) -> Vec<(u64, u64)> {
    told.sort_by_key(|&(at, ..)| at);
    let mut held = vec![0; processes];
    let mut sum: u64 = 0;
    let mut points = Vec::with_capacity(told.len());
    for (at, place, bytes) in told {
        if let Some(held) = held.get_mut(place) {
            sum = sum.saturating_sub(*held).saturating_add(bytes);
            *held = bytes;
        }
        points.push((at, sum));
    }
    points
}

/// The curve over a part of the axis; `None` where nothing is known of it.
fn curve(
    figure: Figure,
    points: &[(u64, u64)],
    range: &Range<u64>,
    per_column: u64,
) -> Option<Curve> {
    let next = points.partition_point(|&(at, _)| at <= range.start);
    let within = points.get(next..)?.partition_point(|&(at, _)| at <= range.end);
    let samples = &points[next.saturating_sub(1)..next + within];
    let (start, first) = match *samples.first()? {
        (at, bytes) if at <= range.start => (range.start, bytes),
        first => first,
    };
    let column = |at, level| Column { at, began: level, ended: level, least: level, most: level };
    let mut columns = vec![column(start, first)];
    for &(at, bytes) in samples {
        let at = at.clamp(start, range.end);
        let last = columns.last_mut()?;
        if at >= last.at.saturating_add(per_column) {
            let level = last.ended;
            columns.push(column(at, level));
        }
        let last = columns.last_mut()?;
        last.ended = bytes;
        last.least = last.least.min(bytes);
        last.most = last.most.max(bytes);
    }
    let samples = samples.iter().copied().filter(|&(at, _)| at >= range.start).collect();
    Some(Curve { figure, columns, end: range.end, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_holds_up_to_the_next_sample() {
        let points = [(10, 100), (50, 300), (90, 200)];
        let curve = curve(Figure::System, &points, &(20..80), 1).unwrap();
        assert_eq!(curve.samples, [(50, 300)]);
        let levels: Vec<_> = curve.columns.iter().map(|c| (c.at, c.began, c.ended)).collect();
        assert_eq!(levels, [(20, 100, 100), (50, 100, 300)]);
    }

    #[test]
    fn nothing_is_known_before_the_first_sample() {
        let points = [(10, 100)];
        let of = |range| curve(Figure::System, &points, &range, 1);
        assert_eq!(of(0..5), None);
        assert_eq!(of(0..20).unwrap().columns[0].at, 10);
        assert_eq!(of(15..20).unwrap().columns[0].began, 100);
        assert_eq!(curve(Figure::System, &[], &(0..9), 1), None);
    }

    #[test]
    fn samples_of_one_column_keep_their_least_and_most() {
        let points: Vec<(u64, u64)> =
            (0..100).map(|i| (i, if i == 37 { 9000 } else { i })).collect();
        let curve = curve(Figure::Resident, &points, &(0..100), 50).unwrap();
        assert_eq!(curve.columns.len(), 2);
        assert_eq!((curve.columns[0].least, curve.columns[0].most), (0, 9000));
        assert_eq!((curve.columns[1].least, curve.columns[1].most), (49, 99));
    }

    #[test]
    fn processes_add_up_and_leave() {
        let told = vec![(1, 0, 100), (5, 1, 30), (3, 0, 50), (7, 0, 0)];
        assert_eq!(sums(told, 2), [(1, 100), (3, 50), (5, 80), (7, 30)]);
    }
}
