//! How much more fits on a tape that may only grow to a certain size: what the writing thread tells
//! the collector, so that its blocks become smaller as the end comes near.

use std::fs::File;

/// Bytes that an event is thought to take until some were written.
const FIRST_GUESS: u64 = 8;

/// What has been written so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// Bytes in the file, and those that its last frame will need.
    pub(crate) taken: u64,
    /// Events in the blocks that were written.
    pub(crate) items: u64,
    /// The bytes of these blocks.
    pub(crate) block_bytes: u64,
    /// The length that the file system and our limits allow the file; `None` when they don't tell.
    pub(crate) disk: Option<u64>,
}

/// How long a file can become that is `written` bytes long. What was set aside for it beyond that is
/// not counted.
pub(crate) fn of_disk(file: &File, written: u64) -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    let disk = rustix::fs::fstatvfs(file).ok().filter(|disk| disk.f_blocks > 0);
    let free = disk.map(|disk| written.saturating_add(disk.f_bavail.saturating_mul(disk.f_frsize)));
    limit.into_iter().chain(free).min()
}

impl Room {
    /// About how many more events fit into `max_size` bytes, when `waiting` are still to be written.
    pub(crate) fn items_left(&self, max_size: u64, waiting: u64) -> u64 {
        let left = max_size.saturating_sub(self.taken);
        let items = match self.items {
            0 => left / FIRST_GUESS,
            items => {
                let items =
                    u128::from(left) * u128::from(items) / u128::from(self.block_bytes.max(1));
                u64::try_from(items).unwrap_or(u64::MAX)
            }
        };
        items.saturating_sub(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_reckoned_by_what_events_took_so_far() {
        let mut room = Room { taken: 1000, ..Room::default() };
        assert_eq!(room.items_left(9000, 0), 1000);
        (room.items, room.block_bytes) = (400, 1000);
        assert_eq!(room.items_left(9000, 0), 3200);
        assert_eq!(room.items_left(9000, 3000), 200);
        assert_eq!(room.items_left(9000, 4000), 0);
        assert_eq!(room.items_left(900, 0), 0);
        room = Room { taken: 0, items: u64::MAX, block_bytes: 1, disk: None };
        assert_eq!(room.items_left(u64::MAX, 0), u64::MAX);
    }
}
