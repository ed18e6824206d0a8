//! What the kernel says of a process, as a sample for the tape.

use heaptape_proc::{maps, read};
use heaptape_tape::{Sample, Vma};

/// Looks at a process; `None` when it is gone. What the kernel refuses stays `None`.
pub(crate) fn take(pid: u32, time: u64) -> Option<Sample> {
    let mappings = read::maps(pid).ok().filter(|mappings| !mappings.is_empty())?;
    let rollup = read::smaps_rollup(pid).ok();
    let of =
        |field: fn(&heaptape_proc::smaps::Smaps) -> Option<u64>| rollup.as_ref().and_then(field);
    Some(Sample {
        time,
        index: 0,
        system: Some(maps::system(&mappings)),
        resident: of(|s| s.rss),
        pss: of(|s| s.pss),
        pss_anon: of(|s| s.pss_anon),
        pss_file: of(|s| s.pss_file),
        pss_shmem: of(|s| s.pss_shmem),
        swap: of(|s| s.swap),
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
