//! What holds for every layout.

use super::*;
use proptest::prelude::*;

fn boxes(count: usize) -> Vec<Extent> {
    (0..count).map(|n| Extent { width: 40.0 + (n * 37 % 90) as f64, height: 30.0 }).collect()
}

fn arrow(from: usize, to: usize) -> Arrow {
    let label = Extent { width: 30.0, height: 14.0 };
    Arrow { from, to, weight: 0.5, label }
}

/// Boxes and labels lie apart, and within the whole.
fn check(boxes: &[Extent], layout: &Layout) -> Result<(), String> {
    let labels = layout.ways.iter().flatten().map(|way| way.label);
    let label = Extent { width: 30.0, height: 14.0 };
    let all: Vec<(Point, Extent)> = layout
        .boxes
        .iter()
        .copied()
        .zip(boxes.iter().copied())
        .chain(labels.map(|at| (at, label)))
        .collect();
    for (number, (one, size)) in all.iter().enumerate() {
        let Extent { width, height } = layout.extent;
        let is_inside = |at: f64, half: f64, end: f64| at - half > -0.01 && at + half < end + 0.01;
        if !is_inside(one.x, size.width / 2.0, width)
            || !is_inside(one.y, size.height / 2.0, height)
        {
            return Err(format!("{one:?} {size:?} is not within {:?}", layout.extent));
        }
        for (other, its) in &all[number + 1..] {
            let is_apart_in = |a: f64, b: f64, sizes: f64| (a - b).abs() > sizes / 2.0 - 0.01;
            if !is_apart_in(one.x, other.x, size.width + its.width)
                && !is_apart_in(one.y, other.y, size.height + its.height)
            {
                return Err(format!("{one:?} {size:?} meets {other:?} {its:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn calls_lead_down_and_recursions_up() {
    let all = boxes(3);
    let layout = lay_out(&all, &[arrow(0, 1), arrow(1, 2), arrow(2, 0), arrow(1, 1)]);
    check(&all, &layout).unwrap();
    let y = |n: usize| layout.boxes[n].y;
    assert!(y(0) < y(1) && y(1) < y(2));
    let way = |n: usize| layout.ways[n].as_ref().unwrap();
    assert!(way(2).knots.first().unwrap().at.y > way(2).knots.last().unwrap().at.y);
    assert_eq!(layout.ways[3], None);
}

#[test]
fn what_belongs_together_stands_together() {
    // Two families: no arrow of one crosses one of the other.
    let all = boxes(6);
    let layout = lay_out(&all, &[arrow(0, 3), arrow(1, 2), arrow(0, 5), arrow(1, 4)]);
    let x = |n: usize| layout.boxes[n].x;
    let (one, other) = ([x(0), x(3), x(5)], [x(1), x(2), x(4)]);
    let is_left = |a: &[f64], b: &[f64]| a.iter().all(|a| b.iter().all(|b| a < b));
    assert!(is_left(&one, &other) || is_left(&other, &one), "{:?}", layout.boxes);
}

#[test]
fn nothing_is_laid_out() {
    assert_eq!(lay_out(&[], &[]), Layout::default());
    assert_eq!(lay_out(&[], &[arrow(0, 1)]).ways, [None]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_graph_is_laid_out(
        count in 1..40usize,
        ends in prop::collection::vec((0..40usize, 0..40usize), 0..120),
    ) {
        let all = boxes(count);
        let arrows: Vec<Arrow> = ends.into_iter().map(|(from, to)| arrow(from, to)).collect();
        let layout = lay_out(&all, &arrows);
        prop_assert_eq!(check(&all, &layout), Ok(()));
        prop_assert_eq!(layout.ways.len(), arrows.len());
    }
}
