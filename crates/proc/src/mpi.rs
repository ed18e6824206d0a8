//! The MPI libraries and UCX on this system, and what they change in a program.
//!
//! Both may patch functions of libc, to learn of memory that is given back while it is registered with
//! a network card. Sources: Open MPI's `memory/patcher` component and UCX's `ucm`, by their parameters.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::libraries::Loader;
use crate::program::{self, Place};

/// An MPI library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mpi {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub library: PathBuf,
    /// The program that starts its jobs, where PATH leads to one.
    pub launcher: Option<PathBuf>,
    /// Its version, where one was told.
    pub version: Option<String>,
    /// The functions of libc that it may patch; empty for none.
    pub patches: Vec<&'static str>,
}

/// UCX, the communication library below MPI libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ucx {
    /// The library that holds its memory hooks.
    pub library: PathBuf,
    /// The program that tells its version and settings, where PATH leads to one.
    pub teller: Option<PathBuf>,
    /// Its version, where one was told.
    pub version: Option<String>,
    /// How it watches mappings: `bistro` patches libc's functions, `reloc` changes the entries by which
    /// libraries call them, `none` does neither.
    pub hook_mode: String,
    /// Whether it watches memory at all.
    pub events: bool,
}

/// The kinds of MPI library, with the beginnings of their files' names and their launchers'.
const KINDS: [(&str, &str, [&str; 3]); 2] = [
    ("Open MPI", "libmpi.so.", ["mpirun.openmpi", "orterun", "mpirun"]),
    ("MPICH", "libmpich.so.", ["mpirun.mpich", "mpiexec.hydra", "mpirun"]),
];
/// What Open MPI's patcher overwrites the beginnings of.
const OPEN_MPI_PATCHES: [&str; 7] =
    ["mmap", "munmap", "mremap", "madvise", "shmat", "shmdt", "brk"];

/// The MPI libraries that the loader knows; `variable` gives a variable of the environment.
pub fn libraries(
    loader: &Loader,
    place: Place<'_>,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<Mpi> {
    let mut found = Vec::new();
    for (name, start, launchers) in KINDS {
        // Without a version in its name it is there for compilers.
        let libraries = loader.names(start);
        let Some(library) = libraries.first().and_then(|name| loader.find(name)) else { continue };
        let launcher = launchers.iter().find_map(|name| program::find(OsStr::new(name), place));
        let patches = match name {
            "Open MPI" if !is_switched_off(variable("OMPI_MCA_memory")) => {
                OPEN_MPI_PATCHES.to_vec()
            }
            _ => Vec::new(),
        };
        found.push(Mpi { name, library, launcher, version: None, patches });
    }
    found
}

/// Whether Open MPI's list of memory components leaves the patcher out: `^patcher`, or others alone.
fn is_switched_off(components: Option<String>) -> bool {
    let Some(list) = components.filter(|list| !list.trim().is_empty()) else { return false };
    let names = |list: &str| list.split(',').any(|name| name.trim() == "patcher");
    match list.trim().strip_prefix('^') {
        Some(excluded) => names(excluded),
        None => !names(&list),
    }
}

/// UCX, if the loader knows it.
pub fn ucx(
    loader: &Loader,
    place: Place<'_>,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Ucx> {
    let library = loader.find("libucm.so.0")?;
    let mut ucx = Ucx {
        library,
        teller: program::find(OsStr::new("ucx_info"), place),
        version: None,
        hook_mode: "bistro".into(),
        events: true,
    };
    for name in ["UCX_MEM_MMAP_HOOK_MODE", "UCX_MEM_EVENTS"] {
        if let Some(value) = variable(name) {
            ucx.set(name, &value);
        }
    }
    Some(ucx)
}

impl Ucx {
    /// Takes in what `ucx_info -v -c` prints.
    pub fn told(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((name, value)) = line.split_once('=') {
                self.set(name, value);
            } else if let Some(version) = line.split("ersion ").nth(1) {
                self.version.get_or_insert_with(|| version.trim().to_owned());
            }
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        match name {
            "UCX_MEM_MMAP_HOOK_MODE" => self.hook_mode = value.trim().to_owned(),
            "UCX_MEM_EVENTS" => {
                self.events = !matches!(value.trim(), "n" | "no" | "N" | "NO" | "0" | "off");
            }
            _ => {}
        }
    }
}

/// The version in what `mpirun --version` prints: the first word that is numbers with dots.
pub fn version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let word = word.trim_start_matches('v');
        word.contains('.')
            && word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
    };
    text.split_whitespace().find(is_version).map(|word| word.trim_start_matches('v').to_owned())
}

/// Whether a library's file is one of an MPI library, as among those of a program.
pub fn name_of(file: &Path) -> Option<&'static str> {
    let name = file.file_name()?.to_str()?;
    KINDS.iter().find(|(_, start, _)| name.starts_with(start)).map(|(kind, _, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        let open = "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n";
        assert_eq!(version(open).as_deref(), Some("4.1.4"));
        assert_eq!(version("mpirun (Open MPI) 5.0.7rc1\n").as_deref(), Some("5.0.7rc1"));
        let hydra = "HYDRA build details:\n    Version:        4.0.2\n    Release Date: x\n";
        assert_eq!(version(hydra).as_deref(), Some("4.0.2"));
        assert_eq!((version(""), version("no number. here")), (None, None));
    }

    #[test]
    fn the_patcher_is_left_out() {
        let off = |list: &str| is_switched_off(Some(list.into()));
        assert!(off("^patcher") && off("^a, patcher") && off("linux"));
        assert!(!off("") && !off("patcher") && !off("^linux") && !is_switched_off(None));
    }

    #[test]
    fn what_ucx_tells() {
        let mut ucx = Ucx {
            library: "/lib/libucm.so.0".into(),
            teller: None,
            version: None,
            hook_mode: "bistro".into(),
            events: true,
        };
        ucx.told("# Library version: 1.19.0\n# Version 1.13.1\n#\nUCX_MEM_MMAP_HOOK_MODE=reloc\nUCX_MEM_EVENTS=n\n");
        assert_eq!((ucx.hook_mode.as_str(), ucx.events), ("reloc", false));
        assert_eq!(ucx.version.as_deref(), Some("1.13.1"));
    }

    #[test]
    fn libraries_by_name() {
        assert_eq!(name_of(Path::new("/lib/libmpi.so.40")), Some("Open MPI"));
        assert_eq!(name_of(Path::new("/lib/libmpich.so.12")), Some("MPICH"));
        assert_eq!(name_of(Path::new("/lib/libmpi_cxx.so.40")), None);
    }
}
