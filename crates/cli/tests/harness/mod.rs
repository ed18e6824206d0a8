//! What the end-to-end tests share: programs compiled once, commands run within a time limit, tapes read back.
//!
//! Everything is written below `CARGO_TARGET_TMPDIR`. Only processes that a test started itself are ever killed.
// Each test binary uses its own part of this module.
#![allow(dead_code, clippy::print_stderr)]

pub(crate) mod allocators;
pub(crate) mod compare;
pub(crate) mod compile;
pub(crate) mod leaks;
pub(crate) mod limited;
pub(crate) mod running;
pub(crate) mod tape;
pub(crate) mod truth;

use running::Outcome;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How long one recorded command may take before the test fails, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The heaptape under test.
pub(crate) const HEAPTAPE: &str = env!("CARGO_BIN_EXE_heaptape");

/// The top of the source tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the source tree")
}

/// A folder for one test, removed at its end.
pub(crate) fn scratch() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch folder")
}

/// `heaptape ARGS…`, with an environment that no outer recording reaches into.
pub(crate) fn heaptape<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(HEAPTAPE);
    command.args(args).env_remove("LD_PRELOAD").env_remove("TRUTH");
    command
}

/// `heaptape record --quiet -o TAPE OPTIONS… -- COMMAND…`
pub(crate) fn record(tape: &Path, options: &[&str], command: &[&OsStr]) -> Command {
    let mut record = heaptape(["record", "--quiet", "-o"]);
    record.arg(tape).args(options).arg("--").args(command);
    record
}

/// Records tests/programs/loop.c with four threads onto `x.tape` in a folder, where the program keeps
/// its `progress`. It ends by itself when both are over: the milliseconds, and the calls of each thread.
pub(crate) fn record_loop(
    folder: &Path,
    options: &[&str],
    milliseconds: &str,
    calls: &str,
) -> Command {
    let (program, shared) = (compile::program("loop"), folder.join("progress"));
    let words = ["4", milliseconds, "100", calls].map(OsStr::new);
    let command = [&[program.as_os_str(), shared.as_os_str()][..], &words].concat();
    record(&folder.join("x.tape"), options, &command)
}

/// Says on the test's output why it checks nothing here.
pub(crate) fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// Whether call stacks can be recorded: the library finds the tables of modules by a function that glibc has since 2.35.
pub(crate) fn has_stacks() -> bool {
    let version = Command::new("ldd").arg("--version").output();
    let text = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    let first = text.unwrap_or_default().lines().next().unwrap_or_default().to_owned();
    let minor = first.rsplit('.').next().and_then(|minor| minor.parse::<u32>().ok());
    let has = minor.is_some_and(|minor| minor >= 35);
    if !has {
        skip("call stacks need glibc 2.35");
    }
    has
}

/// Whether mounts may be made here; the tests of full disks need them.
pub(crate) fn may_mount() -> bool {
    let mut probe = Command::new("unshare");
    probe.args(["-m", "true"]);
    rustix::process::geteuid().is_root() && probe.output().is_ok_and(|o| o.status.success())
}

/// Asserts that stderr holds exactly one line, that it comes from heaptape, and returns it.
pub(crate) fn one_sentence(outcome: &Outcome) -> String {
    let text = outcome.stderr_text();
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    assert_eq!(lines.len(), 1, "one sentence expected on stderr, found:\n{text}");
    assert!(!text.contains("panicked") && !text.contains("backtrace"), "{text}");
    lines[0].to_owned()
}
