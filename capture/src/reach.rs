//! Where a stack may be read: pages that were read before, or that the kernel says can be.
//!
//! Rules of the program's code lead from frame to frame. Where one is wrong the address is any, and must not be read:
//! so each page is asked for once. A page of the stack that the call itself stands on needs no question.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::arch::{self, syscall};
use crate::lifecycle;

const PAGE: usize = 4096;
/// Stacks that a thread goes back and forth between without asking again.
const SPANS: usize = 4;

/// The pages that a thread's stacks were found on. (Of the thread alone: see [`crate::walker`].)
#[repr(C)]
pub struct Reach {
    /// Start and end, both on pages; the last one found comes first.
    spans: [Cell<(usize, usize)>; SPANS],
}

impl Reach {
    /// Forgets all of it.
    pub fn forget(&self) {
        self.spans.iter().for_each(|span| span.set((0, 0)));
    }

    /// Forgets all but the pages around the one that the thread stands on, which are of its stack.
    pub fn keep(&self, address: usize) {
        let is_known = self.knows(address);
        self.spans[usize::from(is_known)..].iter().for_each(|span| span.set((0, 0)));
    }

    /// The thread stands on this address.
    pub fn stand_on(&self, address: usize) {
        if !self.knows(address) {
            self.add(address & !(PAGE - 1));
        }
    }

    /// Reads a word of a stack.
    #[inline(always)]
    pub fn read(&self, address: usize) -> Option<usize> {
        let (start, end) = self.spans[0].get();
        let is_near = address.wrapping_sub(start) < end.wrapping_sub(start);
        if !address.is_multiple_of(8) || !(is_near || self.finds(address)) {
            return None;
        }
        // SAFETY: the page is one that can be read, and the word lies in it whole.
        Some(unsafe { (address as *const usize).read_volatile() })
    }

    fn knows(&self, address: usize) -> bool {
        let found = self.spans.iter().position(|span| {
            let (start, end) = span.get();
            start <= address && address < end
        });
        if let Some(found) = found {
            self.spans[0].swap(&self.spans[found]);
        }
        found.is_some()
    }

    #[cold]
    #[inline(never)]
    fn finds(&self, address: usize) -> bool {
        if self.knows(address) {
            return true;
        }
        let page = address & !(PAGE - 1);
        let is_there = is_readable(page);
        if is_there {
            self.add(page);
        }
        is_there
    }

    /// The first span may have become a neighbour of another one.
    fn join_neighbours(&self) {
        let (start, end) = self.spans[0].get();
        for span in &self.spans[1..] {
            let (other, other_end) = span.get();
            if other != other_end && (other == end || other_end == start) {
                self.spans[0].set((start.min(other), end.max(other_end)));
                return span.set((0, 0));
            }
        }
    }

    fn add(&self, page: usize) {
        let end = page + PAGE;
        for span in &self.spans {
            let (start, old_end) = span.get();
            if old_end == page || start == end {
                span.set((start.min(page), old_end.max(end)));
                self.spans[0].swap(span);
                return self.join_neighbours();
            }
        }
        for i in (1..SPANS).rev() {
            self.spans[i].swap(&self.spans[i - 1]);
        }
        self.spans[0].set((page, end));
    }
}

/// Whether the kernel answers questions of that kind as it should: see [`begin`].
static ANSWERS: AtomicU32 = AtomicU32::new(0);

/// Finds out whether the kernel can be asked: what stands in its place may say yes to anything.
pub fn begin() {
    ANSWERS.store(u32::from(ask(NOWHERE) == EFAULT), Ordering::Relaxed);
}

/// Whether the kernel can read a page: asked by a call that reads from there and then does nothing. In a sandbox
/// there are no questions.
fn is_readable(page: usize) -> bool {
    /// Where programs have nothing.
    const LOWEST: usize = 1 << 16;
    let may_be = (LOWEST..NOWHERE).contains(&page) && !lifecycle::is_sandboxed();
    may_be && ANSWERS.load(Ordering::Relaxed) != 0 && ask(page) == EINVAL
}

/// An address that no program has.
const NOWHERE: usize = 1 << 47;
const EFAULT: isize = -14;
const EINVAL: isize = -22;

/// What the kernel answers to a call that reads from there and is not well formed besides.
fn ask(address: usize) -> isize {
    const NO_WAY: usize = usize::MAX;
    // SAFETY: `rt_sigprocmask` with a way that there is not reads the set, and fails.
    unsafe { syscall(arch::SYS_RT_SIGPROCMASK, [NO_WAY, address, 0, 8, 0, 0]) }
}
