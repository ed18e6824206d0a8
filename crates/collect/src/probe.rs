//! What this system gives to a recording, found out by trying.

use heaptape_proc::system::Features;
use heaptape_wire::chunk::LARGE_BYTES;
use heaptape_wire::process::SLOT_BYTES;
use heaptape_wire::session::SLOTS_AT;
use rustix::fs::MemfdFlags;

use crate::arena::{FIRST_LARGE, FIRST_SLOTS, FIRST_SMALL, tsc_is_trusted};
use crate::exit;

/// Bytes of `/dev/shm` that a recording takes from the start.
pub const SHARED_BYTES: u64 =
    (SLOTS_AT + FIRST_SLOTS * SLOT_BYTES + (FIRST_LARGE + FIRST_SMALL) * LARGE_BYTES) as u64;

/// Tries each of the kernel's services that heaptape uses.
pub fn features() -> Features {
    Features {
        memfd: rustix::fs::memfd_create("heaptape-probe", MemfdFlags::CLOEXEC).is_ok(),
        pidfd: exit::watch(std::process::id()).is_some(),
        wipe_on_fork: wipes_on_fork(),
        membarrier: has_membarrier(),
        tsc: tsc_is_trusted(),
    }
}

/// Whether a page can be marked to be zeros in a forked child.
fn wipes_on_fork() -> bool {
    let bytes = rustix::param::page_size();
    // SAFETY: a new private page, which nobody else knows of and which is unmapped again.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return false;
        }
        let marked = libc::madvise(page, bytes, libc::MADV_WIPEONFORK) == 0;
        libc::munmap(page, bytes);
        marked
    }
}

/// Whether another thread's memory accesses can be ordered from here, without its help.
fn has_membarrier() -> bool {
    const PRIVATE_EXPEDITED: libc::c_long = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED as libc::c_long;
    // SAFETY: asks which commands there are.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    commands > 0 && commands & PRIVATE_EXPEDITED != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_needs_some_megabytes() {
        assert!((1 << 20..64 << 20).contains(&SHARED_BYTES), "{SHARED_BYTES}");
    }

    #[test]
    fn what_is_tried_can_be_tried_again() {
        assert_eq!(features(), features());
    }
}
