//! What the command must find as the user had it, and heaptape itself does not want: a limit on the
//! size of files, which its shared memory would count against, and standard streams that were closed.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bit n: descriptor n was closed when heaptape started. (The Rust runtime opens `/dev/null` there.)
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Whether descriptor `fd`, one of the three standard streams, was open when heaptape started.
pub(crate) fn was_open(fd: i32) -> bool {
    CLOSED.load(Ordering::Relaxed) & 1 << fd == 0
}

/// In a process that is about to become the command: closes the streams that it should find closed.
pub(crate) fn close_streams() {
    for fd in (0..3).filter(|&fd| !was_open(fd)) {
        // SAFETY: closes a descriptor of this process, which runs nothing but this until exec.
        unsafe { libc::close(fd) };
    }
}

extern "C" fn look_at_streams() {
    for fd in 0..3 {
        // SAFETY: asks for a descriptor's flags.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

// Runs before the Rust runtime does.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STREAMS: extern "C" fn() = look_at_streams;

/// The limits that the command gets back.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    file_size: Rlimit,
}

impl Limits {
    /// Lifts the limit on file sizes as far as that is allowed; where it is hit all the same, writing
    /// fails instead of ending heaptape.
    pub(crate) fn lift() -> Limits {
        let file_size = getrlimit(Resource::Fsize);
        // Root may do away with it, others may go as far as the hard limit.
        let _ = setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None }).or_else(|_| {
            let maximum = file_size.maximum;
            setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum })
        });
        // SAFETY: ignores a signal; the command gets the default back in `restore`.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        Limits { file_size }
    }

    /// In the child, before exec: all as it was.
    pub(crate) fn restore(self) -> io::Result<()> {
        setrlimit(Resource::Fsize, self.file_size)?;
        // SAFETY: sets a signal's default action.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        close_streams();
        Ok(())
    }
}
