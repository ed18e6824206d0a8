//! Signals sent to heaptape itself: they are meant for the command.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;

use crate::Error;

/// What is meant for the command.
const WANTED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// Bit n: signal n is caught. One that was ignored when we were started stays so, for the command too.
static CAUGHT: AtomicU32 = AtomicU32::new(0);
/// Bit n: signal n has come.
static COME: AtomicU32 = AtomicU32::new(0);

/// The signals that have come and were not passed on yet.
pub(crate) struct Signals(Receiver<Signal>);

struct Signal {
    number: i32,
    /// From the terminal, which sends it to the whole group by itself.
    from_terminal: bool,
}

impl Signals {
    /// Catches signals from here on.
    pub(crate) fn catch() -> Result<Signals, Error> {
        let error = |source| Error::System { what: "sigaction", source };
        let wanted: Vec<i32> = WANTED.into_iter().filter(|&signal| !is_ignored(signal)).collect();
        for &signal in &wanted {
            CAUGHT.fetch_or(1 << signal, Ordering::Relaxed);
            let note = move || {
                COME.fetch_or(1 << signal, Ordering::Relaxed);
            };
            // SAFETY: an atomic operation may be done in a signal handler.
            unsafe { signal_hook::low_level::register(signal, note) }.map_err(error)?;
        }
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted).map_err(error)?;
        let (sender, receiver) = channel();
        let forward = move || {
            for origin in &mut signals {
                let from_terminal = origin.process.is_none();
                if sender.send(Signal { number: origin.signal, from_terminal }).is_err() {
                    break;
                }
            }
        };
        crate::thread::start(forward)?;
        Ok(Signals(receiver))
    }

    /// A program that has started us in its begin has all signals blocked for that moment, and so have we: lets them in.
    pub(crate) fn unblock() {
        // SAFETY: fills a set of our own, and changes this thread's mask alone.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const all, std::ptr::null_mut());
        }
    }

    /// In the child that is about to be the command: from here on signals end it, also those that came
    /// before there was a command, or that our handlers took since the fork.
    pub(crate) fn hand_over() {
        // SAFETY: sets the default action of signals, and sends some to this process itself.
        unsafe {
            for signal in bits(&CAUGHT) {
                libc::signal(signal, libc::SIG_DFL);
            }
            for signal in bits(&COME) {
                libc::kill(libc::getpid(), signal);
            }
        }
    }

    /// Passes on what has come. `command` must not have been waited for.
    pub(crate) fn forward(&self, command: u32) {
        for signal in self.0.try_iter().filter(|signal| !signal.from_terminal) {
            // SAFETY: sends a signal to the command that we started, whose pid is still its own.
            unsafe { libc::kill(command as i32, signal.number) };
        }
    }

    /// Forgets what has come: it was for the command, which has ended.
    pub(crate) fn forget(&self) {
        self.0.try_iter().for_each(drop);
    }

    /// Whether somebody wants an end, now that the command has ended and only we can be meant.
    pub(crate) fn ask_for_the_end(&self) -> bool {
        self.0.try_iter().any(|signal| [SIGHUP, SIGINT, SIGQUIT, SIGTERM].contains(&signal.number))
    }
}

fn bits(set: &AtomicU32) -> impl Iterator<Item = i32> {
    let set = set.load(Ordering::Relaxed);
    WANTED.into_iter().filter(move |signal| set & 1 << signal != 0)
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: only asks; the structure is written before it is read.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
