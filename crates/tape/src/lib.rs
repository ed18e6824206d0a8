//! The tape: one file that holds every heap call of a job's processes.
//!
//! The collector feeds a [`Writer`] with ordered events; it resolves addresses against the live
//! set, counts, and sends frames of columns through a [`BlockSink`]. [`Tape`] reads the file
//! back. The format is described in `docs/tape-format.md`. This crate starts no thread and reads
//! nothing from `/proc`.
#![forbid(unsafe_code)]

mod error;
mod event;
mod format;
mod reader;
mod summary;
mod verify;
mod writer;

pub use error::Error;
pub use event::{
    Ended, Event, ForkPoint, Header, Note, Origin, ProcessEnd, ProcessNumber, ProcessStart, Sample,
    Uncovered, Vma,
};
pub use format::{Encoder, FrameWriter, RawFrame};
pub use heaptape_wire::event::Call;
pub use heaptape_wire::note::NoteKind;
pub use reader::{Columns, Events, Item, LiveBlock, OldBlock, Release, Resolved, Tape};
pub use summary::{CallCounts, ProcessSummary, Summary};
pub use verify::{Overlap, Verdict, verify};
pub use writer::{BlockSink, Writer};
