//! The JSON that other programs rely on. Every document names its schema; sizes are plain bytes,
//! what is not known is `null`, and no field is ever left out.
//!
//! One module a schema: [`mod@tape`], [`account`], [`events`], [`histogram`], [`live`], [`leaks`], [`mod@diff`],
//! [`limit`], [`doctor`], [`stacks`].

pub mod account;
pub mod diff;
pub mod doctor;
pub mod events;
mod felled;
pub mod histogram;
mod kernel;
pub mod leaks;
pub mod limit;
pub mod live;
mod parts;
mod patches;
pub mod stacks;
pub mod tape;

use std::io::{self, Write};

use serde::Serialize;

/// Writes a value as one document, ended by a newline.
fn document(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
