//! Sites: call stacks, and the interpreted code that some of their frames lie in.
//!
//! They come from the capture library by way of the collector, and stand on a tape of version 2, each once in a
//! process. Nothing here knows names of functions.

use heaptape_wire::site::{SiteEnd, interpreted_of};

/// A site by its place among those of its process, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteNumber(pub u32);

/// A call stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Its frames, innermost first: the address behind each call, or a line of interpreted code, which
    /// [`interpreted_of`] takes apart.
    pub frames: Box<[u64]>,
    /// How it ends behind its last frame.
    pub end: SiteEnd,
}

impl Site {
    /// The first frame that is an address; 0 for none.
    pub fn caller(&self) -> u64 {
        self.frames.iter().copied().find(|&frame| interpreted_of(frame).is_none()).unwrap_or(0)
    }
}

/// Interpreted code: a function of a script.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Code {
    /// The file, as the interpreter calls it.
    pub file: String,
    /// The function's name.
    pub function: String,
    /// The line that it begins in; 0 when unknown.
    pub line: u32,
}

/// The number of code that nothing is known of, in an interpreted frame.
pub const UNKNOWN_CODE: u32 = u32::MAX;

/// How many sites a process has, by how their stacks end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SiteCounts {
    /// Sites in all.
    pub sites: u64,
    /// Those that are cut, as no more frames were wanted.
    pub cut: u64,
    /// Those that end at code without unwinding rules.
    pub foreign: u64,
    /// Those that end where the stack can't be read.
    pub unreadable: u64,
    /// Frames in all, those that stacks share from the outermost one on counted once.
    pub frames: u64,
    /// Pieces of interpreted code.
    pub codes: u64,
}

impl SiteCounts {
    /// Counts a site that ends so.
    pub(crate) fn count(&mut self, end: SiteEnd) {
        self.sites += 1;
        match end {
            SiteEnd::Outermost => {}
            SiteEnd::Depth => self.cut += 1,
            SiteEnd::Foreign => self.foreign += 1,
            SiteEnd::Unreadable => self.unreadable += 1,
        }
    }

    /// Those of several processes, or frames, together.
    pub(crate) fn join(&mut self, more: &SiteCounts) {
        for (all, more) in [
            (&mut self.sites, more.sites),
            (&mut self.cut, more.cut),
            (&mut self.foreign, more.foreign),
            (&mut self.unreadable, more.unreadable),
            (&mut self.frames, more.frames),
            (&mut self.codes, more.codes),
        ] {
            *all = all.saturating_add(more);
        }
    }
}
