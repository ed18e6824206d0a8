//! Tables of size classes, as several reports have them.

use crate::size::{Count, Size};
use crate::table::Align::{self, Left, Right};

/// The columns, behind that of the class.
pub(crate) fn columns(first: (&'static str, Align)) -> [(&'static str, Align); 7] {
    [
        first,
        ("peak", Right),
        ("total", Right),
        ("freed", Right),
        ("current", Right),
        ("count", Right),
        ("", Left),
    ]
}

/// What went in and out of a class.
pub(crate) struct Class {
    /// Its name.
    pub(crate) name: String,
    /// The largest that `current` was, as text.
    pub(crate) peak: String,
    /// Sizes of all allocations.
    pub(crate) total: u64,
    /// Sizes of all released blocks.
    pub(crate) freed: u64,
    /// Sizes of the blocks that live.
    pub(crate) current: u64,
    /// Allocations.
    pub(crate) count: u64,
}

impl Class {
    /// Its row.
    pub(crate) fn row(self) -> [String; 7] {
        [
            self.name,
            self.peak,
            Size(self.total).to_string(),
            Size(self.freed).to_string(),
            Size(self.current).to_string(),
            Count(self.count).to_string(),
            if self.current == 0 { "ok" } else { "not all freed" }.to_owned(),
        ]
    }
}
