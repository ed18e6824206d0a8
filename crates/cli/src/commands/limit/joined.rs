//! `--join`: each command of a job is started by itself, behind a launcher; the first counts for all on its
//! host, in a process of its own.

use std::path::Path;
use std::process::ExitCode;

use heaptape_collect::{
    Came, Counting, Exit, JoiningCount, Waiting, collects_for_others, join_count,
};
use heaptape_ledger::{Job, Verdict};
use heaptape_report::limit::Settings;

use super::files::{Files, Pipes};
use super::watcher::Watcher;
use super::{NOT_WITHIN, Report, Unable, open, tell_not_started};
use crate::args;
use crate::commands::running::{FAILED, Teller, exit_code, job, not_started};
use crate::terminal::Terminal;

/// Joins the counting of the job and becomes the command, or waits for it where the verdict counts. What
/// returns beside that is the process that counts, which comes here by the same command line, or a failure.
pub(super) fn run(
    counting: Counting,
    settings: Settings,
    files: Files,
    args: &args::Counting,
    mut watcher: Watcher,
    terminal: &Terminal,
) -> ExitCode {
    let (job, local_size) = match job() {
        Ok(job) => job,
        Err(error) => {
            watcher.teller.error(&format!("{error:#}"));
            files.discard();
            return ExitCode::from(FAILED);
        }
    };
    let files = files.close();
    if collects_for_others() {
        begin(args);
    } else if let Some(why) = settings.strict.then(|| counting.launch.obstacle()).flatten() {
        tell_not_started(&watcher.teller, &counting.launch, &why);
        files.discard();
        return ExitCode::from(NOT_WITHIN);
    }
    let again = std::env::args_os().collect();
    let joining = JoiningCount { counting, job, local_size, earlier: Vec::new(), again };
    match join_count(&joining, settings.strict, &mut watcher) {
        Ok(Came::Counted(None)) => ExitCode::SUCCESS,
        Ok(Came::Counted(Some((job, waiting)))) => {
            tell((*job, waiting), &settings, args, &mut watcher, terminal);
            ExitCode::SUCCESS
        }
        Ok(Came::Ended(exit, within)) => status(exit, within, &watcher),
        Err(error) => {
            watcher.teller.error(&error.to_string());
            files.discard();
            not_started(&error)
        }
    }
}

/// In the process that counts, before anybody is let in: the JSON of an earlier job is gone.
fn begin(args: &args::Counting) {
    // What can't be opened is told when it is to be written, and somebody listens.
    if let Ok(files) = Files::open(None, args.json.as_deref(), Pipes::Later) {
        files.begin();
    }
}

/// In the process that counts: writes the report, and tells who waits for it.
fn tell(
    (job, waiting): (Job, Waiting),
    settings: &Settings,
    args: &args::Counting,
    watcher: &mut Watcher,
    terminal: &Terminal,
) {
    let is_within = job.verdict() == Verdict::Within;
    let (output, json) = (args.output.as_deref(), args.json.as_deref());
    let is_told = opened(output, json, &watcher.teller).is_some_and(|files| {
        let report = Report { job, exit: Exit::default(), settings, verbose: args.verbose };
        report.tell(files, watcher, terminal)
    });
    waiting.tell(is_within && is_told);
}

/// The files of the report, or why there are none is said.
fn opened(output: Option<&Path>, json: Option<&Path>, teller: &Teller) -> Option<Files> {
    let tell = |unable: &Unable| teller.error(&unable.0);
    open(output, json, Pipes::Later).inspect_err(tell).ok()
}

/// The exit status of who has waited for its command and for the verdict.
fn status(exit: Exit, within: Option<bool>, watcher: &Watcher) -> ExitCode {
    match within {
        Some(true) => exit_code(exit),
        Some(false) => ExitCode::from(NOT_WITHIN),
        None if exit.code == Some(0) => {
            watcher.teller.error("the counting of this job has ended without a verdict");
            ExitCode::from(NOT_WITHIN)
        }
        None => exit_code(exit),
    }
}
