//! Who asked for what was refused first, by name: looked up when it happens, while the process may still be
//! there, and put into the report.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use heaptape_collect::Refusal;
use heaptape_ledger::{FirstRefusal, Job};
use heaptape_proc::program::{self, Place};
use heaptape_proc::read;
use heaptape_symbols::{Name, Names, Search};

/// The names of functions in files as they were when the job began.
pub(super) struct Asker {
    names: Names,
    /// What was found when it happened: the file's own address, and the function.
    found: Option<(u64, Option<Arc<Name>>)>,
}

impl Asker {
    pub(super) fn new() -> Asker {
        let names = Names::new(Search::default().since(SystemTime::now()));
        Asker { names, found: None }
    }

    /// Looks the function up, and gives the refusal with the address that the file itself has, as tapes
    /// have it.
    pub(super) fn look_up(&mut self, refusal: &Refusal<'_>) -> (FirstRefusal, Option<&str>) {
        let mut first = refusal.first.clone();
        if let Some((path, offset)) = &first.place {
            let files = files(path, refusal);
            let names = &mut self.names;
            self.found = files.into_iter().find_map(|file| names.mapped(&file, *offset));
        }
        self.correct(&mut first);
        (first, self.function())
    }

    fn correct(&self, first: &mut FirstRefusal) {
        if let (Some((address, _)), Some((_, offset))) = (&self.found, &mut first.place) {
            *offset = *address;
        }
    }

    fn function(&self) -> Option<&str> {
        let (_, name) = self.found.as_ref()?;
        Some(name.as_ref()?.function.as_ref())
    }

    /// Puts what was found into the job's figures; the function.
    pub(super) fn describe(&self, job: &mut Job) -> Option<String> {
        self.correct(job.first.as_mut()?);
        self.function().map(str::to_owned)
    }
}

/// Where the module's file may be found: as its process sees it, if that lives; else by its path, and an
/// executable, whose path is empty, by its command.
fn files(path: &str, refusal: &Refusal<'_>) -> Vec<PathBuf> {
    let seen = refusal.pid.map(|pid| read::seen_by(pid, path));
    let named = match path {
        "" => refusal.command.first().and_then(|word| executable(word)),
        path => Some(path.into()),
    };
    seen.into_iter().chain(named).collect()
}

/// The file that a command's name stands for here: of a script, its interpreter.
fn executable(word: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directory = std::env::current_dir().ok()?;
    let place = Place { path: &path, directory: &directory };
    program::loaded(&program::find(word.as_ref(), place)?)
}
