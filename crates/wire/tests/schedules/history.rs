//! What happened, and whether a budget that does one thing after another could have answered the same.

use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Spend { process: usize, bytes: i64 },
    Refund { process: usize, bytes: i64 },
    Reclaim { process: usize },
}

impl Deed {
    /// Whose it is.
    pub fn process(self) -> usize {
        let (Deed::Spend { process, .. }
        | Deed::Refund { process, .. }
        | Deed::Reclaim { process }) = self;
        process
    }
}

/// A call: from when to when, and its answer; none if its thread was killed in it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub deed: Deed,
    pub begun: u64,
    pub ended: Option<u64>,
    pub granted: bool,
    /// Bytes that a refusal may count as used although nobody has them: see `budget.rs` for when.
    pub in_hands: i64,
}

/// Whether there is an order of the calls, each at a moment while it ran, in which a sequential budget answers so.
pub fn has_an_order(limit: i64, calls: &[Call]) -> bool {
    assert!(calls.len() < 32, "a schedule is short");
    search(limit, calls, State { done: 0, used: [0; 2], gone: [false; 2] }, &mut HashSet::new())
}

#[derive(Clone, Copy)]
struct State {
    done: u32,
    used: [i64; 2],
    gone: [bool; 2],
}

fn search(limit: i64, calls: &[Call], state: State, tried: &mut HashSet<(u32, [i64; 2])>) -> bool {
    let left = |i: usize| state.done & 1 << i == 0;
    let first_end = (0..calls.len()).filter(|i| left(*i)).filter_map(|i| calls[i].ended).min();
    let Some(first_end) = first_end else { return true };
    (0..calls.len()).filter(|i| left(*i) && calls[*i].begun < first_end).any(|i| {
        after(limit, &calls[i], state).is_some_and(|next| {
            let next = State { done: state.done | 1 << i, ..next };
            tried.insert((next.done, next.used)) && search(limit, calls, next, tried)
        })
    })
}

fn after(limit: i64, call: &Call, mut state: State) -> Option<State> {
    let used: i64 = state.used.iter().sum();
    let mut change = |process: usize, bytes: i64| {
        if state.gone[process] {
            return None;
        }
        state.used[process] += bytes;
        Some(state)
    };
    match call.deed {
        Deed::Spend { process, bytes } if call.ended.is_none() || call.granted => {
            if used + bytes <= limit { change(process, bytes) } else { None }
        }
        Deed::Spend { bytes, .. } => {
            if used + bytes + call.in_hands > limit {
                Some(state)
            } else {
                None
            }
        }
        Deed::Refund { process, bytes } => change(process, -bytes),
        Deed::Reclaim { process } => {
            state.used[process] = 0;
            state.gone[process] = true;
            Some(state)
        }
    }
}
