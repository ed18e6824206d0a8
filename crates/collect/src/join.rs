//! `--join`: a command that is one of several of a job, each started by itself, all on one tape.
//!
//! The first of a job on a host starts the recording as a process of its own; each then *becomes* its
//! command. So a launcher finds the very process that it started, with its signals, its streams and
//! its exit status, and nothing of ours stands between.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heaptape_proc::launcher;
use heaptape_proc::read;

use crate::detach::Given;
use crate::gather::{self, Expected};
use crate::launch::texts;
use crate::limits;
use crate::meeting::{Place, Reply};
use crate::output::Output;
use crate::record::{Outcome, Recording, Watch};
use crate::{Error, Launch};

/// How long a wrapper tries to find or to start the recording of its job.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a job's name that go into a file's name.
const NAME: usize = 100;

/// A command that joins the recording of its job.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The command.
    pub launch: Launch,
    /// Where the tapes of jobs go; it is made if it is not there.
    pub directory: PathBuf,
    /// What the job is called.
    pub job: String,
    /// Commands that the launcher starts on this host, where it says so.
    pub local_size: Option<u32>,
    /// Ends with the last command, also while other processes of the job still run.
    pub no_wait: bool,
    /// Ends the tape at about this many bytes.
    pub max_size: Option<u64>,
    /// The command line, with the program's own name, by which this program comes to the same call of
    /// [`join`] again: the process that records is started by it.
    pub again: Vec<OsString>,
}

/// Joins the recording of the job, and becomes the command.
///
/// Where it was the first of its job, it starts this program again, where this call is what records the
/// job. There it returns at the end, with what came of it, or `None` if nobody joined; the standard error is
/// then the last command's.
///
/// # Errors
/// When the command could not be started, or there can be no recording of the job.
pub fn join(joining: &Joining, watch: &mut dyn Watch) -> Result<Option<Outcome>, Error> {
    if let Some(given) = Given::take() {
        let directory = directory(&joining.directory)?;
        let expected = Expected { commands: joining.local_size, launcher: given.launcher };
        return Ok(gather::collect(&recording(joining, directory), given.listener, expected));
    }
    joining.launch.check()?;
    let directory = directory(&joining.directory)?;
    let place = Place::new(&directory, &joining.job)?;
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(line) = place.call()? {
            let stderr = limits::was_open(2).then(rustix::stdio::stderr);
            let name = joining.launch.name();
            // An end that has gone without an answer was about to leave: the next try begins anew.
            let command = texts(&joining.launch.command);
            let reply = line.ask(&command, stderr).map(|()| line.answer()).transpose()?.flatten();
            match reply {
                Some(Reply::Refused(why)) => return Err(Error::Joined(why)),
                Some(Reply::Over(why)) => {
                    watch.notice(&format!("{name} is not recorded: {why}"));
                    return Err(joining.launch.become_it(None));
                }
                Some(Reply::Session(session)) => {
                    if let Some(why) = joining.launch.obstacle() {
                        watch.notice(&format!("{name} can't be recorded: {why}"));
                    }
                    let error = joining.launch.become_it(Some(&session));
                    line.tell_failed();
                    return Err(error);
                }
                None => {}
            }
        } else if let Some(listener) = place.take()? {
            let launcher = launcher::of(std::process::id()).map(|launcher| launcher.pid);
            Given { listener, launcher }.hand_over(&joining.again, &joining.job)?;
            continue;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(Error::Joined(format!(
        "cannot join the recording of job {} in {}: nobody answers; nothing was started",
        joining.job,
        directory.display()
    )))
}

/// The directory, made where it is missing, under its full name.
fn directory(given: &Path) -> Result<PathBuf, Error> {
    let error = |source| Error::Output { path: given.to_owned(), source };
    if given.metadata().is_ok_and(|meta| !meta.is_dir()) {
        return Err(Error::NoDirectory { path: given.to_owned() });
    }
    fs::create_dir_all(given).map_err(error)?;
    given.canonicalize().map_err(error)
}

fn recording(joining: &Joining, directory: PathBuf) -> Recording {
    let host = read::hostname().unwrap_or_else(|_| "host".into());
    Recording {
        launch: joining.launch.clone(),
        output: Output::Aside { directory, stem: format!("{}.{host}", file_name(&joining.job)) },
        no_wait: joining.no_wait,
        max_size: joining.max_size,
    }
}

/// A job's name with only what a file's name can hold everywhere.
fn file_name(job: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._@+-".contains(c) { c } else { '-' };
    let name: String = job.chars().map(plain).take(NAME).collect();
    name.strip_prefix('.').map_or(name.clone(), |rest| format!("-{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_name_makes_a_files_name() {
        assert_eq!(file_name("prterun-node7-812@1"), "prterun-node7-812@1");
        assert_eq!(file_name("head:34571"), "head-34571");
        assert_eq!(file_name("../../etc/x y"), "-.-..-etc-x-y");
        assert_eq!(file_name(&"x".repeat(300)).len(), NAME);
    }
}
