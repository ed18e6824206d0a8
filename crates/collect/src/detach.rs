//! The process that records or counts a job whose commands come by themselves: this program once more,
//! started by the first wrapper as a grandchild, so that the command finds no child that it did not start,
//! in a session of its own, with nothing open that was the command's.
//!
//! It is never a mere copy of the wrapper. What a user preloads into the commands is in the wrapper too:
//! it holds descriptors that it will use, and perhaps close, by number, and it does at the end of a
//! process what it is made for, such as writing a profile. In a program that is begun anew, without
//! what is preloaded, there is none of that.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use heaptape_proc::launcher::JOB_VARIABLE;

use crate::Error;

/// By this variable the process learns what it is for: the listener's descriptor and the launcher's pid,
/// 0 for none.
const VARIABLE: &str = "HEAPTAPE_COLLECTS";

/// What the process that collects for a job is given.
pub(crate) struct Given {
    pub(crate) listener: OwnedFd,
    pub(crate) launcher: Option<u32>,
}

impl Given {
    /// Starts the process by the command line `again`; it finds the job by its name.
    pub(crate) fn hand_over(self, again: &[OsString], job: &str) -> Result<(), Error> {
        let error = |source| Error::System { what: "starting the process that collects", source };
        let listener = self.listener.as_raw_fd();
        let mut command = Command::new(ourselves());
        if let Some((name, words)) = again.split_first() {
            command.arg0(name).args(words);
        }
        command.env_remove("LD_PRELOAD").env_remove("LD_AUDIT").env(JOB_VARIABLE, job);
        command.env(VARIABLE, format!("{listener} {}", self.launcher.unwrap_or(0)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: only system calls, and a fork in a process of one thread.
        unsafe { command.pre_exec(move || leave_all(listener)) };
        // Whoever ignores that children end is told so of this one.
        let _ = command.spawn().map_err(error)?.wait();
        Ok(())
    }

    /// In the process that was started so: what it was given. `None` in every other one.
    pub(crate) fn take() -> Option<Given> {
        let (listener, launcher) = parse(std::env::var(VARIABLE).ok()?.as_str())?;
        let listener = inherited(listener)?;
        // The launcher ties a command to a core; that has no room for both.
        let mut all = rustix::thread::CpuSet::new();
        (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        let _ = rustix::thread::sched_setaffinity(None, &all);
        Some(Given { listener, launcher })
    }
}

/// Whether this is the process that [`join`](crate::join()) or [`join_count`](crate::join_count) started to
/// collect for a job: nobody reads what it says before the end, and nothing that a caller had open is open.
pub fn collects_for_others() -> bool {
    let given = std::env::var(VARIABLE).ok().as_deref().and_then(parse);
    given.is_some_and(|(fd, _)| listens(fd))
}

fn parse(text: &str) -> Option<(RawFd, Option<u32>)> {
    let (listener, launcher) = text.split_once(' ')?;
    let launcher: u32 = launcher.parse().ok()?;
    let listener = listener.parse().ok().filter(|&fd| fd > 2)?;
    Some((listener, Some(launcher).filter(|&pid| pid != 0)))
}

/// Whether the number is that of a socket that listens: a variable that came from elsewhere hands over
/// nothing.
fn listens(fd: RawFd) -> bool {
    let (mut listens, mut len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ACCEPTCONN);
    // SAFETY: asks what the number stands for; the kernel writes one int.
    let answer =
        unsafe { libc::getsockopt(fd, level, name, (&raw mut listens).cast(), &raw mut len) };
    answer == 0 && listens != 0
}

/// The socket that was left open for us.
fn inherited(fd: RawFd) -> Option<OwnedFd> {
    if !listens(fd) {
        return None;
    }
    // SAFETY: the wrapper has left this descriptor to us, and nobody else here knows of it.
    let listener = unsafe { OwnedFd::from_raw_fd(fd) };
    let _ = rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC);
    Some(listener)
}

/// The file of this program. By its name, by which it is found in lists of processes, while that is still
/// this file's.
fn ourselves() -> PathBuf {
    let link = Path::new("/proc/self/exe");
    let file = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let named = fs::read_link(link).ok().filter(|path| file(path).is_some());
    named.filter(|path| file(path) == file(link)).unwrap_or_else(|| link.to_owned())
}

/// In the child, before the program begins anew: becomes a grandchild that is nobody's, which keeps only
/// the listener.
fn leave_all(listener: RawFd) -> io::Result<()> {
    // SAFETY: see the caller; the process in between ends at once, without running anything.
    unsafe {
        libc::setsid();
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {}
            _ => libc::_exit(0),
        }
        // The end comes with the last command; who ends a job means that.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // A descriptor left open would keep the launcher waiting.
        close_on_exec(3);
        match libc::fcntl(listener, libc::F_SETFD, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// Lets go of all descriptors from `first` up, when this process becomes another program and not before:
/// until then they belong to whoever opened them.
fn close_on_exec(first: RawFd) {
    // SAFETY: sets a flag of descriptors.
    unsafe {
        let (from, flags) = (first as libc::c_uint, libc::CLOSE_RANGE_CLOEXEC);
        if libc::syscall(libc::SYS_close_range, from, libc::c_uint::MAX, flags) == 0 {
            return;
        }
        // Before Linux 5.11.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.unwrap_or(1 << 16).min(1 << 16) as RawFd;
        for fd in first..limit {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_that_listens_is_taken_for_one_that_was_handed_over() {
        assert_eq!(parse("7 812"), Some((7, Some(812))));
        assert_eq!(parse("3 0"), Some((3, None)));
        for wrong in ["", "7", "x 1", "7 x", "1 812", "-3 0", "7 812 1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let file = fs::File::open("/dev/null").unwrap();
        assert!(inherited(file.as_raw_fd()).is_none());
        assert!(inherited(RawFd::MAX).is_none());
        let place = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(inherited(place.as_raw_fd()).is_none());
        assert!(file.metadata().is_ok(), "what is not taken stays open");
    }
}
