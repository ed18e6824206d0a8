//! The parts of what is resident in a job: of its group, or of its processes.

use heaptape_ledger::Parts;
use heaptape_proc::cgroup::Memory;
use heaptape_proc::read;

use crate::resident;
use crate::segments::Identity;

/// Bytes that this tool may have in programs whatever they hold.
const OURS: u64 = 16 << 20;

/// As the kernel accounts them to a group.
pub(super) fn of_group(memory: &Memory) -> Parts {
    Parts {
        anonymous: memory.anonymous.unwrap_or(0),
        shared: memory.shared.unwrap_or(0),
        swap: memory.swap.unwrap_or(0),
        cache: memory.cache,
        kernel: memory.kernel,
        ours: None,
    }
}

/// Of processes, each page divided by the number of its users; `None` where nothing can be seen.
pub(super) fn of_processes(pids: &[u32]) -> Option<Parts> {
    let mut sum: Option<Parts> = None;
    for &pid in pids {
        let Ok(smaps) = read::smaps_rollup(pid) else { continue };
        // Kernels before 5.4 do not tell the parts of it.
        let anonymous = smaps.pss_anon.or(smaps.anonymous).unwrap_or(0);
        let sum = sum.get_or_insert_default();
        sum.anonymous = sum.anonymous.saturating_add(anonymous);
        sum.shared = sum.shared.saturating_add(smaps.pss_shmem.unwrap_or(0));
        sum.swap = sum.swap.saturating_add(smaps.swap_pss.unwrap_or(0));
    }
    sum
}

/// Finds what of it is this tool's own. That is known by marks which a program could give its own memory as well, so no
/// more is believed than so many notes can take. `is_shared`: our own file is in the sum of shared memory.
pub(super) fn without_ours(
    parts: &mut Parts,
    pids: &[u32],
    session: Option<Identity>,
    is_shared: bool,
) {
    let found = pids.iter().filter_map(|&pid| resident::ours(pid, session));
    let (notes, file) = found.fold((0u64, 0u64), |sum, ours| {
        (sum.0.saturating_add(ours.0), sum.1.saturating_add(ours.1))
    });
    let ours = if is_shared { notes.saturating_add(file) } else { notes };
    let rest = parts.held().saturating_sub(ours);
    parts.ours = Some(ours.min(OURS.saturating_add(rest / 4)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_added_up() {
        let own = std::process::id();
        let Some(one) = of_processes(&[own]) else { return };
        assert!(one.held() > 1 << 16, "{one:?}");
        let two = of_processes(&[own, own, 1 << 23]).unwrap();
        assert!(two.held() > one.held());
        assert_eq!(of_processes(&[1 << 23]), None);
    }

    #[test]
    fn what_is_called_ours_is_not_believed_without_bounds() {
        let mut parts = Parts { anonymous: 100 << 20, ..Parts::default() };
        without_ours(&mut parts, &[std::process::id()], None, true);
        assert!(parts.ours <= Some(OURS + (25 << 20)) && parts.held() >= 59 << 20, "{parts:?}");
    }
}
