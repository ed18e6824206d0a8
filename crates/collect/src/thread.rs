//! Threads of the collector's own, whose making may fail where the user may have few processes.

use std::thread::{Builder, JoinHandle};

use crate::Error;

/// Starts a thread.
pub(crate) fn start<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    Builder::new()
        .spawn(work)
        .map_err(|source| Error::System { what: "starting a thread of heaptape", source })
}
