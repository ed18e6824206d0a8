//! Size classes, by requested size: eight per power of two from 16 bytes up, each named by its upper
//! edge, which belongs to it; 0 to 16 bytes is one.
//!
//! The library in the program counts in the same ones.

pub use heaptape_wire::bin::{BINS, bin_of, upper_edge};
