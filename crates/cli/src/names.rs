//! The functions that return addresses are in, looked up once for each place of a mapped file: on the tape, where
//! `symbolize` has put them, else in the files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use hashbrown::HashMap;
use heaptape_analyze::gather::{self, Function, Namer};
use heaptape_analyze::live::{Caller, Trace};
use heaptape_analyze::modules::{Module, Place};
use heaptape_analyze::{ProcessSummary, Summary};
use heaptape_proc::read;
use heaptape_symbols::{Frame, ModuleId, PerfMap, Search};
use heaptape_tape::{NamedFrame, NamedPlace, Tape};

use crate::args::Sysroot;

/// Names of functions, for the return addresses of one tape.
pub(crate) struct Names {
    files: heaptape_symbols::Names,
    on_tape: OnTape,
    /// By the module's address in memory and the offset in it.
    known: HashMap<(*const Module, u64), Option<Arc<str>>>,
    /// Those that `known` has an address of: held, their addresses become no other's.
    held: HashMap<*const Module, Arc<Module>>,
    made: HashMap<u32, Option<PerfMap>>,
    /// When the recording began, if it was made on this machine.
    since: Option<SystemTime>,
}

impl Names {
    /// Those on the tape, and in the files that it names.
    pub(crate) fn new(args: &Sysroot, tape: &Tape) -> Result<Names> {
        let mut search = Search::new(args.sysroot.clone())?.asking_servers(args.debuginfod);
        let header = &tape.summary().header;
        let is_here = read::hostname().is_ok_and(|host| host == header.host);
        let since = is_here.then(|| SystemTime::UNIX_EPOCH + Duration::from_nanos(header.started));
        if let Some(since) = since {
            search = search.since(since);
        }
        Ok(Names {
            files: heaptape_symbols::Names::new(search),
            on_tape: on_tape(tape)?,
            known: HashMap::new(),
            held: HashMap::new(),
            made: HashMap::new(),
            since,
        })
    }

    /// Adds the function to a place, if it can be told.
    pub(crate) fn complete(&mut self, place: &mut Option<Place>) {
        let Some(place) = place else { return };
        let at = Arc::as_ptr(&place.module);
        if let Some(function) = self.known.get(&(at, place.offset)) {
            place.function.clone_from(function);
            return;
        }
        let frames = self.frames(&id(&place.module), place.offset);
        let function = frames.last().map(|frame| Arc::clone(&frame.function));
        place.function = function.filter(|function| !function.is_empty());
        self.held.entry(at).or_insert_with(|| Arc::clone(&place.module));
        self.known.insert((at, place.offset), place.function.clone());
    }

    /// Names the calls of a caller's stack, where it has one, and the caller itself.
    pub(crate) fn complete_caller(&mut self, caller: &mut Caller, summary: &Summary) {
        self.complete(&mut caller.place);
        if let Some(trace) = &mut caller.trace {
            self.complete_trace(trace, summary);
        }
    }

    /// Names the calls of a stack.
    pub(crate) fn complete_trace(&mut self, trace: &mut Trace, summary: &Summary) {
        if let Some(process) = summary.processes.get(trace.process.0 as usize) {
            trace.frames = gather::named(&trace.stack, process, self);
        }
    }

    /// The functions at a place of a file, the innermost first; none where none can be told.
    pub(crate) fn frames(&mut self, module: &ModuleId, offset: u64) -> Arc<[Frame]> {
        match self.on_tape.get(module).and_then(|places| places.get(&offset)) {
            Some(frames) => Arc::clone(frames),
            None => self.files.frames(module, offset),
        }
    }

    /// The same by the files alone.
    pub(crate) fn looked_up(&mut self, module: &ModuleId, offset: u64) -> Arc<[Frame]> {
        self.files.frames(module, offset)
    }

    /// The same for an address in no file, where a process has made code.
    pub(crate) fn made(&mut self, pid: u32, address: u64) -> Arc<[Frame]> {
        let module = made_by(pid);
        if let Some(frames) = self.on_tape.get(&module).and_then(|places| places.get(&address)) {
            return Arc::clone(frames);
        }
        let since = self.since;
        let map =
            self.made.entry(pid).or_insert_with(|| PerfMap::read(&written_since(pid, since?)?));
        let name = map.as_ref().and_then(|map| map.find(address));
        let frame = |function| Frame { function, file: None, line: None, is_inlined: false };
        name.map(frame).into_iter().collect()
    }

    /// What kept names away that were to be had, a sentence each.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = &str> {
        self.files.troubles()
    }

    /// The names on the tape, as they came.
    pub(crate) fn on_tape(&self) -> impl Iterator<Item = (&ModuleId, NamedPlace)> {
        self.on_tape.iter().flat_map(|(module, places)| {
            places.iter().map(move |(&offset, frames)| (module, named(offset, frames)))
        })
    }
}

impl Namer for Names {
    fn functions(&mut self, place: &Place) -> Vec<Function> {
        functions(&self.frames(&id(&place.module), place.offset))
    }

    fn made(&mut self, process: &ProcessSummary, address: u64) -> Vec<Function> {
        process.known_pid().map_or_else(Vec::new, |pid| functions(&self.made(pid, address)))
    }
}

fn functions(frames: &[Frame]) -> Vec<Function> {
    let function = |frame: &Frame| Function {
        name: Arc::clone(&frame.function),
        file: frame.file.clone(),
        line: frame.line,
    };
    frames.iter().map(function).collect()
}

/// A module as names know it.
fn id(module: &Module) -> ModuleId {
    ModuleId { path: module.path.clone(), build_id: module.build_id.clone() }
}

/// What stands for a module where a process has made code itself: the list that it leaves of it.
pub(crate) fn made_by(pid: u32) -> ModuleId {
    ModuleId { path: PerfMap::path(pid).display().to_string(), build_id: Vec::new() }
}

/// The clock of files goes by ticks, and so a little behind the one that tells when a recording began.
const TICK: Duration = Duration::from_millis(20);

/// The list of a process, if no process before the recording has left it.
fn written_since(pid: u32, since: SystemTime) -> Option<PathBuf> {
    let path = PerfMap::path(pid);
    let written = std::fs::symlink_metadata(&path).ok()?.modified().ok()?;
    (written + TICK >= since).then_some(path)
}

/// A place as the tape has it.
pub(crate) fn named(offset: u64, frames: &[Frame]) -> NamedPlace {
    let frames = frames.iter().map(|frame| NamedFrame {
        function: Arc::clone(&frame.function),
        file: frame.file.clone(),
        line: frame.line,
        is_inlined: frame.is_inlined,
    });
    NamedPlace { offset, frames: frames.collect() }
}

/// The frames of each place, by the file and the offset in it.
type OnTape = HashMap<ModuleId, HashMap<u64, Arc<[Frame]>>>;

fn on_tape(tape: &Tape) -> Result<OnTape> {
    let mut all = OnTape::new();
    for module in tape.names()? {
        let id = ModuleId { path: module.path, build_id: module.build_id };
        let places = all.entry(id).or_default();
        for place in module.places {
            let frames = place.frames.into_iter().map(|frame| Frame {
                function: frame.function,
                file: frame.file,
                line: frame.line,
                is_inlined: frame.is_inlined,
            });
            places.insert(place.offset, frames.collect());
        }
    }
    Ok(all)
}
