//! Options of the commands that count the memory of a job while it runs: `limit`, `stat`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use heaptape_report::size;

use super::examples;

/// No program has as much address space as this.
const LARGEST: u64 = 1 << 47;

/// The first step of a stack alone is as much. With the reserve, and the data of the program and the C library, the smallest
/// programs need three times that.
const LEAST: u64 = 64 << 10;

/// What a limit can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// So many bytes.
    Bytes(u64),
    /// What the job was given on this node.
    Auto,
}

/// Count the memory of a job, and let all its processes together have no more than SIZE
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape limit 1GB -- mpirun -n 4 ./solver", "all ranks together may hold 1 GB"),
    ("heaptape limit 512MB --on-limit kill --strict --json verdict.json -- ./solver", "for a script: killed at the first request beyond it, status 0 only if all is well"),
]))]
pub(crate) struct Limit {
    /// What all processes of the job may hold together: bytes, or 512K, 1.5GB and so on; K is 1024, M 1024 K. `auto` stands for what the batch system, or the control group that heaptape runs in, gives this job on this node: the smallest of all that apply
    #[arg(value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub(crate) size: Size,
    /// What happens to a request beyond the limit: it fails as if there were no memory, the whole job is killed (status 137, with --strict 3), or the whole job is stopped once for a debugger. What is resident can't be refused: with --basis resident `fail` kills too
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    pub(crate) on_limit: OnLimit,
    #[command(flatten)]
    pub(crate) counting: Counting,
}

/// Count the memory of a job: what all its processes held together
#[derive(Debug, Args)]
#[command(after_help = examples([
    ("heaptape stat -- ls -lR /usr/share", "how much it held at most, by size and by library"),
    ("heaptape stat --output solver.md -- mpirun -n 4 ./solver", "all ranks together, as Markdown"),
]))]
pub(crate) struct Stat {
    #[command(flatten)]
    pub(crate) counting: Counting,
}

/// Let the program that has started this command have the limit that HEAPTAPE_LIMIT names; the capture library asks for it
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Summoned {
    /// The descriptor to write the session to
    pub(crate) pipe: u32,
    /// The version of what the library knows
    pub(crate) version: u32,
}

/// What is counted, and where the report goes.
#[derive(Debug, Args)]
pub(crate) struct Counting {
    /// What counts: heap blocks by what the program asked for, or by what the allocator set aside, and all else that is charged; or, with limit, what is resident of the whole job
    #[arg(long, value_name = "BYTES", default_value = "requested")]
    pub(crate) basis: Basis,
    /// Have exact peaks instead of two values that they lie between; it costs more
    #[arg(long)]
    pub(crate) exact: bool,
    /// Count no usable bytes, size classes or modules; it costs less
    #[arg(long)]
    pub(crate) brief: bool,
    /// Do not charge what the MPI runtime takes for itself in MPI_Init
    #[arg(long)]
    pub(crate) exclude_mpi_runtime: bool,
    /// Do not charge the heap blocks that this library asks for; its mappings and its data are charged. Named by its file, libfoo.so.1, or by its path as ldd shows it. May be given several times
    #[arg(long, value_name = "MODULE")]
    pub(crate) exempt: Vec<String>,
    /// Charge launchers such as mpirun too, which only start others
    #[arg(long)]
    pub(crate) count_launcher: bool,
    /// Exit with status 3 unless the verdict is `within`, and do not start a command that can't be counted. With limit the job has a control group of its own where one can be made, which ends what is not counted and takes too much. With --join the wrapper stays and waits for the job
    #[arg(long)]
    pub(crate) strict: bool,
    /// Count all commands of one job on this host together: for use behind a launcher such as mpirun. The job is known by its launcher's variables, or named by HEAPTAPE_JOB; what the first command says of the limit counts
    #[arg(long)]
    pub(crate) join: bool,
    /// End the counting when the command ends, though children may still run
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Write the report into this file, as Markdown if it ends in .md [default: stderr]
    #[arg(short, long, value_name = "FILE", value_parser = output, value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Write JSON (heaptape.limit/1) into this file
    #[arg(long, value_name = "FILE", value_parser = file, value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
    /// Print long tables whole: all processes, size classes and modules
    #[arg(long)]
    pub(crate) verbose: bool,
    /// Show what the job and each rank hold while it runs, if stderr is a terminal
    #[arg(long, conflicts_with = "join")]
    pub(crate) live: bool,
    /// Where the limit comes from, if it was to be what the job was given.
    #[arg(skip)]
    pub(crate) source: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true,
          value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// What happens to a request beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLimit {
    /// It fails
    Fail,
    /// The job is killed
    Kill,
    /// The job is stopped
    Stop,
}

impl From<OnLimit> for heaptape_ledger::OnLimit {
    fn from(on_limit: OnLimit) -> heaptape_ledger::OnLimit {
        match on_limit {
            OnLimit::Fail => heaptape_ledger::OnLimit::Fail,
            OnLimit::Kill => heaptape_ledger::OnLimit::Kill,
            OnLimit::Stop => heaptape_ledger::OnLimit::Stop,
        }
    }
}

/// Which bytes of heap blocks count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Basis {
    /// What the program asked for
    Requested,
    /// What the allocator set aside
    Usable,
    /// What is resident of the whole job; it is killed when that is too much
    Resident,
}

impl From<Basis> for heaptape_ledger::Basis {
    fn from(basis: Basis) -> heaptape_ledger::Basis {
        match basis {
            Basis::Requested => heaptape_ledger::Basis::Requested,
            Basis::Usable => heaptape_ledger::Basis::Usable,
            Basis::Resident => heaptape_ledger::Basis::Resident,
        }
    }
}

/// Reads a limit, or the word for what the job was given.
fn size(text: &str) -> Result<Size, String> {
    if text.eq_ignore_ascii_case("auto") { Ok(Size::Auto) } else { limit(text).map(Size::Bytes) }
}

/// Reads a limit.
pub(crate) fn limit(text: &str) -> Result<u64, String> {
    let too_large = || {
        format!(
            "'{text}' is too large a limit: the largest is {} bytes, all that a process can address.",
            LARGEST - 1
        )
    };
    match size::parse(text) {
        Ok(bytes) if bytes >= LARGEST => Err(too_large()),
        Ok(bytes) if bytes < LEAST => Err(format!(
            "'{text}' is too small a limit: no program can start with less than {LEAST} bytes, and the smallest need about 200000."
        )),
        Ok(bytes) => Ok(bytes),
        Err(heaptape_report::Error::TooLarge(_)) => Err(too_large()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads the name of a file to write.
fn file(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("The name of the file is empty.".to_owned()),
        "-" => Err("'-' is no file, and stdout is the command's own; name a file.".to_owned()),
        name => Ok(name.into()),
    }
}

/// Reads the name of the report's file.
fn output(text: &str) -> Result<PathBuf, String> {
    if text.ends_with(".json") {
        return Err(format!("A report is text or Markdown; --json {text} writes JSON."));
    }
    file(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        assert_eq!(limit("1GB"), Ok(1 << 30));
        assert_eq!(limit("140737488355327"), Ok((1 << 47) - 1));
        assert_eq!(limit("64K"), Ok(64 << 10));
        for (text, sentence) in [
            (
                "10",
                "'10' is too small a limit: no program can start with less than 65536 bytes, and the smallest need about 200000.",
            ),
            (
                "0",
                "'0' is too small a limit: no program can start with less than 65536 bytes, and the smallest need about 200000.",
            ),
            ("-1", "'-1' is a negative size: it must be zero or more."),
            (
                "1XB",
                "'1XB' is not a size: give a number of bytes, or one with a unit, such as 512K or 1.5GB.",
            ),
            (
                "128T",
                "'128T' is too large a limit: the largest is 140737488355327 bytes, all that a process can address.",
            ),
            (
                "99999999TB",
                "'99999999TB' is too large a limit: the largest is 140737488355327 bytes, all that a process can address.",
            ),
        ] {
            assert_eq!(limit(text), Err(sentence.to_owned()));
        }
        assert_eq!([size("auto"), size("1K K")].map(|size| size.is_ok()), [true, false]);
    }

    #[test]
    fn files() {
        assert_eq!(output("a.md"), Ok("a.md".into()));
        assert!(output("a.json").is_err_and(|why| why.contains("--json a.json")));
        assert_eq!(file("a.json"), Ok("a.json".into()));
        assert!(file("-").is_err() && file("").is_err() && output("-").is_err());
    }
}
