//! The call stack of a call, frame by frame: where each lies in its module, or in a script.
//!
//! The frames come from the sites of a tape, the places from the modules of the process at the time of the call.

use heaptape_tape::{Code, SiteEnd, SiteNumber, Sites, interpreted_of};

use crate::modules::{Modules, Place};
use crate::profile;

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

    /// Without the interpreter's own calls, if lines of Python stand for them.
    pub fn folded(mut self) -> Stack {
        let is_line = |frame: &Frame| matches!(frame, Frame::Interpreted { .. });
        if self.frames.iter().any(is_line) {
            self.frames.retain(|frame| match frame {
                Frame::Native { place: Some(place), .. } => {
                    !is_interpreter(place.module.path.rsplit('/').next().unwrap_or_default())
                }
                _ => true,
            });
        }
        self
    }

    /// The places of its frames, for their names to be completed.
    pub fn places(&mut self) -> impl Iterator<Item = &mut Option<Place>> {
        self.frames.iter_mut().filter_map(|frame| match frame {
            Frame::Native { place, .. } => Some(place),
            Frame::Interpreted { .. } => None,
        })
    }
}

/// A call stack whose frames have their names; inlined functions are frames of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its frames, innermost first.
    pub frames: Vec<profile::Frame>,
    /// How it ends behind its last frame.
    pub end: SiteEnd,
}

/// Whether a file of this name is an interpreter of Python, or the library of one: `python3.12`, `libpython3.11.so.1.0`.
pub(crate) fn is_interpreter(name: &str) -> bool {
    let version = match name.strip_prefix("libpython") {
        Some(library) => library.split_once(".so").map(|(version, _)| version),
        None => name.strip_prefix("python"),
    };
    version.is_some_and(|version| {
        let build = version.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        // Without a lock, for debugging, and what older versions had.
        matches!(build, "" | "t" | "d" | "td" | "m" | "dm" | "-dbg")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_known_by_the_whole_of_its_name() {
        for name in [
            "python",
            "python3",
            "python3.11",
            "python3.13t",
            "python3.11-dbg",
            "libpython3.so",
            "libpython3.12.so.1.0",
            "libpython3.13td.so",
        ] {
            assert!(is_interpreter(name), "{name}");
        }
        for name in [
            "pythonish",
            "python3-config",
            "python-helper.so",
            "libpythonic.so",
            "libpython3.11.a",
            "libpython_bridge.so.2",
            "",
        ] {
            assert!(!is_interpreter(name), "{name}");
        }
    }
}
