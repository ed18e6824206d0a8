//! The call stack of a call, frame by frame: where each lies in its module, or in a script.
//!
//! The frames come from the sites of a tape, the places from the modules of the process at the time of the call.

use heaptape_tape::{Code, SiteEnd, SiteNumber, Sites, interpreted_of};

use crate::modules::{Modules, Place};

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Code of a module.
    Native {
        /// The address behind the call.
        address: u64,
        /// Where that is; `None` when no module was known there.
        place: Option<Place>,
    },
    /// Code of a script.
    Interpreted {
        /// Its function and file; `None` when it is not known.
        code: Option<Code>,
        /// The line; 0 when unknown.
        line: u32,
    },
}

/// A call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Its frames, innermost first.
    pub frames: Vec<Frame>,
    /// How it ends behind its last frame.
    pub end: SiteEnd,
}

impl Stack {
    /// The stack of a site in the event `index`; `modules` are those of the process.
    pub fn of(sites: &Sites, site: SiteNumber, modules: &Modules, index: u64) -> Option<Stack> {
        let site = sites.get(site)?;
        let frames = site.frames.iter().map(|&frame| match interpreted_of(frame) {
            Some((code, line)) => Frame::Interpreted { code: sites.code(code).cloned(), line },
            None => Frame::Native { address: frame, place: modules.find_call(frame, index) },
        });
        Some(Stack { frames: frames.collect(), end: site.end })
    }

    /// The places of its frames, for their names to be completed.
    pub fn places(&mut self) -> impl Iterator<Item = &mut Option<Place>> {
        self.frames.iter_mut().filter_map(|frame| match frame {
            Frame::Native { place, .. } => Some(place),
            Frame::Interpreted { .. } => None,
        })
    }
}
