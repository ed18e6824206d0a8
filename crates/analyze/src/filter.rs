//! Which calls are wanted.

use std::ops::RangeInclusive;

use heaptape_tape::{Call, Resolved};

/// What a call must be; what is not given admits all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// One of these functions; empty admits all.
    pub calls: Vec<Call>,
    /// The requested size in bytes; of a free it is the freed block's.
    pub sizes: Option<RangeInclusive<u64>>,
    /// The thread's number.
    pub thread: Option<u32>,
}

impl Filter {
    /// Whether the call is wanted. With a size asked for, a free of an unknown block is not.
    pub fn admits(&self, resolved: &Resolved) -> bool {
        let event = &resolved.event;
        let size = if event.call.is_release() || event.frees_by_realloc() {
            resolved.block.map(|b| b.size)
        } else {
            Some(event.size)
        };
        self.admits_call(resolved) && size.map_or(self.sizes.is_none(), |s| self.admits_size(s))
    }

    /// Whether the call is wanted by its function and thread, whatever its size.
    pub fn admits_call(&self, resolved: &Resolved) -> bool {
        let event = &resolved.event;
        (self.calls.is_empty() || self.calls.contains(&event.call))
            && self.admits_thread(Some(event.thread))
    }

    /// Whether what this thread did is wanted; what no thread did is.
    pub fn admits_thread(&self, thread: Option<u32>) -> bool {
        self.thread.is_none_or(|wanted| thread.is_none_or(|t| t == wanted))
    }

    /// Whether blocks of this size are wanted.
    pub fn admits_size(&self, size: u64) -> bool {
        self.sizes.as_ref().is_none_or(|sizes| sizes.contains(&size))
    }

    /// Whether calls of every function and thread are wanted, so that what is made and what is
    /// freed can be held against each other.
    pub fn balances(&self) -> bool {
        self.calls.is_empty() && self.thread.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::tests::resolved;

    #[test]
    fn a_free_has_its_blocks_size() {
        let free = resolved(Call::Free, 0, 0x100, 0, 24);
        let unknown = resolved(Call::Free, 0, 0x100, 0, 0);
        let sizes = |r| Filter { sizes: Some(r), ..Filter::default() };
        assert!(sizes(20..=24).admits(&free) && !sizes(0..=23).admits(&free));
        assert!(!sizes(0..=u64::MAX).admits(&unknown));
        assert!(Filter::default().admits(&unknown));
    }

    #[test]
    fn all_conditions_hold_together() {
        let filter = Filter {
            calls: vec![Call::Malloc, Call::Calloc],
            sizes: Some(10..=10),
            thread: Some(1),
        };
        assert!(filter.admits(&resolved(Call::Malloc, 10, 1, 0, 0)));
        assert!(!filter.admits(&resolved(Call::Malloc, 11, 1, 0, 0)));
        assert!(!filter.admits(&resolved(Call::New, 10, 1, 0, 0)));
        assert!(!Filter { thread: Some(0), ..filter }.admits(&resolved(Call::Malloc, 10, 1, 0, 0)));
    }
}
