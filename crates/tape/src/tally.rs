//! The running counts of a process: what its summary shows, and what every block's header carries.

use crate::CallCounts;
use crate::field::{FieldReader, FieldWriter, Truncated};
use heaptape_wire::event::Call;

/// The counts after some number of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) events: u64,
    /// Events and early releases.
    pub(crate) items: u64,
    /// The number of the next allocation.
    pub(crate) ordinal: u64,
    pub(crate) calls: CallCounts,
    pub(crate) requested: u64,
    pub(crate) blocks: u64,
    pub(crate) peak: u64,
    pub(crate) peak_at: u64,
    pub(crate) threads: u64,
    pub(crate) order_faults: u64,
    pub(crate) unknown_frees: u64,
}

impl Tally {
    /// The counts of a process that starts with blocks of its parent.
    pub(crate) fn inheriting(ordinal: u64, blocks: u64, requested: u64) -> Tally {
        Tally { ordinal, blocks, requested, peak: requested, ..Tally::default() }
    }

    /// A block of `size` bytes is born.
    pub(crate) fn born(&mut self, size: u64) {
        self.ordinal += 1;
        self.blocks = self.blocks.wrapping_add(1);
        self.requested = self.requested.wrapping_add(size);
    }

    /// A block of `size` bytes ends.
    pub(crate) fn ended(&mut self, size: u64) {
        self.blocks = self.blocks.wrapping_sub(1);
        self.requested = self.requested.wrapping_sub(size);
    }

    /// An event of `call` by `thread` is over.
    pub(crate) fn event(&mut self, call: Call, thread: u32) {
        self.calls.add(call, 1);
        self.seen(thread);
        if self.requested > self.peak {
            (self.peak, self.peak_at) = (self.requested, self.events);
        }
        self.events += 1;
        self.items += 1;
    }

    /// An early release by `thread` is over.
    pub(crate) fn release(&mut self, thread: u32) {
        self.seen(thread);
        self.items += 1;
    }

    fn seen(&mut self, thread: u32) {
        self.threads = self.threads.max(u64::from(thread) + 1);
    }

    pub(crate) fn write(&self, fields: &mut FieldWriter) {
        fields.numbers(&[self.events, self.items, self.ordinal]);
        for (_, count) in self.calls.iter() {
            fields.number(count);
        }
        fields.numbers(&[self.requested, self.blocks, self.peak, self.peak_at]);
        fields.numbers(&[self.threads, self.order_faults, self.unknown_frees]);
    }

    pub(crate) fn read(fields: &mut FieldReader<'_>) -> Result<Tally, Truncated> {
        let mut tally = Tally {
            events: fields.number()?,
            items: fields.number()?,
            ordinal: fields.number()?,
            ..Tally::default()
        };
        for call in Call::ALL {
            tally.calls.add(call, fields.number()?);
        }
        for field in [
            &mut tally.requested,
            &mut tally.blocks,
            &mut tally.peak,
            &mut tally.peak_at,
            &mut tally.threads,
            &mut tally.order_faults,
            &mut tally.unknown_frees,
        ] {
            *field = fields.number()?;
        }
        Ok(tally)
    }
}
