//! The tape: one file that holds every heap call of a job's processes.
//!
//! The collector feeds a [`Writer`] with ordered events; it resolves addresses against the live
//! set, counts, and sends frames of columns through a [`BlockSink`]. [`Tape`] reads the file
//! back. The format is described in `docs/tape-format.md`. This crate starts no thread and reads
//! nothing from `/proc`.
#![forbid(unsafe_code)]

mod age;
mod age_reader;
mod births;
mod block;
mod callers;
mod codes;
mod column;
mod copy;
mod error;
mod event;
mod events;
mod family;
mod field;
mod format;
mod frame;
mod index;
mod item;
mod keyframe;
mod live;
mod live_set;
mod made;
mod marks;
mod names;
mod notes;
mod numbers;
mod operation;
mod place;
mod pool;
mod reader;
mod recount;
mod regions;
mod resolve;
mod site;
mod site_tree;
mod sites;
mod source;
mod stacks;
mod summary;
mod tally;
mod track;
mod unpacked;
mod verify;
mod verify_file;
mod verify_sites;
mod writer;

pub use error::Error;
pub use event::{
    Ended, Event, ForkPoint, Header, Note, Origin, Placement, ProcessEnd, ProcessNumber,
    ProcessStart, Sample, Uncovered, Vma,
};
pub use events::Events;
pub use frame::{Encoder, FrameWriter, RawFrame};
pub use heaptape_wire::event::Call;
pub use heaptape_wire::note::NoteKind;
pub use heaptape_wire::site::{SiteEnd, interpreted_of};
pub use item::{CallerNumber, Columns, Effect, Item, Lent, Maker, OldBlock, Release, Resolved};
pub use live_set::LiveBlock;
pub use marks::{Mark, Marks};
pub use names::{ModuleNames, NamedFrame, NamedPlace};
pub use reader::Tape;
pub use site::{Code, Site, SiteCounts, SiteNumber, UNKNOWN_CODE};
pub use site_tree::Sites;
pub use summary::{CallCounts, ProcessSummary, Summary};
pub use verify::{Overlap, Verdict, verify};
pub use verify_file::verify_file;
pub use writer::{BlockSink, Writer};
