//! Options of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use heaptape_analyze::choice::{ProcessChoice, Span};

use super::{Sysroot, examples};

/// Write the calls or the blocks in another format
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape export ls.tape --to csv --range 0..1000 | head", "the first calls of every process, one a line"),
    ("heaptape export ls.tape --table blocks --to parquet -o ls.parquet", "every block from birth to death, for SQL"),
]))]
pub(crate) struct Export {
    /// The tape
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The format
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Format,
    /// A row for each call, or for each block from its birth to its death
    #[arg(long, value_name = "TABLE", default_value = "calls")]
    pub(crate) table: Table,
    /// The file to write [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Which process: a process id, rank:R, #N for the Nth to start (from 0), or all
    #[arg(long, value_name = "PROCESS", default_value = "all", allow_hyphen_values = true)]
    pub(crate) process: ProcessChoice,
    /// Of each process only the calls from index A to B, B excluded; N alone is one call. Of blocks those that these calls made
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    pub(crate) range: Option<Span>,
    #[command(flatten)]
    pub(crate) sysroot: Sysroot,
}

/// Formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated values with a head line
    Csv,
    /// Apache Parquet, compressed with zstd
    Parquet,
}

/// Tables of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// A row for each call
    Calls,
    /// A row for each block
    Blocks,
}
