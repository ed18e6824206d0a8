//! Signals sent to heaptape itself: they are meant for the command.
//!
//! One that the command has got already, as it was sent to the whole process group of both, is not passed on: by the
//! kernel for a terminal's key, or by somebody else, of which a [sentinel](crate::sentinel) knows. As `timeout` and others
//! send a signal to heaptape first and then to the group, each waits a moment for the other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;

use crate::Error;
use crate::sentinel::{Sentinel, now};

/// What is meant for the command.
pub(crate) const WANTED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// Bit n: signal n is caught. One that was ignored when we were started stays so, for the command too.
static CAUGHT: AtomicU32 = AtomicU32::new(0);
/// Bit n: signal n has come.
static COME: AtomicU32 = AtomicU32::new(0);

/// How long a signal waits for the same one to the whole group.
const GRACE: u64 = 50_000_000;
/// How long before it that may have come, in nanoseconds as well. We may be late to notice our own.
const BEFORE: u64 = 100_000_000;

/// The signals that have come and were not passed on yet.
pub(crate) struct Signals {
    come: Receiver<Signal>,
    sentinel: Arc<OnceLock<Sentinel>>,
    /// When the command was known to have ended.
    forgotten: Cell<u64>,
}

struct Signal {
    number: i32,
    /// When it came.
    at: u64,
    /// From the terminal, which sends it to the whole group by itself.
    from_terminal: bool,
    /// Whether the group was sent it as well.
    to_group: bool,
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
        let (sender, caught) = channel();
        let catch = move || {
            for origin in &mut signals {
                let from_terminal = origin.process.is_none();
                let (number, at) = (origin.signal, now());
                if sender.send(Signal { number, at, from_terminal, to_group: false }).is_err() {
                    break;
                }
            }
        };
        let (sender, come) = channel();
        let sentinel = Arc::default();
        let judged = Arc::clone(&sentinel);
        crate::thread::start(catch)?;
        crate::thread::start(move || judge(&caught, &judged, &sender))?;
        Ok(Signals { come, sentinel, forgotten: Cell::new(0) })
    }

    /// From here on the command may be started, and who sends a signal to it and us as a group is known.
    /// (Without this process, of which a user may have too many, all go on to the command.)
    pub(crate) fn with_sentinel(self) -> Signals {
        let _ = Sentinel::start().map(|sentinel| self.sentinel.set(sentinel));
        self
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
        let command = command as i32;
        for signal in self.come.try_iter().filter(|signal| !signal.from_terminal) {
            // SAFETY: asks for a number.
            let is_in_group = || unsafe { libc::getpgid(command) == libc::getpgrp() };
            if !(signal.to_group && is_in_group()) {
                // SAFETY: sends a signal to the command that we started, whose pid is still its own.
                unsafe { libc::kill(command, signal.number) };
            }
        }
    }

    /// Forgets what has come: it was for the command, which has ended.
    pub(crate) fn forget(&self) {
        self.forgotten.set(now());
        // Nobody is there any more to whom anything could go on.
        self.sentinel.get().inspect(|sentinel| sentinel.end());
    }

    /// Whether somebody wants an end, now that the command has ended and only we can be meant.
    pub(crate) fn ask_for_the_end(&self) -> bool {
        let ends = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
        let since = self.forgotten.get();
        self.come.try_iter().any(|signal| signal.at >= since && ends.contains(&signal.number))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.sentinel.get().inspect(|sentinel| sentinel.bury());
    }
}

/// Lets each signal wait, and finds out whether the group was sent it.
fn judge(caught: &Receiver<Signal>, sentinel: &OnceLock<Sentinel>, come: &Sender<Signal>) {
    let mut question = 0u8;
    for mut signal in caught {
        if let Some(sentinel) = sentinel.get().filter(|_| !signal.from_terminal) {
            let rest = (signal.at + GRACE).saturating_sub(now());
            std::thread::sleep(Duration::from_nanos(rest));
            question = question.wrapping_add(1);
            let since = signal.at.saturating_sub(BEFORE);
            signal.to_group = sentinel.has_seen(signal.number, since, question);
        }
        if come.send(signal).is_err() {
            break;
        }
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
