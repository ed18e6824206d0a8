//! The places of cells whose layers and order are known: apart from their neighbours, and else as near to those that they are
//! linked with as can be.
//!
//! On a layer that is the least sum of squares under distances that must be kept, which merging neighbours that are too near
//! finds exactly. Layers are gone through down and up until all has come to rest.

use super::Extent;
use super::layers::{Cell, Layered};

/// The room between two cells of a layer.
const APART: f64 = 18.0;
/// The room between two layers.
const BETWEEN: f64 = 22.0;
/// How often all layers are gone through.
const SWEEPS: usize = 160;
/// What a cell's own place counts beside its neighbours'.
const INERTIA: f64 = 0.01;

/// Which neighbours draw at a cell.
#[derive(Clone, Copy)]
enum Side {
    Above,
    Below,
    Both,
}

/// Finds places for all cells, and the extent of the whole.
pub(super) fn place(layered: &mut Layered) {
    begin(layered);
    let count = layered.layers.len();
    for sweep in 0..SWEEPS {
        // The last ones weigh both sides, so that neither is better off.
        let is_late = sweep * 2 > SWEEPS;
        let is_down = sweep % 2 == 0;
        let side = match (is_late, is_down) {
            (true, _) => Side::Both,
            (false, true) => Side::Above,
            (false, false) => Side::Below,
        };
        for step in 0..count {
            settle(layered, if is_down { step } else { count - 1 - step }, side);
        }
    }
    stack(layered);
    trim(layered);
}

/// One beside the other from the left.
fn begin(layered: &mut Layered) {
    for layer in &layered.layers {
        let mut right = 0.0;
        for &cell in layer {
            let width = layered.cells[cell].extent.width;
            layered.cells[cell].x = right + width / 2.0;
            right += width + APART;
        }
    }
}

/// A run of cells that touch, and move as one.
struct Run {
    /// Where its first cell would like to be, summed with weights.
    sum: f64,
    weight: f64,
    cells: usize,
}

impl Run {
    fn at(&self) -> f64 {
        self.sum / self.weight
    }
}

fn settle(layered: &mut Layered, layer: usize, side: Side) {
    let order = &layered.layers[layer];
    let mut runs: Vec<Run> = Vec::with_capacity(order.len());
    // The distance of each cell from the first one when all touch.
    let mut offsets = Vec::with_capacity(order.len());
    let (mut offset, mut before): (f64, Option<&Cell>) = (0.0, None);
    for &cell in order {
        let cell = &layered.cells[cell];
        if let Some(before) = before {
            offset += (before.extent.width + cell.extent.width) / 2.0 + APART;
        }
        before = Some(cell);
        let (at, weight) = wanted(&layered.cells, cell, side);
        let mut run = Run { sum: (at - offset) * weight, weight, cells: 1 };
        while let Some(last) = runs.pop_if(|last| last.at() > run.at()) {
            run = Run {
                sum: run.sum + last.sum,
                weight: run.weight + last.weight,
                cells: run.cells + last.cells,
            };
        }
        runs.push(run);
        offsets.push(offset);
    }
    let places = runs.iter().flat_map(|run| std::iter::repeat_n(run.at(), run.cells));
    let places: Vec<f64> = places.zip(&offsets).map(|(at, offset)| at + offset).collect();
    for (&cell, x) in layered.layers[layer].iter().zip(places) {
        layered.cells[cell].x = x;
    }
}

/// Where a cell would like to be, and how much.
fn wanted(cells: &[Cell], cell: &Cell, side: Side) -> (f64, f64) {
    let (above, below): (&[_], &[_]) = match side {
        Side::Above => (&cell.above, &[]),
        Side::Below => (&[], &cell.below),
        Side::Both => (&cell.above, &cell.below),
    };
    let mut sum = cell.x * INERTIA;
    let mut weight = INERTIA;
    for (other, strength) in above.iter().chain(below) {
        sum += cells[*other].x * strength;
        weight += strength;
    }
    (sum / weight, weight)
}

/// One layer below the other.
fn stack(layered: &mut Layered) {
    let mut top = 0.0;
    for layer in &layered.layers {
        let heights = layer.iter().map(|&cell| layered.cells[cell].extent.height);
        let bottom = top + heights.fold(0.0, f64::max);
        layered.bands.push((top, bottom));
        top = bottom + BETWEEN;
    }
    layered.extent.height = (top - BETWEEN).max(0.0);
}

/// Moves all so that the leftmost cell begins at 0.
fn trim(layered: &mut Layered) {
    let edge = |cell: &Cell, side: f64| cell.x + side * cell.extent.width / 2.0;
    let left = layered.cells.iter().map(|cell| edge(cell, -1.0)).fold(f64::INFINITY, f64::min);
    if left.is_finite() {
        layered.cells.iter_mut().for_each(|cell| cell.x -= left);
    }
    let width = layered.cells.iter().map(|cell| edge(cell, 1.0)).fold(0.0, f64::max);
    layered.extent = Extent { width, ..layered.extent };
}
