//! Which module an address belonged to, at an event's position.
//!
//! Built from the notes of one process, in their order: every `module` note names one mapped file, a
//! `modules_end` note says that the list is whole. A module that is in no later list is unloaded;
//! blocks that were made before keep its name.

use std::sync::Arc;

use heaptape_tape::{Note, NoteKind};

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
    /// with its length, the path. `None` when it has another form.
    fn of_note(note: &Note) -> Option<Module> {
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
}

/// The modules of one process over its life.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    /// Sorted by `start`; no two overlap.
    loaded: Vec<Loaded>,
    /// In order of unloading.
    unloaded: Vec<Unloaded>,
    /// The starts of the modules that the list which is just coming holds.
    listed: Vec<u64>,
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
    /// Takes in a note that stands before event number `index`. Other kinds of notes and malformed
    /// ones change nothing. Notes come in their order.
    pub fn note(&mut self, index: u64, note: &Note) {
        match note.kind {
            NoteKind::Module => {
                if let Some(module) = Module::of_note(note) {
                    self.load(index, module);
                }
            }
            NoteKind::ModulesEnd => {
                let listed = std::mem::take(&mut self.listed);
                self.unload_where(index, |m| !listed.contains(&m.start));
            }
            _ => {}
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
        self.loaded.insert(at, Loaded { module: Arc::new(module), from: index });
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

    /// The module that `address` belonged to at event number `index`, which is not after the last
    /// note taken in.
    pub fn find(&self, address: u64, index: u64) -> Option<Place> {
        let module = self.loaded_at(address, index).or_else(|| self.unloaded_at(address, index))?;
        Some(Place { offset: address.wrapping_sub(module.bias), module: Arc::clone(module) })
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

    /// The modules that are loaded after the last note taken in, by address.
    pub fn loaded(&self) -> impl Iterator<Item = &Module> {
        self.loaded.iter().map(|l| &*l.module)
    }
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
        assert_eq!(path_at(&m, 0x5900, 10), None);
        assert_eq!(path_at(&m, 0x5900, 20).as_deref(), Some("two"));
        assert_eq!(path_at(&m, 0x1000, 15).as_deref(), Some("exe"));
        assert_eq!(m.loaded().count(), 2);
    }

    #[test]
    fn an_overlap_ends_what_was_there() {
        let mut m = Modules::default();
        m.note(0, &module(0, 0x1000, 0x3000, "old"));
        m.note(7, &module(0, 0x2000, 0x4000, "new"));
        assert_eq!(path_at(&m, 0x1000, 7), None);
        assert_eq!(path_at(&m, 0x2000, 6).as_deref(), Some("old"));
        assert_eq!(path_at(&m, 0x2000, 7).as_deref(), Some("new"));
    }

    #[test]
    fn malformed_notes_change_nothing() {
        let mut m = Modules::default();
        let mut long = module(0, 1, 2, "x");
        long.text[20] = 21;
        for bad in [note(NoteKind::Module, &[1, 2], &[0; 30]), note(NoteKind::Module, &[0, 1, 2], b""), long] {
            m.note(0, &bad);
        }
        assert_eq!(m.loaded().count(), 0);
    }
}
