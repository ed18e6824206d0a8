//! Where the boxes of a graph stand and how its arrows run: in layers, so that calls lead down.
//!
//! Cycles are opened first (`acyclic`), then every box gets a layer (`layers`), and every arrow a bend on each layer that it
//! passes, one of which has room for its label. The order on each layer is chosen for few crossings (`order`), and the places
//! for straight arrows (`place`). Any graph is laid out, and the same one always in the same way.

mod acyclic;
mod layers;
mod order;
mod place;

use layers::Layered;

/// Room on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Extent {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A point on the page; y counts downwards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// An arrow between two boxes, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    /// How much it matters that it is straight and short: up to 1.
    pub(super) weight: f64,
    pub(super) label: Extent,
}

/// A point that an arrow goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Knot {
    pub(super) at: Point,
    /// How far it goes to the right there while it goes down by 1.
    pub(super) lean: f64,
}

/// The way of an arrow.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Way {
    /// From its begin to its end, both of which it meets straight.
    pub(super) knots: Vec<Knot>,
    /// The middle of its label.
    pub(super) label: Point,
}

/// What comes out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Layout {
    /// The middles of the boxes.
    pub(super) boxes: Vec<Point>,
    /// Those of the arrows that lead from a box to another one; the others are `None`.
    pub(super) ways: Vec<Option<Way>>,
    pub(super) extent: Extent,
}

/// Lays a graph out.
pub(super) fn lay_out(boxes: &[Extent], arrows: &[Arrow]) -> Layout {
    let is_real = |arrow: &Arrow| {
        arrow.from != arrow.to && arrow.from < boxes.len() && arrow.to < boxes.len()
    };
    let real: Vec<Arrow> = arrows.iter().copied().filter(is_real).collect();
    let turned = acyclic::turned(boxes.len(), &real);
    let mut layered = Layered::new(boxes, &real, &turned);
    order::arrange(&mut layered);
    place::place(&mut layered);
    let mut ways = layered.ways(&real, &turned).into_iter();
    Layout {
        boxes: layered.boxes(boxes.len()),
        ways: arrows.iter().map(|arrow| is_real(arrow).then(|| ways.next()).flatten()).collect(),
        extent: layered.extent,
    }
}

#[cfg(test)]
mod tests;
