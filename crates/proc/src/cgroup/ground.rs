//! Where a job can have a group of its own, of whom memory is limited; or what is missing for that.
//!
//! In version 1 that is a child of the own group. In version 2 a group whose children are limited holds no process
//! itself (but for the root), so heaptape must be alone in its group and go aside, or the job's group stands beside it.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{has_memory, is_writable, text};

/// Where a job's group can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ground {
    /// As a child of this group.
    Below(PathBuf),
    /// The same, once this process, the only one in it, has gone to another child of it.
    Alone(PathBuf),
    /// As a child of this group, which is the parent of our own.
    Beside(PathBuf),
}

/// What is missing for a group of the job's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// No hierarchy that accounts for memory.
    Hierarchy,
    /// The own group is not ours to write.
    Rights(u8, PathBuf),
    /// The own group may not limit memory.
    Controller(PathBuf),
    /// The own group has other processes in it, so it can't have limited children.
    Company(PathBuf),
}

impl Ground {
    /// For process `pid`, whose group is this directory.
    pub(super) fn find(version: u8, own: &Path, pid: u32) -> Result<Ground, Lack> {
        if version == 1 {
            let rights = Lack::Rights(version, own.to_owned());
            return is_writable(own).then(|| Ground::Below(own.to_owned())).ok_or(rights);
        }
        if !has_memory(own, "cgroup.controllers") {
            return Err(Lack::Controller(own.to_owned()));
        }
        // Only the root of all groups has no events.
        let is_root = !own.join("cgroup.events").exists();
        let may = is_writable(own) && is_writable(&own.join("cgroup.subtree_control"));
        if may && (is_root || has_memory(own, "cgroup.subtree_control")) {
            return Ok(Ground::Below(own.to_owned()));
        }
        if may && is_alone(own, pid) {
            return Ok(Ground::Alone(own.to_owned()));
        }
        if let Some(parent) = own.parent().filter(|parent| is_free(own, parent)) {
            return Ok(Ground::Beside(parent.to_owned()));
        }
        let lack = if may { Lack::Company } else { |own| Lack::Rights(2, own) };
        Err(lack(own.to_owned()))
    }

    /// The group in which the job's is made.
    pub fn parent(&self) -> &Path {
        let (Ground::Below(path) | Ground::Alone(path) | Ground::Beside(path)) = self;
        path
    }
}

fn is_alone(own: &Path, pid: u32) -> bool {
    let pids = text(own, "cgroup.procs").unwrap_or_default();
    let mut pids = pids.split_whitespace();
    pids.next() == Some(&pid.to_string()) && pids.next().is_none()
}

/// Whether a group beside the own one of a session takes nothing from what holds for the own one: it has no limit.
fn is_free(own: &Path, parent: &Path) -> bool {
    const LIMITS: [&str; 4] = ["memory.max", "memory.high", "memory.swap.max", "cpu.max"];
    let is_unlimited =
        |file: &&str| text(own, file).is_none_or(|value| value.trim_start().starts_with("max"));
    // What systemd makes for a session, a terminal or a program of a user; what a batch system or a container has made is
    // not left.
    let is_scope = own.extension().is_some_and(|kind| kind == "scope");
    is_scope
        && own.components().any(|part| part.as_os_str() == "user.slice")
        && LIMITS.iter().all(is_unlimited)
        && has_memory(parent, "cgroup.subtree_control")
        && is_writable(parent)
        && is_writable(&parent.join("cgroup.procs"))
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Hierarchy => {
                f.write_str("no cgroup hierarchy that accounts for memory is mounted")
            }
            Lack::Rights(version, own) => {
                write!(f, "the cgroup {} (version {version}) may not be written", own.display())
            }
            Lack::Controller(own) => {
                write!(f, "the cgroup {} has no memory controller", own.display())
            }
            Lack::Company(own) => write!(
                f,
                "the cgroup {} has other processes in it, so that no group below it can be limited",
                own.display()
            ),
        }
    }
}

impl Lack {
    /// What can be done about it, as a sentence.
    pub fn advice(&self) -> &'static str {
        match self {
            Lack::Hierarchy => {
                "The administrator can mount one (mount -t cgroup2 none /sys/fs/cgroup), with the memory controller."
            }
            Lack::Rights(1, _) => {
                "Run heaptape as root, or let the administrator make a group of the memory controller, give it to the user (chown -R), and put the user's shell into it."
            }
            Lack::Controller(_) => {
                "The administrator can enable it (echo +memory >cgroup.subtree_control in the group above; with systemd, MemoryAccounting=yes and Delegate=memory)."
            }
            Lack::Rights(..) | Lack::Company(_) => {
                "Run it as systemd-run --user --scope -p Delegate=yes heaptape …, or as root; else the administrator has to delegate a group to the user."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A directory of plain files in place of a hierarchy, removed at the end.
    struct Stand(PathBuf);

    impl Stand {
        fn new(name: &str) -> Stand {
            let name = format!("heaptape-ground.{}.{name}", std::process::id());
            let stand = Stand(std::env::temp_dir().join(name));
            fs::create_dir_all(&stand.0).unwrap();
            stand
        }

        fn group(&self, path: &str, files: &[(&str, &str)]) -> PathBuf {
            let directory = self.0.join(path);
            fs::create_dir_all(&directory).unwrap();
            for (file, text) in files {
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

    const ROOT: [(&str, &str); 2] =
        [("cgroup.controllers", "cpu memory"), ("cgroup.subtree_control", "")];

    #[test]
    fn a_group_of_version_1_has_children() {
        let stand = Stand::new("first");
        let own = stand.group("job", &[]);
        assert_eq!(Ground::find(1, &own, 1), Ok(Ground::Below(own.clone())));
        let gone = stand.0.join("gone");
        assert_eq!(Ground::find(1, &gone, 1), Err(Lack::Rights(1, gone)));
    }

    #[test]
    fn in_version_2_no_process_stands_beside_a_limited_group() {
        let stand = Stand::new("second");
        let root = stand.group("", &ROOT);
        assert_eq!(Ground::find(2, &root, 7), Ok(Ground::Below(root.clone())));
        let events = ("cgroup.events", "populated 1");
        let procs = |pids| [&ROOT[..], &[events, ("cgroup.procs", pids)]].concat();
        let own = stand.group("scope", &procs("7\n"));
        assert_eq!(Ground::find(2, &own, 7), Ok(Ground::Alone(own.clone())));
        let own = stand.group("shell", &procs("6\n7\n"));
        assert_eq!(Ground::find(2, &own, 7), Err(Lack::Company(own.clone())));
        // Where its children are limited already there can be no process in it, whatever it says.
        let own = stand.group("shell", &[("cgroup.subtree_control", "cpu memory")]);
        assert_eq!(Ground::find(2, &own, 7), Ok(Ground::Below(own)));
        let own = stand.group("bare", &[("cgroup.controllers", "cpu"), events]);
        assert_eq!(Ground::find(2, &own, 7), Err(Lack::Controller(own)));
    }

    #[test]
    fn a_session_has_its_jobs_beside_it_unless_it_is_limited() {
        let stand = Stand::new("session");
        let files = [
            ("cgroup.controllers", "memory"),
            ("cgroup.subtree_control", ""),
            ("cgroup.events", ""),
            ("cgroup.procs", "6\n7\n"),
            ("memory.max", "max\n"),
            ("cpu.max", "max 100000\n"),
        ];
        let slice = [("cgroup.subtree_control", "memory pids"), ("cgroup.procs", "")];
        let parent = stand.group("user.slice/user-0.slice", &slice);
        let own = stand.group("user.slice/user-0.slice/session-1.scope", &files);
        assert_eq!(Ground::find(2, &own, 7), Ok(Ground::Beside(parent)));
        fs::write(own.join("memory.max"), "1073741824\n").unwrap();
        assert_eq!(Ground::find(2, &own, 7), Err(Lack::Company(own)));
        // What a batch system has made is not left.
        stand.group("slurmstepd.scope/job_1", &slice);
        let own = stand.group("slurmstepd.scope/job_1/task_0", &files);
        assert_eq!(Ground::find(2, &own, 7), Err(Lack::Company(own)));
    }

    #[test]
    fn every_lack_says_what_to_do() {
        let own = || PathBuf::from("/sys/fs/cgroup/a");
        for lack in [
            Lack::Hierarchy,
            Lack::Rights(1, own()),
            Lack::Rights(2, own()),
            Lack::Controller(own()),
            Lack::Company(own()),
        ] {
            assert!(lack.to_string().len() > 20 && lack.advice().ends_with('.'), "{lack:?}");
        }
    }
}
