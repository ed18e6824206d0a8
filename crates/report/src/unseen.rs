//! Order faults and unknown frees, and the calls that were not seen and leave them behind.

use heaptape_analyze::{ProcessSummary, Summary};

use crate::size::Count;

/// Says of order faults and unknown frees how many are of processes that stand among those that were
/// recorded only in part; nothing if none are.
pub(crate) fn faults(summary: &Summary) -> Option<String> {
    let faults = |p: &ProcessSummary| p.order_faults.saturating_add(p.unknown_frees);
    let sum = |all: u64, p: &ProcessSummary| all.saturating_add(faults(p));
    let all = summary.processes.iter().fold(0, sum);
    let named = summary.processes.iter().filter(|p| is_named(summary, p)).fold(0, sum);
    let these = match named {
        0 => return None,
        _ if named == all => "These".to_owned(),
        _ => format!("{} of these", Count(named)),
    };
    Some(format!("{these} are of processes with calls that were not seen, named below."))
}

/// Whether a process stands among those that were recorded only in part; a fork is as its parent.
fn is_named(summary: &Summary, process: &ProcessSummary) -> bool {
    let mut next = Some(process);
    // No line of ancestors is longer than there are processes.
    for _ in 0..=summary.processes.len() {
        let Some(p) = next else { break };
        if summary.uncovered.iter().any(|u| (u.pid, &u.command) == (p.pid, &p.command)) {
            return true;
        }
        let parent = p.parent.filter(|_| p.forked_at.is_some());
        next = parent.and_then(|number| summary.processes.get(number.0 as usize));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::overview;

    #[test]
    fn faults_of_processes_with_unseen_calls_are_told_to_be_theirs() {
        let mut named = overview().summary;
        assert_eq!(faults(&named), None);
        let first = &mut named.processes[0];
        (first.number.0, first.parent, first.forked_at) = (0, None, None);
        let mut fork = first.clone();
        (fork.number.0, fork.pid, fork.order_faults) = (1, 79, 4);
        (fork.parent, fork.forked_at) = (Some(first.number), Some(9));
        named.uncovered[0].pid = first.pid;
        named.uncovered[0].command = first.command.clone();
        named.processes.push(fork);
        let sentence = |s: &Summary| faults(s).unwrap_or_default();
        assert!(sentence(&named).starts_with("These are of processes"), "{}", sentence(&named));
        named.processes[1].forked_at = None;
        assert!(sentence(&named).starts_with("1 of these are of"), "{}", sentence(&named));
    }
}
