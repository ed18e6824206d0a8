//! A text that is put together without memory of its own: a path, or a sentence.

use core::ffi::c_char;

/// Bytes of a text, with its end.
const TEXT: usize = 1024;

/// A C string that is put together; what does not fit is left out.
pub struct Text([u8; TEXT], usize);

impl Text {
    /// An empty one.
    pub fn new() -> Text {
        Text([0; TEXT], 0)
    }

    /// Adds bytes, none of which is zero.
    pub fn push(&mut self, more: &[u8]) {
        // The last byte stays zero.
        let room = &mut self.0[self.1.min(TEXT - 1)..TEXT - 1];
        for (to, from) in room.iter_mut().zip(more) {
            *to = *from;
        }
        self.1 += more.len();
    }

    /// Adds a number, in decimal.
    pub fn push_number(&mut self, number: u64) {
        let mut digits = [b'0'; 20];
        let mut rest = number;
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 || first == 0 {
                break;
            }
        }
        self.push(&digits[first..]);
    }

    /// What is in it.
    pub fn bytes(&self) -> &[u8] {
        &self.0[..self.1.min(TEXT - 1)]
    }

    /// It, to be handed on.
    pub fn start(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    /// Whether all has fitted.
    pub fn is_whole(&self) -> bool {
        self.1 < TEXT
    }
}
