//! Exempt modules: those whose blocks are counted and held against no limit, named by the user.
//!
//! The names lie in the ledger's header, one after another, each ended by a zero. In every account the
//! modules with the highest numbers that are free stand for them, in the order of the names.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::ledger::RESERVED_MODULES;

/// Bytes of all names with their ends.
pub const EXEMPT_BYTES: usize = 512;
/// Names at the most.
pub const EXEMPT_NAMES: usize = 16;

/// The names. Zeroed memory has none.
#[repr(C)]
pub struct Exempt {
    count: AtomicU32,
    /// Bit n: a module has the n-th name.
    met: AtomicU32,
    text: [AtomicU64; EXEMPT_BYTES / 8],
}

const _: () = assert!(EXEMPT_NAMES <= u32::BITS as usize);

impl Exempt {
    /// Collector: these are exempt, before anybody can join; false where there is no room for them.
    pub fn set<'a>(&self, names: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
        let count = names.clone().count();
        let ends = names.flat_map(|name| name.iter().copied().chain([0]));
        if count > EXEMPT_NAMES || ends.clone().count() > EXEMPT_BYTES {
            return false;
        }
        let mut text = [0; EXEMPT_BYTES];
        text.iter_mut().zip(ends).for_each(|(to, byte)| *to = byte);
        for (word, bytes) in self.text.iter().zip(text.chunks_exact(8)) {
            let mut whole = [0; 8];
            whole.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
        self.count.store(count as u32, Ordering::Release);
        true
    }

    /// The number of the first module that stands for an exempt one: all up to [`RESERVED_MODULES`] do.
    pub fn first(&self) -> usize {
        let count = self.count.load(Ordering::Acquire) as usize;
        RESERVED_MODULES - count.min(EXEMPT_NAMES)
    }

    /// The number that stands for the module with this path; `None` where that is not exempt, as the
    /// executable, which has no path, never is. A name without a slash is that of the file.
    pub fn number_of(&self, path: &[u8]) -> Option<usize> {
        if path.is_empty() || self.first() == RESERVED_MODULES {
            return None;
        }
        let text = self.text();
        Some(self.first() + self.names(&text).position(|name| is_of(name, path))?)
    }

    /// Process: a module with this path is loaded; names that fit it are met.
    pub fn meet(&self, path: &[u8]) {
        if path.is_empty() || self.first() == RESERVED_MODULES {
            return;
        }
        let text = self.text();
        let names = self.names(&text).enumerate().filter(|(_, name)| is_of(name, path));
        let bits = names.fold(0, |bits, (at, _)| bits | 1 << at);
        if bits & !self.met.load(Ordering::Relaxed) != 0 {
            self.met.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Collector: whether a module with the name at this place was ever loaded.
    pub fn is_met(&self, place: usize) -> bool {
        place < EXEMPT_NAMES && self.met.load(Ordering::Relaxed) & 1 << place != 0
    }

    fn text(&self) -> [u8; EXEMPT_BYTES] {
        let mut text = [0; EXEMPT_BYTES];
        for (to, word) in text.chunks_exact_mut(8).zip(&self.text) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        text
    }

    fn names<'a>(&self, text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        text.split(|&byte| byte == 0).take(RESERVED_MODULES - self.first())
    }
}

/// Whether a name is that of the module with this path.
fn is_of(name: &[u8], path: &[u8]) -> bool {
    if name.contains(&b'/') {
        return name == path;
    }
    path.rsplit(|&byte| byte == b'/').next() == Some(name)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn exempt(names: &[&str]) -> Option<Exempt> {
        let [count, met] = [const { AtomicU32::new(0) }; 2];
        let exempt = Exempt { count, met, text: [const { AtomicU64::new(0) }; 64] };
        exempt.set(names.iter().map(|name| name.as_bytes())).then_some(exempt)
    }

    #[test]
    fn modules_are_found_by_file_or_path_and_the_executable_never() {
        let names = ["libfoo.so.1", "/opt/lib/libbar.so", "./plug.so"];
        let exempt = exempt(&names).unwrap();
        assert_eq!(exempt.first(), RESERVED_MODULES - 3);
        for (path, number) in [
            ("/usr/lib/libfoo.so.1", Some(0)),
            ("libfoo.so.1", Some(0)),
            ("/usr/lib/libfoo.so.1.2", None),
            ("/opt/lib/libbar.so", Some(1)),
            ("/usr/lib/libbar.so", None),
            ("./plug.so", Some(2)),
            ("plug.so", None),
            ("", None),
            ("/usr/lib/", None),
        ] {
            let found = exempt.number_of(path.as_bytes());
            assert_eq!(found, number.map(|at| RESERVED_MODULES - 3 + at), "{path}");
        }
    }

    #[test]
    fn there_is_room_for_so_many_names_and_no_more() {
        let none = exempt(&[]).unwrap();
        assert_eq!((none.first(), none.number_of(b"/a/b")), (RESERVED_MODULES, None));
        let long = "x".repeat(EXEMPT_BYTES - 1);
        let number = exempt(&[&long]).unwrap().number_of(long.as_bytes());
        assert_eq!(number, Some(RESERVED_MODULES - 1));
        assert!(exempt(&[&long, ""]).is_none() && exempt(&["x"; EXEMPT_NAMES + 1]).is_none());
    }

    #[test]
    fn a_name_is_met_when_its_module_is_loaded_also_beside_another_one_for_it() {
        let exempt = exempt(&["liba.so", "/lib/liba.so", "libb.so"]).unwrap();
        let met = || [0, 1, 2, 3].map(|place| exempt.is_met(place));
        for path in ["", "/lib/libc.so", "/lib/liba.so.1"] {
            exempt.meet(path.as_bytes());
            assert_eq!(met(), [false; 4], "{path}");
        }
        exempt.meet(b"/lib/liba.so");
        assert_eq!(met(), [true, true, false, false]);
    }
}
