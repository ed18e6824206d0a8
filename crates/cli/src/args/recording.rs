//! Options of `record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use heaptape_collect::MAX_DEPTH;
use heaptape_report::size;

use super::examples;

/// Frames of a call stack, if nobody says how many.
pub(crate) const DEPTH: u32 = 64;

fn depth(text: &str) -> Result<u32, String> {
    let most = MAX_DEPTH as u32;
    let depth = text.parse().ok().filter(|depth| (1..=most).contains(depth));
    depth.ok_or_else(|| format!("a call stack is recorded with 1 to {most} frames"))
}

/// Record every heap call of a program and its children onto a tape
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape record -- ls -lR /usr/share", "onto ls.PID.tape"),
    ("heaptape record --stacks -- ./server", "with the call stack of every allocation"),
    ("heaptape record --python -- python3 app.py", "with lines of Python, and every object"),
    ("mpirun -n 4 heaptape record --join -o tapes -- ./solver", "all ranks of a host, onto tapes/JOB.HOST.tape"),
]))]
pub(crate) struct Record {
    /// The tape to write; %p stands for the command's process id, %r for its rank [default: COMMAND.PID.tape]. With --join the directory of the tapes
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Run the command without address space randomisation, so that addresses repeat
    #[arg(long)]
    pub(crate) no_aslr: bool,
    /// Set PYTHONMALLOC=malloc, so that Python's own small-object allocator is bypassed
    #[arg(long)]
    pub(crate) python_malloc: bool,
    /// Record the call stack of every allocation
    #[arg(long)]
    pub(crate) stacks: bool,
    /// Record so many frames of each call stack at the most, the innermost ones: 1 to 128 [default: 64]. Implies --stacks
    #[arg(long, value_name = "N", value_parser = depth, allow_hyphen_values = true)]
    pub(crate) depth: Option<u32>,
    /// Record what Python code asks for, object by object, with its functions, files and lines: --stacks and --python-malloc together
    #[arg(long)]
    pub(crate) python: bool,
    /// End the recording when the command ends, though children may still run
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Put all commands of one job on this host onto one tape, DIR/JOB.HOST.tape: for use behind a launcher such as mpirun. The job is known by its launcher's variables, or named by HEAPTAPE_JOB
    #[arg(long)]
    pub(crate) join: bool,
    /// End the recording (not the command) when the tape has this size: bytes, or 512K, 1.5GB and so on; K is 1024, M 1024 K
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_hyphen_values = true)]
    pub(crate) max_size: Option<u64>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true,
          value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}
