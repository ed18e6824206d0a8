//! What is resident in a process of a counted job, told apart by what it is for: one look at the kernel's list of its
//! mappings.
//!
//! Allocator heap is what glibc keeps blocks in: the break, and the heaps of its other arenas, each at the begin of
//! 64 MiB of its own and mapped without reserve; and what another allocator has mapped. What lies behind the break as glibc
//! knows it, by a system call past libc, is none of that. What this tool has mapped itself is left out, by the kernel's marks of it.

use heaptape_proc::{Region, read};

use crate::segments::{Identity, identity};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Address space that glibc sets aside for a heap of an arena.
const ARENA_HEAP: u64 = 64 << 20;
/// What a thread's descriptor takes at least, at the top of its stack.
const DESCRIPTOR: u64 = 0x900;
/// No stack is looked at that would be larger.
const LARGEST_STACK: u64 = 1 << 30;

/// Resident bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resident {
    /// All, each page divided by the number of processes that map it.
    pub(crate) shares: u64,
    /// Stacks, as far as they were touched.
    pub(crate) stacks: u64,
    /// Allocator heap.
    pub(crate) heap: u64,
    /// Private pages of no file in all other mappings, each divided by the number of processes that map it.
    pub(crate) other: u64,
    /// Shared memory, in the same way.
    pub(crate) shared: u64,
    /// Whether our own file is mapped. A process that is another program now has it no longer.
    pub(crate) is_joined: bool,
}

/// What is known of a process beforehand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Addresses at the top of stacks.
    pub(crate) tops: Vec<u64>,
    /// What an allocator has mapped.
    pub(crate) heaps: Vec<(u64, u64)>,
    /// Our own file.
    pub(crate) session: Option<Identity>,
    /// Where glibc keeps the end of its data.
    pub(crate) break_at: Option<u64>,
}

/// Looks at a process; `None` where the kernel would not say.
pub(crate) fn look(pid: u32, known: &Known) -> Option<Resident> {
    // The kernel moves the break before libc notes that.
    let end_of_data = || known.break_at.and_then(|at| read::word(pid, at).ok());
    let before = end_of_data();
    let regions = read::smaps(pid).ok().filter(|regions| !regions.is_empty())?;
    let end = before.zip(end_of_data()).map(|(before, after)| before.max(after));
    let touched = |start: u64, end: u64| read::present(pid, start, end, PAGE).ok();
    let is_other = |region: &&Region| Some(identity(&region.mapping)) != known.session;
    let all = regions.len();
    let regions: Vec<&Region> = regions.iter().filter(is_other).collect();
    let is_joined = known.session.is_none() || regions.len() < all;
    let nothing = Resident { is_joined, ..Resident::default() };
    Some(regions.into_iter().fold(nothing, |sum, region| sum.with(region, (known, end), touched)))
}

/// What this tool has mapped in a process itself: its notes there, and its own file, each page divided by the number
/// of processes that map it. `None` where the kernel would not say.
pub(crate) fn ours(pid: u32, session: Option<Identity>) -> Option<(u64, u64)> {
    let mut sum = (0u64, 0u64);
    for region in read::smaps(pid).ok()? {
        if Some(identity(&region.mapping)) == session {
            sum.1 = sum.1.saturating_add(region.pss);
        } else if !region.mapping.perms.shared && region.mapping.inode == 0 && is_ours(&region) {
            sum.0 = sum.0.saturating_add(region.pss);
        }
    }
    Some(sum)
}

impl Resident {
    fn with(
        mut self,
        region: &Region,
        (known, end): (&Known, Option<u64>),
        touched: impl Fn(u64, u64) -> Option<u64>,
    ) -> Resident {
        let name = region.mapping.label();
        let is_nameless = name.is_empty() || name.starts_with("[anon");
        self.shares += region.pss;
        if name == "[stack]" {
            self.stacks += region.rss;
        } else if region.mapping.perms.shared {
            self.shared += if is_shared_memory(&name) { region.pss } else { 0 };
        } else if name == "[heap]" || is_nameless && is_arena_heap(region) {
            let beyond = if name == "[heap]" { beyond_data(region, end, touched) } else { 0 };
            self.heap += region.rss - beyond;
            self.other += share(region, beyond);
        } else if !(is_nameless && is_ours(region)) {
            let stack = if is_nameless { stack_in(region, &known.tops, touched) } else { 0 };
            let rest = region.anonymous.saturating_sub(stack);
            let heap = if is_nameless { rest.min(heap_in(region, &known.heaps)) } else { 0 };
            self.stacks += stack;
            self.heap += heap;
            self.other += share(region, rest - heap);
        }
        self
    }
}

/// What of a mapping is the stack of a thread: from its begin, behind the guard, to the thread's descriptor. The
/// kernel may have joined it with a mapping above.
fn stack_in(region: &Region, tops: &[u64], touched: impl Fn(u64, u64) -> Option<u64>) -> u64 {
    let within = region.mapping.start..region.mapping.end;
    let Some(top) = tops.iter().copied().filter(|top| within.contains(top)).max() else { return 0 };
    let end = (top + DESCRIPTOR).next_multiple_of(PAGE);
    if end >= within.end {
        return region.anonymous;
    }
    let start = within.start.max(end.saturating_sub(LARGEST_STACK));
    touched(start, end).unwrap_or(0).min(region.anonymous)
}

/// What of the heap lies behind the end of the data as glibc knows it. (0: it has not asked for any.)
fn beyond_data(
    region: &Region,
    end: Option<u64>,
    touched: impl Fn(u64, u64) -> Option<u64>,
) -> u64 {
    let Some(end) = end else { return 0 };
    // A program may have written anything there.
    let from = end.clamp(region.mapping.start, region.mapping.end).next_multiple_of(PAGE);
    if from >= region.mapping.end {
        return 0;
    }
    touched(from, region.mapping.end).unwrap_or(0).min(region.rss)
}

/// What of a mapping an allocator has mapped, of which any part may be resident.
fn heap_in(region: &Region, heaps: &[(u64, u64)]) -> u64 {
    let within = |&(start, end): &(u64, u64)| {
        end.min(region.mapping.end).saturating_sub(start.max(region.mapping.start))
    };
    heaps.iter().map(within).fold(0, u64::saturating_add)
}

/// So many bytes of a mapping's pages, divided by their users as all of its pages are on average.
fn share(region: &Region, bytes: u64) -> u64 {
    let all = u128::from(region.rss.max(1));
    (u128::from(bytes) * u128::from(region.pss.min(region.rss)) / all) as u64
}

fn is_arena_heap(region: &Region) -> bool {
    let mapping = &region.mapping;
    region.is_unreserved
        && !region.is_undumped
        && mapping.start.is_multiple_of(ARENA_HEAP)
        && mapping.len() <= ARENA_HEAP
}

fn is_ours(region: &Region) -> bool {
    region.is_unreserved && (region.is_undumped || region.is_wiped)
}

/// Whether a shared mapping of this name is memory, and no file on a disk nor a device.
fn is_shared_memory(name: &str) -> bool {
    const PLACES: [&str; 4] = ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"];
    PLACES.iter().any(|place| name.starts_with(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptape_proc::regions;

    fn seen(text: &str, tops: &[u64], end: Option<u64>) -> Resident {
        let heaps = vec![(0x7f00_1010_0000, 0x7f00_1010_1000)];
        let session = Some(((0, 1), 8));
        let known = Known { tops: tops.to_vec(), heaps, session, break_at: None };
        let touched = |start: u64, end: u64| Some((end - start) / 2);
        let regions = regions::parse(text.as_bytes());
        let sum = Resident::default();
        regions.iter().fold(sum, |sum, region| sum.with(region, (&known, end), touched))
    }

    fn mapping(line: &str, rss: u64, pss: u64, flags: &str) -> String {
        format!("{line}\nRss: {rss} kB\nPss: {pss} kB\nAnonymous: {rss} kB\nVmFlags: {flags}\n")
    }

    #[test]
    fn each_mapping_is_one_thing() {
        let text = [
            mapping("1000-21000 rw-p 0 00:00 0 [heap]", 40, 40, "rd wr ac"),
            mapping("7f0000000000-7f0000021000 rw-p 0 00:00 0 ", 20, 20, "rd wr nr"),
            // The same elsewhere is none of glibc's, and with the other mark it is ours.
            mapping("7f0010100000-7f0010121000 rw-p 0 00:00 0 ", 12, 12, "rd wr nr"),
            mapping("7f0010200000-7f0010221000 rw-p 0 00:00 0 ", 400, 400, "rd wr nr dd nh"),
            mapping("7f0010300000-7f0010321000 rw-p 0 00:00 0 ", 8, 4, "rd wr ac"),
            mapping("7f0010400000-7f0010421000 rw-s 0 00:01 9 /dev/shm/x (deleted)", 64, 32, "sh"),
            mapping("7f0010600000-7f0010621000 rw-s 0 08:01 8 /var/file", 64, 64, "sh"),
            mapping("7ffff0000000-7ffff0021000 rw-p 0 00:00 0 [stack]", 24, 24, "rd wr gd"),
        ]
        .concat();
        let found = seen(&text, &[], None);
        let kib = |bytes: u64| bytes >> 10;
        assert_eq!((kib(found.heap), kib(found.stacks)), (60 + 4, 24));
        assert_eq!((kib(found.other), kib(found.shared)), (12 - 4 + 4, 32));
    }

    #[test]
    fn what_lies_behind_the_break_of_glibc_is_no_heap() {
        let text = mapping("10000-50000 rw-p 0 00:00 0 [heap]", 200, 200, "rd wr ac");
        for (end, other) in [
            (None, 0),
            (Some(0x50000), 0),
            (Some(0), 128),
            (Some(0x2ff01), 64),
            (Some(u64::MAX), 0),
        ] {
            let found = seen(&text, &[], end);
            assert_eq!((found.heap >> 10, found.other >> 10), (200 - other, other));
        }
    }

    #[test]
    fn a_stack_ends_where_its_thread_has_its_descriptor() {
        let line = "7f0000001000-7f0000801000 rw-p 0 00:00 0 ";
        let whole = mapping(line, 80, 80, "rd wr ac");
        // The descriptor is in the last page, or 16 pages above the begin of what the kernel has joined.
        let found = seen(&whole, &[0x7f00_0080_0640], None);
        assert_eq!((found.stacks, found.other), (80 << 10, 0));
        let found = seen(&whole, &[0x7f00_0001_0640], None);
        assert_eq!((found.stacks, found.other), (32 << 10, 48 << 10));
        let found = seen(&whole, &[0x7f00_1001_0640], None);
        assert_eq!((found.stacks, found.other), (0, 80 << 10));
    }
}
