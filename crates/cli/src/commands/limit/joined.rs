//! `--join`: each command of a job is started by itself, behind a launcher; the first counts for all on its
//! host, in a process of its own.

use std::process::ExitCode;

use heaptape_collect::{Counting, Exit, JoiningCount, join_count};
use heaptape_report::limit::Settings;

use super::files::Files;
use super::watcher::Watcher;
use super::{Report, open};
use crate::commands::running::{FAILED, job, not_started};
use crate::terminal::Terminal;

/// Joins the counting of the job and becomes the command. What returns is the process that counted, or a
/// failure.
pub(super) fn run(
    counting: Counting,
    settings: Settings,
    files: Files,
    verbose: bool,
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
    // The process that counts lets go of all that is open.
    let files = files.close();
    match join_count(&JoiningCount { counting, job, local_size }, &mut watcher) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(job)) => {
            let files = match open(files.output.as_deref(), files.json.as_deref(), &watcher.teller)
            {
                Ok(files) => files,
                Err(status) => return status,
            };
            let exit = Exit::default();
            let report = Report { job, exit, settings: &settings, verbose };
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
