//! How wide texts are, by the built-in font.

use std::sync::OnceLock;

use ab_glyph::{Font, FontRef};

/// What is left for fonts that are wider than the built-in one: an SVG is shown with those of the reader's system.
const SLACK: f64 = 1.2;
/// The width of a letter where the font can't be read, to its size.
const USUAL: f64 = 0.6;

/// The width of a text in letters of a size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(letter).sum::<f64>() * size * SLACK
}

fn letter(letter: char) -> f64 {
    static FONT: OnceLock<Option<FontRef<'static>>> = OnceLock::new();
    let font = FONT.get_or_init(|| FontRef::try_from_slice(BYTES).ok());
    let Some(font) = font else { return USUAL };
    let glyph = font.glyph_id(letter);
    match font.units_per_em() {
        // What the font has not is shown with another one, and may be as wide as high.
        _ if glyph.0 == 0 => 1.0,
        Some(em) if em > 0.0 => f64::from(font.h_advance_unscaled(glyph) / em),
        _ => USUAL,
    }
}

/// The built-in font.
pub(super) const BYTES: &[u8] = epaint_default_fonts::UBUNTU_LIGHT;

#[cfg(test)]
mod tests {
    use super::width;

    #[test]
    fn letters_have_their_own_widths() {
        assert!(width("iiii", 10.0) < width("mmmm", 10.0));
        assert_eq!(width("", 10.0), 0.0);
        assert!(width("main", 20.0) > 1.9 * width("main", 10.0));
        assert!(width("\u{4e00}", 10.0) > 9.0);
    }
}
