//! The functions that callers are in, looked up once for each place of a mapped file.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use hashbrown::HashMap;
use heaptape_analyze::gather::{Function, Namer};
use heaptape_analyze::modules::{Module, Place};
use heaptape_proc::read;
use heaptape_symbols::{Frame, ModuleId, Search};
use heaptape_tape::Tape;

use crate::args::Sysroot;

/// Names of functions, for the callers of one tape.
pub(crate) struct Names {
    files: heaptape_symbols::Names,
    /// By the module's address in memory and the offset in it.
    known: HashMap<(*const Module, u64), Option<Arc<str>>>,
    /// Those that `known` has an address of: held, their addresses become no other's.
    held: HashMap<*const Module, Arc<Module>>,
}

impl Names {
    /// Those of the files that the tape names.
    pub(crate) fn new(args: &Sysroot, tape: &Tape) -> Result<Names> {
        let mut search = Search::new(args.sysroot.clone())?;
        let header = &tape.summary().header;
        if read::hostname().is_ok_and(|host| host == header.host) {
            search = search.since(SystemTime::UNIX_EPOCH + Duration::from_nanos(header.started));
        }
        let files = heaptape_symbols::Names::new(search);
        Ok(Names { files, known: HashMap::new(), held: HashMap::new() })
    }

    /// Adds the function to a place, if it can be told.
    pub(crate) fn complete(&mut self, place: &mut Option<Place>) {
        let Some(place) = place else { return };
        let at = Arc::as_ptr(&place.module);
        if let Some(function) = self.known.get(&(at, place.offset)) {
            place.function.clone_from(function);
            return;
        }
        let (path, build_id) = (place.module.path.clone(), place.module.build_id.clone());
        let name = self.files.of(&ModuleId { path, build_id }, place.offset);
        place.function = name.map(|name| Arc::clone(&name.function));
        self.held.entry(at).or_insert_with(|| Arc::clone(&place.module));
        self.known.insert((at, place.offset), place.function.clone());
    }
}

impl Namer for Names {
    fn functions(&mut self, place: &Place) -> Vec<Function> {
        let (path, build_id) = (place.module.path.clone(), place.module.build_id.clone());
        let frames = self.files.frames(&ModuleId { path, build_id }, place.offset);
        let function = |frame: &Frame| Function {
            name: Arc::clone(&frame.function),
            file: frame.file.clone(),
            line: frame.line,
        };
        frames.iter().map(function).collect()
    }
}
