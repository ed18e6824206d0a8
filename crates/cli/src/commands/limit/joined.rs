//! `--join`: each command of a job is started by itself, behind a launcher; the first counts for all on its
//! host, in a process of its own.

use std::process::ExitCode;

use heaptape_collect::{Counting, Exit, JoiningCount, join_count};
use heaptape_report::limit::Settings;

use super::files::Files;
use super::watcher::Watcher;
use super::{Report, open};
use crate::args;
use crate::commands::running::{FAILED, job, not_started};
use crate::terminal::Terminal;

/// Joins the counting of the job and becomes the command. What returns is the process that counts, which
/// comes here by the same command line, or a failure.
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
    let again = std::env::args_os().collect();
    match join_count(&JoiningCount { counting, job, local_size, again }, &mut watcher) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(job)) => {
            let (output, json) = (args.output.as_deref(), args.json.as_deref());
            let files = match open(output, json, &watcher.teller) {
                Ok(files) => files,
                Err(status) => return status,
            };
            let exit = Exit::default();
            let report = Report { job, exit, settings: &settings, verbose: args.verbose };
            report.tell(files, &mut watcher, terminal);
            ExitCode::SUCCESS
        }
        Err(error) => {
            watcher.teller.error(&error.to_string());
            files.discard();
            not_started(&error)
        }
    }
}
