//! A process beside heaptape, in the same process group, that tells which signals the whole group was sent.
//!
//! By itself a signal does not say whether it was sent to heaptape alone, or to the group that the command is in, too:
//! `timeout` does both. This process does nothing but take such signals and note when they came; asked through a
//! socket it answers with the times. What it has got as well was for the group.
//!
//! It is started before there is any memory that the job shares, holds no descriptor but that socket, has another name than
//! heaptape, so that who ends all of that name does not mean it, and ends with heaptape. It is no process of the job,
//! and is never waited for while the job is counted, so that its few page faults are not the job's.

use std::fs;
use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, pidfd_send_signal};

use crate::exit;
use crate::signals::WANTED;

/// How long an answer may take. It is there at once, unless somebody has stopped the process.
const PATIENCE: Duration = Duration::from_millis(300);
/// Its name in lists of processes.
const NAME: &std::ffi::CStr = c"signal-sentinel";
/// An answer: which question it is to, and when each of the signals was seen last, in nanoseconds.
type Answer = [u64; 1 + WANTED.len()];
const ANSWER_BYTES: usize = size_of::<Answer>();

/// The running process.
pub(crate) struct Sentinel {
    pid: libc::pid_t,
    /// By what it is ended and known to have ended.
    watch: Option<OwnedFd>,
    line: UnixStream,
}

impl Sentinel {
    /// Starts it, in our group.
    pub(crate) fn start() -> io::Result<Sentinel> {
        let (line, theirs) = UnixStream::pair()?;
        line.set_read_timeout(Some(PATIENCE))?;
        let title = title();
        let own = std::process::id() as libc::pid_t;
        // SAFETY: all signals wait meanwhile, so that no handler of ours runs in the child, which makes system calls alone.
        let pid = unsafe {
            let mut old: libc::sigset_t = zeroed();
            let mut all: libc::sigset_t = zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut old);
            let pid = libc::fork();
            if pid == 0 {
                stand(own, theirs.as_raw_fd(), title);
            }
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut());
            if pid == -1 {
                return Err(error);
            }
            pid
        };
        Ok(Sentinel { pid, watch: exit::watch(pid as u32), line })
    }

    /// Whether the group was sent this signal, at `since` or later. `question` is another number each time.
    pub(crate) fn has_seen(&self, signal: i32, since: u64, question: u8) -> bool {
        let place = WANTED.iter().position(|&wanted| wanted == signal);
        let seen = self.ask(question).ok().zip(place).map(|(answer, place)| answer[1 + place]);
        seen.is_some_and(|seen| seen != 0 && seen >= since)
    }

    fn ask(&self, question: u8) -> io::Result<Answer> {
        (&self.line).write_all(&[question])?;
        let mut bytes = [0; ANSWER_BYTES];
        let mut answer = Answer::default();
        // One that came too late may be before it.
        loop {
            (&self.line).read_exact(&mut bytes)?;
            for (word, bytes) in answer.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            if answer[0] == question.into() {
                return Ok(answer);
            }
        }
    }

    /// Ends it, and returns once it is in no control group any more.
    pub(crate) fn end(&self) {
        let _ = self.line.shutdown(std::net::Shutdown::Both);
        let Some(watch) = &self.watch else { return };
        let _ = pidfd_send_signal(watch, Signal::KILL);
        let mut poll = [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)];
        let patience = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut poll, Some(&patience));
    }

    /// Ends it, and leaves nothing of it.
    pub(crate) fn bury(&self) {
        self.end();
        // SAFETY: takes the end of a child that nobody else waits for.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// The monotonic clock, in nanoseconds.
pub(crate) fn now() -> u64 {
    // SAFETY: the kernel writes the structure.
    let time = unsafe {
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Where the words of our command line lie, which lists of processes show.
fn title() -> Option<(usize, usize)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Fields 48 and 49 of proc_pid_stat(5); field 3 is the first one here.
    let field = |number: usize| rest.get(number - 3)?.parse::<usize>().ok();
    let (start, end) = (field(48)?, field(49)?);
    (start != 0 && end > start).then_some((start, end - start))
}

/// The child: notes signals, and answers.
///
/// # Safety
/// Only in a child that was forked with all signals blocked; `title` is where the words of the command line lie.
unsafe fn stand(parent: libc::pid_t, line: RawFd, title: Option<(usize, usize)>) -> ! {
    // SAFETY: system calls with structures of our own, in a process with one thread, and our own copy of the words.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        if let Some((start, len)) = title {
            let words = start as *mut u8;
            std::ptr::write_bytes(words, 0, len);
            let name = NAME.to_bytes();
            std::ptr::copy_nonoverlapping(name.as_ptr(), words, name.len().min(len - 1));
        }
        // What stops heaptape stops it, too: both go on together.
        let mut stops: libc::sigset_t = zeroed();
        for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
            libc::sigaddset(&raw mut stops, signal);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const stops, std::ptr::null_mut());
        libc::dup2(line, 0);
        close_from(1);
        let mut wanted: libc::sigset_t = zeroed();
        WANTED.iter().for_each(|&signal| {
            libc::sigaddset(&raw mut wanted, signal);
        });
        answer_on(0, libc::signalfd(-1, &raw const wanted, libc::SFD_NONBLOCK));
    }
}

/// # Safety
/// Nothing is open beyond that this process still needs.
unsafe fn close_from(first: libc::c_uint) {
    // SAFETY: closes descriptors of which the caller knows.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) != 0 {
            // Before Linux 5.9.
            let mut limit: libc::rlimit = zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            for fd in first..limit.rlim_cur.min(1 << 16) as libc::c_uint {
                libc::close(fd as RawFd);
            }
        }
    }
}

/// # Safety
/// Both are descriptors of this process, which has nobody else who reads from them.
unsafe fn answer_on(line: RawFd, signals: RawFd) -> ! {
    let mut answer = Answer::default();
    loop {
        let wait = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut both = [wait(line), wait(signals)];
        // SAFETY: the kernel writes as much as is said, into structures of our own.
        unsafe {
            libc::poll(both.as_mut_ptr(), 2, -1);
            let mut question = 0u8;
            let asked = match both[0].revents {
                0 => 0,
                _ => libc::read(line, (&raw mut question).cast(), 1),
            };
            if both[0].revents != 0 && asked != 1 {
                libc::_exit(0);
            }
            // After the question: what came before that is in the answer.
            note(signals, &mut answer);
            if asked == 1 {
                answer[0] = question.into();
                libc::write(line, (&raw const answer).cast(), ANSWER_BYTES);
            }
        }
    }
}

/// Notes that signals have come which are here.
fn note(signals: RawFd, answer: &mut Answer) {
    loop {
        // SAFETY: the kernel writes at most one such structure.
        let (info, count) = unsafe {
            let mut info: libc::signalfd_siginfo = zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let count = libc::read(signals, (&raw mut info).cast(), size);
            (info, count)
        };
        if count <= 0 {
            return;
        }
        let it_is = |&wanted: &i32| wanted == info.ssi_signo as i32;
        if let Some(place) = WANTED.iter().position(it_is) {
            answer[1 + place] = now();
        }
    }
}
