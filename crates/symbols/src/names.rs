//! Names of functions, each file opened once and each function read once.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use crate::debug::{Debug, Found};
use crate::debuginfod::Servers;
use crate::elf::{Elf, Kind};
use crate::files;
use crate::name::is_mangled;
use crate::search::{ModuleId, Search};
use crate::table::{Function, Table};
use crate::{Frame, Name, mini};

/// Of the modules whose debug information is in memory, the last is dropped for another when all together
/// have more than this, in bytes.
const MOST: u64 = 512 << 20;

/// The names of functions in the files that were asked for so far.
pub struct Names {
    search: Search,
    servers: Servers,
    modules: HashMap<ModuleId, Module>,
    troubles: BTreeSet<String>,
}

/// What is known of one module.
#[derive(Default)]
struct Module {
    /// Looked at in order; there is more than one where a file tells its exported functions and others apart.
    tables: Option<Vec<Table>>,
    debug: Option<Option<Debug>>,
    known: HashMap<(usize, Function), Option<Arc<Name>>>,
    frames: HashMap<u64, Arc<[Frame]>>,
    files: HashMap<String, Arc<str>>,
}

impl Names {
    /// Names from files that are looked for so.
    pub fn new(search: Search) -> Names {
        let (servers, modules, troubles) = Default::default();
        Names { search, servers, modules, troubles }
    }

    /// The function that holds the instruction before `offset`, which is a return address less the load
    /// bias. `None` where the file is not found, is another build, or has no function there.
    pub fn of(&mut self, module: &ModuleId, offset: u64) -> Option<Arc<Name>> {
        let address = offset.checked_sub(1)?;
        self.with_tables(module).symbol(address)
    }

    /// The functions that are at the instruction before `offset`, the innermost first: those that the compiler
    /// put into another, and last that one, with files and lines where the file, or its debug file, has them.
    /// Nothing where [`Names::of`] has nothing and no line is known.
    pub fn frames(&mut self, module: &ModuleId, offset: u64) -> Arc<[Frame]> {
        let Some(address) = offset.checked_sub(1) else { return Arc::default() };
        if let Some(known) = self.modules.get(module).and_then(|m| m.frames.get(&address)) {
            return Arc::clone(known);
        }
        let mut missing = Vec::new();
        self.load_debug(module, &mut missing);
        let known = self.with_tables(module);
        let frames: Arc<[Frame]> = known.frames_at(address, &mut missing).into();
        known.frames.insert(address, Arc::clone(&frames));
        self.troubles.extend(missing);
        frames
    }

    /// What kept names away that were to be had, a sentence each.
    pub fn troubles(&self) -> impl Iterator<Item = &str> {
        self.troubles.iter().map(String::as_str).chain(self.servers.trouble())
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

    fn with_tables(&mut self, module: &ModuleId) -> &mut Module {
        let known = self.modules.entry(module.clone()).or_default();
        if known.tables.is_none() {
            known.tables = Some(tables(&self.search, &mut self.servers, module));
        }
        known
    }

    fn load_debug(&mut self, module: &ModuleId, missing: &mut Vec<String>) {
        if self.modules.get(module).is_some_and(|known| known.debug.is_some()) {
            return;
        }
        let loaded = debug(&self.search, &mut self.servers, module, missing);
        let held = |m: &Module| m.debug.iter().flatten().map(Debug::bytes).sum::<u64>();
        let all: u64 = self.modules.values().map(held).sum();
        if loaded.as_ref().is_some_and(|loaded| all + loaded.bytes() > MOST) {
            // What they have told is kept.
            let others = self.modules.values_mut().filter(|m| held(m) > 0);
            others.for_each(|other| other.debug = None);
        }
        self.modules.entry(module.clone()).or_default().debug = Some(loaded);
    }
}

impl Module {
    /// The function of the symbol tables at an address.
    fn symbol(&mut self, address: u64) -> Option<Arc<Name>> {
        let mut tables = self.tables.iter().flatten().enumerate();
        let (number, table, function) =
            tables.find_map(|(n, table)| Some((n, table, table.find(address)?)))?;
        let is_fortran = table.is_fortran();
        let read = || table.symbol(function).and_then(|s| Name::of(&s, is_fortran)).map(Arc::new);
        self.known.entry((number, function)).or_insert_with(read).clone()
    }

    fn frames_at(&mut self, address: u64, missing: &mut Vec<String>) -> Vec<Frame> {
        let debug = self.debug.as_mut().and_then(Option::as_mut);
        let found = debug.and_then(|debug| debug.at(address, missing)).unwrap_or_default();
        let symbol = self.symbol(address);
        if found.is_empty() {
            let alone = |name: Arc<Name>| Frame {
                function: Arc::clone(&name.function),
                file: None,
                line: None,
                is_inlined: false,
            };
            return symbol.map(alone).into_iter().collect();
        }
        let last = found.len() - 1;
        let frames = found.into_iter().enumerate().map(|(n, found)| {
            let is_inlined = n < last;
            let symbol = symbol.as_ref().filter(|_| !is_inlined);
            let function = function(&found, symbol.map(|s| &**s));
            let file = found.file.map(|file| self.file(file));
            Frame { function, file, line: found.line, is_inlined }
        });
        frames.collect()
    }

    /// A file's name, the same for all its frames.
    fn file(&mut self, file: String) -> Arc<str> {
        Arc::clone(self.files.entry(file).or_insert_with_key(|file| Arc::from(file.as_str())))
    }
}

/// How a function is called that debug information and perhaps a symbol name. Compilers give local functions a short
/// name only; the symbol, or what is around it, then says where it belongs.
fn function(found: &Found, symbol: Option<&Name>) -> Arc<str> {
    let named =
        found.name.as_deref().and_then(|named| Name::of(named.as_bytes(), found.is_fortran));
    let Some(named) = named else {
        return symbol.map(|symbol| Arc::clone(&symbol.function)).unwrap_or_default();
    };
    if is_mangled(&named.symbol) {
        return named.function;
    }
    let longer = symbol.filter(|s| is_mangled(&s.symbol) && s.function.contains(&*named.function));
    match (longer, &found.scope) {
        (Some(symbol), _) => Arc::clone(&symbol.function),
        (None, Some(scope)) => format!("{scope}::{}", named.function).into(),
        (None, None) => named.function,
    }
}

/// The functions of a module: of the first of its files with a whole table of symbols, else what the first tells
/// that it exports, with what is packed in it.
fn tables(search: &Search, servers: &mut Servers, module: &ModuleId) -> Vec<Table> {
    let (mut whole, mut exported, mut packed) = (None, None, None);
    files::visit(search, servers, module, &mut |elf| {
        whole = elf.functions(Kind::Whole).ok().flatten();
        if whole.is_some() {
            return true;
        }
        if exported.is_none() {
            exported = elf.functions(Kind::Exported).ok().flatten();
        }
        if packed.is_none() {
            packed = mini::functions(elf);
        }
        false
    });
    match whole {
        Some(whole) => vec![whole],
        None => packed.into_iter().chain(exported).collect(),
    }
}

/// The debug information of a module: of the first of its files that has any.
fn debug(
    search: &Search,
    servers: &mut Servers,
    module: &ModuleId,
    missing: &mut Vec<String>,
) -> Option<Debug> {
    let mut found = None;
    files::visit(search, servers, module, &mut |elf| {
        found = Debug::of(elf, search, missing);
        found.is_some()
    });
    found
}
