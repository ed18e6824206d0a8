//! Signals sent to heaptape itself: they are meant for the command.

use std::sync::mpsc::{Receiver, channel};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;

use crate::Error;

/// The signals that have come and were not passed on yet.
pub(crate) struct Signals(Receiver<i32>);

impl Signals {
    /// Catches signals from here on. One that the terminal sends is dropped: it reaches the whole
    /// group by itself.
    pub(crate) fn catch() -> Result<Signals, Error> {
        let wanted = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted)
            .map_err(|source| Error::System { what: "sigaction", source })?;
        let (sender, receiver) = channel();
        let forward = move || {
            for origin in &mut signals {
                if origin.process.is_some() && sender.send(origin.signal).is_err() {
                    break;
                }
            }
        };
        crate::thread::start(forward)?;
        Ok(Signals(receiver))
    }

    /// Passes on what has come. `command` must not have been waited for.
    pub(crate) fn forward(&self, command: u32) {
        for signal in self.0.try_iter() {
            // SAFETY: sends a signal to the command that we started, whose pid is still its own.
            unsafe { libc::kill(command as i32, signal) };
        }
    }
}
