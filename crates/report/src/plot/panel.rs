//! One plot within the picture: its axes, its curves, and its peaks or the part that it marks.

use std::ops::Range;

use heaptape_analyze::curves::{Curve, Curves, Figure};
use plotters::prelude::DrawingBackend;
use plotters::style::{BLACK, WHITE};

use super::axis::{self, Bytes};
use super::canvas::{self, Canvas};
use super::outline::{Outline, Point, dashed};
use super::pen::{Pen, Shape};
use super::{COLUMNS, HEIGHT, LEFT, OUTER_HEIGHT, Picture, words};
use crate::Error;

/// Units between two markers of a curve, at least.
const APART: i32 = 44;
/// The height of a line of lettering.
const LINE: i32 = 26;

/// A plot with its axes.
pub(super) struct Panel<'a> {
    picture: &'a Picture<'a>,
    top: i32,
    height: i32,
    range: Range<u64>,
    bytes: Bytes,
    runs: Vec<Option<&'a Curves>>,
    /// A part that it marks; then it has no peaks and few labels.
    marked: Option<Range<u64>>,
}

impl<'a> Panel<'a> {
    /// The large plot of the chosen part.
    pub(super) fn near(picture: &'a Picture<'a>, top: i32) -> Panel<'a> {
        let runs = picture.drawing.runs.iter().map(|run| Some(&run.near)).collect();
        Panel::new(picture, top, HEIGHT, picture.drawing.part.clone(), runs, None)
    }

    /// The small plot of the whole run, with the part marked.
    pub(super) fn whole(picture: &'a Picture<'a>, top: i32) -> Panel<'a> {
        let runs = picture.drawing.runs.iter().map(|run| run.whole.as_ref()).collect();
        let marked = Some(picture.drawing.part.clone());
        Panel::new(picture, top, OUTER_HEIGHT, picture.drawing.whole.clone(), runs, marked)
    }

    fn new(
        picture: &'a Picture<'a>,
        top: i32,
        height: i32,
        range: Range<u64>,
        runs: Vec<Option<&'a Curves>>,
        marked: Option<Range<u64>>,
    ) -> Panel<'a> {
        let wanted = |curve: &&Curve| picture.figures.contains(&curve.figure);
        let curves = || runs.iter().copied().flatten().flat_map(|run| &run.curves).filter(wanted);
        let columns = || curves().flat_map(|curve| &curve.columns);
        let most = columns().map(|column| column.most).max().unwrap_or(0);
        let positive = columns().flat_map(|column| [column.least, column.ended, column.most]);
        let least = positive.filter(|&bytes| bytes > 0).min().unwrap_or(1);
        let bytes = Bytes::new(least, most, picture.log);
        Panel { picture, top, height, range, bytes, runs, marked }
    }

    fn x(&self, at: u64) -> i32 {
        let length = self.range.end.saturating_sub(self.range.start).max(1);
        let along = at.clamp(self.range.start, self.range.end) - self.range.start;
        LEFT + (u128::from(along) * COLUMNS as u128 / u128::from(length)) as i32
    }

    fn y(&self, bytes: u64) -> i32 {
        self.bottom() - (self.bytes.place(bytes) * f64::from(self.height)).round() as i32
    }

    fn bottom(&self) -> i32 {
        self.top + self.height
    }

    fn right(&self) -> i32 {
        LEFT + COLUMNS as i32
    }

    pub(super) fn paint<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>) -> Result<(), Error> {
        self.grid(canvas)?;
        for areas in [true, false] {
            for (tape, run) in self.runs.iter().enumerate() {
                for curve in run.iter().flat_map(|run| &run.curves).rev() {
                    if self.picture.figures.contains(&curve.figure) {
                        self.curve(canvas, tape, curve, areas)?;
                    }
                }
            }
        }
        self.axes(canvas)?;
        match &self.marked {
            Some(part) => self.mark(canvas, part),
            None => self.summits(canvas),
        }
    }

    fn grid<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>) -> Result<(), Error> {
        let ticks = self.bytes.ticks();
        let every = if self.marked.is_some() { ticks.len().div_ceil(3).max(1) } else { 1 };
        for &bytes in ticks.iter().step_by(every) {
            let y = self.y(bytes);
            canvas.line(&[(LEFT, y), (self.right(), y)], 1, canvas::GRID)?;
            canvas.text(&axis::bytes_label(bytes), (LEFT - 10, y), canvas::SIDE)?;
        }
        for (at, label) in axis::ticks(self.picture.drawing.axis, &self.range) {
            let x = self.x(at);
            canvas.line(&[(x, self.top), (x, self.bottom())], 1, canvas::GRID)?;
            canvas.line(&[(x, self.bottom()), (x, self.bottom() + 6)], 1, canvas::INK)?;
            canvas.text(&label, (x, self.bottom() + 10), canvas::UNDER)?;
        }
        Ok(())
    }

    fn axes<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>) -> Result<(), Error> {
        let corner = (LEFT, self.bottom());
        canvas.line(&[(LEFT, self.top), corner, (self.right(), self.bottom())], 1, canvas::INK)?;
        if self.marked.is_none() {
            let middle = (LEFT + COLUMNS as i32 / 2, self.bottom() + 36);
            canvas.text(words::axis(self.picture.drawing.axis), middle, canvas::UNDER_DIM)?;
        }
        let head = match (&self.marked, self.picture.log) {
            (Some(_), _) => "the whole run, with the part above marked",
            (None, false) => "bytes",
            (None, true) => {
                "bytes, on a logarithmic axis; what is less than the axis shows lies at its foot"
            }
        };
        canvas.text(head, (LEFT, self.top - 6), canvas::OVER)
    }

    /// One curve: first its areas, then its lines, so that no area covers a line.
    fn curve<B: DrawingBackend>(
        &self,
        canvas: &Canvas<'_, B>,
        tape: usize,
        curve: &Curve,
        areas: bool,
    ) -> Result<(), Error> {
        let outline = Outline::of(curve, |at| self.x(at), |bytes| self.y(bytes));
        let tapes = self.picture.tapes.len();
        let pen = Pen::of(curve.figure, tape, tapes);
        if areas {
            if curve.figure == Figure::Requested && tapes == 1 {
                canvas.fill(&outline.under(self.bottom()), pen.color, 0.12)?;
            }
            for band in outline.bands() {
                canvas.fill(&band, pen.color, 0.3)?;
            }
            return Ok(());
        }
        for line in outline.lower() {
            canvas.line(&line, 1, pen.color)?;
        }
        let upper = outline.upper();
        let width = if self.marked.is_some() { 1 } else { pen.width };
        for dash in dashed(&upper, pen.dashes) {
            canvas.line(&dash, width, pen.color)?;
        }
        if self.marked.is_none() {
            for point in self.markers(curve, tape, &upper) {
                pen.mark(canvas, point)?;
            }
        }
        Ok(())
    }

    /// Where the markers of a curve stand: on its samples, or on an exact curve here and there.
    fn markers(&self, curve: &Curve, tape: usize, upper: &[Point]) -> Vec<Point> {
        let samples = curve.samples.iter().map(|&(at, bytes)| (self.x(at), self.y(bytes)));
        let points: Vec<Point> = match curve.figure {
            Figure::System | Figure::Resident => samples.collect(),
            Figure::Requested | Figure::Usable => upper.to_vec(),
        };
        // Each tape begins elsewhere, so that markers do not cover one another.
        let mut next = LEFT + (tape as i32 * 13) % APART;
        if !curve.samples.is_empty() {
            next = i32::MIN;
        }
        let mut kept = Vec::new();
        for (x, y) in points {
            if x >= next {
                kept.push((x, y));
                next = x + APART;
            }
        }
        kept
    }

    /// The peak of each tape, with its value and place.
    fn summits<B: DrawingBackend>(&self, canvas: &Canvas<'_, B>) -> Result<(), Error> {
        if !self.picture.figures.contains(&Figure::Requested) {
            return Ok(());
        }
        let mut taken: Vec<(Point, Point)> = Vec::new();
        let runs = self.runs.iter().enumerate();
        for (tape, summit) in runs.filter_map(|(n, run)| Some((n, run.as_ref()?.summit.as_ref()?)))
        {
            let point = (self.x(summit.at), self.y(summit.bytes.upper));
            let label = words::summit(summit, self.picture.drawing.axis);
            let length = canvas.length(&label, canvas::ENTRY)?;
            let place = self.free_place(point, length, &mut taken);
            canvas.block(
                (place.0 - 4, place.1 - 12),
                (place.0 + length, place.1 + 12),
                WHITE,
                0.8,
            )?;
            let color = Pen::of(Figure::Requested, tape, self.picture.tapes.len()).color;
            let color = if self.picture.tapes.len() == 1 { BLACK } else { color };
            let marker = Some((Shape::Diamond, true));
            Pen { color, width: 1, dashes: &[], marker }.mark(canvas, point)?;
            canvas.text(&label, place, canvas::ENTRY)?;
        }
        Ok(())
    }

    /// Where a label of a point begins, so that it lies in the plot and on no other.
    fn free_place(&self, (x, y): Point, length: i32, taken: &mut Vec<(Point, Point)>) -> Point {
        let left = if x + 14 + length > self.right() { x - 10 - length } else { x + 14 };
        let left = left.clamp(LEFT + 6, (self.right() - length).max(LEFT + 6));
        let mut top = (y - 18).max(self.top + 14);
        let overlaps = |top: i32, other: &(Point, Point)| {
            left < other.1.0 && other.0.0 < left + length && (top - other.0.1).abs() < LINE
        };
        while taken.iter().any(|other| overlaps(top, other)) && top + LINE < self.bottom() {
            top += LINE;
        }
        taken.push(((left, top), (left + length, top)));
        (left, top)
    }

    /// The part that is drawn large, within the whole run.
    fn mark<B: DrawingBackend>(
        &self,
        canvas: &Canvas<'_, B>,
        part: &Range<u64>,
    ) -> Result<(), Error> {
        let left = self.x(part.start);
        let right = self.x(part.end).max(left + 2);
        for (from, to) in [(LEFT, left), (right, self.right())] {
            if to > from {
                canvas.block((from, self.top), (to, self.bottom()), WHITE, 0.6)?;
            }
        }
        let corners = [
            (left, self.top),
            (right, self.top),
            (right, self.bottom()),
            (left, self.bottom()),
            (left, self.top),
        ];
        canvas.line(&corners, 2, canvas::INK)
    }
}
