//! The names of groups, and the groups that are left of those of us who were killed.

use std::fs;
use std::path::Path;

use heaptape_proc::read;

/// What begins the name of each group.
const PREFIX: &str = "heaptape-";
/// What ends the name of a group into which heaptape went itself.
pub(super) const ASIDE: &str = "-self";

/// The name of this process's group: nobody else has it.
pub(super) fn own_name() -> String {
    let pid = std::process::id();
    let started = read::stat(pid).map_or(0, |stat| stat.starttime);
    format!("{PREFIX}{pid}-{started}")
}

/// Removes the groups whose makers are gone, and that have no processes any more.
pub(super) fn remove_others(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(maker).is_some_and(|maker| !is_there(maker)) {
            // The kernel removes none that has processes, or groups below it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Who has made a group of this name: a pid and the time of its start.
fn maker(name: &str) -> Option<(u32, u64)> {
    let name = name.strip_prefix(PREFIX)?;
    let (pid, started) = name.strip_suffix(ASIDE).unwrap_or(name).split_once('-')?;
    Some((pid.parse().ok()?, started.parse().ok()?))
}

/// Whether that process is there, as far as can be told.
fn is_there((pid, started): (u32, u64)) -> bool {
    match read::stat(pid) {
        Ok(stat) => stat.starttime == started && stat.state != 'Z',
        Err(heaptape_proc::Error::NoProcess { .. }) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_who_made_it() {
        let own = own_name();
        let maker_of_own = maker(&own).unwrap();
        assert_eq!(maker_of_own.0, std::process::id());
        assert!(is_there(maker_of_own));
        assert!(!is_there((maker_of_own.0, maker_of_own.1 + 1)) && !is_there((1 << 23, 1)));
        assert_eq!(maker(&format!("{own}{ASIDE}")), Some(maker_of_own));
        for name in ["heaptape-", "heaptape-1", "heaptape-a-b", "user-1-2", ""] {
            assert_eq!(maker(name), None);
        }
    }
}
