//! Libraries that a process loads so that their heap calls pass the capture library by: with
//! `RTLD_DEEPBIND`, which makes them look for `malloc` among their own dependencies first, or in a
//! namespace of their own. The process is named with them.
//!
//! It is known from the process's notes: a call of `dlopen` says how, and the next list of modules
//! whether there is a new one of that name.

use std::collections::{BTreeMap, HashSet};

use heaptape_wire::note::NoteKind;

/// Libraries that are told by name; of the others the number is.
const TOLD: usize = 4;
/// Libraries that are told apart.
const MOST: usize = 1000;
const RTLD_DEEPBIND: u64 = 8;
/// Where the path begins in the text of a module's note.
const PATH: usize = 21;

/// What is not seen of a library, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    DeeplyBound,
    /// It was asked for, and the process ended before the loader's answer was known.
    PerhapsDeeplyBound,
    /// The loader lists the modules of other namespaces to nobody here.
    Namespace,
}

/// The libraries of one process.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    /// Modules of the last whole list, and of the one that is coming.
    listed: HashSet<Vec<u8>>,
    coming: HashSet<Vec<u8>>,
    /// Asked for with `RTLD_DEEPBIND` since the last list.
    asked: Vec<Vec<u8>>,
    /// By path.
    found: BTreeMap<Vec<u8>, Way>,
}

impl Apart {
    /// Takes a note of the process in.
    pub(crate) fn note(&mut self, kind: NoteKind, args: &[u64], text: impl Iterator<Item = u8>) {
        match (kind, args) {
            // The main program has no name; the base namespace is 0.
            (NoteKind::Dlopen, &[flags] | &[flags, 0]) if flags & RTLD_DEEPBIND != 0 => {
                let file: Vec<u8> = text.collect();
                if !file.is_empty() && self.asked.len() < MOST {
                    self.asked.push(file);
                }
            }
            (NoteKind::Dlopen, &[_, namespace]) if namespace != 0 => {
                self.find(text.collect(), Way::Namespace);
            }
            (NoteKind::Module, _) => {
                self.coming.insert(text.skip(PATH).collect());
            }
            (NoteKind::ModulesEnd, _) => self.compare(),
            _ => {}
        }
    }

    /// A list is whole: what was asked for is there, or it could not be loaded, or was there before and
    /// is bound as it was.
    fn compare(&mut self) {
        let last = std::mem::replace(&mut self.listed, std::mem::take(&mut self.coming));
        for file in std::mem::take(&mut self.asked) {
            let new = self.listed.difference(&last).find(|path| name(path) == name(&file)).cloned();
            if let Some(path) = new {
                self.find(path, Way::DeeplyBound);
            }
        }
    }

    fn find(&mut self, path: Vec<u8>, way: Way) {
        if self.found.len() < MOST {
            self.found.entry(path).or_insert(way);
        }
    }

    /// After the last note: what is not seen, as one phrase, if there is anything.
    pub(crate) fn take_reason(&mut self) -> Option<String> {
        for file in std::mem::take(&mut self.asked) {
            self.find(file, Way::PerhapsDeeplyBound);
        }
        let found = std::mem::take(&mut self.found);
        let told: Vec<String> =
            found.iter().take(TOLD).map(|(path, way)| phrase(path, *way)).collect();
        let mut reason = told.join("; ");
        if found.len() > TOLD {
            reason += &format!("; and so for {} more libraries", found.len() - TOLD);
        }
        (!reason.is_empty()).then_some(reason)
    }
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

fn phrase(path: &[u8], way: Way) -> String {
    let path = String::from_utf8_lossy(path);
    match way {
        Way::DeeplyBound => format!(
            "{path} was loaded with RTLD_DEEPBIND: the heap calls of it and of libraries that came with it are not seen, and blocks that go between it and the program are unknown frees or order faults"
        ),
        Way::PerhapsDeeplyBound => format!(
            "{path} was to be loaded with RTLD_DEEPBIND: if it was, the heap calls of it are not seen"
        ),
        Way::Namespace => format!(
            "{path} was to be loaded in a namespace of its own (dlmopen), with a C library of its own: heap calls there are not seen"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(apart: &mut Apart, args: &[u64], file: &str) {
        apart.note(NoteKind::Dlopen, args, file.bytes());
    }

    fn list(apart: &mut Apart, paths: &[&str]) {
        for path in paths {
            let text = [0; PATH].into_iter().chain(path.bytes());
            apart.note(NoteKind::Module, &[0, 0, 1], text);
        }
        apart.note(NoteKind::ModulesEnd, &[], std::iter::empty());
    }

    #[test]
    fn only_what_was_loaded_with_the_flag_is_named() {
        let mut apart = Apart::default();
        list(&mut apart, &["", "/lib/c", "/lib/there"]);
        open(&mut apart, &[2], "plain");
        open(&mut apart, &[10], "");
        for file in ["there", "missing", "/x/deep"] {
            open(&mut apart, &[10], file);
        }
        list(&mut apart, &["", "/lib/c", "/lib/there", "/lib/plain", "/x/deep", "/x/deps"]);
        let reason = apart.take_reason().unwrap();
        assert!(reason.starts_with("/x/deep was loaded with RTLD_DEEPBIND"), "{reason}");
        assert_eq!(reason.matches("loaded").count(), 1, "{reason}");
    }

    #[test]
    fn what_no_list_came_after_is_named_with_care() {
        let mut apart = Apart::default();
        open(&mut apart, &[9, 0], "/x/deep");
        let reason = apart.take_reason().unwrap();
        assert!(reason.contains("if it was"), "{reason}");
        assert_eq!(apart.take_reason(), None);
    }

    #[test]
    fn many_are_told_by_their_number() {
        let mut apart = Apart::default();
        for i in 0..2000 {
            open(&mut apart, &[1, u64::MAX], &format!("/x/{}", i % 1500));
        }
        let reason = apart.take_reason().unwrap();
        assert!(reason.ends_with("and so for 996 more libraries"), "{reason}");
        assert_eq!(reason.matches("dlmopen").count(), TOLD);
    }
}
