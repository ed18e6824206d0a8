//! Debug information that compilers leave in files of its own, beside the object files: `.dwo`, or all of
//! them in one `.dwp`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::SplitDwarfLoad;
use addr2line::gimli::{Dwarf, DwarfPackage, DwoId, Error, Reader, SectionId};

use crate::debug::Sections;
use crate::elf::Elf;
use crate::piece::Piece;
use crate::search::Search;

/// Where such files are, and what is left of the room for them.
pub(crate) struct Split {
    module: PathBuf,
    roots: Vec<PathBuf>,
    sections: Sections,
    package: Option<Option<DwarfPackage<Piece>>>,
}

impl Split {
    /// Those of the file at `module`.
    pub(crate) fn new(module: &Path, search: &Search, sections: Sections) -> Split {
        let roots = search.roots().to_vec();
        Split { module: module.to_owned(), roots, sections, package: None }
    }

    /// The part that belongs to a unit; it is told where it is missing.
    pub(crate) fn load(
        &mut self,
        load: &SplitDwarfLoad<Piece>,
        missing: &mut Vec<String>,
    ) -> Option<Arc<Dwarf<Piece>>> {
        let text =
            |piece: &Option<Piece>| Some(piece.as_ref()?.to_string_lossy().ok()?.into_owned());
        let (folder, name) = (text(&load.comp_dir).unwrap_or_default(), text(&load.path)?);
        let found = self.packed(load).or_else(|| self.alone(load, &folder, &name));
        if found.is_none() {
            missing.push(format!(
                "{} has debug information in {}, which is not there or another build's.",
                self.module.display(),
                Path::new(&folder).join(&name).display()
            ));
        }
        found.map(Arc::new)
    }

    fn packed(&mut self, load: &SplitDwarfLoad<Piece>) -> Option<Dwarf<Piece>> {
        if self.package.is_none() {
            self.package = Some(self.open_package());
        }
        let package = self.package.as_ref()?.as_ref()?;
        package.find_cu(load.dwo_id, &load.parent).ok().flatten()
    }

    fn open_package(&mut self) -> Option<DwarfPackage<Piece>> {
        let mut path = self.module.clone().into_os_string();
        path.push(".dwp");
        let elf = Elf::open(Path::new(&path)).ok()?;
        let sections = &mut self.sections;
        let empty = Piece::new(Vec::new(), &sections.meter);
        // All of them: the index says where a unit's parts are in each.
        let load = |id: SectionId| Ok::<_, Error>(sections.section(&elf, id, id.dwo_name()));
        DwarfPackage::load(load, empty).ok()
    }

    fn alone(
        &mut self,
        load: &SplitDwarfLoad<Piece>,
        folder: &str,
        name: &str,
    ) -> Option<Dwarf<Piece>> {
        for path in self.places(folder, name) {
            let Ok(elf) = Elf::open(&path) else { continue };
            let naming = |id: SectionId| id.dwo_name().filter(|_| is_wanted(id));
            let mut dwarf = self.sections.of(&elf, naming);
            dwarf.make_dwo(&load.parent);
            if is_of(&dwarf, load.dwo_id) {
                return Some(dwarf);
            }
        }
        None
    }

    /// Where the compiler put it, the same below the named directories, and beside the program.
    fn places(&self, folder: &str, name: &str) -> Vec<PathBuf> {
        let written = Path::new(folder).join(name);
        let below = written.strip_prefix("/").unwrap_or(&written);
        let beside = self.module.parent().zip(Path::new(name).file_name());
        let roots = self.roots.iter().map(|root| root.join(below));
        let beside = beside.map(|(folder, name)| folder.join(name));
        std::iter::once(written.clone()).chain(roots).chain(beside).collect()
    }
}

fn is_wanted(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}

/// Whether the file's unit is the one that is asked for.
fn is_of(dwarf: &Dwarf<Piece>, id: DwoId) -> bool {
    let header = dwarf.units().next().ok().flatten();
    let unit = header.and_then(|header| dwarf.unit(header).ok());
    unit.is_some_and(|unit| unit.dwo_id == Some(id))
}
