//! Size classes, by requested size: eight per power of two from 16 bytes up, each named by its upper
//! edge, which belongs to it; 0 to 16 bytes is one.
//!
//! The library in the program counts in the same ones.

pub use heaptape_wire::bin::{BINS, bin_of, upper_edge};

/// Four coarse classes; their edges are edges of bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Up to 1 KiB.
    Small,
    /// Up to 128 KiB.
    Medium,
    /// Up to 32 MiB.
    Large,
    /// Above.
    Huge,
}

impl Group {
    /// All, from small to huge.
    pub const ALL: [Group; 4] = [Group::Small, Group::Medium, Group::Large, Group::Huge];

    /// The group that a block of so many requested bytes belongs to.
    pub const fn of_bytes(size: u64) -> Group {
        match size {
            0..=0x400 => Group::Small,
            0x401..=0x2_0000 => Group::Medium,
            0x2_0001..=0x200_0000 => Group::Large,
            _ => Group::Huge,
        }
    }

    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Small => "small",
            Group::Medium => "medium",
            Group::Large => "large",
            Group::Huge => "huge",
        }
    }
}
