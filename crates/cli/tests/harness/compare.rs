//! Tape against truth: per process, the calls that the program's own executable made, exactly.

use super::tape::{self, CALLS, FREE, PVALLOC, Row, VALLOC, number};
use super::truth::{Line, Live, hash_block, step};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::path::Path;

/// What the tape says of one process: of the calls out of one module, and of all calls.
#[derive(Default)]
struct Seen {
    own: Own,
    all: All,
    /// Live blocks by who made them: true for the program itself.
    made_by_own: HashMap<u64, bool>,
    /// Frees out of the program of blocks that libstdc++ made: exception objects.
    exceptions: u64,
}

impl Seen {
    fn see(&mut self, row: &Row, is_own: bool, throws: bool) {
        self.all.see(row);
        if row.address != 0 && !row.is_release() {
            self.made_by_own.insert(row.address, is_own);
        }
        if is_own
            && throws
            && row.call == FREE
            && self.made_by_own.get(&row.address) == Some(&false)
        {
            self.exceptions += 1;
        } else if is_own {
            self.own.see(row);
        }
    }
}

#[derive(Default)]
struct Own {
    calls: [u64; 13],
    bytes: [u64; 13],
    failed: u64,
    usable: u64,
    mix: u64,
    chains: HashMap<u64, u64>,
    blocks: Blocks,
    peak: u64,
}

/// Live blocks by address. Between the two stamps of a resize an address may be held twice.
#[derive(Default)]
struct Blocks {
    by_address: HashMap<u64, VecDeque<u64>>,
    live: Live,
    gone: Live,
}

impl Blocks {
    fn add(&mut self, address: u64, size: u64) {
        self.by_address.entry(address).or_default().push_back(size);
        put(&mut self.live, address, size);
    }

    /// Removes the block; one that was not made here counts as gone, with the size that the tape knows.
    fn remove(&mut self, address: u64, known_size: u64) -> bool {
        let queue = self.by_address.get_mut(&address);
        match queue.and_then(VecDeque::pop_front) {
            Some(size) => {
                take(&mut self.live, address, size);
                size == known_size
            }
            None => {
                put(&mut self.gone, address, known_size);
                true
            }
        }
    }

    /// The live blocks of a process that began with `inherited`.
    fn with(&self, inherited: Live) -> Live {
        Live {
            bytes: self.live.bytes.wrapping_add(inherited.bytes).wrapping_sub(self.gone.bytes),
            blocks: self.live.blocks.wrapping_add(inherited.blocks).wrapping_sub(self.gone.blocks),
            mix: self.live.mix.wrapping_add(inherited.mix).wrapping_sub(self.gone.mix),
        }
    }
}

fn put(live: &mut Live, address: u64, size: u64) {
    live.bytes += size;
    live.blocks += 1;
    live.mix = live.mix.wrapping_add(hash_block(address, size));
}

fn take(live: &mut Live, address: u64, size: u64) {
    live.bytes -= size;
    live.blocks -= 1;
    live.mix = live.mix.wrapping_sub(hash_block(address, size));
}

impl Own {
    fn see(&mut self, row: &Row) {
        // The page-aligned forms have no alignment of their own; a release has no size of its own.
        let align = if matches!(row.call, VALLOC | PVALLOC) { 0 } else { row.align };
        let (size, align) = if row.is_release() { (0, 0) } else { (row.size, align) };
        let old = if row.is_resize() { row.old_address } else { 0 };
        let hash = [row.call as u64, size, row.address, align, old].into_iter().fold(1, step);
        self.calls[row.call] += 1;
        self.mix = self.mix.wrapping_add(hash);
        let chain = self.chains.entry(row.thread).or_default();
        *chain = step(*chain, hash);
        if row.failed() {
            self.failed += 1;
        } else if !row.is_release() && row.address != 0 {
            self.bytes[row.call] += row.size;
            self.usable += row.size + row.slack;
        }
        apply(&mut self.blocks, row);
        self.peak = self.peak.max(self.blocks.live.bytes.saturating_sub(self.blocks.gone.bytes));
    }

    fn order(&self) -> u64 {
        self.chains.values().fold(0, |sum: u64, &chain| sum.wrapping_add(step(5, chain)))
    }

    fn events(&self) -> u64 {
        self.calls.iter().sum()
    }
}

/// Changes the live blocks as the call did; false when the tape's size of the old block is not the one it was born with.
fn apply(blocks: &mut Blocks, row: &Row) -> bool {
    if row.failed() {
        return true;
    }
    let mut right = true;
    if row.is_release() {
        right = blocks.remove(row.address, row.old_size);
    } else if row.is_resize() && row.old_address != 0 {
        right = blocks.remove(row.old_address, row.old_size);
    }
    if !row.is_release() && row.address != 0 {
        blocks.add(row.address, row.size);
    }
    right
}

#[derive(Default)]
struct All {
    events: u64,
    calls: [u64; 13],
    threads: HashMap<u64, u64>,
    blocks: Blocks,
    peak: u64,
    peak_at: u64,
    wrong_old_sizes: u64,
    wrong_indexes: u64,
}

impl All {
    fn see(&mut self, row: &Row) {
        self.wrong_indexes += u64::from(row.index != self.events);
        self.events += 1;
        self.calls[row.call] += 1;
        *self.threads.entry(row.thread).or_default() += 1;
        self.wrong_old_sizes += u64::from(!apply(&mut self.blocks, row));
        if self.blocks.live.bytes > self.peak {
            self.peak = self.blocks.live.bytes;
            self.peak_at = row.index;
        }
    }
}

/// Compares and returns what differs, one sentence each; empty when the tape tells the truth.
pub(crate) fn differences(tape: &Path, info: &Value, module: &Path, truth: &[Line]) -> Vec<String> {
    let processes = info["processes"].as_array().expect("processes");
    let mut seen: Vec<Seen> = processes.iter().map(|_| Seen::default()).collect();
    let module = module.to_str().expect("a path in UTF-8");
    let throws = truth.iter().any(|l| l.caught > 0);
    tape::rows(tape, |row| {
        let seen = seen.get_mut(row.process).expect("a process that info lists");
        seen.see(&row, row.module == module, throws);
    });
    let mut found = Vec::new();
    let total: u64 = seen.iter().map(|s| s.all.events).sum();
    check(&mut found, "tape", "events", number(info, "/events"), total);
    for (process, seen) in processes.iter().zip(&seen) {
        consistent(process, &seen.all, &mut found);
    }
    match_lines(processes, &seen, truth, &mut found);
    found
}

/// `info` against the events of the same tape.
fn consistent(process: &Value, all: &All, found: &mut Vec<String>) {
    let who = format!("process {}", process["pid"]);
    check(found, &who, "events", number(process, "/events"), all.events);
    check(found, &who, "wrong indexes", all.wrong_indexes, 0);
    for (i, name) in CALLS.iter().enumerate().skip(1) {
        check(found, &who, name, number(process, &format!("/calls/{name}")), all.calls[i]);
    }
    let threads = number(process, "/threads");
    if threads < all.threads.len() as u64 {
        found.push(format!("{who}: threads is {threads}, events come from {}", all.threads.len()));
    }
    if all.threads.len() <= 1 {
        check(found, &who, "wrong old sizes", all.wrong_old_sizes, 0);
    }
    // What a fork child inherits is not among its own events.
    let inherits =
        all.blocks.gone.blocks > 0 || number(process, "/end/blocks") > all.blocks.live.blocks;
    if !inherits {
        check(found, &who, "end bytes", number(process, "/end/requested"), all.blocks.live.bytes);
        check(found, &who, "end blocks", number(process, "/end/blocks"), all.blocks.live.blocks);
        if all.threads.len() <= 1 {
            check(found, &who, "peak", number(process, "/peak/requested"), all.peak);
            check(found, &who, "peak index", number(process, "/peak/at"), all.peak_at);
        }
    }
}

/// Truth lines and rows of the process table have the order in which a pid's images ran.
fn match_lines(processes: &[Value], seen: &[Seen], truth: &[Line], found: &mut Vec<String>) {
    let mut taken = vec![false; processes.len()];
    for line in truth.iter().filter(|l| l.events() > 0) {
        let is_free = |i: &usize| !taken[*i] && seen[*i].own.events() > 0;
        // One that was gone before it was found has no number, and is known by what it did.
        let row = (0..processes.len())
            .filter(is_free)
            .find(|&i| processes[i]["pid"] == line.pid)
            .or_else(|| {
                let is_unknown = |i: &usize| processes[*i]["pid"].is_null();
                let unknown = (0..processes.len()).filter(is_free).filter(is_unknown);
                unknown.into_iter().find(|&i| seen[i].own.mix == line.mix)
            });
        match row {
            None => found.push(format!("{} {}: not on the tape", line.program, line.pid)),
            Some(i) => {
                taken[i] = true;
                compare(line, &processes[i], &seen[i], found);
            }
        }
    }
    for i in (0..processes.len()).filter(|&i| !taken[i] && seen[i].own.events() > 0) {
        found.push(format!(
            "the tape has {} own events of {}, which wrote no truth",
            seen[i].own.events(),
            processes[i]
        ));
    }
}

fn compare(line: &Line, process: &Value, seen: &Seen, found: &mut Vec<String>) {
    let who = format!("{} {}", line.program, line.pid);
    let own = &seen.own;
    for (i, name) in CALLS.iter().enumerate().skip(1) {
        check(found, &who, &format!("own {name}"), own.calls[i], line.calls[i]);
        check(found, &who, &format!("bytes of {name}"), own.bytes[i], line.bytes[i]);
    }
    check(found, &who, "exception objects freed", seen.exceptions, line.caught);
    check(found, &who, "failed calls", own.failed, line.failed);
    check(found, &who, "usable bytes", own.usable, line.usable);
    check(found, &who, "the hash of all calls", own.mix, line.mix);
    check(found, &who, "the hash of the order in each thread", own.order(), line.order);
    // A thread whose only calls were of null pointers has no event.
    if (own.chains.len() as u64) > line.threads {
        found.push(format!(
            "{who}: events from {} threads, truth has {}",
            own.chains.len(),
            line.threads
        ));
    }
    if let (Some(inherited), Some(live)) = (line.inherited, line.live) {
        // Without inheritance, a block that is not ours came from another module: it never was in our live set.
        let ours = if inherited.blocks > 0 { own.blocks.with(inherited) } else { own.blocks.live };
        if ours != live {
            found.push(format!("{who}: live at the end is {ours:?}, truth {live:?}"));
        }
    }
    free_null_and_quiet(line, process, &who, found);
}

/// Counts that know no module: exact where libc makes no calls itself, else a lower bound.
fn free_null_and_quiet(line: &Line, process: &Value, who: &str, found: &mut Vec<String>) {
    let free_null = number(process, "/calls/free_null");
    if free_null < line.calls[0] || line.quiet && free_null != line.calls[0] {
        found.push(format!("{who}: free_null is {free_null}, truth {}", line.calls[0]));
    }
    if !line.quiet {
        return;
    }
    check(found, who, "events of the quiet program", number(process, "/events"), line.events());
    if let Some(live) = line.live {
        check(found, who, "end bytes", number(process, "/end/requested"), live.bytes);
        check(found, who, "end blocks", number(process, "/end/blocks"), live.blocks);
    }
    if let Some(peak) = line.peak {
        check(found, who, "peak", number(process, "/peak/requested"), peak);
    }
}

fn check(found: &mut Vec<String>, who: &str, what: &str, tape: u64, truth: u64) {
    if tape != truth {
        found.push(format!("{who}: {what}: the tape has {tape}, truth is {truth}"));
    }
}
