//! Telling the collector beforehand which program a process is going to be.

use core::sync::atomic::Ordering;

use heaptape_wire::session::{How, INTENTS, Intent};

use crate::arena::arena;
use crate::lifecycle::{STATE, is_covered};

/// Announces that process `pid` becomes, or was started as, `file`.
pub fn announce(pid: u32, file: &[u8], mut how: How) -> Option<&'static Intent> {
    if !is_covered() {
        return None;
    }
    let intent = (0..INTENTS).map(|i| arena().intent(i)).find(|intent| intent.claim(pid))?;
    how.order = arena().session().registered.load(Ordering::Acquire);
    how.namespace = STATE.namespace.load(Ordering::Relaxed) as u64;
    intent.announce(file.iter().copied(), how);
    Some(intent)
}
