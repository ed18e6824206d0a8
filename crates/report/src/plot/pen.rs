//! How each curve looks: colour, dashes and markers, so that no two are alike in black and white either.

use heaptape_analyze::curves::Figure;
use plotters::prelude::DrawingBackend;
use plotters::style::RGBColor;

use super::canvas::Canvas;
use super::outline::Point;
use crate::Error;

/// Half the width of a marker.
const R: i32 = 4;

/// The shape of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
}

/// A pen that draws one curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pen {
    pub(super) color: RGBColor,
    pub(super) width: i32,
    /// Units drawn and left out in turn; none for a whole line.
    pub(super) dashes: &'static [i32],
    /// A shape, and whether it is filled.
    pub(super) marker: Option<(Shape, bool)>,
}

const BLUE: RGBColor = RGBColor(0x08, 0x45, 0x94);
const ORANGE: RGBColor = RGBColor(0xd9, 0x5f, 0x02);
const GREEN: RGBColor = RGBColor(0x1a, 0x80, 0x4a);
const RED: RGBColor = RGBColor(0xb0, 0x1e, 0x3c);
const PURPLE: RGBColor = RGBColor(0x6a, 0x3d, 0x9a);
const BROWN: RGBColor = RGBColor(0x6b, 0x4a, 0x1e);

impl Pen {
    /// The pen for a figure of the tape with a number, of so many.
    pub(super) fn of(figure: Figure, tape: usize, tapes: usize) -> Pen {
        let (single, width, dashes): (_, _, &[i32]) = match figure {
            Figure::Requested => (BLUE, 2, &[]),
            Figure::Usable => (ORANGE, 2, &[22, 8]),
            Figure::System => (GREEN, 2, &[20, 6, 4, 6]),
            Figure::Resident => (RED, 2, &[5, 7]),
        };
        let color = if tapes == 1 { single } else { of_tape(tape, figure) };
        Pen { color, width, dashes, marker: marker(figure, tape) }
    }

    /// The marker with its middle at a point.
    pub(super) fn mark<B: DrawingBackend>(
        &self,
        canvas: &Canvas<'_, B>,
        (x, y): Point,
    ) -> Result<(), Error> {
        let Some((shape, filled)) = self.marker else { return Ok(()) };
        let corners: Vec<Point> = match shape {
            Shape::Circle => return canvas.circle((x, y), R, self.color, filled),
            Shape::Cross => {
                canvas.line(&[(x - R, y - R), (x + R, y + R)], 2, self.color)?;
                return canvas.line(&[(x - R, y + R), (x + R, y - R)], 2, self.color);
            }
            Shape::Square => [(-R, -R), (R, -R), (R, R), (-R, R), (-R, -R)].into(),
            Shape::Triangle => [(0, -R - 1), (R + 1, R), (-R - 1, R), (0, -R - 1)].into(),
            Shape::Diamond => {
                [(0, -R - 2), (R + 2, 0), (0, R + 2), (-R - 2, 0), (0, -R - 2)].into()
            }
        };
        let corners: Vec<Point> = corners.into_iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        let inside = if filled { self.color } else { plotters::style::WHITE };
        canvas.fill(&corners, inside, 1.0)?;
        canvas.line(&corners, 2, self.color)
    }
}

/// One hue a tape, lighter for some figures.
fn of_tape(tape: usize, figure: Figure) -> RGBColor {
    const HUES: [RGBColor; 6] = [BLUE, ORANGE, GREEN, RED, PURPLE, BROWN];
    let RGBColor(r, g, b) = HUES[tape % HUES.len()];
    let white = match figure {
        Figure::Requested => 0,
        Figure::Resident => 20,
        Figure::System => 35,
        Figure::Usable => 45,
    };
    let mix = |part: u8| (u32::from(part) + (255 - u32::from(part)) * white / 100) as u8;
    RGBColor(mix(r), mix(g), mix(b))
}

/// Samples always have markers; exact curves have them from the second tape on.
fn marker(figure: Figure, tape: usize) -> Option<(Shape, bool)> {
    const SHAPES: [Shape; 5] =
        [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond, Shape::Cross];
    let of =
        |number: usize| (SHAPES[number % SHAPES.len()], (number / SHAPES.len()).is_multiple_of(2));
    match figure {
        Figure::Requested | Figure::Usable => tape.checked_sub(1).map(of),
        Figure::System => Some(of(tape + 1)),
        Figure::Resident => Some(of(tape)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_curves_are_alike_in_black_and_white() {
        for tapes in [1, 2, 6] {
            let mut seen = Vec::new();
            for tape in 0..tapes {
                for figure in Figure::ALL {
                    let Pen { dashes, marker, .. } = Pen::of(figure, tape, tapes);
                    assert!(!seen.contains(&(dashes, marker)), "{figure:?} of tape {tape}");
                    seen.push((dashes, marker));
                }
            }
        }
    }
}
