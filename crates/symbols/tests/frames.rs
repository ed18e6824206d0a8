//! Functions that were inlined, files and lines, as compilers write them in every form that is in use.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr)] // what is not tried is said

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use heaptape_symbols::{ModuleId, Names, Search};
use tempfile::TempDir;

/// Each call of `mark` lies in functions that are known here. Before them stands another, as in DWARF 4 GCC ends a list
/// of ranges at once that begins where the section does.
const SOURCE: &str = r#"extern "C" void mark(int);
extern "C" int first(int n) { return n + 1; }
namespace shop {
namespace {
__attribute__((always_inline)) inline void innermost(int n) {
    mark(n);
}
} // namespace
template <int N> __attribute__((always_inline)) inline void middle(int n) {
    innermost(n + N);
}
__attribute__((noinline)) void outer(int n) {
    middle<3>(n);
    middle<4>(n);
}
struct Shelf {
    __attribute__((noinline)) static void stock(int n);
};
void Shelf::stock(int n) {
    mark(n);
    mark(2);
}
} // namespace shop
"#;

/// The frames of the calls, in the order of their lines: function, line, whether it is inlined.
const TRUTH: [&[(&str, u32, bool)]; 4] = [
    &[
        ("shop::(anonymous namespace)::innermost", 6, true),
        ("shop::middle<3>(int)", 10, true),
        ("shop::outer(int)", 13, false),
    ],
    &[
        ("shop::(anonymous namespace)::innermost", 6, true),
        ("shop::middle<4>(int)", 10, true),
        ("shop::outer(int)", 14, false),
    ],
    &[("shop::Shelf::stock(int)", 20, false)],
    &[("shop::Shelf::stock(int)", 21, false)],
];

struct Built {
    folder: TempDir,
    library: PathBuf,
    /// Behind each call of `mark`.
    calls: Vec<u64>,
    id: ModuleId,
}

impl Built {
    /// `None`, which is said, where the compiler is not there or does not know the flags.
    fn new(compiler: &str, flags: &[&str]) -> Option<Built> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let (source, library) = (path.join("shop.cpp"), path.join("libshop.so"));
        fs::write(&source, SOURCE).unwrap();
        let mut command = Command::new(compiler);
        command.current_dir(&path).args(["-O2", "-fPIC", "-shared", "-nostdlib"]).args(flags);
        // As a tail call the last one would come back elsewhere.
        command.args(["-fno-optimize-sibling-calls", "-o"]).arg(&library).arg(&source);
        if !command.output().is_ok_and(|output| output.status.success()) {
            eprintln!("{compiler} {flags:?} is not to be had here");
            return None;
        }
        let calls = calls(&library);
        let notes = run(Command::new("readelf").arg("-n").arg(&library));
        let hex =
            notes.split("Build ID: ").nth(1).map_or("", |t| t.split_whitespace().next().unwrap());
        let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
        let build_id = (0..hex.len() / 2).map(byte).collect();
        let id = ModuleId { path: library.to_str().unwrap().to_owned(), build_id };
        Some(Built { folder, library, calls, id })
    }

    fn gcc(flags: &[&str]) -> Built {
        Built::new("g++", &[&["-g", "-Wl,--build-id"], flags].concat()).expect("g++")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn found(&self, search: Search) -> Vec<Vec<(String, u32, bool)>> {
        let mut names = Names::new(search);
        let mut all: Vec<Vec<_>> =
            self.calls.iter().map(|&at| frames(&mut names, &self.id, at)).collect();
        all.sort_by_key(|frames| frames.last().map(|frame| frame.1));
        all
    }

    fn is_told(&self, search: Search) -> bool {
        self.found(search) == truth()
    }

    /// Only what the table of symbols has.
    fn has_no_lines(&self, search: Search) -> bool {
        self.found(search).iter().flatten().all(|frame| frame.1 == 0)
    }
}

fn frames(names: &mut Names, id: &ModuleId, at: u64) -> Vec<(String, u32, bool)> {
    let frame = |frame: &heaptape_symbols::Frame| {
        let file = frame.file.as_deref();
        assert!(file.is_none_or(|file| file.ends_with("/shop.cpp")), "{file:?}");
        (frame.function.to_string(), frame.line.unwrap_or(0), frame.is_inlined)
    };
    names.frames(id, at).iter().map(frame).collect()
}

fn truth() -> Vec<Vec<(String, u32, bool)>> {
    let frames = |frames: &&[(&str, u32, bool)]| {
        frames.iter().map(|&(name, line, inlined)| (name.to_owned(), line, inlined)).collect()
    };
    TRUTH.iter().map(frames).collect()
}

/// The addresses behind the calls of `mark`.
fn calls(library: &Path) -> Vec<u64> {
    let text = run(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(library));
    let lines: Vec<_> = text.lines().collect();
    let behind =
        lines.windows(2).filter(|pair| pair[0].contains("call") && pair[0].contains("<mark"));
    let address = |line: &str| u64::from_str_radix(line.trim().split(':').next()?, 16).ok();
    behind.map(|pair| address(pair[1]).unwrap()).collect()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("{program} is not installed: nothing is tried");
    }
    found
}

fn roots(root: &Path) -> Search {
    Search::new(vec![root.to_owned()]).unwrap()
}

#[test]
fn every_form_of_debug_information() {
    for flags in [
        &["-gdwarf-4"][..],
        &["-gdwarf-5"],
        &["-gz=zlib"],
        &["-gz=zlib-gnu"],
        &["-gdwarf-5", "-gsplit-dwarf"],
        &["-gdwarf-4", "-gsplit-dwarf"],
        &["-ffunction-sections", "-fdebug-types-section"],
        &["-flto"],
    ] {
        let built = Built::gcc(flags);
        assert_eq!(built.found(Search::default()), truth(), "{flags:?}");
    }
    for (compiler, flags) in [
        ("g++", &["-gdwarf-4", "-g1"][..]),
        ("g++", &["-gdwarf-5", "-g1"]),
        ("clang++", &["-gdwarf-4"]),
        ("clang++", &["-gdwarf-5"]),
        ("clang++", &["-gline-tables-only"]),
        ("clang++", &["-gz=zstd"]),
        ("clang++", &["-gdwarf-5", "-gsplit-dwarf"]),
        ("clang++", &["-gdwarf-4", "-gsplit-dwarf"]),
    ] {
        let all = [&["-g", "-Wl,--build-id"], flags].concat();
        let Some(built) = Built::new(compiler, &all) else { continue };
        let found: Vec<_> = built.found(Search::default()).into_iter().map(short).collect();
        let right: Vec<_> = truth().into_iter().map(short).collect();
        assert_eq!(found, right, "{compiler} {flags:?}");
    }
}

/// Where there are only lines, names of inlined functions are short; with types of parameters or without.
fn short(frames: Vec<(String, u32, bool)>) -> Vec<(String, u32, bool)> {
    let last = |name: &str| {
        let name = name.replace("(anonymous namespace)::", "");
        let plain = name.split(['(', '<']).next().unwrap_or_default();
        plain.split("::").last().unwrap_or_default().to_owned()
    };
    frames.into_iter().map(|(name, line, inlined)| (last(&name), line, inlined)).collect()
}

#[test]
fn without_debug_information_the_symbol_alone() {
    let built = Built::gcc(&["-g0"]);
    let names: Vec<_> =
        built.found(Search::default()).into_iter().map(|frames| frames[0].0.clone()).collect();
    assert_eq!(names[..2], ["shop::outer(int)", "shop::outer(int)"]);
    assert!(built.has_no_lines(Search::default()));
    assert_eq!(Names::new(Search::default()).frames(&built.id, 0).len(), 0);
    assert_eq!(Names::new(Search::default()).frames(&built.id, u64::MAX).len(), 0);
}

#[test]
fn split_information_that_is_missing_is_told() {
    let built = Built::gcc(&["-gdwarf-4", "-gsplit-dwarf"]);
    let file = fs::read_dir(built.folder.path()).unwrap().map(|e| e.unwrap().path());
    let dwo =
        file.into_iter().find(|path| path.extension().is_some_and(|e| e == "dwo")).expect("a .dwo");
    let other = built.path("elsewhere.dwo");
    fs::rename(&dwo, &other).unwrap();
    let mut names = Names::new(Search::default());
    let at = built.calls[0];
    let told = names.frames(&built.id, at);
    assert!(
        told.last().is_some_and(|f| f.function.starts_with("shop::") && f.line.is_some()),
        "{told:?}"
    );
    let troubles: Vec<_> = names.troubles().map(str::to_owned).collect();
    assert!(
        troubles.len() == 1 && troubles[0].contains(".dwo, which is not there"),
        "{troubles:?}"
    );
    // Another build's is no better than none.
    let second = Built::gcc(&["-gsplit-dwarf", "-DOTHER", "-O1"]);
    let theirs = fs::read_dir(second.folder.path()).unwrap().map(|e| e.unwrap().path());
    let theirs =
        theirs.into_iter().find(|path| path.extension().is_some_and(|e| e == "dwo")).unwrap();
    fs::copy(theirs, &dwo).unwrap();
    assert!(!built.is_told(Search::default()));
    fs::rename(&other, &dwo).unwrap();
    assert!(built.is_told(Search::default()));
    if has("dwp") {
        let package = built.path("libshop.so.dwp");
        run(Command::new("dwp").arg("-e").arg(&built.library).arg("-o").arg(&package));
        fs::remove_file(&dwo).unwrap();
        assert!(built.is_told(Search::default()));
    }
}

/// Leaves the library stripped, and gives its debug file.
fn strip(built: &Built) -> PathBuf {
    let debug = built.path("libshop.so.debug");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&built.library).arg(&debug));
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run(Command::new("objcopy").args(["--strip-all", &link]).arg(&built.library));
    debug
}

#[test]
fn debug_files_are_found_where_distributions_and_people_put_them() {
    let built = Built::gcc(&[]);
    let debug = strip(&built);
    let (kept, root) = (built.path("kept"), built.path("root"));
    fs::rename(&debug, &kept).unwrap();
    assert!(built.has_no_lines(Search::default()));
    let hex: String = built.id.build_id.iter().map(|b| format!("{b:02x}")).collect();
    let by_id = format!("{}/{}.debug", &hex[..2], &hex[2..]);
    let folder = built.folder.path().canonicalize().unwrap();
    let below = folder.strip_prefix("/").unwrap();
    for (place, search) in [
        (debug.clone(), Search::default()),
        (built.path(".debug/libshop.so.debug"), Search::default()),
        (root.join("usr/lib/debug").join(below).join("libshop.so.debug"), roots(&make(&root))),
        (root.join("usr/lib/debug/.build-id").join(&by_id), roots(&root)),
        (root.join(".build-id").join(&by_id), roots(&root)),
    ] {
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(&kept, &place).unwrap();
        assert!(built.is_told(search.clone()), "{}", place.display());
        fs::remove_file(&place).unwrap();
        assert!(!built.is_told(search), "{}", place.display());
    }
}

fn make(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    folder.to_owned()
}

#[test]
fn a_debug_file_without_a_build_id_must_have_the_checksum() {
    let built = Built::gcc(&["-Wl,--build-id=none"]);
    let debug = strip(&built);
    let search = || Search::default().since(SystemTime::now() + Duration::from_secs(60));
    assert!(built.is_told(search()));
    let mut bytes = fs::read(&debug).unwrap();
    // A byte that nothing reads.
    bytes.push(0);
    fs::write(&debug, &bytes).unwrap();
    assert!(built.has_no_lines(search()));
    // One with another build id is another file.
    let built = Built::gcc(&[]);
    let (debug, other) = (strip(&built), Built::gcc(&["-O1"]));
    fs::copy(strip(&other), debug).unwrap();
    assert!(built.has_no_lines(Search::default()));
}

#[test]
fn debug_files_that_share_their_strings() {
    if !has("dwz") {
        return;
    }
    let (one, two) = (Built::gcc(&["-gdwarf-4"]), Built::gcc(&["-gdwarf-4", "-O1"]));
    let (first, second) = (strip(&one), strip(&two));
    let shared = one.path("shared.debug");
    let mut dwz = Command::new("dwz");
    dwz.args(["-m", "shared.debug", "-M"]).arg(&shared).arg(&first).arg(&second);
    let output = dwz.current_dir(one.folder.path()).output().unwrap();
    if !output.status.success() || !shared.exists() {
        panic!("dwz: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(one.is_told(Search::default()));
    // Below a named directory by its build id.
    let notes = run(Command::new("readelf").arg("-n").arg(&shared));
    let hex = notes.split("Build ID: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let root = one.path("root");
    let place = root.join(format!("usr/lib/debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::rename(&shared, &place).unwrap();
    assert!(one.is_told(roots(&root)));
    let mut names = Names::new(Search::default());
    let _ = names.frames(&one.id, one.calls[0]);
    let troubles: Vec<_> = names.troubles().collect();
    assert!(
        troubles.iter().any(|t| t.contains("shares its debug information with")),
        "{troubles:?}"
    );
}

#[test]
fn symbols_that_are_packed_into_a_stripped_file() {
    if !has("xz") {
        return;
    }
    let built = Built::gcc(&["-g0"]);
    let mini = built.path("mini");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&built.library).arg(&mini));
    let hidden = "_ZN4shop5Shelf5stockEi";
    // Only exported are those that the loader needs.
    run(Command::new("xz").arg("-k").arg(&mini));
    let section = format!(".gnu_debugdata={}", built.path("mini.xz").display());
    let exported = built.path("exported.so");
    run(Command::new("objcopy")
        .args(["--strip-all", "--add-section", &section])
        .arg(&built.library)
        .arg(&exported));
    // What is exported must not be what tells.
    let mut bytes = fs::read(&exported).unwrap();
    let text = hidden.as_bytes();
    let at = bytes.windows(text.len()).position(|w| w == text).expect("the exported name");
    bytes[at..at + text.len()].fill(b'x');
    fs::write(&built.library, &bytes).unwrap();
    let names: Vec<_> = built.found(Search::default()).into_iter().flatten().map(|f| f.0).collect();
    assert!(names.iter().any(|name| name == "shop::Shelf::stock(int)"), "{names:?}");
    // Damaged, it is as good as not there.
    let at = bytes.windows(6).position(|w| w == b"\xfd7zXZ\0").expect("packed symbols");
    bytes[at + 40..at + 80].fill(0x5a);
    fs::write(&built.library, &bytes).unwrap();
    let names: Vec<_> = built.found(Search::default()).into_iter().flatten().map(|f| f.0).collect();
    assert!(names.iter().any(|name| name.starts_with("xxxx")), "{names:?}");
}
