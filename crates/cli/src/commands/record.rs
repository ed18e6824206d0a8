//! `heaptape record`: every heap call of a program and its children, onto a tape.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use heaptape_collect::{Error, Joining, Launch, Outcome, Output, Recording, Watch, join, record};
use heaptape_proc::job as place;
use heaptape_report::size::Size;
use heaptape_report::text::early_end;
use heaptape_tape::Ended;

use super::running::{FAILED, Teller, exit_code, job, not_started};
use crate::args;
use crate::library;

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
            tell(&teller, &outcome);
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
    not_started(error)
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
            outcome.iter().for_each(|outcome| tell(teller, outcome));
            ExitCode::SUCCESS
        }
        Err(error) => failure(&error, teller),
    }
}

fn joining(args: args::Record) -> Result<Joining> {
    let (job, local_size) = job()?;
    let stack_depth = stack_depth(&args);
    let python_malloc = args.python_malloc || args.python;
    Ok(Joining {
        launch: launch(args.command, args.no_aslr, python_malloc)?,
        directory: args.output.unwrap_or_else(|| ".".into()),
        job,
        local_size,
        no_wait: args.no_wait,
        max_size: args.max_size,
        stack_depth,
        again: std::env::args_os().collect(),
    })
}

fn launch(command: Vec<OsString>, no_aslr: bool, python_malloc: bool) -> Result<Launch> {
    Ok(Launch { command, library: library::path()?, no_aslr, python_malloc })
}

/// How many frames of each call stack are wanted: whoever says how, wants them.
fn stack_depth(args: &args::Record) -> u32 {
    let is_wanted = args.stacks || args.python || args.depth.is_some();
    if is_wanted { args.depth.unwrap_or(args::DEPTH) } else { 0 }
}

fn recording(args: args::Record) -> Result<Recording> {
    let stack_depth = stack_depth(&args);
    let python_malloc = args.python_malloc || args.python;
    let output = match args.output {
        Some(path) => Output::Named(with_rank(path)?),
        None => {
            let command = Path::new(&args.command[0]);
            let stem = command.file_name().unwrap_or(command.as_os_str());
            Output::Chosen { directory: ".".into(), stem: stem.to_string_lossy().into_owned() }
        }
    };
    Ok(Recording {
        launch: launch(args.command, args.no_aslr, python_malloc)?,
        output,
        no_wait: args.no_wait,
        max_size: args.max_size,
        stack_depth,
    })
}

/// The name with our own MPI rank for `%r`.
fn with_rank(path: PathBuf) -> Result<PathBuf> {
    let Some(text) = path.to_str().filter(|text| text.contains("%r")) else { return Ok(path) };
    let Some(job) = place::find(|name| std::env::var(name).ok()) else {
        bail!(
            "{text} has %r in its name, but no MPI launcher gave this process a rank; nothing was started (%p stands for the process id)"
        );
    };
    Ok(text.replace("%r", &job.rank.to_string()).into())
}

/// How a tape says that processes went on, which is no fault.
const WENT_ON: &str = "processes-went-on";

/// Says what came of a recording.
fn tell(teller: &Teller, outcome: &Outcome) {
    let went_on = |ended: &Ended| matches!(ended, Ended::Other(why) if why == WENT_ON);
    if let Some(ended) = outcome.ended.as_ref().filter(|ended| !(teller.quiet && went_on(ended))) {
        teller.error(&format!("the tape ends before the job did: {}", early_end(ended)));
    }
    if teller.quiet {
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
    teller.error(&line);
    if std::io::stderr().is_terminal() {
        teller.error(&format!("next: heaptape info {path}"));
    }
}

impl Watch for Teller {
    fn notice(&mut self, sentence: &str) {
        self.error(sentence);
    }

    fn waiting(&mut self, pids: &[u32]) {
        Teller::waiting(self, pids, "recording");
    }
}
