//! From figures to bytes.
//!
//! [`mod@account`], [`info`], [`events`], [`live`], [`leaks`], [`mod@diff`], [`limit`] and [`doctor`] are for people, with [`table`] and
//! [`text`] for their columns and words; [`json`] is for programs, [`plot`] makes pictures. [`columns`] are the tables of an
//! export, which [`sheet`] writes as [`csv`] or Parquet. [`size`] reads and prints sizes.
//!
//! [`callgraph`] and [`flamegraph`] draw call stacks; [`folded`], [`mod@pprof`], [`speedscope`] and [`firefox`] write them for other tools.
//!
//! Everything is written into an `impl Write` that is handed in. Nothing here reads a tape, opens a
//! file or computes a figure.
#![forbid(unsafe_code)]

pub mod account;
pub mod callgraph;
mod classes;
pub mod columns;
pub mod csv;
pub mod diff;
pub mod doctor;
pub mod document;
mod error;
pub mod events;
pub mod firefox;
pub mod flamegraph;
pub mod folded;
pub mod info;
pub mod json;
pub mod leaks;
pub mod limit;
pub mod live;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod plot;
pub mod pprof;
#[cfg(test)]
mod sample;
pub mod sheet;
pub mod sites;
pub mod size;
pub mod spark;
pub mod speedscope;
pub mod stacks;
pub mod table;
pub mod text;
pub mod tree;
mod unseen;

pub use error::Error;
pub use table::Style;
