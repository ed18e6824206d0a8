//! `--join`: a command that is one of several of a job, each started by itself, all on one tape.
//!
//! The first of a job on a host starts the recording as a process of its own; each then *becomes* its
//! command. So a launcher finds the very process that it started, with its signals, its streams and
//! its exit status, and nothing of ours stands between.

use std::fs;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heaptape_ledger::Job;
use heaptape_proc::launcher::{self, LauncherProcess};
use heaptape_proc::read;

use crate::count::{CountWatch, Counting};
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
}

/// Joins the recording of the job, and becomes the command.
///
/// Where it was the first of its job, this also returns in the process that recorded it, at the end,
/// with what came of it, or `None` if nobody joined; its standard error is then the last command's.
///
/// # Errors
/// When the command could not be started, or there can be no recording of the job.
pub fn join(joining: &Joining, watch: &mut dyn Watch) -> Result<Option<Outcome>, Error> {
    joining.launch.check()?;
    let directory = directory(&joining.directory)?;
    let meeting = Meeting {
        launch: &joining.launch,
        place: Place::new(&directory, &joining.job)?,
        what: format!("the recording of job {} in {}", joining.job, directory.display()),
        is_done: "recorded",
    };
    let listener = meeting.join(watch)?;
    Ok(gather::collect(&recording(joining, directory), listener, expected(joining.local_size)))
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
}

/// Joins the counting of the job on this host, and becomes the command.
///
/// Where it was the first of its job, this also returns in the process that counted it, at the end,
/// with all figures, or `None` if nobody joined; its standard error is then the last command's. What was
/// to be done with a request beyond the limit is what the first of them has said.
///
/// # Errors
/// When the command could not be started, or its job can't be counted.
pub fn join_count(
    joining: &JoiningCount,
    watch: &mut dyn CountWatch,
) -> Result<Option<Job>, Error> {
    let launch = &joining.counting.launch;
    launch.check()?;
    let meeting = Meeting {
        launch,
        place: Place::new(&std::env::temp_dir(), &format!("counting {}", joining.job))?,
        what: format!("the counting of job {}", joining.job),
        is_done: "counted",
    };
    let listener = meeting.join(watch)?;
    Ok(gather::count(&joining.counting, listener, expected(joining.local_size), watch))
}

/// Where the commands of a job meet, and what for.
struct Meeting<'a> {
    launch: &'a Launch,
    place: Place,
    /// What they join.
    what: String,
    /// What is done there.
    is_done: &'static str,
}

impl Meeting<'_> {
    /// Joins, and becomes the command. Returns in a process of its own that is to collect for the job, with
    /// what others call at.
    fn join(&self, watch: &mut dyn Watch) -> Result<OwnedFd, Error> {
        let name = self.launch.name();
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(line) = self.place.call()? {
                let stderr = limits::was_open(2).then(rustix::stdio::stderr);
                // An end that has gone without an answer was about to leave: the next try begins anew.
                let command = texts(&self.launch.command);
                let reply =
                    line.ask(&command, stderr).map(|()| line.answer()).transpose()?.flatten();
                match reply {
                    Some(Reply::Refused(why)) => return Err(Error::Joined(why)),
                    Some(Reply::Over(why)) => {
                        watch.notice(&format!("{name} is not {}: {why}", self.is_done));
                        return Err(self.launch.become_it(None));
                    }
                    Some(Reply::Session(session)) => {
                        if let Some(why) = self.launch.obstacle() {
                            watch.notice(&format!("{name} can't be {}: {why}", self.is_done));
                        }
                        let error = self.launch.become_it(Some(&session));
                        line.tell_failed();
                        return Err(error);
                    }
                    None => {}
                }
            } else if let Some(listener) = self.place.take()? {
                if let Some(listener) = detach(listener)? {
                    return Ok(listener);
                }
                continue;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(Error::Joined(format!(
            "cannot join {}: nobody answers; nothing was started",
            self.what
        )))
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
    }
}

/// A job's name with only what a file's name can hold everywhere.
fn file_name(job: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._@+-".contains(c) { c } else { '-' };
    let name: String = job.chars().map(plain).take(NAME).collect();
    name.strip_prefix('.').map_or(name.clone(), |rest| format!("-{rest}"))
}

/// Whom to wait for before the end.
fn expected(local_size: Option<u32>) -> Expected {
    let launcher = launcher::of(std::process::id());
    Expected { commands: local_size, launcher: launcher.map(|LauncherProcess { pid, .. }| pid) }
}

/// Starts the process that records: a grandchild, so that the command finds no child that it did not
/// start, in a session of its own, with nothing of the command's open. `None` in the wrapper.
fn detach(listener: OwnedFd) -> Result<Option<OwnedFd>, Error> {
    // SAFETY: this process has one thread, so that the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(fork_failed(std::io::Error::last_os_error())),
        0 => {
            // SAFETY: as above; the process in between ends at once, without running anything.
            unsafe {
                libc::setsid();
                match libc::fork() {
                    0 => {}
                    error => libc::_exit(i32::from(error < 0)),
                }
            }
            Ok(Some(leave_all(listener)))
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child that was just made.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            if waited == child && status != 0 {
                return Err(fork_failed(std::io::Error::from_raw_os_error(libc::EAGAIN)));
            }
            Ok(None)
        }
    }
}

fn fork_failed(source: std::io::Error) -> Error {
    Error::System { what: "fork", source }
}

/// Closes everything but the listener, and gives back what the launcher tied the first command to: a
/// descriptor left open would keep the launcher waiting, and one core has no room for both.
fn leave_all(listener: OwnedFd) -> OwnedFd {
    const LISTENER: i32 = 3;
    let raw = listener.into_raw_fd();
    // SAFETY: this process was just forked and owns its descriptors; nothing but the listener is used
    // again.
    let listener = unsafe {
        if raw != LISTENER {
            libc::dup2(raw, LISTENER);
        }
        libc::fcntl(LISTENER, libc::F_SETFD, libc::FD_CLOEXEC);
        close_from(LISTENER + 1);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for fd in 0..3 {
            libc::dup2(null, fd);
        }
        // The end comes with the last command; who ends a job means that.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            libc::signal(signal, libc::SIG_IGN);
        }
        OwnedFd::from_raw_fd(LISTENER)
    };
    let mut all = rustix::thread::CpuSet::new();
    (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let _ = rustix::thread::sched_setaffinity(None, &all);
    listener
}

/// # Safety
/// Nothing uses a descriptor from `first` up any more.
unsafe fn close_from(first: i32) {
    // SAFETY: as promised.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) == 0 {
            return;
        }
        // Before Linux 5.9.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.unwrap_or(1 << 16).min(1 << 16) as i32;
        for fd in first..limit {
            libc::close(fd);
        }
    }
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
