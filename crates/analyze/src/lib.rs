//! From the events of a tape to figures.
//!
//! [`choice`] is what a reader asks for; [`processes`] and [`moment`] find it on a tape.
//! [`overview`] is the tape as a whole, [`calls`] one call with what it did, [`filter`] which calls
//! are wanted, [`blocks`] each block from birth to death, [`live`] those alive at a moment, [`bins`] the size classes.
//! [`modules`] and [`callers`] turn return addresses into places in files, [`places`] are all those of a tape. [`account`] is all of a job in one pass,
//! [`leaks`] what is never freed, [`diff`] what two moments differ in.
//!
//! Everything here is a function of its arguments: tapes come from their reader, figures go to the
//! report. Nothing opens a file, looks at a clock or prints.
#![forbid(unsafe_code)]

pub mod account;
pub mod bins;
pub mod blocks;
pub mod callers;
pub mod calls;
pub mod choice;
pub mod curves;
pub mod diff;
mod error;
pub mod filter;
pub mod findings;
pub mod gather;
pub mod graph;
pub mod growth;
pub mod leaks;
pub mod live;
pub mod lives;
pub mod modules;
pub mod moment;
mod numbered;
pub mod overview;
pub mod places;
pub mod processes;
pub mod profile;
pub mod ranking;
pub mod sites;
pub mod stack;
pub mod suppressions;
pub mod survey;
pub mod timeline;
mod together;
pub mod tree;

pub use error::Error;
pub use heaptape_tape::{
    Call, CallCounts, CallerNumber, Code, Effect, Ended, Header, LiveBlock, Note, NoteKind,
    Placement, ProcessNumber, ProcessSummary, Release, Resolved, Sample, SiteCounts, SiteEnd,
    SiteNumber, Summary, Uncovered, Verdict,
};
