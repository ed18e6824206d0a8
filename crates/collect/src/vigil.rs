//! A wrapper that stays: its command is a child of it, and it ends with what came of the whole job.
//!
//! The launcher knows the wrapper alone, so signals go on to the command, and the command dies with it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::Error;
use crate::exit::{self, Exit};
use crate::meeting::Line;
use crate::signals::Signals;

/// How often it is looked for signals, in milliseconds.
const MOMENT: i64 = 20;

/// The child that is to be the command.
pub(crate) struct Child(libc::pid_t);

/// Splits off the child: `None` in that.
pub(crate) fn fork() -> Result<Option<Child>, Error> {
    let own = std::process::id();
    // SAFETY: this process has one thread, so the copy is a whole one.
    match unsafe { libc::fork() } {
        -1 => Err(Error::System { what: "fork", source: io::Error::last_os_error() }),
        0 => {
            // SAFETY: sets a flag of this process, which its command keeps.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            if std::os::unix::process::parent_id() != own {
                std::process::exit(0);
            }
            Ok(None)
        }
        pid => Ok(Some(Child(pid))),
    }
}

impl Child {
    /// Waits for the command, and where that has ended well for the job: how it ended, and whether the whole job
    /// stayed within its limit, as far as that is told. A command that has failed is told at once, as the
    /// launcher has to end those who wait for it.
    pub(crate) fn keep(self, line: &Line) -> Result<(Exit, Option<bool>), Error> {
        let signals = Signals::catch()?.with_sentinel();
        let watch = exit::watch(self.0 as u32);
        let exit = loop {
            signals.forward(self.0 as u32);
            if let Some(exit) = self.ended() {
                break exit;
            }
            rest(watch.as_ref());
        };
        signals.forget();
        if exit.code != Some(0) {
            return Ok((exit, line.outcome_by_now()));
        }
        loop {
            match line.outcome_within(MOMENT) {
                Ok(None) if signals.ask_for_the_end() => return Ok((exit, None)),
                Ok(None) => {}
                Ok(within) => return Ok((exit, within)),
                Err(()) => return Ok((exit, None)),
            }
        }
    }

    fn ended(&self) -> Option<Exit> {
        let mut status = 0;
        // SAFETY: waits for a child of ours that nobody else waits for.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::WNOHANG) };
        match waited {
            0 => None,
            pid if pid == self.0 => Some(Exit::from_wait_status(status)),
            _ => Some(Exit::default()),
        }
    }
}

/// Sleeps a moment, or until the process ends.
fn rest(watch: Option<&OwnedFd>) {
    let Some(fd) = watch else { return std::thread::sleep(Duration::from_millis(2)) };
    let mut poll = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    let moment = rustix::time::Timespec { tv_sec: 0, tv_nsec: MOMENT * 1_000_000 };
    let _ = rustix::event::poll(&mut poll, Some(&moment));
}
