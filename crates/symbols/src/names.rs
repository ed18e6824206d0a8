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
use crate::texts::Texts;
use crate::{Frame, Name, mini};

/// Of the modules whose debug information is in memory, those that were asked for longest ago are dropped for
/// another when all together have more than this, in bytes.
const MOST: u64 = 512 << 20;

/// How often the debug information of a module is read: places that lie here and there in several large modules
/// would have it read for each of them.
const MOST_LOADS: u32 = 8;

/// The names of functions in the files that were asked for so far.
pub struct Names {
    search: Search,
    servers: Servers,
    modules: HashMap<ModuleId, Module>,
    texts: Texts,
    troubles: BTreeSet<String>,
    /// Debug information in memory takes no more than this.
    most: u64,
    /// How often debug information was asked for.
    asked: u64,
}

/// What is known of one module.
#[derive(Default)]
struct Module {
    /// Looked at in order; there is more than one where a file tells its exported functions and others apart.
    tables: Option<Vec<Table>>,
    debug: Option<Option<Debug>>,
    loads: u32,
    /// When its debug information was last asked for.
    asked: u64,
    known: HashMap<(usize, Function), Option<Arc<Name>>>,
    frames: HashMap<u64, Arc<[Frame]>>,
}

impl Names {
    /// Names from files that are looked for so.
    pub fn new(search: Search) -> Names {
        let (servers, modules, texts, troubles) = Default::default();
        Names { search, servers, modules, texts, troubles, most: MOST, asked: 0 }
    }

    /// The function that holds the instruction before `offset`, which is a return address less the load
    /// bias. `None` where the file is not found, is another build, or has no function there.
    pub fn of(&mut self, module: &ModuleId, offset: u64) -> Option<Arc<Name>> {
        let address = offset.checked_sub(1)?;
        let (known, texts) = self.with_tables(module);
        known.symbol(address, texts)
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
        let (known, texts) = self.with_tables(module);
        let frames: Arc<[Frame]> = known.frames_at(address, texts, &mut missing).into();
        known.frames.insert(address, Arc::clone(&frames));
        self.troubles.extend(missing);
        frames
    }

    /// What kept names away that were to be had, a sentence each.
    pub fn troubles(&self) -> impl Iterator<Item = &str> {
        const FULL: &str =
            "The names of the functions take more memory than names should; some are left out.";
        let full = self.texts.is_full().then_some(FULL);
        self.troubles.iter().map(String::as_str).chain(self.servers.trouble()).chain(full)
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

    fn with_tables(&mut self, module: &ModuleId) -> (&mut Module, &mut Texts) {
        let known = self.modules.entry(module.clone()).or_default();
        if known.tables.is_none() {
            known.tables = Some(tables(&self.search, &mut self.servers, module));
        }
        (known, &mut self.texts)
    }

    fn load_debug(&mut self, module: &ModuleId, missing: &mut Vec<String>) {
        self.asked += 1;
        let asked = self.asked;
        let known = self.modules.entry(module.clone()).or_default();
        known.asked = asked;
        if known.debug.is_some() {
            return;
        }
        if known.loads == MOST_LOADS {
            missing.push(format!(
                "The debug information of {} was read {MOST_LOADS} times, as that of all files does not fit in memory \
                 together; of some of its calls no lines are told.",
                module.path
            ));
            return;
        }
        known.loads += 1;
        let loaded = debug(&self.search, &mut self.servers, module, missing);
        self.make_room(loaded.as_ref().map_or(0, Debug::bytes));
        self.modules.entry(module.clone()).or_default().debug = Some(loaded);
    }

    /// Drops debug information until there is room for so much more. What it has told is kept.
    fn make_room(&mut self, more: u64) {
        let mut held: Vec<_> = self.modules.values_mut().filter(|m| m.debug_bytes() > 0).collect();
        held.sort_unstable_by_key(|module| module.asked);
        let mut all: u64 = held.iter().map(|module| module.debug_bytes()).sum();
        for oldest in held {
            if all + more <= self.most {
                break;
            }
            all -= oldest.debug_bytes();
            oldest.debug = None;
        }
    }
}

impl Module {
    fn debug_bytes(&self) -> u64 {
        self.debug.iter().flatten().map(Debug::bytes).sum()
    }

    /// The function of the symbol tables at an address.
    fn symbol(&mut self, address: u64, texts: &mut Texts) -> Option<Arc<Name>> {
        let mut tables = self.tables.iter().flatten().enumerate();
        let (number, table, function) =
            tables.find_map(|(n, table)| Some((n, table, table.find(address)?)))?;
        let is_fortran = table.is_fortran();
        let read = || {
            let name = Name::of(&table.symbol(function)?, is_fortran)?;
            let (function, symbol) = (texts.held(name.function)?, texts.held(name.symbol)?);
            Some(Arc::new(Name { function, symbol }))
        };
        self.known.entry((number, function)).or_insert_with(read).clone()
    }

    fn frames_at(
        &mut self,
        address: u64,
        texts: &mut Texts,
        missing: &mut Vec<String>,
    ) -> Vec<Frame> {
        let debug = self.debug.as_mut().and_then(Option::as_mut);
        let found = debug.and_then(|debug| debug.at(address, missing)).unwrap_or_default();
        let symbol = self.symbol(address, texts);
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
            let function = texts.held(function(&found, symbol.map(|s| &**s))).unwrap_or_default();
            let file = found.file.and_then(|file| texts.held(file.into()));
            Frame { function, file, line: found.line, is_inlined }
        });
        frames.collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    fn built(folder: &Path, name: &str) -> ModuleId {
        let (source, library) = (folder.join(format!("{name}.c")), folder.join(name));
        fs::write(&source, "void mark(void);\nvoid f(void) { mark(); mark(); mark(); mark(); }\n")
            .unwrap();
        let mut cc = Command::new("cc");
        cc.args([
            "-g",
            "-O0",
            "-fPIC",
            "-shared",
            "-nostdlib",
            "-Wl,--build-id=0x0102030405060708",
            "-o",
        ]);
        assert!(cc.arg(&library).arg(&source).status().unwrap().success());
        ModuleId { path: library.to_str().unwrap().to_owned(), build_id: (1..=8).collect() }
    }

    #[test]
    fn modules_that_do_not_fit_together_are_not_read_for_each_place_of_them() {
        let folder = tempfile::TempDir::new().unwrap();
        let both = ["one.so", "other.so"].map(|name| built(folder.path(), name));
        let mut names = Names::new(Search::default());
        let code = 0x1000..0x1060;
        // Each alone is too much beside the other.
        names.most = 1;
        for offset in code.clone() {
            for module in &both {
                let _ = names.frames(module, offset);
                let held = names.modules.values().filter(|m| m.debug_bytes() > 0).count();
                assert!(held <= 1);
            }
        }
        assert!(names.modules.values().all(|m| m.loads == MOST_LOADS));
        let told = names.troubles().filter(|t| t.contains("does not fit in memory")).count();
        // The one that was read last stays.
        assert_eq!(told, 1);
        // One after the other each is read once.
        let mut names = Names::new(Search::default());
        names.most = 1;
        let mut lines = 0;
        for module in &both {
            lines += code.clone().filter(|&o| !names.frames(module, o).is_empty()).count();
        }
        assert!(lines > 10 && names.modules.values().all(|m| m.loads == 1));
    }
}
