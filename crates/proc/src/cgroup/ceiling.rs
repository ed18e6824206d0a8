//! The limit that holds for a group: the smallest of its own and those of the groups above it.

use std::path::{Path, PathBuf};

use super::{field, text};

/// A limit on memory, and the group that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// In bytes.
    pub bytes: u64,
    /// The group's directory.
    pub directory: PathBuf,
}

impl Ceiling {
    /// Of a group; `None` where nothing limits it.
    pub(super) fn of(version: u8, own: &Path) -> Option<Ceiling> {
        let is_group = |directory: &&Path| directory.join("cgroup.procs").exists();
        let limits = own.ancestors().take_while(is_group).filter_map(|directory| {
            let bytes = limit(version, directory)?;
            Some(Ceiling { bytes, directory: directory.to_owned() })
        });
        if version == 2 {
            return limits.min_by_key(|ceiling| ceiling.bytes);
        }
        // Version 1 can be without inheritance, and tells what holds in the end, also of groups that are not seen here.
        let stat =
            text(own, "memory.stat").and_then(|stat| field(&stat, "hierarchical_memory_limit"));
        let Some(bytes) = stat else { return limits.take(1).next() };
        is_limit(bytes).then(|| {
            let mut limits = limits;
            let its = limits.find(|ceiling| ceiling.bytes == bytes);
            its.unwrap_or_else(|| Ceiling { bytes, directory: own.to_owned() })
        })
    }
}

/// The limit of a group itself.
pub(super) fn limit(version: u8, directory: &Path) -> Option<u64> {
    let file = if version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
    text(directory, file)?.trim().parse().ok().filter(|&bytes| is_limit(bytes))
}

/// Version 1 writes "no limit" as the largest number of pages.
fn is_limit(bytes: u64) -> bool {
    bytes < 1 << 60
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Directories of plain files in place of a hierarchy, removed at the end.
    struct Stand(PathBuf);

    impl Stand {
        fn new(name: &str) -> Stand {
            let name = format!("heaptape-ceiling.{}.{name}", std::process::id());
            Stand(std::env::temp_dir().join(name))
        }

        fn group(&self, path: &str, files: &[(&str, &str)]) -> PathBuf {
            let directory = self.0.join(path);
            fs::create_dir_all(&directory).unwrap();
            for (file, text) in [("cgroup.procs", "")].iter().chain(files) {
                fs::write(directory.join(file), text).unwrap();
            }
            directory
        }
    }

    impl Drop for Stand {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_smallest_of_all_above_holds() {
        let stand = Stand::new("second");
        stand.group("", &[]);
        let job = stand.group("job", &[("memory.max", "4294967296\n")]);
        stand.group("job/step", &[("memory.max", "8589934592\n")]);
        let own = stand.group("job/step/task", &[("memory.max", "max\n")]);
        assert_eq!(Ceiling::of(2, &own), Some(Ceiling { bytes: 4 << 30, directory: job.clone() }));
        // A group without the controller is held by those above it.
        let own = stand.group("job/bare", &[]);
        assert_eq!(Ceiling::of(2, &own).map(|ceiling| ceiling.directory), Some(job));
        let free = stand.group("free", &[("memory.max", "max\n")]);
        assert_eq!(Ceiling::of(2, &free), None);
    }

    #[test]
    fn version_1_says_what_holds() {
        let stand = Stand::new("first");
        let none = ("memory.limit_in_bytes", "9223372036854771712\n");
        let job = stand.group("job", &[("memory.limit_in_bytes", "1073741824\n")]);
        let stat = |bytes: &str| format!("cache 1\nhierarchical_memory_limit {bytes}\n");
        let own = stand.group("job/own", &[none, ("memory.stat", &stat("1073741824"))]);
        assert_eq!(Ceiling::of(1, &own), Some(Ceiling { bytes: 1 << 30, directory: job }));
        // One that is not seen from here, as in a container.
        fs::write(own.join("memory.stat"), stat("536870912")).unwrap();
        let seen = Ceiling { bytes: 512 << 20, directory: own.clone() };
        assert_eq!(Ceiling::of(1, &own), Some(seen));
        fs::write(own.join("memory.stat"), stat("9223372036854771712")).unwrap();
        assert_eq!(Ceiling::of(1, &own), None);
    }

    #[test]
    fn a_group_that_is_gone_has_none() {
        assert_eq!(Ceiling::of(2, Path::new("/no/such/group")), None);
        assert_eq!(Ceiling::of(1, Path::new("/no/such/group")), None);
    }
}
