//! `--join`: a command that is one of several of a job, each started by itself, all on one tape.
//!
//! The first of a job on a host starts the recording as a process of its own; each then *becomes* its
//! command. So a launcher finds the very process that it started, with its signals, its streams and
//! its exit status, and nothing of ours stands between.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heaptape_ledger::Job;
use heaptape_proc::launcher;
use heaptape_proc::read;

use crate::caller::Waiting;
use crate::count::{CountWatch, Counting};
use crate::detach::Given;
use crate::exit::Exit;
use crate::gather::{self, Expected};
use crate::launch::texts;
use crate::limits;
use crate::meeting::{Line, Place, Reply, Who};
use crate::output::Output;
use crate::record::{Outcome, Recording, Watch};
use crate::signals::Signals;
use crate::vigil;
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
    /// Frames of each call stack at the most; 0 for no stacks.
    pub stack_depth: u32,
    /// The command line, with the program's own name, by which this program comes to the same call again:
    /// the process that collects for the job is started by it.
    pub again: Vec<OsString>,
}

/// Joins the recording of the job, and becomes the command.
///
/// Where it was the first of its job, it starts this program again, where this call is what records the
/// job. There it returns at the end, with what came of it, or `None` if nobody joined; the standard error
/// is then the last command's.
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
    let meeting = Meeting {
        launch: &joining.launch,
        place: Place::new(&directory, &joining.job)?,
        what: format!("the recording of job {} in {}", joining.job, directory.display()),
        is_done: "recorded",
        job: &joining.job,
        again: &joining.again,
        earlier: Vec::new(),
    };
    match meeting.join(watch)? {}
}

/// A command that joins the counting of its job.
#[derive(Clone, Debug)]
pub struct JoiningCount {
    /// What to count, with the command.
    pub counting: Counting,
    /// What the job is called.
    pub job: String,
    /// Commands that the launcher starts on this host, where it says so.
    pub local_size: Option<u32>,
    /// Jobs that are joined in place of that one, where they are being counted.
    pub earlier: Vec<String>,
    /// The command line, with the program's own name, by which this program comes to the same call again:
    /// the process that collects for the job is started by it.
    pub again: Vec<OsString>,
}

/// What came of joining a counting.
pub enum Came {
    /// This process has counted the job: all figures, and who waits to hear of them. `None` if nobody joined.
    Counted(Option<(Box<Job>, Waiting)>),
    /// This process has waited: how its command ended, and whether the whole job stayed within its limit,
    /// if anybody has told.
    Ended(Exit, Option<bool>),
}

/// Joins the counting of the job on this host, and becomes the command; where the counting `is_strict`, waits
/// for it and for the end of the job.
///
/// Where it was the first of its job, it starts this program again, where this call is what counts the
/// job. There it returns at the end; the standard error is then the last command's. What was to be done with
/// a request beyond the limit is what the first of them has said.
///
/// # Errors
/// When the command could not be started, or its job can't be counted.
pub fn join_count(
    joining: &JoiningCount,
    is_strict: bool,
    watch: &mut dyn CountWatch,
) -> Result<Came, Error> {
    if let Some(given) = Given::take() {
        let expected = Expected { commands: joining.local_size, launcher: given.launcher };
        let counted = gather::count(&joining.counting, given.listener, expected, watch);
        return Ok(Came::Counted(counted.map(|(job, waiting)| (Box::new(job), waiting))));
    }
    joining.counting.launch.check()?;
    let meeting = joining.meeting()?;
    if is_strict {
        let line = meeting.wait()?;
        // In the child it goes on below, as without this.
        if let Some(child) = vigil::fork()? {
            let (exit, within) = child.keep(&line)?;
            return Ok(Came::Ended(exit, within));
        }
    }
    match meeting.join(watch)? {}
}

/// Lets the process that has started this one join the counting of its job: the session for it, or `None`
/// where the counting is over.
///
/// # Errors
/// When the job can't be counted.
pub fn join_count_for_parent(joining: &JoiningCount) -> Result<Option<PathBuf>, Error> {
    Signals::unblock();
    Ok(joining.meeting()?.reach(Who::Parent)?.ok().map(|(session, _)| session))
}

impl JoiningCount {
    fn meeting(&self) -> Result<Meeting<'_>, Error> {
        let place = |job: &str| Place::new(&std::env::temp_dir(), &format!("counting {job}"));
        Ok(Meeting {
            launch: &self.counting.launch,
            place: place(&self.job)?,
            earlier: self.earlier.iter().map(|job| place(job)).collect::<Result<_, _>>()?,
            what: format!("the counting of job {}", self.job),
            is_done: "counted",
            job: &self.job,
            again: &self.again,
        })
    }
}

/// Where the commands of a job meet, and what for.
struct Meeting<'a> {
    launch: &'a Launch,
    place: Place,
    /// Places that are looked at before.
    earlier: Vec<Place>,
    /// What they join.
    what: String,
    /// What is done there.
    is_done: &'static str,
    job: &'a str,
    again: &'a [OsString],
}

impl Meeting<'_> {
    /// Joins, where nobody collects for the job yet after starting who does, and becomes the command.
    fn join(&self, watch: &mut dyn Watch) -> Result<Infallible, Error> {
        let name = self.launch.name();
        match self.reach(Who::Itself)? {
            Err(why) => {
                watch.notice(&format!("{name} is not {}: {why}", self.is_done));
                Err(self.launch.become_it(None))
            }
            Ok((session, line)) => {
                if let Some(why) = self.launch.obstacle() {
                    watch.notice(&format!("{name} can't be {}: {why}", self.is_done));
                }
                let error = self.launch.become_it(Some(&session));
                line.tell_failed();
                Err(error)
            }
        }
    }

    /// Joins: the session, or why there is none any more.
    fn reach(&self, who: Who) -> Result<Result<(PathBuf, Line), String>, Error> {
        self.talk(|line| {
            let stderr = limits::was_open(2).then(rustix::stdio::stderr);
            let command = texts(&self.launch.command);
            let answer = line.ask(who, &command, stderr).map(|()| line.answer());
            Ok(match answer.transpose()?.flatten() {
                Some(Reply::Over(why)) => Some(Err(why)),
                Some(Reply::Session(session)) => Some(Ok((session, line))),
                Some(Reply::Refused(why)) => return Err(Error::Joined(why)),
                // An end that has gone without an answer was about to leave: the next try begins anew.
                Some(Reply::Within(_)) | None => None,
            })
        })
    }

    /// Has it known that we wait for what comes of the limit.
    fn wait(&self) -> Result<Line, Error> {
        self.talk(|line| {
            Ok(match line.wait()? {
                Some(Reply::Over(why)) => {
                    let name = self.launch.name();
                    return Err(Error::Joined(format!(
                        "{name} can't be {}: {why}; nothing was started",
                        self.is_done
                    )));
                }
                Some(Reply::Refused(why)) => return Err(Error::Joined(why)),
                Some(Reply::Within(_)) => Some(line),
                Some(Reply::Session(_)) | None => None,
            })
        })
    }

    /// Calls until somebody has given an answer.
    fn talk<T>(&self, mut talk: impl FnMut(Line) -> Result<Option<T>, Error>) -> Result<T, Error> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(line) = self.call()? {
                if let Some(answer) = talk(line)? {
                    return Ok(answer);
                }
            } else if let Some(listener) = self.place.take()? {
                let launcher = launcher::of(std::process::id()).map(|launcher| launcher.pid);
                Given { listener, launcher }.hand_over(self.again, self.job)?;
                continue;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(Error::Joined(format!(
            "cannot join {}: nobody answers; nothing was started",
            self.what
        )))
    }

    fn call(&self) -> Result<Option<Line>, Error> {
        for place in self.earlier.iter().chain([&self.place]) {
            if let Some(line) = place.call()? {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }
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
        stack_depth: joining.stack_depth,
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
