//! What the commands that run a program have alike: the exit status, and what is said meanwhile.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use heaptape_collect::{Error, Exit};
use heaptape_proc::{job, launcher};
use heaptape_report::text::plain;

/// heaptape itself failed, and the command was not started.
pub(super) const FAILED: u8 = 125;
/// The command is there and can't be run.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

/// The command's own status; 128 + n when signal n ended it.
pub(super) fn exit_code(exit: Exit) -> ExitCode {
    let code = exit.code.or(exit.signal.map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}

/// The status for a command that was not started.
pub(super) fn not_started(error: &Error) -> ExitCode {
    ExitCode::from(match error {
        Error::NotFound { .. } => NOT_FOUND,
        Error::NotExecutable { .. } => NOT_EXECUTABLE,
        _ => FAILED,
    })
}

/// The job that this command is one of, and how many commands its launcher starts on this host, where
/// it says so.
///
/// # Errors
/// When nobody has named the job.
pub(super) fn job() -> Result<(String, Option<u32>)> {
    let lookup = |name: &str| std::env::var(name).ok();
    let Some(job) = launcher::job_name(std::process::id(), lookup) else {
        bail!(
            "--join needs to know which job this is, and no MPI launcher has said so; name it with {}=NAME in the environment",
            launcher::JOB_VARIABLE
        );
    };
    Ok((job, job::find(lookup).and_then(|job| job.local_size)))
}

/// Says on stderr what the user should know.
pub(super) struct Teller {
    pub(super) quiet: bool,
}

impl Teller {
    /// A sentence, whatever was asked for.
    pub(super) fn error(&self, sentence: &str) {
        // One line, whatever names stand in it.
        let _ = writeln!(std::io::stderr(), "heaptape: {}", plain(sentence));
    }

    /// Whom a command that has ended still waits for, if somebody sits before a terminal. `what` is what
    /// goes on meanwhile.
    pub(super) fn waiting(&self, pids: &[u32], what: &str) {
        if self.quiet || !std::io::stderr().is_terminal() {
            return;
        }
        let list: Vec<String> = pids.iter().take(8).map(u32::to_string).collect();
        let more = if pids.len() > 8 { ", …" } else { "" };
        self.error(&format!(
            "the command has ended; waiting for {} more of its processes ({}{more}); Ctrl-C ends the {what} and leaves them alone",
            pids.len(),
            list.join(", "),
        ));
    }
}
