//! Code that a program makes while it runs, by the list that its compiler leaves for profilers: `/tmp/perf-PID.map`,
//! each line with an address, a size (both in hexadecimal digits) and a name.
//!
//! Who may write to `/tmp` may write such a list, so only one's own are believed, and root's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No more of a list is read, in bytes.
const MOST: u64 = 256 << 20;

/// Longer names are cut.
const LONGEST: usize = 4 << 10;

/// The code of one process.
pub struct PerfMap {
    text: String,
    names: Vec<Name>,
    /// In order, none overlapping another.
    spans: Vec<Span>,
}

/// Where a name stands in the text.
#[derive(Clone, Copy)]
struct Name {
    start: u32,
    length: u16,
}

struct Span {
    start: u64,
    end: u64,
    name: u32,
}

impl PerfMap {
    /// Where a process leaves its list.
    pub fn path(pid: u32) -> PathBuf {
        PathBuf::from(format!("/tmp/perf-{pid}.map"))
    }

    /// Reads a list. `None` where there is none that is believed.
    pub fn read(path: &Path) -> Option<PerfMap> {
        // A link may lead to where somebody else wants it.
        let before = fs::symlink_metadata(path).ok()?;
        let own = rustix::process::geteuid().as_raw();
        if !before.is_file() || ![0, own].contains(&before.uid()) {
            return None;
        }
        let file = File::open(path).ok()?;
        let opened = file.metadata().ok()?;
        if (opened.dev(), opened.ino()) != (before.dev(), before.ino()) {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(PerfMap::of(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The name of what was last made at the instruction before a return address.
    pub fn find(&self, address: u64) -> Option<Arc<str>> {
        let at = address.checked_sub(1)?;
        let after = self.spans.partition_point(|s| s.start <= at);
        let span = self.spans.get(after.checked_sub(1)?).filter(|s| at < s.end)?;
        let name = self.names.get(span.name as usize)?;
        let start = name.start as usize;
        self.text.get(start..start + usize::from(name.length)).map(Arc::from)
    }

    fn of(text: String) -> PerfMap {
        let (mut names, mut entries, mut at) = (Vec::new(), Vec::new(), 0);
        for line in text.split_inclusive('\n') {
            if let Some((start, end, name)) = entry(line)
                && let Ok(place) = u32::try_from(at + name)
            {
                let length = cut(line.get(name..).unwrap_or_default().trim_end()) as u16;
                entries.push(Span { start, end, name: names.len() as u32 });
                names.push(Name { start: place, length });
            }
            at += line.len();
        }
        PerfMap { spans: newest(entries), text, names }
    }
}

/// The first and the last address behind, and where in the line the name begins.
fn entry(line: &str) -> Option<(u64, u64, usize)> {
    let (start, rest) = line.trim_end().split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let (first, length) = (hexadecimal(start)?, hexadecimal(size)?);
    let name_at = line.len() - line.get(start.len() + size.len() + 2..)?.len();
    let end = first.checked_add(length).filter(|&end| end > first && !name.is_empty())?;
    Some((first, end, name_at))
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// How much of a name is kept.
fn cut(name: &str) -> usize {
    (0..=name.len().min(LONGEST)).rev().find(|&n| name.is_char_boundary(n)).unwrap_or(0)
}

/// Gives every address to the last of the entries that cover it, in one pass over where they begin and end.
fn newest(entries: Vec<Span>) -> Vec<Span> {
    let mut starts = entries;
    starts.sort_unstable_by_key(|s| (s.start, s.name));
    let mut bounds: Vec<u64> = starts.iter().flat_map(|s| [s.start, s.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut open: BinaryHeap<(u32, Reverse<u64>)> = BinaryHeap::new();
    let mut next = starts.iter().peekable();
    let mut flat: Vec<Span> = Vec::new();
    for pair in bounds.windows(2) {
        let &[start, end] = pair else { continue };
        while let Some(entry) = next.next_if(|s| s.start <= start) {
            open.push((entry.name, Reverse(entry.end)));
        }
        while open.peek().is_some_and(|top| top.1.0 <= start) {
            open.pop();
        }
        let Some(&(name, _)) = open.peek() else { continue };
        match flat.last_mut() {
            Some(last) if last.end == start && last.name == name => last.end = end,
            _ => flat.push(Span { start, end, name }),
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, addresses: &[u64]) -> Vec<String> {
        let map = PerfMap::of(text.to_owned());
        let name = |&a| map.find(a).map_or("-".to_owned(), |n| n.to_string());
        addresses.iter().map(name).collect()
    }

    #[test]
    fn what_was_made_last_has_the_address() {
        let text =
            "1000 100 old\n1080 10 within\n10a0 20 LazyCompile:*grow /a b.js:1:2\n1000 10 new\r\n";
        let found = names(
            text,
            &[0x1000, 0x1001, 0x1010, 0x1011, 0x1081, 0x1090, 0x1091, 0x10b0, 0x1100, 0x1101],
        );
        let grow = "LazyCompile:*grow /a b.js:1:2";
        assert_eq!(found, ["-", "new", "new", "old", "within", "within", "old", grow, "old", "-"]);
    }

    #[test]
    fn lines_of_another_form_are_passed_over() {
        let text = "\n1000\n1000 10\nxyz 10 a\n1000 0 empty\nffffffffffffffff 10 beyond\n0x2000 0x10 right\n3000 10  \nend";
        assert_eq!(
            names(text, &[0x1001, 0x2001, 0x3001, 0, u64::MAX]),
            ["-", "right", "-", "-", "-"]
        );
    }

    #[test]
    fn a_hundred_thousand_that_all_overlap_are_quick() {
        let lines = (0..100_000u64).map(|n| format!("{:x} {:x} f{n}\n", 1 + n, 1_000_000 - 2 * n));
        let map = PerfMap::of(lines.collect());
        assert_eq!(map.find(500_000).as_deref(), Some("f99999"));
        assert_eq!(map.find(2).as_deref(), Some("f0"));
    }

    #[test]
    #[allow(clippy::print_stderr)] // what is not tried is said
    fn only_a_file_of_ones_own_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("perf-1.map"), folder.path().join("perf-2.map"));
        fs::write(&file, format!("10 10 {}\u{e4}\n", "x".repeat(LONGEST - 1))).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let long = PerfMap::read(&file).unwrap().find(0x18).unwrap();
        assert_eq!(*long, "x".repeat(LONGEST - 1));
        assert!(PerfMap::read(&link).is_none() && PerfMap::read(folder.path()).is_none());
        let uid = rustix::process::geteuid();
        if !uid.is_root() {
            eprintln!("not root: files of others are not tried");
            return;
        }
        std::os::unix::fs::chown(&file, Some(12_345), None).unwrap();
        assert!(PerfMap::read(&file).is_none());
    }
}
