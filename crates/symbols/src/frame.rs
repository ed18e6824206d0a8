//! What stands at an address: a function, and those that the compiler put into it.

use std::sync::Arc;

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name, demangled; empty where only the line is known.
    pub function: Arc<str>,
    /// Its source file, as the compiler was given it.
    pub file: Option<Arc<str>>,
    /// The line in that file, from 1.
    pub line: Option<u32>,
    /// Whether the compiler put it into the function of the frame after it.
    pub is_inlined: bool,
}
