//! Telling the collector beforehand which program a process is going to be.

use core::sync::atomic::Ordering;

use heaptape_wire::session::{How, INTENTS, Intent};

use crate::arena::arena;
use crate::lifecycle::{STATE, is_covered, is_sandboxed, registered_pid};

/// Announces that process `pid` becomes, or was started as, `file`.
pub fn announce(pid: u32, file: &[u8], mut how: How) -> Option<&'static Intent> {
    if !is_covered() {
        return None;
    }
    // Where a sandbox does not let it be asked, it is the process that registered.
    let pid = if pid == 0 { registered_pid() } else { pid };
    let is_free = |intent: &&Intent| pid != 0 && intent.claim(pid);
    let intent = (0..INTENTS).map(|i| arena().intent(i)).find(is_free)?;
    how.order = arena().session().registered.load(Ordering::Acquire);
    how.namespace = STATE.namespace.load(Ordering::Relaxed) as u64;
    how.sandboxed = is_sandboxed();
    how.slot = STATE.slot.load(Ordering::Relaxed);
    how.generation = STATE.generation.load(Ordering::Relaxed);
    intent.announce(file.iter().copied(), how);
    Some(intent)
}
