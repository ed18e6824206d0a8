//! Signals sent to heaptape itself: they are meant for the command.

use std::sync::mpsc::{Receiver, channel};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;

use crate::Error;

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
        let wanted = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted)
            .map_err(|source| Error::System { what: "sigaction", source })?;
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
