//! The table of blocks: one row a block, from its birth to its death.

use heaptape_analyze::blocks::{Block, Deed, End};
use heaptape_analyze::modules::Place;

use super::record;

/// A block with its process, and where it was made and ended.
#[derive(Clone, Copy, Debug)]
pub struct BlockRecord<'a> {
    /// The number of the process.
    pub process: u32,
    /// Its process id.
    pub pid: u32,
    /// The block.
    pub block: &'a Block,
    /// Where the call that made it was.
    pub made: Option<&'a Place>,
    /// Where the call that ended it was.
    pub ended: Option<&'a Place>,
}

impl BlockRecord<'_> {
    fn birth<T>(&self, of: impl FnOnce(&Deed) -> T) -> Option<T> {
        self.block.birth.as_ref().map(of)
    }

    fn death<T>(&self, of: impl FnOnce(&Deed) -> T) -> Option<T> {
        self.block.death.as_ref().map(of)
    }
}

fn caller(deed: Option<&Deed>) -> Option<u64> {
    deed.map(|deed| deed.caller).filter(|&caller| caller != 0)
}

/// How a block ended, as the table has it.
fn end(end: End) -> &'static str {
    match end {
        End::Freed => "freed",
        End::Resized => "resized",
        End::Displaced => "displaced",
        End::Lost => "lost",
        End::Left => "left",
    }
}

record!(BlockRecord, "heaptape.blocks/1", b, {
    process: Small always(b.process), "number of the process that has the block, from 0 in order of start";
    pid: Small always(b.pid), "its process id";
    block: Whole always(b.block.ordinal), "number of the block among the allocations of the process; a forked child counts on from its parent's";
    size: Whole always(b.block.size), "requested bytes";
    slack: Whole always(b.block.slack), "usable less requested bytes";
    align: Whole maybe(b.block.align), "alignment asked for; 0 for none";
    address: Address always(b.block.address), "its address";
    end: Text always(end(b.block.end)), "how it ended: `freed`; `resized` by a realloc, which makes another block, at the same address or not; `left` alive at the end; `displaced` by an allocation at its address (an order fault); `lost` in a realloc that never came back";
    birth_process: Small maybe(b.birth(|d| d.process.0)), "number of the process that made it: an ancestor for a block inherited by fork";
    birth: Whole maybe(b.birth(|d| d.index)), "index, in that process, of the call that made it";
    birth_time_ms: Millis maybe(b.birth(|d| d.time)), "milliseconds since the recording began at that call, coarse";
    birth_thread: Small maybe(b.birth(|d| d.thread)), "number of the thread, in that process, that made it";
    birth_call: Text maybe(b.birth(|d| d.call.map(|c| c.name())).flatten()), "the function that made it; empty for an inherited block";
    death: Whole maybe(b.death(|d| d.index)), "index of the call that ended it (of the call after that, for a lost one); empty when it was left";
    death_time_ms: Millis maybe(b.death(|d| d.time)), "milliseconds since the recording began at that call";
    death_thread: Small maybe(b.death(|d| d.thread)), "number of the thread that ended it";
    death_call: Text maybe(b.death(|d| d.call.map(|c| c.name())).flatten()), "the function that ended it; empty for a lost block too";
    lifetime: Whole maybe(b.block.lifetime()), "events of the process from birth to death; empty for a block that was left or inherited";
    age: Whole maybe(b.block.age), "allocations of the process since its own when it ended; empty when it was left";
    caller: Address maybe(caller(b.block.birth.as_ref())), "return address of the call that made it; empty when unknown";
    module: Text maybe(b.made.map(|p| p.module.path.as_str())), "the file that this caller lies in; empty when unknown";
    offset: Address maybe(b.made.map(|p| p.offset)), "the caller's address as that file has it";
    function: Text maybe(b.made.and_then(|p| p.function.as_deref())), "the function there; empty when no symbol table names it";
    death_caller: Address maybe(caller(b.block.death.as_ref())), "the same four of the call that ended it";
    death_module: Text maybe(b.ended.map(|p| p.module.path.as_str())), "its file";
    death_offset: Address maybe(b.ended.map(|p| p.offset)), "its place in that file";
    death_function: Text maybe(b.ended.and_then(|p| p.function.as_deref())), "its function";
});
