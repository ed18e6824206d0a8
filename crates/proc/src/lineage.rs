//! Who has started a process, and who has started that.

use crate::read;

/// A process, the one that has started it, who has started that, and so on, as far as can be seen.
pub fn lineage(pid: u32) -> impl Iterator<Item = u32> {
    // A tree that changes meanwhile does not hold us.
    const MOST: usize = 64;
    let parent = |&pid: &u32| read::stat(pid).ok().map(|stat| stat.ppid).filter(|&pid| pid > 0);
    std::iter::successors(Some(pid), parent).take(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_comes_first_and_then_who_has_started_it() {
        let own = std::process::id();
        let found: Vec<u32> = lineage(own).collect();
        assert_eq!(found[..2], [own, std::os::unix::process::parent_id()]);
        assert!(found.iter().all(|&pid| pid > 0));
        assert_eq!(lineage(1 << 23).collect::<Vec<_>>(), [1 << 23]);
    }
}
