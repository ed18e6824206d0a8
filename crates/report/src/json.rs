//! The JSON that other programs rely on. Every document names its schema; sizes are plain bytes,
//! what is not known is `null`, and no field is ever left out.
//!
//! One module a schema: [`mod@tape`], [`account`], [`events`], [`histogram`], [`live`], [`leaks`], [`mod@diff`],
//! [`doctor`].

pub mod account;
pub mod diff;
pub mod doctor;
pub mod events;
pub mod histogram;
pub mod leaks;
pub mod live;
pub mod tape;

use std::io::{self, Write};

use heaptape_analyze::ProcessSummary;
use serde::Serialize;

/// Writes a value as one document, ended by a newline.
fn document(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Which process a document is about.
#[derive(Serialize)]
pub(crate) struct ProcessName<'a> {
    number: u32,
    pid: Option<u32>,
    rank: Option<u32>,
    command: &'a [String],
}

impl<'a> ProcessName<'a> {
    pub(crate) fn of(p: &'a ProcessSummary) -> ProcessName<'a> {
        ProcessName { number: p.number.0, pid: p.known_pid(), rank: p.rank, command: &p.command }
    }
}
