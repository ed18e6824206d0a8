//! Which module an address belonged to, at an event's position.
//!
//! Built from all notes of one process, in their order: every `module` note names one mapped file, a
//! `modules_end` note says that the list is whole, or that it holds what is new. A module that is not in
//! a later whole list, or of which a note says so, is unloaded; blocks that were made before keep its
//! name. A module that a list shows first was loaded at some
//! time since the list before it, as nothing tells when `dlopen` returns; so it is taken to be there
//! from then on. A process that was killed may have loaded one that no list shows; it is known by the
//! mappings of the samples.

use std::sync::Arc;

use heaptape_tape::{Note, NoteKind, Sample, Vma};

/// A file that is mapped with code in it: the executable or a shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The file's path.
    pub path: String,
    /// The GNU build id; empty for none.
    pub build_id: Vec<u8>,
    /// What is added to the file's own addresses to get those in memory.
    pub bias: u64,
    /// The lowest address in memory.
    pub start: u64,
    /// The address after the highest.
    pub end: u64,
}

impl Module {
    /// Reads a `module` note: load bias, lowest address, end address; 20 bytes of build id, a byte
    /// with its length, the path (empty for the executable). `None` when it has another form.
    pub fn of_note(note: &Note) -> Option<Module> {
        if note.kind != NoteKind::Module {
            return None;
        }
        let &[bias, start, end] = note.args.first_chunk()?;
        let (id, rest) = note.text.split_first_chunk::<20>()?;
        let (&length, path) = rest.split_first()?;
        Some(Module {
            path: String::from_utf8_lossy(path).into_owned(),
            build_id: id.get(..usize::from(length))?.to_vec(),
            bias,
            start,
            end,
        })
    }

    /// The module that neighbouring mappings of one file are; `None` where none is executable. The
    /// file is taken to begin at its first mapping, as that of a shared library does.
    fn of_mappings(mappings: &[Vma]) -> Option<Module> {
        const EXECUTABLE: u8 = 4;
        let (first, last) = (mappings.first()?, mappings.last()?);
        let runs = mappings.iter().any(|m| m.perms & EXECUTABLE != 0);
        (runs && first.name.starts_with('/')).then(|| Module {
            path: first.name.clone(),
            build_id: Vec::new(),
            bias: first.start,
            start: first.start,
            end: last.end,
        })
    }

    /// The build id in hexadecimal digits, as debuggers show it; `None` for none.
    pub fn build_id_text(&self) -> Option<String> {
        let digits: String = self.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        (!digits.is_empty()).then_some(digits)
    }

    fn holds(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// An address within a module, as its file knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The module.
    pub module: Arc<Module>,
    /// The address less the load bias.
    pub offset: u64,
    /// The function there, where somebody has looked it up in the module's file: nothing here does.
    pub function: Option<Arc<str>>,
}

/// The modules of one process over its life.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    /// What a module without a path is called, until a sample shows its file: the loader gives none
    /// for the executable.
    executable: String,
    /// The lowest address of the executable.
    executable_start: Option<u64>,
    /// The files mapped in the first sample, which may come before the first list.
    first: Option<Vec<Vma>>,
    /// Sorted by `start`; no two overlap.
    loaded: Vec<Loaded>,
    /// In order of unloading.
    unloaded: Vec<Unloaded>,
    /// Files in the mappings of samples, where no list had a module.
    sampled: Vec<Arc<Module>>,
    /// The starts of the modules that the list which is just coming holds.
    listed: Vec<u64>,
    /// The index at which the last list ended.
    since: u64,
}

#[derive(Clone, Debug)]
struct Loaded {
    module: Arc<Module>,
    from: u64,
}

#[derive(Clone, Debug)]
struct Unloaded {
    module: Arc<Module>,
    from: u64,
    until: u64,
}

impl Modules {
    /// Those of a process whose executable is called so, before its first note.
    pub fn new(executable: &str) -> Modules {
        Modules { executable: executable.to_owned(), ..Modules::default() }
    }

    /// Takes in a note that stands before event number `index`. Other kinds of notes and malformed
    /// ones change nothing. Notes come in their order.
    pub fn note(&mut self, index: u64, note: &Note) {
        match note.kind {
            NoteKind::Module => {
                if let Some(mut module) = Module::of_note(note) {
                    if module.path.is_empty() {
                        module.path = self.executable_at(module.start);
                    }
                    // The loader lists the executable first.
                    self.executable_start.get_or_insert(module.start);
                    self.load(index, module);
                }
            }
            NoteKind::ModulesEnd => {
                let listed = std::mem::take(&mut self.listed);
                if note.args.is_empty() {
                    self.unload_where(index, |m| !listed.contains(&m.start));
                }
                self.since = index;
            }
            NoteKind::ModuleGone => {
                let start = note.args.first().copied();
                self.unload_where(index, |m| Some(m.start) == start);
            }
            _ => {}
        }
    }

    /// The executable, once a note has told where it is.
    pub fn executable(&self) -> Option<&Module> {
        let is_it = |loaded: &&Loaded| Some(loaded.module.start) == self.executable_start;
        self.loaded.iter().find(is_it).map(|loaded| &*loaded.module)
    }

    /// The file that the first sample has at an address, else what the process calls itself.
    fn executable_at(&self, start: u64) -> String {
        let first = self.first.as_deref().unwrap_or_default();
        file_at(first, start).unwrap_or(&self.executable).to_owned()
    }

    /// Takes in a sample.
    pub fn sample(&mut self, sample: &Sample) {
        if self.first.is_none() {
            let files = sample.vmas.iter().filter(|v| v.name.starts_with('/'));
            self.first = Some(files.cloned().collect());
            self.name_executable();
        }
        for file in sample.vmas.chunk_by(|a, b| a.name == b.name) {
            let Some(module) = Module::of_mappings(file) else { continue };
            let known = |m: &Module| m.start < module.end && module.start < m.end;
            let listed = self.loaded.iter().any(|l| known(&l.module));
            if !listed && !self.sampled.iter().any(|m| **m == module) {
                self.sampled.push(Arc::new(module));
            }
        }
    }

    fn name_executable(&mut self) {
        let first = self.first.as_deref().unwrap_or_default();
        for loaded in self.loaded.iter_mut().filter(|l| l.module.path == self.executable) {
            if let Some(file) = file_at(first, loaded.module.start) {
                Arc::make_mut(&mut loaded.module).path = file.to_owned();
            }
        }
    }

    fn load(&mut self, index: u64, module: Module) {
        self.listed.push(module.start);
        if self.loaded.iter().any(|l| *l.module == module) {
            return;
        }
        // What lay there before is gone, listed or not.
        self.unload_where(index, |m| m.start < module.end && module.start < m.end);
        let at = self.loaded.partition_point(|l| l.module.start < module.start);
        self.loaded.insert(at, Loaded { module: Arc::new(module), from: self.since });
    }

    fn unload_where(&mut self, index: u64, gone: impl Fn(&Module) -> bool) {
        let unloaded = &mut self.unloaded;
        self.loaded.retain(|l| {
            let gone = gone(&l.module);
            if gone {
                let module = Arc::clone(&l.module);
                unloaded.push(Unloaded { module, from: l.from, until: index });
            }
            !gone
        });
    }

    /// The indexes at which modules were unloaded, rising: between two of them an address that had a
    /// module keeps it.
    pub fn changes(&self) -> Vec<u64> {
        let mut changes: Vec<u64> = self.unloaded.iter().map(|u| u.until).collect();
        changes.sort_unstable();
        changes.dedup();
        changes
    }

    /// Whether a module that was found here was unloaded, as far as the lists tell.
    pub fn is_unloaded(&self, module: &Arc<Module>) -> bool {
        self.unloaded.iter().any(|u| Arc::ptr_eq(&u.module, module))
    }

    /// The place behind a call, by its return address at event number `index`, once all notes are taken in. The call may be the
    /// last instruction of its module, as that of a function which never returns is: the place is then the module's end.
    pub fn find_call(&self, return_address: u64, index: u64) -> Option<Place> {
        self.find(return_address.checked_sub(1)?, index).map(behind)
    }

    /// Each place that was behind a call with this return address over the life of the process, once all notes are taken in: in
    /// the modules of the lists, or where none had it in those of samples.
    pub fn ever_call(&self, return_address: u64) -> Vec<Place> {
        let call = return_address.checked_sub(1);
        call.map_or_else(Vec::new, |call| self.ever(call).into_iter().map(behind).collect())
    }

    /// The module that `address` belonged to at event number `index`.
    fn find(&self, address: u64, index: u64) -> Option<Place> {
        let module = self
            .loaded_at(address, index)
            .or_else(|| self.unloaded_at(address, index))
            .or_else(|| self.sampled_at(address).next_back())?;
        let offset = address.wrapping_sub(module.bias);
        Some(Place { offset, module: Arc::clone(module), function: None })
    }

    fn ever(&self, address: u64) -> Vec<Place> {
        let place = |module: &Arc<Module>| {
            let offset = address.wrapping_sub(module.bias);
            Place { offset, module: Arc::clone(module), function: None }
        };
        let unloaded = self.unloaded.iter().map(|u| &u.module);
        let listed = self.loaded.iter().map(|l| &l.module).chain(unloaded);
        let found: Vec<_> = listed.filter(|m| m.holds(address)).map(place).collect();
        if !found.is_empty() {
            return found;
        }
        self.sampled_at(address).map(place).collect()
    }

    /// What only samples had there. Of a file that is loaded, another mapping is a copy of some part of it: it begins nobody
    /// knows where in the file, as where an engine puts its own code beside the code that it makes.
    fn sampled_at(&self, address: u64) -> impl DoubleEndedIterator<Item = &Arc<Module>> {
        let is_loaded = |m: &Module| self.loaded.iter().any(|l| l.module.path == m.path);
        self.sampled.iter().filter(move |m| m.holds(address) && !is_loaded(m))
    }

    fn loaded_at(&self, address: u64, index: u64) -> Option<&Arc<Module>> {
        let after = self.loaded.partition_point(|l| l.module.start <= address);
        let found = self.loaded.get(after.checked_sub(1)?)?;
        (found.from <= index && found.module.holds(address)).then_some(&found.module)
    }

    fn unloaded_at(&self, address: u64, index: u64) -> Option<&Arc<Module>> {
        let lived = |u: &&Unloaded| u.from <= index && index < u.until && u.module.holds(address);
        self.unloaded.iter().rev().find(lived).map(|u| &u.module)
    }

    /// What a child begins with that is forked before event number `index`, once all notes are
    /// taken in. `executable` is the child's.
    pub fn inherited(&self, index: u64, executable: &str) -> Modules {
        let still = self.loaded.iter().filter(|l| l.from <= index).map(|l| &l.module);
        let gone = self.unloaded.iter().filter(|u| u.from <= index && index < u.until);
        let mut modules: Vec<_> = still.chain(gone.map(|u| &u.module)).map(Arc::clone).collect();
        modules.sort_by_key(|m| m.start);
        // Where a list was missed, two may claim one place.
        modules.dedup_by(|next, kept| next.start < kept.end);
        let loaded = modules.into_iter().map(|module| Loaded { module, from: 0 }).collect();
        Modules {
            loaded,
            sampled: self.sampled.clone(),
            executable_start: self.executable_start,
            ..Modules::new(executable)
        }
    }
}

fn file_at(mappings: &[Vma], address: u64) -> Option<&str> {
    let there = mappings.iter().find(|v| v.start <= address && address < v.end)?;
    Some(there.name.strip_suffix(" (deleted)").unwrap_or(&there.name))
}

/// The next byte's place.
fn behind(place: Place) -> Place {
    Place { offset: place.offset.wrapping_add(1), ..place }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: NoteKind, args: &[u64], text: &[u8]) -> Note {
        Note { thread: 0, time: 0, caller: 0, kind, args: args.to_vec(), text: text.to_vec() }
    }

    fn module(bias: u64, start: u64, end: u64, path: &str) -> Note {
        let mut text = vec![0xab; 8];
        text.resize(20, 0);
        text.push(8);
        text.extend_from_slice(path.as_bytes());
        note(NoteKind::Module, &[bias, start, end], &text)
    }

    fn end() -> Note {
        note(NoteKind::ModulesEnd, &[], b"")
    }

    fn path_at(m: &Modules, address: u64, index: u64) -> Option<String> {
        m.find(address, index).map(|p| p.module.path.clone())
    }

    #[test]
    fn offsets_are_those_of_the_file() {
        let mut m = Modules::default();
        m.note(0, &module(0x1000, 0x2000, 0x3000, "/bin/a b"));
        m.note(0, &end());
        let place = m.find(0x2010, 5).unwrap();
        assert_eq!((place.offset, place.module.path.as_str()), (0x1010, "/bin/a b"));
        assert_eq!(place.module.build_id, [0xab; 8]);
        assert_eq!((m.find(0x1fff, 5), m.find(0x3000, 5)), (None, None));
    }

    #[test]
    fn an_unloaded_library_keeps_its_blocks_names() {
        let mut m = Modules::default();
        for note in [module(0, 0x1000, 0x2000, "exe"), module(0, 0x5000, 0x6000, "one"), end()] {
            m.note(0, &note);
        }
        for note in [module(0, 0x1000, 0x2000, "exe"), end()] {
            m.note(10, &note);
        }
        m.note(20, &module(0, 0x5800, 0x7000, "two"));
        m.note(20, &module(0, 0x1000, 0x2000, "exe"));
        m.note(20, &end());
        assert_eq!(path_at(&m, 0x5900, 9).as_deref(), Some("one"));
        let unloaded = |address, index| m.is_unloaded(&m.find(address, index).unwrap().module);
        assert!(unloaded(0x5900, 9) && !unloaded(0x1000, 9) && !unloaded(0x5900, 20));
        // It was loaded some time after the list at 10.
        assert_eq!(path_at(&m, 0x6900, 9), None);
        assert_eq!(path_at(&m, 0x6900, 10).as_deref(), Some("two"));
        assert_eq!(path_at(&m, 0x1000, 15).as_deref(), Some("exe"));
    }

    #[test]
    fn a_list_of_what_is_new_leaves_the_rest_until_it_is_said_to_be_gone() {
        let mut m = Modules::default();
        for note in [module(0, 0x1000, 0x2000, "exe"), module(0, 0x5000, 0x6000, "one"), end()] {
            m.note(0, &note);
        }
        m.note(10, &module(0, 0x7000, 0x8000, "two"));
        m.note(10, &note(NoteKind::ModulesEnd, &[1], b""));
        m.note(20, &note(NoteKind::ModuleGone, &[0x5000], b""));
        m.note(20, &note(NoteKind::ModulesEnd, &[1], b""));
        let all = |index| [0x1000, 0x5000, 0x7000].map(|a| path_at(&m, a, index).is_some());
        assert_eq!(all(15), [true, true, true]);
        assert_eq!(all(25), [true, false, true]);
    }

    #[test]
    fn an_overlap_ends_what_was_there() {
        let mut m = Modules::default();
        m.note(0, &module(0, 0x1000, 0x3000, "old"));
        m.note(0, &end());
        m.note(7, &end());
        m.note(9, &module(0, 0x2000, 0x4000, "new"));
        assert_eq!(path_at(&m, 0x2000, 6).as_deref(), Some("old"));
        assert_eq!(path_at(&m, 0x2000, 7).as_deref(), Some("new"));
    }

    #[test]
    fn the_executable_has_no_path_of_its_own() {
        let mut m = Modules::new("prog");
        m.note(0, &module(0x1000, 0x1000, 0x3000, ""));
        assert_eq!(path_at(&m, 0x1500, 0).as_deref(), Some("prog"));
        let vma = Vma { start: 0x1000, end: 0x2000, perms: 1, name: "/usr/bin/prog".into() };
        let sample = Sample { vmas: vec![vma], ..Sample::default() };
        m.sample(&sample);
        assert_eq!(path_at(&m, 0x1500, 0).as_deref(), Some("/usr/bin/prog"));
        let mut m = Modules::new("prog");
        m.sample(&sample);
        m.note(0, &module(0x1000, 0x1000, 0x3000, ""));
        assert_eq!(path_at(&m, 0x1500, 0).as_deref(), Some("/usr/bin/prog"));
    }

    #[test]
    fn the_executable_is_the_first_that_is_listed() {
        for path in ["", "/usr/bin/prog"] {
            let mut m = Modules::new("prog");
            assert_eq!(m.executable(), None);
            let list = [module(0, 0x5000, 0x6000, path), module(0, 0x1000, 0x2000, "one"), end()];
            list.iter().for_each(|note| m.note(0, note));
            let child = m.inherited(9, "prog");
            for start in [&m, &child].map(|m| m.executable().map(|m| m.start)) {
                assert_eq!(start, Some(0x5000), "{path}");
            }
        }
    }

    #[test]
    fn a_child_begins_with_what_is_loaded() {
        let mut m = Modules::default();
        for note in [module(0, 0x1000, 0x2000, "exe"), module(0, 0x5000, 0x6000, "one"), end()] {
            m.note(3, &note);
        }
        m.note(9, &module(0, 0x1000, 0x2000, "exe"));
        m.note(9, &end());
        m.note(12, &module(0, 0x1000, 0x2000, "exe"));
        m.note(12, &module(0, 0x7000, 0x8000, "late"));
        m.note(12, &end());
        let paths = |index: u64| {
            let child = m.inherited(index, "child");
            [0x1000, 0x5000, 0x7000].map(|a| path_at(&child, a, 0).is_some())
        };
        assert_eq!(paths(8), [true, true, false]);
        assert_eq!(paths(10), [true, false, true]);
    }

    #[test]
    fn a_sample_names_what_no_list_had() {
        let vma =
            |start, perms, name: &str| Vma { start, end: start + 0x100, perms, name: name.into() };
        let sample = Sample {
            vmas: vec![
                vma(0x1000, 5, "/bin/exe"),
                vma(0x4000, 1, "/lib/late.so"),
                vma(0x4100, 5, "/lib/late.so"),
                vma(0x4200, 3, "/lib/late.so"),
                vma(0x5000, 5, "[vdso]"),
                vma(0x6000, 1, "/usr/share/data"),
            ],
            ..Sample::default()
        };
        let mut m = Modules::new("");
        m.note(0, &module(0x1000, 0x1000, 0x1100, "/bin/exe"));
        m.note(0, &end());
        m.sample(&sample);
        m.sample(&sample);
        let place = m.find(0x4150, 0).unwrap();
        assert_eq!((place.module.path.as_str(), place.offset), ("/lib/late.so", 0x150));
        assert_eq!((path_at(&m, 0x5000, 0), path_at(&m, 0x6000, 0)), (None, None));
        assert_eq!(m.sampled.len(), 1);
    }

    #[test]
    fn all_places_that_an_address_ever_was() {
        let mut m = Modules::default();
        m.note(0, &module(0, 0x5000, 0x6000, "one"));
        m.note(0, &end());
        m.note(9, &module(0x100, 0x5000, 0x6000, "two"));
        m.note(9, &end());
        let vma =
            |start, name: &str| Vma { start, end: start + 0x1000, perms: 5, name: name.into() };
        m.sample(&Sample {
            vmas: vec![vma(0x5000, "/one"), vma(0x8000, "/late")],
            ..Sample::default()
        });
        let places = |address| {
            let places = m.ever(address).into_iter();
            let mut all: Vec<_> = places.map(|p| (p.module.path.clone(), p.offset)).collect();
            all.sort();
            all
        };
        assert_eq!(places(0x5200), [("one".to_owned(), 0x5200), ("two".to_owned(), 0x5100)]);
        assert_eq!(places(0x8010), [("/late".to_owned(), 0x10)]);
        assert_eq!(places(0x100), []);
    }

    #[test]
    fn a_part_of_a_loaded_file_that_is_mapped_elsewhere_gives_no_place() {
        let mut m = Modules::default();
        m.note(0, &module(0, 0x5000, 0x6000, "/engine"));
        m.note(0, &end());
        let vma =
            |start, name: &str| Vma { start, end: start + 0x1000, perms: 5, name: name.into() };
        let vmas = vec![vma(0x5000, "/engine"), vma(0x9000, "/engine"), vma(0xb000, "/other")];
        m.sample(&Sample { vmas, ..Sample::default() });
        assert_eq!(path_at(&m, 0x5010, 1).as_deref(), Some("/engine"));
        assert_eq!(path_at(&m, 0xb010, 1).as_deref(), Some("/other"));
        assert_eq!((m.find(0x9010, 1), m.ever(0x9010).len()), (None, 0));
    }

    #[test]
    fn a_call_that_ends_its_module_is_in_it_and_not_in_the_next() {
        let mut m = Modules::default();
        m.note(0, &module(0x1000, 0x2000, 0x3000, "one"));
        m.note(0, &module(0x3000, 0x3000, 0x4000, "next"));
        m.note(0, &end());
        let is = |place: Option<Place>, path, offset| {
            place.is_some_and(|p| (p.module.path.as_str(), p.offset) == (path, offset))
        };
        assert!(is(m.find_call(0x3000, 1), "one", 0x2000));
        assert!(is(m.find_call(0x3001, 1), "next", 1));
        assert!(is(m.ever_call(0x4000).pop(), "next", 0x1000));
        assert_eq!((m.find_call(0x2000, 1), m.find_call(0, 1)), (None, None));
        assert_eq!((m.ever_call(0x3000).len(), m.ever_call(0).len()), (1, 0));
    }

    #[test]
    fn malformed_notes_change_nothing() {
        let mut m = Modules::default();
        let mut long = module(0, 1, 2, "x");
        long.text[20] = 21;
        for bad in [
            note(NoteKind::Module, &[1, 2], &[0; 30]),
            note(NoteKind::Module, &[0, 1, 2], b""),
            long,
        ] {
            m.note(0, &bad);
        }
        assert_eq!((m.find(1, 0), m.find(0, 0)), (None, None));
    }
}
