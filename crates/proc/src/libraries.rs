//! The libraries that the loader would load for a program, and which of them its heap calls go to.
//!
//! Follows ld.so(8): preloaded libraries, then those that are needed, breadth first; looked for in
//! `DT_RPATH`, `LD_LIBRARY_PATH`, `DT_RUNPATH`, the loader's cache and the usual directories. Files are
//! read; nothing is loaded or run.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use crate::elf::{self, Elf, Executable};

/// Where the loader keeps what `ldconfig` found.
const CACHE: &str = "/etc/ld.so.cache";
const USUAL: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// More libraries than any program needs.
const MOST: usize = 2000;

/// What the environment tells the loader.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `LD_PRELOAD`, and what `/etc/ld.so.preload` says.
    pub preload: Vec<String>,
    /// `LD_LIBRARY_PATH`.
    pub library_path: Vec<String>,
}

impl Settings {
    /// From the values of `LD_PRELOAD` and `LD_LIBRARY_PATH`.
    pub fn new(preload: &str, library_path: &str) -> Settings {
        let everywhere = fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
        let names = preload.split([' ', ':']).chain(everywhere.split_whitespace());
        Settings {
            preload: names.filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            library_path: directories(library_path),
        }
    }
}

/// The absolute ones of a list of directories.
fn directories(list: &str) -> Vec<String> {
    let all = list.split([':', ';']);
    all.filter(|directory| directory.starts_with('/')).map(str::to_owned).collect()
}

/// A library of a program.
#[derive(Clone, Debug)]
pub struct Library {
    /// The name that was asked for.
    pub name: String,
    /// Where it is; `None` when it was not found.
    pub path: Option<PathBuf>,
    /// Whether it is preloaded.
    pub preloaded: bool,
    /// What its headers and symbols say.
    pub elf: Option<Elf>,
}

/// The loader's knowledge of a system.
#[derive(Clone, Debug, Default)]
pub struct Loader {
    settings: Settings,
    cache: HashMap<String, PathBuf>,
}

impl Loader {
    /// With the cache of this system; without one it knows the usual directories alone.
    pub fn new(settings: Settings) -> Loader {
        let cache = fs::read(CACHE).map(|bytes| parse_cache(&bytes)).unwrap_or_default();
        Loader { settings, cache }
    }

    /// Where a library is that nothing but its name is known of.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let (mut library_path, usual) = (self.settings.library_path.iter(), USUAL.iter());
        let in_directory =
            |directory: &str| Some(Path::new(directory).join(name)).filter(|path| fits(path));
        library_path
            .find_map(|directory| in_directory(directory))
            .or_else(|| self.cache.get(name).cloned())
            .or_else(|| usual.copied().find_map(in_directory))
    }

    /// Names in the loader's cache that begin so.
    pub fn names(&self, start: &str) -> Vec<&str> {
        let names = self.cache.keys().map(String::as_str);
        let mut names: Vec<&str> = names.filter(|name| name.starts_with(start)).collect();
        names.sort_unstable();
        names
    }

    /// The libraries that are preloaded into every program.
    pub fn preloads(&self) -> Vec<Library> {
        let origin = Origin { preloads: true, ..Origin::default() };
        let found = self.settings.preload.iter().map(|name| {
            let path = self.find_from(name, &origin);
            let elf = path.as_deref().and_then(read);
            Library { name: name.clone(), path, preloaded: true, elf }
        });
        found.collect()
    }

    /// All libraries of a program, in the order in which the loader looks names up in them.
    pub fn libraries(&self, executable: &Path, elf: &Elf) -> Vec<Library> {
        let mut queue: VecDeque<(String, Origin)> = VecDeque::new();
        let program = Origin::of(executable, elf, &[]);
        let preload = self.settings.preload.iter();
        queue.extend(preload.map(|name| (name.clone(), program.preloading())));
        queue.extend(elf.dynamic.needed.iter().map(|name| (name.clone(), program.clone())));
        let (mut libraries, mut seen) = (Vec::new(), HashSet::new());
        while let Some((name, origin)) = queue.pop_front().filter(|_| libraries.len() < MOST) {
            if !seen.insert(name.clone()) {
                continue;
            }
            let path = self.find_from(&name, &origin);
            let elf = path.as_deref().and_then(read);
            if let (Some(path), Some(elf)) = (&path, &elf) {
                let origin = Origin::of(path, elf, &origin.rpath);
                queue.extend(elf.dynamic.needed.iter().map(|name| (name.clone(), origin.clone())));
            }
            libraries.push(Library { name, path, preloaded: origin.preloads, elf });
        }
        libraries
    }

    fn find_from(&self, name: &str, origin: &Origin) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(PathBuf::from(origin.expand(name))).filter(|path| fits(path));
        }
        let among = |directories: &[String]| {
            let mut paths = directories.iter().map(|dir| Path::new(dir).join(name));
            paths.find(|path| fits(path))
        };
        among(&origin.rpath)
            .or_else(|| among(&self.settings.library_path))
            .or_else(|| among(&origin.runpath))
            .or_else(|| self.find(name))
    }
}

/// Who asks for a library.
#[derive(Clone, Debug, Default)]
struct Origin {
    directory: String,
    rpath: Vec<String>,
    runpath: Vec<String>,
    preloads: bool,
}

impl Origin {
    fn of(path: &Path, elf: &Elf, inherited: &[String]) -> Origin {
        let directory = path.canonicalize().ok().and_then(|p| Some(p.parent()?.to_owned()));
        let directory = directory.unwrap_or_default().to_string_lossy().into_owned();
        let mut origin = Origin { directory, ..Origin::default() };
        let expand = |list: &[String]| list.iter().map(|dir| origin.expand(dir)).collect();
        let (own, runpath): (Vec<_>, Vec<_>) =
            (expand(&elf.dynamic.rpath), expand(&elf.dynamic.runpath));
        // With a DT_RUNPATH, DT_RPATH counts for nothing; without, the asker's own is looked in, too.
        if runpath.is_empty() {
            origin.rpath = own.into_iter().chain(inherited.iter().cloned()).collect();
        }
        origin.runpath = runpath;
        origin
    }

    fn preloading(&self) -> Origin {
        Origin { preloads: true, ..self.clone() }
    }

    fn expand(&self, path: &str) -> String {
        let path = path.replace("$ORIGIN", &self.directory).replace("${ORIGIN}", &self.directory);
        path.replace("$LIB", "lib/x86_64-linux-gnu").replace("${LIB}", "lib/x86_64-linux-gnu")
    }
}

/// Whether the loader would take the file: an ELF file for this machine.
fn fits(path: &Path) -> bool {
    path.is_file() && matches!(elf::target(path), Ok(Some(target)) if target.is_ours())
}

fn read(path: &Path) -> Option<Elf> {
    match elf::kind(path).ok()? {
        Executable::Elf(elf) => Some(*elf),
        _ => None,
    }
}

/// The 64-bit libraries in the loader's cache, by name. Source: glibc's sysdeps/generic/dl-cache.h.
fn parse_cache(bytes: &[u8]) -> HashMap<String, PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEAD: usize = 48;
    const ENTRY: usize = 24;
    /// ELF, for glibc 2, x86-64.
    const FLAGS: u32 = 0x0303;
    let mut libraries = HashMap::new();
    let Some(start) = memchr::memmem::find(bytes, MAGIC) else { return libraries };
    let bytes = &bytes[start..];
    let number = |at: usize| {
        let bytes = bytes.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let text = |at: u32| {
        let rest = bytes.get(at as usize..)?;
        let end = rest.iter().position(|&b| b == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    };
    for index in 0..number(MAGIC.len()).unwrap_or(0) as usize {
        let Some(at) = index.checked_mul(ENTRY).map(|at| at + HEAD) else { break };
        let (Some(flags), Some(key), Some(value)) = (number(at), number(at + 4), number(at + 8))
        else {
            break;
        };
        // The variants for newer processors define the same functions.
        let is_plain = number(at + 16) == Some(0) && number(at + 20) == Some(0);
        if let (FLAGS, true, Some(name), Some(path)) = (flags, is_plain, text(key), text(value)) {
            libraries.entry(name).or_insert_with(|| path.into());
        }
    }
    libraries
}

/// Where a program's calls of `malloc` end up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    /// Its name, such as `glibc` or `jemalloc`; the file's where it is none that we know.
    pub name: String,
    /// The file that it is in.
    pub file: PathBuf,
    /// Whether it is preloaded.
    pub preloaded: bool,
}

/// The first of the libraries that defines `malloc`, our own left aside.
pub fn allocator(libraries: &[Library]) -> Option<Allocator> {
    let mut definers = libraries.iter().filter(|library| {
        let elf = library.elf.as_ref();
        let defines = elf.is_some_and(|elf| elf.allocators.malloc == Some(elf::Malloc::Exported));
        defines && !library.name.contains("libheaptape")
    });
    let library = definers.next()?;
    let file = library.path.clone()?;
    let preloaded = library.preloaded;
    Some(Allocator { name: name_of(file.file_name()?.to_str()?), file, preloaded })
}

/// An allocator by the name of its library.
pub fn name_of(file: &str) -> String {
    const NAMES: [(&str, &str); 14] = [
        ("libc.so", "glibc"),
        ("libc-", "glibc"),
        ("libjemalloc", "jemalloc"),
        ("libtcmalloc", "tcmalloc"),
        ("libmimalloc", "mimalloc"),
        ("libtbbmalloc", "tbbmalloc"),
        ("libsnmalloc", "snmalloc"),
        ("librpmalloc", "rpmalloc"),
        ("libhoard", "Hoard"),
        ("libasan", "AddressSanitizer"),
        ("libtsan", "ThreadSanitizer"),
        ("liblsan", "LeakSanitizer"),
        ("libhwasan", "HWAddressSanitizer"),
        ("libc_malloc_debug", "glibc with its debugging checks"),
    ];
    let known = NAMES.iter().find(|(start, _)| file.starts_with(start));
    known.map_or_else(|| file.to_owned(), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with one library, as ldconfig would write it.
    fn cache(flags: u32, hwcap: u64) -> Vec<u8> {
        let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
        bytes.extend(1u32.to_le_bytes());
        bytes.resize(48, 0);
        for word in [flags, 72, 79, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(hwcap.to_le_bytes());
        bytes.extend(b"liba.1\0/lib/liba.1\0");
        bytes
    }

    #[test]
    fn the_cache_is_read() {
        let found = parse_cache(&cache(0x303, 0));
        assert_eq!(found.get("liba.1"), Some(&PathBuf::from("/lib/liba.1")));
        assert_eq!(found.len(), 1);
        let mut old = b"ld.so-1.7.0\0\0\0\0\0".to_vec();
        old.extend(cache(0x303, 0));
        assert_eq!(parse_cache(&old), found);
        assert!(parse_cache(&cache(3, 0)).is_empty() && parse_cache(&cache(0x303, 1)).is_empty());
    }

    #[test]
    fn a_damaged_cache_is_read_as_far_as_it_goes() {
        let whole = cache(0x303, 0);
        for end in 0..whole.len() {
            assert!(parse_cache(&whole[..end]).len() <= 1);
        }
        let mut many = whole;
        many[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(parse_cache(&many).len() <= 1);
    }

    #[test]
    fn the_libraries_of_this_test() {
        let path = std::env::current_exe().unwrap();
        let elf = read(&path).unwrap();
        let libraries = Loader::new(Settings::default()).libraries(&path, &elf);
        let allocator = allocator(&libraries).unwrap();
        assert_eq!((allocator.name.as_str(), allocator.preloaded), ("glibc", false));
        assert!(libraries.iter().all(|library| library.path.is_some()), "{libraries:?}");
    }

    #[test]
    fn what_is_preloaded_comes_first() {
        let path = std::env::current_exe().unwrap();
        let elf = read(&path).unwrap();
        let loader = Loader::new(Settings::new("libm.so.6:/no/such.so", ""));
        let libraries = loader.libraries(&path, &elf);
        let names: Vec<&str> = libraries.iter().map(|library| library.name.as_str()).collect();
        assert_eq!(names[..2], ["libm.so.6", "/no/such.so"]);
        assert!(libraries[0].preloaded && libraries[1].path.is_none() && !libraries[2].preloaded);
    }

    #[test]
    fn directories_are_expanded() {
        let origin = Origin { directory: "/opt/x/bin".into(), ..Origin::default() };
        assert_eq!(origin.expand("$ORIGIN/../lib"), "/opt/x/bin/../lib");
        assert_eq!(origin.expand("${ORIGIN}/a"), "/opt/x/bin/a");
    }
}
