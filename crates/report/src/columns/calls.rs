//! The table of calls: one row a heap call, in the order of each process's tape.

use heaptape_analyze::calls::Row;

use super::record;

/// A call with its process.
#[derive(Clone, Copy, Debug)]
pub struct CallRecord<'a> {
    /// The number of the process.
    pub process: u32,
    /// Its process id.
    pub pid: u32,
    /// The call.
    pub row: &'a Row,
}

record!(CallRecord, "heaptape.calls/1", call, {
    process: Small always(call.process), "number of the process, from 0 in order of start";
    pid: Small always(call.pid), "its process id";
    index: Whole always(call.row.index), "number of the call in its process, from 0";
    time_ms: Millis always(call.row.time), "milliseconds since the recording began, coarse";
    thread: Small always(call.row.thread), "number of the thread in its process, from 0";
    call: Text always(call.row.call.name()), "the function: `malloc`, `realloc`, `free`, `new` and so on";
    address: Address always(call.row.address), "the new block, or the freed one; 0 when the call failed";
    size: Whole always(call.row.size), "bytes asked for; 0 for a free";
    slack: Whole always(call.row.slack), "usable less requested bytes of the new block";
    align: Whole always(call.row.align), "alignment asked for; 0 for none";
    old_address: Address maybe(call.row.old_address), "what a realloc was given; empty for other calls and for null";
    old_size: Whole maybe(call.row.old_size), "requested bytes of the block that ended here, or that a failed realloc left alone; empty where there is none";
    birth: Whole maybe(call.row.birth), "index of the call that made that block; empty also for one inherited by fork";
    age: Whole maybe(call.row.age), "allocations of the process since that block's own";
    moved: Flag maybe(call.row.moved()), "whether a realloc gave its block another address; empty where none got another size";
    early: Flag maybe(call.row.old_address.map(|_| call.row.early)), "whether a realloc's old address had been given up before; empty for other calls";
    caller: Address maybe((call.row.caller != 0).then_some(call.row.caller)), "the return address; empty when unknown";
    module: Text maybe(call.row.place.as_ref().map(|p| p.module.path.as_str())), "the file that the caller lies in; empty when unknown";
    offset: Address maybe(call.row.place.as_ref().map(|p| p.offset)), "the caller's address as that file has it";
    function: Text maybe(call.row.place.as_ref().and_then(|p| p.function.as_deref())), "the function there; empty when no symbol table names it";
});
