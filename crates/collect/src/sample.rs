//! What the kernel says of a process, as a sample for the tape.

use heaptape_proc::{maps, read};
use heaptape_tape::{Sample, Vma};

/// Looks at a process; `None` when it is gone. What the kernel refuses stays `None`.
///
/// `with_shares` also asks how the pages are shared, for which the kernel walks all of them, holding
/// the lock that the process needs to map memory.
pub(crate) fn take(pid: u32, time: u64, with_shares: bool) -> Option<Sample> {
    let mappings = read::maps(pid).ok().filter(|mappings| !mappings.is_empty())?;
    let rollup = if with_shares { read::smaps_rollup(pid).ok() } else { None };
    let of =
        |field: fn(&heaptape_proc::smaps::Smaps) -> Option<u64>| rollup.as_ref().and_then(field);
    let status = read::status(pid).ok();
    Some(Sample {
        time,
        index: 0,
        system: Some(maps::system(&mappings)),
        resident: of(|s| s.rss).or(status.as_ref().and_then(|s| s.vm_rss)),
        pss: of(|s| s.pss),
        pss_anon: of(|s| s.pss_anon),
        pss_file: of(|s| s.pss_file),
        pss_shmem: of(|s| s.pss_shmem),
        swap: of(|s| s.swap).or(status.as_ref().and_then(|s| s.vm_swap)),
        vmas: mappings
            .iter()
            .map(|mapping| Vma {
                start: mapping.start,
                end: mapping.end,
                perms: mapping.perms.bits(),
                name: mapping.label().into_owned(),
            })
            .collect(),
    })
}
