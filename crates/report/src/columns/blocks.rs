//! The table of blocks: one row a block, from its birth to its death.

use heaptape_analyze::blocks::{Block, Deed, End};
use heaptape_analyze::modules::Place;

use super::record;

/// A block with its process, and where it was made and ended.
#[derive(Clone, Copy, Debug)]
pub struct BlockRecord<'a> {
    /// The number of the process.
    pub process: u32,
    /// Its process id, where it is known.
    pub pid: Option<u32>,
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
    process: Small always(b.process), "the number of the process that has the block";
    pid: Small maybe(b.pid), "its process id, as the recorder sees it";
    block: Whole always(b.block.ordinal), "the number of the block among the allocations of the process, from 0; a forked child counts on from its parent's";
    size: Whole always(b.block.size), "the bytes asked for";
    slack: Whole always(b.block.slack), "what the allocator gave on top";
    align: Whole maybe(b.block.align), "the alignment asked for; 0 for none";
    address: Address always(b.block.address), "where it is";
    ended: Text always(end(b.block.end)), "`freed`; `resized` by a realloc, which makes another block of it, at the same address or not; `left` when it was alive at the end; `displaced` by another block at its address, an order fault; `lost` in a realloc whose end is not on the tape";
    birth_process: Small maybe(b.birth(|d| d.process.0)), "the number of the process that made it: an ancestor's for a block inherited by fork";
    birth: Whole maybe(b.birth(|d| d.index)), "the index, in that process, of the event that made it";
    birth_time_ms: Millis maybe(b.birth(|d| d.time)), "when that was, as `time_ms` of the calls";
    birth_thread: Small maybe(b.birth(|d| d.thread)), "the thread that made it, in that process";
    birth_call: Text maybe(b.birth(|d| d.call.map(|c| c.name())).flatten()), "the function that made it; empty for an inherited block";
    death: Whole maybe(b.death(|d| d.index)), "the index of the event that ended it; of a lost block, of the event that came next; empty for one that was left";
    death_time_ms: Millis maybe(b.death(|d| d.time)), "when that was";
    death_thread: Small maybe(b.death(|d| d.thread)), "the thread that ended it";
    death_call: Text maybe(b.death(|d| d.call.map(|c| c.name())).flatten()), "the function that ended it";
    lifetime: Whole maybe(b.block.lifetime()), "`death` less `birth`; empty for a block that was left or inherited";
    age: Whole maybe(b.block.age), "allocations of the process since its own, when it ended; 0 when it was the newest";
    caller: Address maybe(caller(b.block.birth.as_ref())), "the return address of the call that made it";
    module: Text maybe(b.made.map(|p| p.module.path.as_str())), "the file that it lies in";
    offset: Address maybe(b.made.map(|p| p.offset)), "where in that file";
    function: Text maybe(b.made.and_then(|p| p.function.as_deref())), "the function that the call stands in, whole";
    death_caller: Address maybe(caller(b.block.death.as_ref())), "the return address of the call that ended it";
    death_module: Text maybe(b.ended.map(|p| p.module.path.as_str())), "the file that it lies in";
    death_offset: Address maybe(b.ended.map(|p| p.offset)), "where in that file";
    death_function: Text maybe(b.ended.and_then(|p| p.function.as_deref())), "the function that the call stands in";
});
