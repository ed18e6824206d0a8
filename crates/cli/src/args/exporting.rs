//! Options of `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use heaptape_analyze::choice::Span;

use super::stacks::{Measured, Selection};
use super::{Sysroot, examples};

/// Write the calls, the blocks or the call stacks in another format
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape export ls.tape --to csv --range 0..1000 | head", "the first calls of every process, one a line"),
    ("heaptape export ls.tape --table blocks --to parquet -o ls.parquet", "every block from birth to death, for SQL"),
    ("heaptape export server.tape --to flamegraph -o peak.svg", "who made what lives at the peak, for a browser"),
    ("heaptape export server.tape --to callgraph --at end -o left.pdf", "who made what was never freed, as boxes and arrows"),
    ("heaptape export server.tape --to pprof -o server.pb.gz && go tool pprof -top server.pb.gz", "the same for pprof"),
]))]
pub(crate) struct Export {
    /// The tape
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The format
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Format,
    /// Of csv and parquet: a row for each call, or for each block from its birth to its death [default: calls]
    #[arg(long, value_name = "TABLE")]
    pub(crate) table: Option<Table>,
    /// The file to write [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Of csv and parquet: of each process only the calls from index A to B, B excluded; N alone is one call. Of blocks those that these calls made
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    pub(crate) range: Option<Span>,
    #[command(flatten)]
    pub(crate) selection: Selection,
    #[command(flatten)]
    pub(crate) measured: Measured,
    /// Of pprof: keep stacks of several ranks (or processes) or threads apart, under labels that `pprof -tagfocus` and `-tagroot` take
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) label: Vec<Label>,
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
    /// A line for each call stack, for flame graph tools
    Folded,
    /// An SVG with search and zoom, for a browser
    Flamegraph,
    /// For pprof (profile.proto, compressed with gzip)
    Pprof,
    /// For speedscope, at speedscope.app
    Speedscope,
    /// For the Firefox Profiler, at profiler.firefox.com
    Firefox,
    /// The call graph, for Graphviz
    Dot,
    /// The call graph, drawn: SVG, or PDF where -o ends in .pdf
    Callgraph,
}

impl Format {
    /// Whether it has a table of calls or blocks, and not call stacks.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Format::Csv | Format::Parquet)
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// What stacks are told apart by in a pprof profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Label {
    /// The MPI rank, and the process where there is none.
    Rank,
    /// The thread.
    Thread,
}

/// Tables of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// A row for each call
    Calls,
    /// A row for each block
    Blocks,
}
