//! Names of functions, each file opened once and each function read once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::elf::{Elf, Kind};
use crate::search::{Candidate, ModuleId, Search};
use crate::table::{Function, Table};
use crate::{Error, Name};

/// The names of functions in the files that were asked for so far.
pub struct Names {
    search: Search,
    modules: HashMap<ModuleId, Option<Module>>,
}

/// The functions of one file.
struct Module {
    table: Table,
    known: HashMap<Function, Option<Arc<Name>>>,
}

impl Names {
    /// Names from files that are looked for so.
    pub fn new(search: Search) -> Names {
        Names { search, modules: HashMap::new() }
    }

    /// The function that holds the instruction before `offset`, which is a return address less the load
    /// bias. `None` where the file is not found, is another build, or has no function there.
    pub fn of(&mut self, module: &ModuleId, offset: u64) -> Option<Arc<Name>> {
        let address = offset.checked_sub(1)?;
        if !self.modules.contains_key(module) {
            let table = functions(&self.search, module);
            let found = table.map(|table| Module { table, known: HashMap::new() });
            self.modules.insert(module.clone(), found);
        }
        self.modules.get_mut(module)?.as_mut()?.at(address)
    }

    /// The function that holds the instruction before a return address in a file that lies at `path`: the
    /// file's own address, and its function where that is known. `offset` is how far behind its first
    /// part, as it was mapped, the return address lies.
    pub fn mapped(&mut self, path: &Path, offset: u64) -> Option<(u64, Option<Arc<Name>>)> {
        let elf = Elf::open(path).ok()?;
        let (build_id, base) = (elf.build_id().ok()?, elf.base().ok()?);
        let address = base.checked_add(offset)?;
        let path = path.to_str()?.to_owned();
        Some((address, self.of(&ModuleId { path, build_id }, address)))
    }
}

impl Module {
    fn at(&mut self, address: u64) -> Option<Arc<Name>> {
        let function = self.table.find(address)?;
        let read = || self.table.symbol(function).and_then(|s| Name::of(&s)).map(Arc::new);
        self.known.entry(function).or_insert_with(read).clone()
    }
}

/// The functions of a module: of the first of its files with a whole table of symbols, else of the first
/// that tells what it exports.
fn functions(search: &Search, module: &ModuleId) -> Option<Table> {
    let mut exported = None;
    for candidate in search.candidates(module) {
        // What can't be read is as good as not there: another may be better.
        let Ok(Some(elf)) = right_file(&candidate, &module.build_id) else { continue };
        if let Ok(Some(table)) = elf.functions(Kind::Whole) {
            return Some(table);
        }
        if exported.is_none() {
            exported = elf.functions(Kind::Exported).ok().flatten();
        }
    }
    exported
}

/// Opens a file, if it is the very build that was recorded.
fn right_file(candidate: &Candidate, recorded: &[u8]) -> Result<Option<Elf>, Error> {
    if recorded.is_empty() && !candidate.trusted {
        return Ok(None);
    }
    let elf = Elf::open(&candidate.path)?;
    let found = elf.build_id()?;
    let same = match recorded.len() {
        0 => found.is_empty(),
        KEPT => found.starts_with(recorded),
        _ => found == recorded,
    };
    Ok(same.then_some(elf))
}

/// A recording keeps this many bytes of a build id, the length of the usual ones; of a longer one no more.
const KEPT: usize = 20;
