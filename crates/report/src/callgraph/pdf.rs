//! The call graph as PDF: the SVG with the built-in font in it.

use svg2pdf::usvg;

use super::{letters, svg};
use crate::Error;
use crate::stacks::Subject;

/// Draws the graph; the bytes are a whole file.
pub fn draw(subject: Subject<'_>) -> Result<Vec<u8>, Error> {
    let text = svg::draw(subject)?;
    let cannot = |why: &dyn std::fmt::Display| Error::Draw(why.to_string());
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(letters::BYTES.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first());
    if let Some((family, _)) = family.cloned() {
        fonts.set_sans_serif_family(family.as_str());
        options.font_family = family;
    }
    let tree = usvg::Tree::from_str(&text, &options).map_err(|why| cannot(&why))?;
    let page = svg2pdf::PageOptions::default();
    svg2pdf::to_pdf(&tree, svg2pdf::ConversionOptions::default(), page).map_err(|why| cannot(&why))
}
