//! The curves of the report: how much lived, over the index and over time.

use heaptape_analyze::account::{Account, Part as Process};
use heaptape_analyze::survey::KernelPoint;
use heaptape_analyze::timeline::{Axis, Extent, Timeline};

use super::Figures;
use crate::document::Part;
use crate::size::{Count, Millis, Size};
use crate::spark;

/// Lines of the large picture.
const HEIGHT: usize = 9;
/// What stands before a line of characters: its name, the most, a bar on each side.
const MARGIN: usize = 30;

pub(super) fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let account = figures.account;
    let main = account.over_index.as_ref().unwrap_or(&account.over_time);
    let requested: Vec<Extent> = main.steps().iter().map(|step| step.requested).collect();
    let mut lines = vec![format!("requested bytes live over {}", axis(main))];
    lines.extend(spark::picture(&requested, HEIGHT, figures.width));
    let mut parts = vec![Part::Heading("How much lived".to_owned()), Part::Plot(lines)];
    if let Some(over_index) = &account.over_index {
        parts.push(Part::Plot(small(account, over_index, figures.width)));
    }
    parts.push(Part::Plot(small(account, &account.over_time, figures.width)));
    parts.push(Part::Text(
        "Each character shows the most of its stretch, each line from 0 to the most that stands before it. \
         requested and usable are of every call; system and resident are what the kernel said, · where it \
         was not asked."
            .to_owned(),
    ));
    parts
}

fn axis(line: &Timeline) -> String {
    let range = line.range();
    match line.axis() {
        Axis::Index => format!("the calls 0 to {}", Count(range.end)),
        Axis::Time => {
            format!("time, {} to {}", Millis(range.start), Millis(range.end.saturating_sub(1)))
        }
    }
}

/// A line for each figure.
fn small(account: &Account, line: &Timeline, width: usize) -> Vec<String> {
    let width = width.saturating_sub(MARGIN).clamp(20, 120);
    let mut lines = vec![format!("over {}", axis(line))];
    let exact = |figure: fn(&heaptape_analyze::timeline::Step) -> Extent| {
        let extents: Vec<Extent> = line.steps().iter().map(figure).collect();
        spark::joined(&extents, width).into_iter().map(|e| Some(e.most)).collect::<Vec<_>>()
    };
    let kernel =
        |figure: fn(&KernelPoint) -> Option<u64>| sampled(&account.parts, line, width, figure);
    for (name, values) in [
        ("requested", exact(|step| step.requested)),
        ("usable", exact(|step| step.usable)),
        ("system", kernel(|point| point.system)),
        ("resident", kernel(|point| point.resident)),
    ] {
        let most = values.iter().flatten().max();
        let most = most.map_or_else(|| "n/a".to_owned(), |&most| Size(most).to_string());
        lines.push(format!("{name:<10}{most:>11}  │{}│", spark::line(&values)));
    }
    lines
}

/// The most of the samples in each stretch of a curve; where there is none, of the last one before. Of
/// several processes, those that were there then are added up.
fn sampled(
    processes: &[Process],
    line: &Timeline,
    width: usize,
    figure: fn(&KernelPoint) -> Option<u64>,
) -> Vec<Option<u64>> {
    let (range, steps) = (line.range(), line.steps().len());
    let columns = steps.min(width) as u64;
    let length = (range.end - range.start).max(1);
    let edge = |n: u64| {
        range.start + (u128::from(length) * u128::from(n) / u128::from(columns.max(1))) as u64
    };
    let place = |point: &KernelPoint| match line.axis() {
        Axis::Index => point.events,
        Axis::Time => point.time,
    };
    let mut sums = vec![None; columns as usize];
    for process in processes {
        let mut last = None;
        let mut points = process.kernel.iter().peekable();
        for (n, sum) in (0..).zip(&mut sums) {
            let mut most = last;
            while let Some(point) = points.next_if(|p| place(p) < edge(n + 1) || n + 1 == columns) {
                last = figure(point).or(last);
                most = most.max(last);
            }
            let is_gone = line.axis() == Axis::Time
                && process.process.ended.is_some_and(|ended| ended < edge(n));
            if let Some(most) = most.filter(|_| !is_gone) {
                *sum.get_or_insert(0) += most;
            }
        }
    }
    sums
}
