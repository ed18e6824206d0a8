//! How a process ended, also when it is no child of ours.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use heaptape_proc::read;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit};

/// How a process ended. Both are `None` where the kernel would not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Exit {
    /// Its exit code, if it left by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl Exit {
    /// From a wait status, as `waitpid` gives it.
    pub(crate) fn from_wait_status(status: i32) -> Exit {
        if libc::WIFEXITED(status) {
            Exit { code: Some(libc::WEXITSTATUS(status)), signal: None }
        } else if libc::WIFSIGNALED(status) {
            Exit { code: None, signal: Some(libc::WTERMSIG(status)) }
        } else {
            Exit::default()
        }
    }
}

impl Exit {
    /// The same of the command of a job that was killed: one that has left by itself just before, or for a child that
    /// was killed, has no code that says anything.
    pub(crate) fn of_a_killed_job(self) -> Exit {
        Exit { code: None, ..self }
    }
}

impl From<std::process::ExitStatus> for Exit {
    fn from(status: std::process::ExitStatus) -> Exit {
        use std::os::unix::process::ExitStatusExt;
        Exit { code: status.code(), signal: status.signal() }
    }
}

/// Descriptors that are kept for reading /proc.
const SPARE_DESCRIPTORS: u64 = 24;

/// A descriptor that becomes readable when the process ends; `None` when it has ended already, or when
/// there are too many descriptors.
pub(crate) fn watch(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (fd.as_raw_fd() as u64 + SPARE_DESCRIPTORS < limit).then_some(fd)
}

/// Whether the process of such a descriptor has ended.
pub(crate) fn is_readable(watch: &OwnedFd) -> bool {
    let mut poll = [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut poll, Some(&now)), Ok(n) if n > 0)
}

/// Whether a process has ended, asked without a descriptor. A main thread may have ended alone; what
/// can't be read for want of descriptors or memory is not gone.
pub(crate) fn has_ended(pid: u32) -> bool {
    match read::stat(pid) {
        Ok(stat) => stat.state == 'Z' && read::tasks(pid).map_or(true, |tasks| tasks.len() <= 1),
        Err(heaptape_proc::Error::NoProcess { .. } | heaptape_proc::Error::Missing { .. }) => true,
        Err(_) => false,
    }
}

/// `struct pidfd_info` of <linux/pidfd.h>, its first version.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

const PIDFD_INFO_EXIT: u64 = 1 << 3;
/// `_IOWR(0xFF, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: libc::c_ulong =
    (3 << 30) | (size_of::<PidfdInfo>() as libc::c_ulong) << 16 | 0xff << 8 | 11;

/// How the process ended: from the kernel's record of a reaped process (Linux 6.15), else from the
/// zombie that nobody has reaped yet.
pub(crate) fn status(pid: Option<u32>, watch: Option<&OwnedFd>) -> Option<Exit> {
    let reaped = watch.and_then(|fd| {
        let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
        // SAFETY: the kernel writes at most the structure whose size is in the request.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
        (done == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
    });
    let status = reaped.or_else(|| {
        let stat = read::stat(pid?).ok()?;
        (stat.state == 'Z').then_some(stat.exit_code).flatten()
    })?;
    Some(Exit::from_wait_status(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_are_told_apart() {
        assert_eq!(Exit::from_wait_status(3 << 8), Exit { code: Some(3), signal: None });
        assert_eq!(Exit::from_wait_status(9), Exit { code: None, signal: Some(9) });
        assert_eq!(Exit::from_wait_status(128 + 6), Exit { code: None, signal: Some(6) });
        assert_eq!(size_of::<PidfdInfo>(), 64);
    }

    #[test]
    fn a_child_that_nobody_waits_for_tells_its_status() {
        let mut child = std::process::Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let fd = watch(child.id());
        let mut seen = None;
        for _ in 0..500 {
            seen = status(Some(child.id()), fd.as_ref());
            if seen.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(has_ended(child.id()) && !has_ended(std::process::id()));
        child.wait().unwrap();
        assert!(has_ended(child.id()));
        assert_eq!(seen, Some(Exit { code: Some(7), signal: None }));
    }
}
