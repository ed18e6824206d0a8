//! The table of calls: one row a heap call, in the order of each process's tape.

use heaptape_analyze::calls::Row;

use super::record;

/// A call with its process.
#[derive(Clone, Copy, Debug)]
pub struct CallRecord<'a> {
    /// The number of the process.
    pub process: u32,
    /// Its process id, where it is known.
    pub pid: Option<u32>,
    /// The call.
    pub row: &'a Row,
}

record!(CallRecord, "heaptape.calls/1", call, {
    process: Small always(call.process), "the number of the process on the tape, from 0";
    pid: Small maybe(call.pid), "its process id, as the recorder sees it";
    index: Whole always(call.row.index), "the number of the event in its process, from 0";
    time_ms: Millis always(call.row.time), "milliseconds since the recording began; the clock is coarse, and may go back a little where threads change";
    thread: Small always(call.row.thread), "the number of the thread in its process, from 0";
    call: Text always(call.row.call.name()), "the function; `new` and `delete` for the C++ operators";
    address: Address always(call.row.address), "the new block; of a free, the freed block; 0 when the call failed";
    size: Whole always(call.row.size), "the bytes asked for; 0 for a free, whose block's size is in `old_size`; 18446744073709551615 for a calloc or reallocarray whose product is too large for 64 bits";
    slack: Whole always(call.row.slack), "what the allocator gave on top";
    align: Whole always(call.row.align), "the alignment asked for; 0 for none";
    old_address: Address maybe(call.row.old_address), "of a realloc, the block that went in";
    old_size: Whole maybe(call.row.old_size), "the size of that block; of a free, the size of its block";
    birth: Whole maybe(call.row.birth), "the index of the event that made the old or freed block; empty for one inherited by fork";
    age: Whole maybe(call.row.age), "allocations of the process since that one, reallocs among them";
    moved: Flag maybe(call.row.moved()), "of a realloc of a block: whether it got another address";
    early: Flag maybe(call.row.old_address.map(|_| call.row.early)), "of a realloc of a block: whether its old address was given up before, as another thread's call came between: see [the order](#the-order)";
    caller: Address maybe((call.row.caller != 0).then_some(call.row.caller)), "the return address";
    module: Text maybe(call.row.place.as_ref().map(|p| p.module.path.as_str())), "the file that it lies in";
    offset: Address maybe(call.row.place.as_ref().map(|p| p.offset)), "where in that file";
    function: Text maybe(call.row.place.as_ref().and_then(|p| p.function.as_deref())), "the function that the call stands in, whole; see [the names of callers](#the-names-of-callers)";
    site: Small maybe(call.row.site.map(|site| site.0)), "the number of the call's stack in its process, from 0, where stacks were recorded; `caller` is its first frame";
});
