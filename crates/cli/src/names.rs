//! The functions that callers are in, looked up once for each place of a mapped file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use heaptape_analyze::modules::{Module, Place};
use heaptape_proc::read;
use heaptape_symbols::{ModuleId, Search};
use heaptape_tape::Tape;

use crate::args::Sysroot;

/// Names of functions, for the callers of one tape.
pub(crate) struct Names {
    files: heaptape_symbols::Names,
    /// By the module's address, which stays its own as it is held.
    known: HashMap<*const Module, Known>,
}

/// What is known of one module of one process.
struct Known {
    module: Arc<Module>,
    functions: HashMap<u64, Option<Arc<str>>>,
}

impl Names {
    /// Those of the files that the tape names.
    pub(crate) fn new(args: &Sysroot, tape: &Tape) -> Result<Names> {
        let mut search = Search::new(args.sysroot.clone())?;
        let header = &tape.summary().header;
        if read::hostname().is_ok_and(|host| host == header.host) {
            search = search.since(SystemTime::UNIX_EPOCH + Duration::from_nanos(header.started));
        }
        Ok(Names { files: heaptape_symbols::Names::new(search), known: HashMap::new() })
    }

    /// Adds the function to a place, if it can be told.
    pub(crate) fn complete(&mut self, place: &mut Option<Place>) {
        let Some(place) = place else { return };
        let known = self.known.entry(Arc::as_ptr(&place.module)).or_insert_with(|| Known {
            module: Arc::clone(&place.module),
            functions: HashMap::new(),
        });
        let find = || {
            let (path, build_id) = (known.module.path.clone(), known.module.build_id.clone());
            let name = self.files.of(&ModuleId { path, build_id }, place.offset)?;
            Some(Arc::clone(&name.function))
        };
        place.function = known.functions.entry(place.offset).or_insert_with(find).clone();
    }
}
