//! The layers of a graph without cycles, with a bend of each arrow on every layer that it passes.
//!
//! Boxes stand on even layers, so that each arrow passes an odd one, on which its label has room of its own.

use super::{Arrow, Extent, Knot, Point, Way};

/// The width of an arrow where it passes a layer.
const BEND: f64 = 12.0;
/// The widest distance of two arrows that leave or reach a box.
const PORT: f64 = 18.0;
/// How often boxes are moved to shorten arrows.
const ROUNDS: usize = 8;

/// A box, or a bend of an arrow.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) extent: Extent,
    pub(super) is_box: bool,
    pub(super) x: f64,
    /// Its neighbours on the layers above and below, with how much they matter.
    pub(super) above: Vec<(usize, f64)>,
    pub(super) below: Vec<(usize, f64)>,
}

/// A graph in layers.
#[derive(Clone, Debug, Default)]
pub(super) struct Layered {
    /// The boxes by their numbers, and behind them the bends.
    pub(super) cells: Vec<Cell>,
    /// The cells of each layer from the left.
    pub(super) layers: Vec<Vec<usize>>,
    /// The top and the bottom of each layer.
    pub(super) bands: Vec<(f64, f64)>,
    pub(super) extent: Extent,
    /// The bends of each arrow, from above.
    bends: Vec<Vec<usize>>,
    /// Which of them has the label.
    labels: Vec<usize>,
    layer_of: Vec<usize>,
}

impl Layered {
    /// Puts boxes and bends on layers, in no particular order.
    pub(super) fn new(boxes: &[Extent], arrows: &[Arrow], turned: &[bool]) -> Layered {
        let ends: Vec<(usize, usize)> = arrows
            .iter()
            .zip(turned)
            .map(
                |(arrow, turned)| {
                    if *turned { (arrow.to, arrow.from) } else { (arrow.from, arrow.to) }
                },
            )
            .collect();
        let ranks = ranks(boxes.len(), &ends, arrows);
        let mut layered = Layered::default();
        for (&extent, &rank) in boxes.iter().zip(&ranks) {
            layered.add(extent, true, rank * 2);
        }
        for (arrow, &(upper, lower)) in arrows.iter().zip(&ends) {
            layered.bend(arrow, upper, lower);
        }
        layered
    }

    fn add(&mut self, extent: Extent, is_box: bool, layer: usize) -> usize {
        let cell = Cell { extent, is_box, x: 0.0, above: Vec::new(), below: Vec::new() };
        let number = self.cells.len();
        self.cells.push(cell);
        if self.layers.len() <= layer {
            self.layers.resize(layer + 1, Vec::new());
        }
        self.layers[layer].push(number);
        self.layer_of.push(layer);
        number
    }

    /// Leads an arrow from its upper box to its lower one.
    fn bend(&mut self, arrow: &Arrow, upper: usize, lower: usize) {
        let (first, last) = (self.layer_of[upper] + 1, self.layer_of[lower]);
        // The middle one of the odd layers.
        let labelled = (first + (last - first) / 2) | 1;
        let (mut before, mut bends, mut label) = (upper, Vec::new(), 0);
        for layer in first..last {
            let plain = Extent { width: BEND, height: 0.0 };
            let wide = Extent { width: arrow.label.width.max(BEND), ..arrow.label };
            let extent = if layer == labelled { wide } else { plain };
            let bend = self.add(extent, false, layer);
            if layer == labelled {
                label = bend;
            }
            self.link(before, bend, arrow.weight);
            bends.push(bend);
            before = bend;
        }
        self.link(before, lower, arrow.weight);
        self.bends.push(bends);
        self.labels.push(label);
    }

    fn link(&mut self, upper: usize, lower: usize, weight: f64) {
        // What bends in the middle of its way looks worse than what does so at a box.
        let inner = [upper, lower].iter().filter(|&&cell| !self.cells[cell].is_box).count();
        let strength = (1.0 + 4.0 * weight.clamp(0.0, 1.0)) * [1.0, 2.0, 8.0][inner];
        self.cells[upper].below.push((lower, strength));
        self.cells[lower].above.push((upper, strength));
    }

    /// Where an arrow meets a box: beside the others, in the order of where they come from.
    fn port(&self, cell: usize, other: usize, all: &[(usize, f64)]) -> f64 {
        let x = |cell: usize| self.cells[cell].x;
        let before = all.iter().filter(|(n, _)| x(*n).total_cmp(&x(other)).is_lt()).count();
        let apart = PORT.min(self.cells[cell].extent.width * 0.7 / all.len().max(1) as f64);
        x(cell) + (before as f64 - (all.len().saturating_sub(1)) as f64 / 2.0) * apart
    }

    /// Whether a cell is on a layer of boxes, which arrows must pass straight.
    fn has_boxes(&self, cell: usize) -> bool {
        self.layer_of[cell].is_multiple_of(2)
    }

    /// The middles of the boxes.
    pub(super) fn boxes(&self, count: usize) -> Vec<Point> {
        (0..count).map(|cell| self.middle(cell)).collect()
    }

    fn middle(&self, cell: usize) -> Point {
        let (top, bottom) = self.bands[self.layer_of[cell]];
        Point { x: self.cells[cell].x, y: (top + bottom) / 2.0 }
    }

    /// The ways of the arrows, of those that were turned from below.
    pub(super) fn ways(&self, arrows: &[Arrow], turned: &[bool]) -> Vec<Way> {
        let mut ways = Vec::new();
        for ((arrow, &is_turned), (bends, &label)) in
            arrows.iter().zip(turned).zip(self.bends.iter().zip(&self.labels))
        {
            let (upper, lower) =
                if is_turned { (arrow.to, arrow.from) } else { (arrow.from, arrow.to) };
            let (Some(&first), Some(&last)) = (bends.first(), bends.last()) else {
                ways.push(Way::default());
                continue;
            };
            let half = |cell: usize| self.cells[cell].extent.height / 2.0;
            let mut knots = Vec::with_capacity(bends.len() * 2 + 2);
            let mut add = |x: f64, y: f64| knots.push(Knot { at: Point { x, y }, lean: 0.0 });
            add(
                self.port(upper, first, &self.cells[upper].below),
                self.middle(upper).y + half(upper),
            );
            for &bend in bends {
                let (top, bottom) = self.bands[self.layer_of[bend]];
                let x = self.cells[bend].x;
                if self.has_boxes(bend) {
                    add(x, top);
                    add(x, bottom);
                } else {
                    add(x, (top + bottom) / 2.0);
                }
            }
            add(
                self.port(lower, last, &self.cells[lower].above),
                self.middle(lower).y - half(lower),
            );
            lean(&mut knots);
            if is_turned {
                knots.reverse();
            }
            ways.push(Way { knots, label: self.middle(label) });
        }
        ways
    }
}

/// Lets an arrow go on in its direction where it may: no further than what lies on both sides of it.
fn lean(knots: &mut [Knot]) {
    for place in 1..knots.len().saturating_sub(1) {
        let [before, here, after] = [place - 1, place, place + 1].map(|n| knots[n].at);
        let slope = |from: Point, to: Point| (to.x - from.x) / (to.y - from.y).max(1.0);
        let (one, other) = (slope(before, here), slope(here, after));
        if one * other > 0.0 {
            let flatter = if one.abs() < other.abs() { one } else { other };
            knots[place].lean = 1.5 * flatter;
        }
    }
}

/// The ranks of the boxes: each arrow leads to a higher one, and heavy ones are short.
fn ranks(boxes: usize, ends: &[(usize, usize)], arrows: &[Arrow]) -> Vec<usize> {
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); boxes];
    let mut reaching: Vec<Vec<usize>> = vec![Vec::new(); boxes];
    for (number, &(upper, lower)) in ends.iter().enumerate() {
        leaving[upper].push(number);
        reaching[lower].push(number);
    }
    let mut ranks = vec![0; boxes];
    let mut missing: Vec<usize> = reaching.iter().map(Vec::len).collect();
    let mut order: Vec<usize> = (0..boxes).filter(|&node| missing[node] == 0).collect();
    let mut place = 0;
    while let Some(&node) = order.get(place) {
        place += 1;
        for &arrow in &leaving[node] {
            let lower = ends[arrow].1;
            ranks[lower] = ranks[lower].max(ranks[node] + 1);
            missing[lower] -= 1;
            if missing[lower] == 0 {
                order.push(lower);
            }
        }
    }
    let pull =
        |arrows_of: &[usize]| arrows_of.iter().map(|&a| 0.01 + arrows[a].weight).sum::<f64>();
    for _ in 0..ROUNDS {
        for &node in order.iter().rev() {
            let lowest = leaving[node].iter().map(|&arrow| ranks[ends[arrow].1] - 1).min();
            let highest = reaching[node].iter().map(|&arrow| ranks[ends[arrow].0] + 1).max();
            let is_drawn_down = pull(&leaving[node]) > pull(&reaching[node]);
            match (lowest, highest) {
                (Some(lowest), _) if is_drawn_down => ranks[node] = lowest,
                (_, Some(highest)) => ranks[node] = highest,
                _ => {}
            }
        }
    }
    let least = ranks.iter().copied().min().unwrap_or_default();
    ranks.iter().map(|rank| rank - least).collect()
}
