//! What the command must find as the user had it, and heaptape itself does not want: a limit on the
//! size of files, which its shared memory would count against, one on descriptors, and standard streams
//! that were closed.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bit n: descriptor n was closed when heaptape started. (The Rust runtime opens `/dev/null` there.)
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Whether the signal that a file has become too long was ignored when heaptape started.
static FILE_SIZE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Whether descriptor `fd`, one of the three standard streams, was open when the program that uses this
/// crate started. (What was not is open now, onto `/dev/null`.)
pub fn was_open(fd: i32) -> bool {
    !(0..3).contains(&fd) || CLOSED.load(Ordering::Relaxed) & 1 << fd == 0
}

/// In a process that is about to become the command: closes the streams that it should find closed, and
/// gives it back the signal of too long a file.
pub(crate) fn as_found() {
    if !FILE_SIZE_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: sets a signal's default action.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
    }
    for fd in (0..3).filter(|&fd| !was_open(fd)) {
        // SAFETY: closes a descriptor of this process, which runs nothing but this until exec.
        unsafe { libc::close(fd) };
    }
}

extern "C" fn look_around() {
    for fd in 0..3 {
        // SAFETY: asks for a descriptor's flags.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
    // SAFETY: ignores a signal, before there are other threads: whoever writes hears of the limit.
    if unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } == libc::SIG_IGN {
        FILE_SIZE_IGNORED.store(true, Ordering::Relaxed);
    }
}

// Runs before the Rust runtime does.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AROUND: extern "C" fn() = look_around;

/// The limits that the command gets back.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    file_size: Rlimit,
    descriptors: Rlimit,
}

impl Limits {
    /// Lifts the limits on file sizes and on descriptors, of which each process takes one, as far as
    /// that is allowed; where the first is hit all the same, writing fails instead of ending heaptape.
    pub(crate) fn lift() -> Limits {
        let descriptors = getrlimit(Resource::Nofile);
        let maximum = descriptors.maximum;
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        let file_size = getrlimit(Resource::Fsize);
        // Root may do away with it, others may go as far as the hard limit.
        let _ = setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None }).or_else(|_| {
            let maximum = file_size.maximum;
            setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum })
        });
        Limits { file_size, descriptors }
    }

    /// In the child, before exec: all as it was.
    pub(crate) fn restore(self) -> io::Result<()> {
        setrlimit(Resource::Fsize, self.file_size)?;
        setrlimit(Resource::Nofile, self.descriptors)?;
        as_found();
        Ok(())
    }
}
