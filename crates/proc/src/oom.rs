//! Whom the kernel has killed for want of memory: its counters, and what its log says.
//!
//! Sources are the kernel's Documentation/admin-guide/cgroup-v2.rst (`memory.events`), proc_vmstat(5), and the messages of
//! its mm/oom_kill.c.

use crate::read;

/// A process that the kernel has killed for want of memory, as its log has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kill {
    /// The process, as the first pid namespace numbers it.
    pub pid: u32,
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: String,
    /// The message.
    pub message: String,
}

/// The kills among messages of the kernel's log.
pub fn kills(messages: &[String]) -> Vec<Kill> {
    let kill = |message: &String| {
        let (pid, name) = killed(message)?;
        Some(Kill { pid, name: name.to_owned(), message: message.clone() })
    };
    messages.iter().filter_map(kill).collect()
}

/// `Memory cgroup out of memory: Killed process 8517 (solver) total-vm:…`; older kernels have the first part in a message of
/// its own.
fn killed(message: &str) -> Option<(u32, &str)> {
    const WORDS: &str = "Killed process ";
    let at = message.find(WORDS)?;
    let before = message[..at].trim_end();
    if !(before.is_empty() || before.ends_with("of memory:")) {
        return None;
    }
    let (pid, rest) = message[at + WORDS.len()..].split_once(" (")?;
    let (name, _) = rest.rsplit_once(") total-vm:").or_else(|| rest.rsplit_once("), UID"))?;
    Some((pid.parse().ok()?, name))
}

/// The counter in the text of `vmstat`.
pub fn count(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Whether this process's pid namespace is the first, whose numbers the kernel's log has.
pub fn is_numbered_as_here() -> bool {
    /// The inode of the first namespace, which is the same in all kernels.
    const FIRST: u64 = 0xEFFF_FFFC;
    read::pid_namespace(std::process::id()) == Some(FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(messages: &[&str]) -> Vec<Kill> {
        kills(&messages.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_kill_in_a_group_and_one_on_the_machine() {
        let found = of(&[
            "enclosed invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job/a,task_memcg=/job/a/b,task=a b),pid=8517,uid=0",
            "Memory cgroup out of memory: Killed process 8517 (a b) total-vm:303872kB, anon-rss:96384kB, UID:0 pgtables:312kB",
            "oom_reaper: reaped process 8517 (a b), now anon-rss:0kB",
            "Out of memory: Killed process 9 (solver) total-vm:1kB, anon-rss:1kB",
        ]);
        let told: Vec<_> = found.iter().map(|kill| (kill.pid, &*kill.name)).collect();
        assert_eq!(told, [(8517, "a b"), (9, "solver")]);
        assert!(found[0].message.starts_with("Memory cgroup out of memory"));
    }

    #[test]
    fn older_kernels() {
        let found = of(&[
            "Memory cgroup out of memory: Kill process 77 (x) score 1000 or sacrifice child",
            "Killed process 77 (x) total-vm:100kB, anon-rss:90kB, file-rss:0kB, shmem-rss:0kB",
            "Killed process 78 (y), UID 1000, total-vm:100kB, anon-rss:90kB",
        ]);
        assert_eq!(found.iter().map(|kill| kill.pid).collect::<Vec<_>>(), [77, 78]);
    }

    #[test]
    fn what_others_write_is_no_kill() {
        for text in [
            "Killed process",
            "Killed process x (a) total-vm:1kB",
            "usb 1-1: says Killed process 5 (a) total-vm:1kB",
            "Killed process 5 a total-vm:1kB",
            "",
        ] {
            assert_eq!(of(&[text]), [], "{text}");
        }
    }

    #[test]
    fn the_machines_counter() {
        assert_eq!(count("pgfault 5\noom_kill 26\noom_killer 3\n"), Some(26));
        assert_eq!((count("pgfault 5\n"), count("oom_kill x\n")), (None, None));
    }
}
