//! The legend: each curve's line with its name, unit and source.

use heaptape_analyze::curves::Figure;
use plotters::prelude::DrawingBackend;

use super::canvas::{Canvas, ENTRY};
use super::outline::dashed;
use super::pen::Pen;
use super::{MARGIN, Picture, WIDTH, words};
use crate::Error;

const ROW: i32 = 28;
/// The length of a line in it.
const SAMPLE: i32 = 72;

/// How many curves stand side by side: with the names of tapes there is room for one.
fn columns(picture: &Picture<'_>) -> usize {
    if picture.tapes.len() > 1 { 1 } else { 2 }
}

/// The curves, as figures of tapes, in the order of the legend.
pub(super) fn curves<'a>(picture: &'a Picture<'_>) -> impl Iterator<Item = (usize, Figure)> + 'a {
    let tapes = 0..picture.tapes.len();
    tapes.flat_map(|tape| picture.figures.iter().map(move |&figure| (tape, figure)))
}

/// How much room it takes.
pub(super) fn height(picture: &Picture<'_>) -> i32 {
    curves(picture).count().div_ceil(columns(picture)) as i32 * ROW
}

/// Draws it below `top`.
pub(super) fn paint<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    picture: &Picture<'_>,
    top: i32,
) -> Result<(), Error> {
    let names = words::names(picture.tapes);
    let count = picture.tapes.len();
    let columns = columns(picture);
    for (n, (tape, figure)) in curves(picture).enumerate() {
        let x = MARGIN + (n % columns) as i32 * (WIDTH / columns as i32);
        let y = top + ROW / 2 + (n / columns) as i32 * ROW;
        let pen = Pen::of(figure, tape, count);
        // From a whole period on, so that each begins with a dash.
        let period: i32 = pen.dashes.iter().sum();
        let shift = x.rem_euclid(period.max(1));
        for dash in dashed(&[(x - shift, y), (x - shift + SAMPLE, y)], pen.dashes) {
            let dash: Vec<_> = dash.into_iter().map(|(x, y)| (x + shift, y)).collect();
            canvas.line(&dash, pen.width, pen.color)?;
        }
        pen.mark(canvas, (x + SAMPLE / 2, y))?;
        let name = names.get(tape).map_or("", String::as_str);
        canvas.text(&words::entry(picture, tape, name, figure), (x + SAMPLE + 12, y), ENTRY)?;
    }
    Ok(())
}
