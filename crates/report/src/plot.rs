//! Pictures of curves, as SVG or PNG.
//!
//! The curves come from [`heaptape_analyze::curves`], one column a pixel; what comes out are the bytes of a file.
//! Lettering is measured and, in PNG, drawn with a font that is built in, so that no font of the system is needed;
//! an SVG asks for a `sans-serif` one. Curves differ in dashes and markers as well as in colour.

mod axis;
mod canvas;
mod legend;
mod outline;
mod panel;
mod pen;
mod words;

use heaptape_analyze::ProcessSummary;
use heaptape_analyze::curves::{Drawing, Figure};
use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::drawing::IntoDrawingArea;
use plotters::prelude::DrawingBackend;

use crate::Error;
use canvas::Canvas;
use panel::Panel;

/// The columns that a plot has room for: its width in units, which are pixels in an SVG.
pub const COLUMNS: usize = 1040;

/// The size of everything in a PNG, to that in an SVG.
const PNG_SCALE: i32 = 2;

const WIDTH: i32 = 1200;
const MARGIN: i32 = 24;
const LEFT: i32 = 112;
const HEIGHT: i32 = 460;
const OUTER_HEIGHT: i32 = 92;
/// Below a plot, for the labels of its axis and what that is.
const BELOW: i32 = 66;
/// Below the small plot, whose axis is the same one.
const BELOW_OUTER: i32 = 44;

/// The kind of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Scalable Vector Graphics.
    Svg,
    /// Portable Network Graphics.
    Png,
}

/// A tape by name.
pub struct Tape<'a> {
    /// Its file's name or path.
    pub file: String,
    /// The command that was recorded.
    pub command: &'a [String],
    /// The processes that are drawn.
    pub processes: Vec<&'a ProcessSummary>,
}

/// What is drawn.
pub struct Picture<'a> {
    /// The tapes of the drawing's runs, in the same order.
    pub tapes: &'a [Tape<'a>],
    /// The curves.
    pub drawing: &'a Drawing,
    /// Those of them that are wanted.
    pub figures: &'a [Figure],
    /// Whether the axis of bytes is a logarithmic one.
    pub log: bool,
}

/// Draws a picture; the bytes are a whole file.
pub fn draw(picture: &Picture<'_>, format: Format) -> Result<Vec<u8>, Error> {
    canvas::register_font()?;
    let layout = Layout::of(picture);
    match format {
        Format::Svg => {
            let mut text = String::new();
            let size = (WIDTH as u32, layout.height as u32);
            paint(picture, &layout, SVGBackend::with_string(&mut text, size), 1)?;
            Ok(text.into_bytes())
        }
        Format::Png => {
            let size = ((WIDTH * PNG_SCALE) as u32, (layout.height * PNG_SCALE) as u32);
            let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
            let backend = BitMapBackend::with_buffer(&mut pixels, size);
            paint(picture, &layout, backend, PNG_SCALE)?;
            encode(&pixels, size)
        }
    }
}

/// Where things stand, in units from the top.
struct Layout {
    legend: i32,
    plot: i32,
    outer: Option<i32>,
    height: i32,
}

impl Layout {
    fn of(picture: &Picture<'_>) -> Layout {
        let legend = 92;
        let plot = legend + legend::height(picture) + 34;
        let end = plot + HEIGHT + BELOW;
        let outer = picture.drawing.runs.iter().any(|run| run.whole.is_some()).then_some(end + 30);
        let height = outer.map_or(end, |outer| outer + OUTER_HEIGHT + BELOW_OUTER);
        Layout { legend, plot, outer, height }
    }
}

fn paint<B: DrawingBackend>(
    picture: &Picture<'_>,
    layout: &Layout,
    backend: B,
    scale: i32,
) -> Result<(), Error> {
    let area = backend.into_drawing_area();
    let canvas = Canvas::new(&area, scale);
    canvas.clear()?;
    canvas.text(&words::title(picture.tapes), (MARGIN, 22), canvas::TITLE)?;
    canvas.text(&words::subtitle(picture), (MARGIN, 58), canvas::SUBTITLE)?;
    legend::paint(&canvas, picture, layout.legend)?;
    Panel::near(picture, layout.plot).paint(&canvas)?;
    if let Some(top) = layout.outer {
        Panel::whole(picture, top).paint(&canvas)?;
    }
    area.present().map_err(|why| Error::Draw(why.to_string()))
}

fn encode(pixels: &[u8], (width, height): (u32, u32)) -> Result<Vec<u8>, Error> {
    let why = |error: png::EncodingError| Error::Draw(error.to_string());
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(why)?;
    writer.write_image_data(pixels).map_err(why)?;
    writer.finish().map_err(why)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
