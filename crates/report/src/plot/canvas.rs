//! Lines, areas and lettering at a scale, on whatever plotters draws on.
//!
//! Everything is given in units: pixels of an SVG, of which a PNG has several each.

use std::sync::OnceLock;

use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE, register_font as register,
};

use super::outline::Point;
use crate::Error;

const FAMILY: &str = "sans-serif";

/// Dark grey: lettering and axes.
pub(super) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Lettering that stands back.
pub(super) const DIM: RGBColor = RGBColor(0x55, 0x55, 0x55);
/// The lines of the grid.
pub(super) const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// How a text looks and where its point lies.
#[derive(Clone, Copy)]
pub(super) struct Letters {
    size: i32,
    bold: bool,
    color: RGBColor,
    horizontal: HPos,
    vertical: VPos,
}

impl Letters {
    const fn new(size: i32, color: RGBColor, horizontal: HPos, vertical: VPos) -> Letters {
        Letters { size, bold: false, color, horizontal, vertical }
    }
}

pub(super) const TITLE: Letters =
    Letters { bold: true, ..Letters::new(30, INK, HPos::Left, VPos::Top) };
pub(super) const SUBTITLE: Letters = Letters::new(20, DIM, HPos::Left, VPos::Top);
pub(super) const ENTRY: Letters = Letters::new(20, INK, HPos::Left, VPos::Center);
pub(super) const SIDE: Letters = Letters::new(20, INK, HPos::Right, VPos::Center);
pub(super) const UNDER: Letters = Letters::new(20, INK, HPos::Center, VPos::Top);
pub(super) const UNDER_DIM: Letters = Letters::new(20, DIM, HPos::Center, VPos::Top);
pub(super) const OVER: Letters = Letters::new(20, DIM, HPos::Left, VPos::Bottom);

/// Makes the built-in font known, once.
pub(super) fn register_font() -> Result<(), Error> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let font = epaint_default_fonts::UBUNTU_LIGHT;
    let known = REGISTERED.get_or_init(|| register(FAMILY, FontStyle::Normal, font).is_ok());
    if *known { Ok(()) } else { Err(Error::Draw("its font cannot be read".to_owned())) }
}

/// An area to draw on.
pub(super) struct Canvas<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
    scale: i32,
}

impl<'a, B: DrawingBackend> Canvas<'a, B> {
    pub(super) fn new(area: &'a DrawingArea<B, Shift>, scale: i32) -> Canvas<'a, B> {
        Canvas { area, scale }
    }

    fn at(&self, (x, y): Point) -> Point {
        (x * self.scale, y * self.scale)
    }

    fn drawn<T, E: std::error::Error>(result: Result<T, E>) -> Result<T, Error> {
        result.map_err(|why| Error::Draw(why.to_string()))
    }

    pub(super) fn clear(&self) -> Result<(), Error> {
        Self::drawn(self.area.fill(&WHITE))
    }

    /// A line through points.
    pub(super) fn line(&self, points: &[Point], width: i32, color: RGBColor) -> Result<(), Error> {
        let style = color.stroke_width((width * self.scale) as u32);
        if self.scale == 1 {
            let path = PathElement::new(points.to_vec(), style);
            return Self::drawn(self.area.draw(&path));
        }
        // The bitmap's wide lines have no good joints at sharp angles, so each piece is drawn by itself.
        for pair in points.windows(2) {
            let pair: Vec<Point> = pair.iter().map(|&point| self.at(point)).collect();
            Self::drawn(self.area.draw(&PathElement::new(pair, style)))?;
        }
        Ok(())
    }

    /// A filled area within points.
    pub(super) fn fill(
        &self,
        points: &[Point],
        color: RGBColor,
        opacity: f64,
    ) -> Result<(), Error> {
        let points: Vec<Point> = points.iter().map(|&point| self.at(point)).collect();
        Self::drawn(self.area.draw(&Polygon::new(points, color.mix(opacity))))
    }

    /// A filled rectangle.
    pub(super) fn block(
        &self,
        from: Point,
        to: Point,
        color: RGBColor,
        opacity: f64,
    ) -> Result<(), Error> {
        let style = color.mix(opacity).filled();
        Self::drawn(self.area.draw(&Rectangle::new([self.at(from), self.at(to)], style)))
    }

    /// A circle, filled with its colour or with white.
    pub(super) fn circle(
        &self,
        center: Point,
        radius: i32,
        color: RGBColor,
        filled: bool,
    ) -> Result<(), Error> {
        let (center, radius) = (self.at(center), radius * self.scale);
        let inside = if filled { color } else { WHITE };
        Self::drawn(self.area.draw(&Circle::new(center, radius, inside.filled())))?;
        let line = color.stroke_width((2 * self.scale) as u32);
        Self::drawn(self.area.draw(&Circle::new(
            center,
            radius,
            ShapeStyle { filled: false, ..line },
        )))
    }

    /// One line of lettering.
    pub(super) fn text(&self, text: &str, at: Point, letters: Letters) -> Result<(), Error> {
        // The bitmap puts the middle of its lettering higher than an SVG does.
        let is_high = self.scale > 1 && matches!(letters.vertical, VPos::Center);
        let at = if is_high { (at.0, at.1 + letters.size / 7) } else { at };
        let style = self.style(letters);
        Self::drawn(self.area.draw(&Text::new(text, self.at(at), style)))
    }

    /// About how long it is, in units.
    pub(super) fn length(&self, text: &str, letters: Letters) -> Result<i32, Error> {
        let size = Self::drawn(self.area.estimate_text_size(text, &self.style(letters)))?;
        // A reader's font may be a wider one than the one that is built in.
        Ok(size.0 as i32 * 6 / 5 / self.scale)
    }

    fn style(&self, letters: Letters) -> TextStyle<'static> {
        let style = if letters.bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = (FAMILY, f64::from(letters.size * self.scale), style).into_font();
        let anchor = Pos::new(letters.horizontal, letters.vertical);
        TextStyle { color: letters.color.to_backend_color(), pos: anchor, ..TextStyle::from(font) }
    }
}
