//! The interpreter's texts, in UTF-8.

use super::layout::Layout;
use super::{byte, is_pointer, word};

const LENGTH: usize = 16;
const STATE: usize = 32;

/// Copies a text as far as there is room for; how many bytes that is.
///
/// # Safety
/// `text` is null or one of the interpreter's objects.
pub unsafe fn copy(layout: &Layout, text: usize, room: &mut [u8]) -> usize {
    if !is_pointer(text) {
        return 0;
    }
    // SAFETY: as promised.
    let (length, state) = unsafe { (word(text + LENGTH), word(text + STATE) as u32) };
    // How many bytes a character has, whether the characters follow the head, and whether all are of ASCII.
    let (width, is_compact, is_ascii) = (state >> 2 & 7, state & 1 << 5 != 0, state & 1 << 6 != 0);
    if !is_compact || !matches!(width, 1 | 2 | 4) {
        return 0;
    }
    let start = text + if is_ascii { layout.ascii } else { layout.others };
    let width = width as usize;
    let mut filled = 0;
    for i in 0..length.min(room.len()) {
        // SAFETY: within the text.
        let unit = |k: usize| u32::from(unsafe { byte(start + i * width + k) }) << (8 * k);
        let character = char::from_u32((0..width).map(unit).sum()).unwrap_or('\u{fffd}');
        let mut encoded = [0; 4];
        let bytes = character.encode_utf8(&mut encoded).as_bytes();
        let Some(place) = room.get_mut(filled..filled + bytes.len()) else { break };
        place.copy_from_slice(bytes);
        filled += bytes.len();
    }
    filled
}
