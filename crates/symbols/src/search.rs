//! Where a module's file, or its debug file, may be.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use crate::Error;

/// Debug files lie below this directory, by build id.
const DEBUG: &str = "usr/lib/debug";

/// A file as the loader of a recorded program knew it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModuleId {
    /// Its path then.
    pub path: String,
    /// Its GNU build id, or as many of its bytes as were kept; empty for none.
    pub build_id: Vec<u8>,
}

/// Where files are looked for.
///
/// A file with a build id may come from anywhere, as the id tells whether it is the right one. One without
/// is taken from a directory that was named, which is said to hold what the recorded machine had; or from
/// its own path, when nothing was named and it has not changed since [`Search::since`].
#[derive(Clone, Debug, Default)]
pub struct Search {
    roots: Vec<PathBuf>,
    unchanged_since: Option<SystemTime>,
    asks: bool,
}

/// A file that may be the module's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) path: PathBuf,
    /// Whether it is believed without a build id.
    pub(crate) trusted: bool,
}

impl Search {
    /// Looks in these directories too, each like the root of the recorded machine or a heap of its files.
    pub fn new(roots: Vec<PathBuf>) -> Result<Search, Error> {
        match roots.iter().find(|root| !root.is_dir()) {
            Some(path) => Err(Error::NoDirectory { path: path.clone() }),
            None => Ok(Search { roots, ..Search::default() }),
        }
    }

    /// Believes files without a build id that lie at their own path and were there at this time: the
    /// recording was made on this machine, then.
    pub fn since(mut self, time: SystemTime) -> Search {
        self.unchanged_since = Some(time);
        self
    }

    /// Asks the servers of debug files that the user has named for `debuginfod-find`, if `asks`: by the program
    /// of that name, and for what is found nowhere else.
    pub fn asking_servers(self, asks: bool) -> Search {
        Search { asks, ..self }
    }

    /// Whether servers are asked.
    pub(crate) fn asks(&self) -> bool {
        self.asks
    }

    /// The directories that were named.
    pub(crate) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Where a debug file may lie that the file at `path` names as its own: beside it, or at its place below
    /// the directories of debug files.
    pub(crate) fn linked(&self, path: &Path, name: &str) -> Vec<PathBuf> {
        let (Some(folder), Some(name)) = (path.parent(), Path::new(name).file_name()) else {
            return Vec::new();
        };
        let below = folder.strip_prefix("/").unwrap_or(folder);
        let root = [PathBuf::from("/")];
        let far = self.roots.iter().chain(&root).map(|root| root.join(DEBUG).join(below));
        // The folder of a file below a root has the root in its name.
        let near = self
            .roots
            .iter()
            .filter_map(|root| Some(root.join(DEBUG).join(folder.strip_prefix(root).ok()?)));
        let folders = [folder.to_owned(), folder.join(".debug")].into_iter().chain(near).chain(far);
        // It would be the file itself.
        folders.map(|folder| folder.join(name)).filter(|found| found != path).collect()
    }

    /// Where the file may lie that the debug file at `path` shares its strings with.
    pub(crate) fn alternates(&self, path: &Path, name: &str, build_id: &[u8]) -> Vec<PathBuf> {
        let beside = path.parent().map(|folder| folder.join(name));
        let below = Path::new(name).strip_prefix("/").ok();
        let placed = self.roots.iter().filter_map(|root| Some(root.join(below?)));
        let by_id = debug_file(build_id).into_iter().flat_map(|file| {
            let roots = self.roots.iter().map(PathBuf::as_path).chain([Path::new("/")]);
            roots.map(move |root| root.join(DEBUG).join(&file)).collect::<Vec<_>>()
        });
        beside.into_iter().chain(placed).chain(by_id).collect()
    }

    /// The files to look at, in order.
    pub(crate) fn candidates(&self, module: &ModuleId) -> Vec<Candidate> {
        let path = Path::new(&module.path);
        let relative = path.strip_prefix("/").unwrap_or(path);
        let has_id = !module.build_id.is_empty();
        let mut found = Vec::new();
        let mut add = |path: PathBuf, trusted| found.push(Candidate { path, trusted });
        if !module.path.is_empty() && (has_id || self.roots.is_empty()) {
            add(path.to_owned(), path.is_absolute() && self.was_there(path));
        }
        let stays = !relative.components().any(|c| c == Component::ParentDir);
        for root in self.roots.iter().filter(|_| stays && !module.path.is_empty()) {
            add(root.join(relative), path.is_absolute());
        }
        if let Some(file) = debug_file(&module.build_id) {
            for root in &self.roots {
                let name = relative.file_name().map(|name| root.join(name));
                let by_id = [root.join(&file), root.join(DEBUG).join(&file)];
                name.into_iter().chain(by_id).for_each(|path| add(path, false));
            }
            add(Path::new("/").join(DEBUG).join(&file), false);
        }
        found
    }

    /// Whether neither a file nor what is known of it has changed since.
    fn was_there(&self, path: &Path) -> bool {
        let since =
            self.unchanged_since.and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok());
        let (Some(since), Ok(found)) = (since, fs::metadata(path)) else { return false };
        let Ok(seconds) = i64::try_from(since.as_secs()) else { return false };
        let since = (seconds, i64::from(since.subsec_nanos()));
        // A copy may have the time of its original, but came to be when it was made.
        let (written, made) =
            ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
        written <= since && made <= since
    }
}

/// `.build-id/xx/yyy.debug`.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let mut name = format!(".build-id/{first:02x}/");
    for byte in rest {
        let _ = write!(name, "{byte:02x}");
    }
    Some(PathBuf::from(name + ".debug"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(search: &Search, path: &str, build_id: &[u8]) -> Vec<(String, bool)> {
        let module = ModuleId { path: path.into(), build_id: build_id.to_vec() };
        let all = search.candidates(&module).into_iter();
        all.map(|c| (c.path.display().to_string(), c.trusted)).collect()
    }

    #[test]
    fn with_a_build_id_everywhere() {
        let search = Search { roots: vec!["/r".into()], ..Search::default() };
        let found: Vec<_> = paths(&search, "/a/b", &[0xab, 1]).into_iter().map(|p| p.0).collect();
        let debug = "/r/.build-id/ab/01.debug /r/usr/lib/debug/.build-id/ab/01.debug /usr/lib/debug/.build-id/ab/01.debug";
        assert_eq!(found.join(" "), format!("/a/b /r/a/b /r/b {debug}"));
    }

    #[test]
    fn without_one_only_where_it_was() {
        let named = Search { roots: vec!["/r".into()], ..Search::default() };
        assert_eq!(paths(&named, "/a/b", &[]), [("/r/a/b".to_owned(), true)]);
        assert_eq!(paths(&named, "/a/../../b", &[]), []);
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let second = std::time::Duration::from_secs(1);
        let now = SystemTime::now() + second;
        for (time, trusted) in [(now, true), (now - 3600 * second, false)] {
            let search = Search::default().since(time);
            assert_eq!(paths(&search, path, &[]), [(path.to_owned(), trusted)]);
        }
        assert_eq!(paths(&Search::default(), path, &[]), [(path.to_owned(), false)]);
    }

    #[test]
    fn a_directory_must_be_one() {
        let error = Search::new(vec!["/".into(), "/dev/null".into()]).unwrap_err();
        assert!(error.to_string().starts_with("/dev/null is no directory"), "{error}");
    }
}
