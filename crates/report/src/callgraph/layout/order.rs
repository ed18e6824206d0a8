//! The order of the cells of each layer, so that few arrows cross.
//!
//! Layer by layer, down and up again, cells are put in the order of the middles of their neighbours; the best of all that were
//! seen is taken.

use super::layers::{Cell, Layered};

/// How often all layers are put in order.
const SWEEPS: usize = 24;

/// Puts the cells of each layer in order.
pub(super) fn arrange(layered: &mut Layered) {
    let mut places = vec![0.0; layered.cells.len()];
    begin(layered, &mut places);
    let mut best = layered.layers.clone();
    let mut fewest = crossings(layered, &places);
    for sweep in 0..SWEEPS {
        if fewest == 0 {
            break;
        }
        let is_down = sweep % 2 == 0;
        let count = layered.layers.len();
        for step in 0..count {
            let layer = if is_down { step } else { count - 1 - step };
            sort(layered, layer, is_down, &mut places);
        }
        let now = crossings(layered, &places);
        if now < fewest {
            fewest = now;
            best.clone_from(&layered.layers);
        }
    }
    layered.layers = best;
}

/// The order of a walk from above: what belongs together stands together.
fn begin(layered: &mut Layered, places: &mut [f64]) {
    let mut is_met = vec![false; layered.cells.len()];
    let mut order: Vec<Vec<usize>> = vec![Vec::new(); layered.layers.len()];
    let mut layer_of = vec![0; layered.cells.len()];
    for (number, layer) in layered.layers.iter().enumerate() {
        layer.iter().for_each(|&cell| layer_of[cell] = number);
    }
    let starts: Vec<usize> = layered.layers.iter().flatten().copied().collect();
    for start in starts {
        let mut ahead = vec![start];
        while let Some(cell) = ahead.pop() {
            if std::mem::replace(&mut is_met[cell], true) {
                continue;
            }
            order[layer_of[cell]].push(cell);
            ahead.extend(layered.cells[cell].below.iter().rev().map(|(below, _)| *below));
        }
    }
    layered.layers = order;
    for layer in &layered.layers {
        number(layer, places);
    }
}

fn number(layer: &[usize], places: &mut [f64]) {
    layer.iter().enumerate().for_each(|(place, &cell)| places[cell] = place as f64);
}

/// Puts a layer in the order of its neighbours above or below; cells without any stay about where they are.
fn sort(layered: &mut Layered, layer: usize, is_down: bool, places: &mut [f64]) {
    let cells = &layered.cells;
    let neighbours = |cell: &Cell| {
        let links = if is_down { &cell.above } else { &cell.below };
        let (sum, weight) = links.iter().fold((0.0, 0.0), |(sum, weight), (other, strength)| {
            (sum + places[*other] * strength, weight + strength)
        });
        (weight > 0.0).then(|| sum / weight)
    };
    let mut wanted: Vec<(f64, usize)> = layered.layers[layer]
        .iter()
        .map(|&cell| (neighbours(&cells[cell]).unwrap_or(places[cell]), cell))
        .collect();
    wanted.sort_by(|(one, _), (two, _)| one.total_cmp(two));
    layered.layers[layer] = wanted.into_iter().map(|(_, cell)| cell).collect();
    number(&layered.layers[layer], places);
}

/// How many pairs of arrows cross between two layers.
fn crossings(layered: &Layered, places: &[f64]) -> u64 {
    let between = |layer: &Vec<usize>| {
        let mut ends: Vec<(usize, usize)> = Vec::new();
        for &cell in layer {
            let below = layered.cells[cell].below.iter();
            ends.extend(below.map(|(other, _)| (places[cell] as usize, places[*other] as usize)));
        }
        ends.sort_unstable();
        inversions(ends.into_iter().map(|(_, lower)| lower).collect())
    };
    layered.layers.iter().map(between).sum()
}

/// How many pairs stand the wrong way round, found by merging.
fn inversions(mut row: Vec<usize>) -> u64 {
    let mut found = 0;
    let mut width = 1;
    while width < row.len() {
        let mut merged = Vec::with_capacity(row.len());
        for pair in row.chunks(width * 2) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let (Some((&l, rest_of_left)), Some((&r, rest_of_right))) =
                (left.split_first(), right.split_first())
            {
                if l <= r {
                    merged.push(l);
                    left = rest_of_left;
                } else {
                    found += left.len() as u64;
                    merged.push(r);
                    right = rest_of_right;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        row = merged;
        width *= 2;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::inversions;

    #[test]
    fn pairs_that_cross_are_counted() {
        assert_eq!(inversions(vec![]), 0);
        assert_eq!(inversions(vec![0, 1, 1, 2]), 0);
        assert_eq!(inversions(vec![2, 1, 0]), 3);
        assert_eq!(inversions(vec![3, 0, 2, 1, 4]), 4);
    }
}
