//! The search for patched functions: what files say of them, compared with a process's memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use heaptape_ledger::{Patch, Patched};
use heaptape_proc::{Entries, Mapping, read};

use super::memory::Memory;
use crate::segments::{Identity, identity};

/// Functions by which memory is mapped.
const MAPPING: [&str; 9] =
    ["brk", "madvise", "mmap", "mmap64", "mremap", "munmap", "sbrk", "shmat", "shmdt"];
/// Those of heaps.
const HEAP: [&str; 8] = [
    "aligned_alloc",
    "calloc",
    "free",
    "malloc",
    "memalign",
    "posix_memalign",
    "realloc",
    "valloc",
];

/// What was found so far.
pub(super) struct Search {
    /// The name of this tool's file.
    library: OsString,
    /// What files say.
    files: HashMap<Identity, Arc<Entries>>,
    /// The functions, and the processes, of each patch.
    found: BTreeMap<Key, (BTreeSet<String>, BTreeSet<usize>)>,
    searched: BTreeSet<usize>,
    /// There is no more time.
    is_over: Arc<AtomicBool>,
}

/// What was patched, in which file, by which.
type Key = (Patched, String, Option<String>);

/// What a module is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Own,
    Libc,
    Loader,
    Other,
}

impl Search {
    pub(super) fn new(library: OsString, is_over: Arc<AtomicBool>) -> Search {
        let (files, found) = (HashMap::new(), BTreeMap::new());
        Search { library, files, found, searched: BTreeSet::new(), is_over }
    }

    /// Looks at a process, if the kernel lets us.
    pub(super) fn look_at(&mut self, place: usize, pid: u32) {
        let Some(memory) = Memory::of(pid) else { return };
        // No other files are opened: they may be devices.
        let has_code = |mapping: &&Mapping| mapping.perms.execute && mapping.path().is_some();
        let mut coded: HashSet<Identity> =
            memory.maps.iter().filter(has_code).map(identity).collect();
        for mapping in &memory.maps {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let is_first = mapping.offset == 0 && !mapping.deleted;
            if !is_first || !coded.remove(&identity(mapping)) {
                continue;
            }
            let entries = self.entries(pid, mapping);
            match self.kind(mapping) {
                Kind::Own => self.begins(place, &memory, mapping, &entries, Patched::Wrapper),
                Kind::Libc => self.begins(place, &memory, mapping, &entries, Patched::Libc),
                Kind::Loader => {}
                Kind::Other => self.slots((place, pid), &memory, mapping, &entries),
            }
        }
        self.searched.insert(place);
    }

    /// Looks at the begins of a module's functions.
    fn begins(
        &mut self,
        place: usize,
        memory: &Memory,
        mapping: &Mapping,
        entries: &Entries,
        what: Patched,
    ) {
        let base = entries.base(mapping.start);
        for (function, address, code) in &entries.functions {
            // The heap of libc is the allocator, behind the wrappers.
            if what == Patched::Libc && !MAPPING.contains(&function.as_str()) {
                continue;
            }
            if let Some(by) = memory.patcher(base.wrapping_add(*address), code) {
                self.note((what, mapping.label().into_owned(), by), function, place);
            }
        }
    }

    /// Looks where a module's entries for others' functions lead.
    fn slots(
        &mut self,
        (place, pid): (usize, u32),
        memory: &Memory,
        mapping: &Mapping,
        entries: &Entries,
    ) {
        let base = entries.base(mapping.start);
        for (function, address) in &entries.slots {
            let target = memory.word(base.wrapping_add(*address));
            let Some((target, leads)) = target.and_then(|at| Some((at, memory.at(at)?))) else {
                continue;
            };
            // Not bound yet, or bound past the wrappers, of which others tell.
            let is_well = identity(leads) == identity(mapping) || self.kind(leads) != Kind::Other;
            // A module that has a function of this name was found by the linker's rules.
            let mut exports = || {
                let its = leads.path().map(|_| self.entries(pid, leads));
                its.is_some_and(|its| its.functions.iter().any(|(name, ..)| name == function))
            };
            if !is_well && leads.perms.execute && !exports() {
                let by = memory.leads(target);
                self.note((Patched::Entry, mapping.label().into_owned(), by), function, place);
            }
        }
    }

    fn note(&mut self, key: Key, function: &str, place: usize) {
        let (functions, processes) = self.found.entry(key).or_default();
        functions.insert(function.to_owned());
        processes.insert(place);
    }

    fn kind(&self, mapping: &Mapping) -> Kind {
        let name = mapping.path().and_then(|path| path.file_name()).unwrap_or_default();
        let text = name.to_string_lossy();
        let is_library = |stem: &str| text.starts_with(stem);
        match name {
            _ if name == self.library => Kind::Own,
            _ if is_library("libc.so") || is_library("libc-2") => Kind::Libc,
            _ if is_library("ld-linux") || is_library("ld-2") || mapping.label() == "[vdso]" => {
                Kind::Loader
            }
            _ => Kind::Other,
        }
    }

    /// What a mapped file says; nothing where it can't be read.
    fn entries(&mut self, pid: u32, mapping: &Mapping) -> Arc<Entries> {
        let is_wanted = |name: &str| MAPPING.contains(&name) || HEAP.contains(&name);
        let read = || {
            let path = read::seen_by(pid, &mapping.label());
            Arc::new(Entries::read(&path, is_wanted).unwrap_or_default())
        };
        self.files.entry(identity(mapping)).or_insert_with(read).clone()
    }

    /// All that was found, and in how many processes it was searched for.
    pub(super) fn finish(self) -> (Vec<Patch>, u64) {
        let patches = self.found.into_iter().map(|(key, (functions, processes))| {
            let (what, module, by) = key;
            let (functions, processes) =
                (functions.into_iter().collect(), processes.into_iter().collect());
            Patch { what, module, by, functions, processes }
        });
        (patches.collect(), self.searched.len() as u64)
    }
}
