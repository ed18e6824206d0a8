//! `heaptape record`: every heap call of a program and its children, onto a tape.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use heaptape_collect::{
    Error, Exit, Joining, Launch, Outcome, Output, Recording, Watch, join, record,
};
use heaptape_proc::{job, launcher};
use heaptape_report::size::Size;
use heaptape_report::text::{early_end, plain};
use heaptape_tape::Ended;

use crate::args;
use crate::library;

/// heaptape itself failed, and the command was not started.
const FAILED: u8 = 125;
/// The command is there and can't be run.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

/// Records, and ends as the command ended.
pub(crate) fn run(args: args::Record, quiet: bool) -> ExitCode {
    let mut teller = Teller { quiet };
    if args.join {
        return run_joined(args, &mut teller);
    }
    let recording = match recording(args) {
        Ok(recording) => recording,
        Err(error) => {
            teller.error(&format!("{error:#}"));
            return ExitCode::from(FAILED);
        }
    };
    match record(&recording, &mut teller) {
        Ok(outcome) => {
            teller.outcome(&outcome);
            exit_code(outcome.exit)
        }
        Err(error) => failure(&error, &teller),
    }
}

fn failure(error: &Error, teller: &Teller) -> ExitCode {
    let advice = match error {
        Error::Directory { .. } => " (-o FILE puts it elsewhere)",
        Error::TooSmall { .. } => " (--max-size)",
        _ => "",
    };
    teller.error(&format!("{error}{advice}"));
    ExitCode::from(match error {
        Error::NotFound { .. } => NOT_FOUND,
        Error::NotExecutable { .. } => NOT_EXECUTABLE,
        _ => FAILED,
    })
}

/// Joins the recording of the job and becomes the command. What returns is the process that records, which
/// comes here by the same command line, or a failure.
fn run_joined(args: args::Record, teller: &mut Teller) -> ExitCode {
    let joining = match joining(args) {
        Ok(joining) => joining,
        Err(error) => {
            teller.error(&format!("{error:#}"));
            return ExitCode::from(FAILED);
        }
    };
    match join(&joining, teller) {
        Ok(outcome) => {
            outcome.iter().for_each(|outcome| teller.outcome(outcome));
            ExitCode::SUCCESS
        }
        Err(error) => failure(&error, teller),
    }
}

fn joining(args: args::Record) -> Result<Joining> {
    let lookup = |name: &str| std::env::var(name).ok();
    let Some(job) = launcher::job_name(std::process::id(), lookup) else {
        bail!(
            "--join needs to know which job this is, and no MPI launcher has said so; name it with {}=NAME in the environment",
            launcher::JOB_VARIABLE
        );
    };
    Ok(Joining {
        launch: launch(args.command, args.no_aslr, args.python_malloc)?,
        directory: args.output.unwrap_or_else(|| ".".into()),
        job,
        local_size: job::find(lookup).and_then(|job| job.local_size),
        no_wait: args.no_wait,
        max_size: args.max_size,
        again: std::env::args_os().collect(),
    })
}

fn launch(command: Vec<OsString>, no_aslr: bool, python_malloc: bool) -> Result<Launch> {
    Ok(Launch { command, library: library::path()?, no_aslr, python_malloc })
}

fn recording(args: args::Record) -> Result<Recording> {
    let output = match args.output {
        Some(path) => Output::Named(with_rank(path)?),
        None => {
            let command = Path::new(&args.command[0]);
            let stem = command.file_name().unwrap_or(command.as_os_str());
            Output::Chosen { directory: ".".into(), stem: stem.to_string_lossy().into_owned() }
        }
    };
    Ok(Recording {
        launch: launch(args.command, args.no_aslr, args.python_malloc)?,
        output,
        no_wait: args.no_wait,
        max_size: args.max_size,
    })
}

/// The name with our own MPI rank for `%r`.
fn with_rank(path: PathBuf) -> Result<PathBuf> {
    let Some(text) = path.to_str().filter(|text| text.contains("%r")) else { return Ok(path) };
    let Some(job) = job::find(|name| std::env::var(name).ok()) else {
        bail!(
            "{text} has %r in its name, but no MPI launcher gave this process a rank; nothing was started (%p stands for the process id)"
        );
    };
    Ok(text.replace("%r", &job.rank.to_string()).into())
}

/// How a tape says that processes went on, which is no fault.
const WENT_ON: &str = "processes-went-on";

/// The command's own status; 128 + n when signal n ended it.
fn exit_code(exit: Exit) -> ExitCode {
    let code = exit.code.or(exit.signal.map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}

/// Says on stderr what the user should know.
struct Teller {
    quiet: bool,
}

impl Teller {
    fn error(&self, sentence: &str) {
        // One line, whatever names stand in it.
        let _ = writeln!(std::io::stderr(), "heaptape: {}", plain(sentence));
    }

    fn outcome(&self, outcome: &Outcome) {
        let went_on = |ended: &Ended| matches!(ended, Ended::Other(why) if why == WENT_ON);
        if let Some(ended) = outcome.ended.as_ref().filter(|ended| !(self.quiet && went_on(ended)))
        {
            self.error(&format!("the tape ends before the job did: {}", early_end(ended)));
        }
        if self.quiet {
            return;
        }
        let path = outcome.path.display();
        let mut line = format!(
            "{} events of {} {} in {path} ({}); lost: {}, order faults: {}",
            outcome.events,
            outcome.processes,
            if outcome.processes == 1 { "process" } else { "processes" },
            Size(outcome.bytes),
            outcome.lost,
            outcome.order_faults,
        );
        if outcome.uncovered > 0 {
            line += &format!(", not covered or only in part: {}", outcome.uncovered);
        }
        self.error(&line);
        if std::io::stderr().is_terminal() {
            self.error(&format!("next: heaptape info {path}"));
        }
    }
}

impl Watch for Teller {
    fn notice(&mut self, sentence: &str) {
        self.error(sentence);
    }

    fn waiting(&mut self, pids: &[u32]) {
        if self.quiet || !std::io::stderr().is_terminal() {
            return;
        }
        let list: Vec<String> = pids.iter().take(8).map(u32::to_string).collect();
        let more = if pids.len() > 8 { ", …" } else { "" };
        self.error(&format!(
            "the command has ended; waiting for {} more of its processes ({}{more}); Ctrl-C ends the recording and leaves them alone",
            pids.len(),
            list.join(", "),
        ));
    }
}
