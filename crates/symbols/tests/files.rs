//! Names from files that the system's compiler and linker make, whole, stripped, split and damaged.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use heaptape_symbols::{ModuleId, Names, Search};
use tempfile::TempDir;

/// Functions of each kind: with sizes, a label within one, without a size, an alias, and strange names.
const ASSEMBLY: &str = r#"
    .text
    .globl first
    .type first, @function
first: .skip 16, 0x90
inside: .skip 16, 0x90
    .size first, . - first
    .skip 32, 0x90
    .globl exported, __exported
    .type exported, @function
    .type __exported, @function
exported:
__exported: .skip 32, 0x90
    .size exported, . - exported
    .size __exported, . - __exported
    .type hidden, @function
hidden: .skip 32, 0x90
    .size hidden, . - hidden
    .globl STRANGE
    .type STRANGE, @function
STRANGE: .skip 16, 0x90
    .size STRANGE, . - STRANGE
    .globl unsized
unsized: .skip 16, 0x90
    .globl _ZN2ns4growILi3EEEvm
_ZN2ns4growILi3EEEvm: .skip 16, 0x90
    .section .fini,"ax"
    .globl last
last: .skip 16, 0x90
    .data
    .globl data
data: .skip 64
"#;

struct Built {
    folder: TempDir,
    library: PathBuf,
    /// Each symbol's address, as `nm` has it.
    at: HashMap<String, u64>,
}

impl Built {
    fn new(flags: &[&str]) -> Built {
        let folder = TempDir::new().unwrap();
        let source = folder.path().join("x.s");
        fs::write(&source, ASSEMBLY).unwrap();
        let library = folder.path().join("libx.so");
        let flags = flags.iter().copied().chain(["-nostdlib", "-Wl,-e,first"]);
        let mut cc = Command::new("cc");
        cc.args(flags).arg(&source).arg("-o").arg(&library);
        run(&mut cc);
        let at = addresses(&library);
        Built { folder, library, at }
    }

    fn id(&self) -> ModuleId {
        let notes = run(Command::new("readelf").arg("-n").arg(&self.library));
        let hex =
            notes.split("Build ID: ").nth(1).map_or("", |t| t.split_whitespace().next().unwrap());
        let build_id =
            (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap());
        ModuleId { path: self.library.to_str().unwrap().to_owned(), build_id: build_id.collect() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn addresses(library: &Path) -> HashMap<String, u64> {
    let lines = run(Command::new("nm").arg(library));
    let symbols = lines.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.nth(1)?.to_owned(), address))
    });
    symbols.collect()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn roots<const N: usize>(roots: [&Path; N]) -> Search {
    Search::new(roots.map(Path::to_owned).to_vec()).unwrap()
}

/// The function of each return address; `-` for none.
fn functions(names: &mut Names, id: &ModuleId, offsets: &[u64]) -> String {
    let name = |&at| names.of(id, at).map_or("-".to_owned(), |n| n.function.to_string());
    offsets.iter().map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_address_has_its_own_function() {
    for flags in [
        &["-shared", "-Wl,--build-id"][..],
        &["-pie", "-Wl,--build-id"],
        &["-no-pie", "-Wl,--build-id"],
    ] {
        let built = Built::new(flags);
        let at = |name: &str| built.at[name];
        let offsets = [
            0,
            at("first"),
            at("first") + 1,
            at("inside") + 1,
            at("first") + 32,
            at("first") + 33,
            at("exported") + 1,
            at("hidden") + 1,
            at("unsized") + 1,
            at("unsized") + 16,
            at("last") + 1,
            at("last") + 16,
            at("last") + 17,
            at("data") + 1,
            u64::MAX,
        ];
        let found = functions(&mut Names::new(Search::default()), &built.id(), &offsets);
        let right = "- - first first first - exported hidden unsized unsized last last - - -";
        assert_eq!(found, right, "{flags:?}");
        let grown =
            Names::new(Search::default()).of(&built.id(), at("_ZN2ns4growILi3EEEvm") + 5).unwrap();
        assert_eq!(&*grown.function, "ns::grow<3>(unsigned long)");
        assert_eq!(&*grown.symbol, "_ZN2ns4growILi3EEEvm");
    }
}

#[test]
fn a_stripped_library_names_what_it_exports_and_nothing_else() {
    let built = Built::new(&["-shared", "-Wl,--build-id"]);
    run(Command::new("strip").arg(&built.library));
    let at = |name: &str| built.at[name] + 1;
    let offsets = [at("first"), at("exported"), at("hidden"), at("unsized"), at("last")];
    let mut names = Names::new(Search::default());
    assert_eq!(functions(&mut names, &built.id(), &offsets), "first exported - - -");
}

#[test]
fn a_debug_file_names_all() {
    let built = Built::new(&["-shared", "-Wl,--build-id"]);
    let id = built.id();
    let hex: String = id.build_id.iter().map(|b| format!("{b:02x}")).collect();
    let hidden = [built.at["hidden"] + 1];
    for below in [".build-id", "usr/lib/debug/.build-id"] {
        let root = built.path(&below.replace('/', "_"));
        let folder = root.join(below).join(&hex[..2]);
        fs::create_dir_all(&folder).unwrap();
        let debug = folder.join(format!("{}.debug", &hex[2..]));
        run(Command::new("objcopy").arg("--only-keep-debug").arg(&built.library).arg(&debug));
        let stripped = built.path("stripped.so");
        run(Command::new("strip").arg("-o").arg(&stripped).arg(&built.library));
        let module = ModuleId { path: stripped.to_str().unwrap().to_owned(), ..id.clone() };
        let alone = functions(&mut Names::new(Search::default()), &module, &hidden);
        let mut names = Names::new(roots([&root]));
        assert_eq!(
            (alone.as_str(), functions(&mut names, &module, &hidden).as_str()),
            ("-", "hidden")
        );
    }
}

#[test]
fn another_build_gives_no_name() {
    let built = Built::new(&["-shared", "-Wl,--build-id"]);
    let (id, first) = (built.id(), [built.at["first"] + 1]);
    let ask = |id: &ModuleId| functions(&mut Names::new(Search::default()), id, &first);
    assert_eq!(ask(&id), "first");
    let mut other = id.clone();
    other.build_id[7] ^= 1;
    let shorter = ModuleId { build_id: id.build_id[..8].to_vec(), ..id.clone() };
    let none = ModuleId { build_id: Vec::new(), ..id.clone() };
    assert_eq!([ask(&other), ask(&shorter), ask(&none)], ["-", "-", "-"]);
    // Nor does it where it is said to be right.
    let root = Names::new(roots([Path::new("/")]));
    assert_eq!(functions(&mut { root }, &none, &first), "-");
}

#[test]
fn a_file_without_a_build_id_is_believed_where_it_is_said_to_be_right() {
    let built = Built::new(&["-shared", "-Wl,--build-id=none"]);
    let (id, first) = (built.id(), [built.at["first"] + 1]);
    assert!(id.build_id.is_empty());
    let ask = |search: Search, id: &ModuleId| functions(&mut Names::new(search), id, &first);
    let now = std::time::SystemTime::now();
    let minute = std::time::Duration::from_secs(60);
    assert_eq!(ask(Search::default(), &id), "-");
    assert_eq!(ask(Search::default().since(now + minute), &id), "first");
    assert_eq!(ask(Search::default().since(now - minute), &id), "-");
    assert_eq!(ask(roots([Path::new("/")]), &id), "first");
    let recorded = ModuleId { build_id: vec![1; 20], ..id.clone() };
    assert_eq!(ask(roots([Path::new("/")]), &recorded), "-");
}

#[test]
fn a_longer_build_id_is_known_by_its_beginning() {
    let long = "0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let built = Built::new(&["-shared", &format!("-Wl,--build-id={long}")]);
    let whole = built.id();
    assert_eq!(whole.build_id.len(), 32);
    let kept = ModuleId { build_id: whole.build_id[..20].to_vec(), ..whole };
    let first = [built.at["first"] + 1];
    assert_eq!(functions(&mut Names::new(Search::default()), &kept, &first), "first");
}

#[test]
fn the_files_of_another_machine() {
    let built = Built::new(&["-shared", "-Wl,--build-id"]);
    let (id, first) = (built.id(), [built.at["first"] + 1]);
    let ask = |root: &Path| functions(&mut Names::new(roots([root])), &id, &first);
    let (tree, heap) = (built.path("tree"), built.path("heap"));
    let at_path = tree.join(id.path.trim_start_matches('/'));
    fs::create_dir_all(at_path.parent().unwrap()).unwrap();
    fs::create_dir_all(&heap).unwrap();
    fs::copy(&built.library, &at_path).unwrap();
    fs::copy(&built.library, heap.join("libx.so")).unwrap();
    fs::remove_file(&built.library).unwrap();
    assert_eq!([ask(&tree), ask(&heap)], ["first", "first"]);
    assert_eq!(functions(&mut Names::new(Search::default()), &id, &first), "-");
}

#[test]
fn strange_names_are_handed_on() {
    let built = Built::new(&["-shared", "-Wl,--build-id"]);
    let (id, strange) = (built.id(), built.at["STRANGE"] + 1);
    replace(&built.library, b"\0STRANGE\0", b"\0a\x1b[2\n\xffb\0");
    let name = Names::new(Search::default()).of(&id, strange).unwrap();
    assert_eq!(&*name.function, "a\u{1b}[2\n\u{fffd}b");
    let long = "y".repeat(100_000);
    let source = built.path("x.s");
    fs::write(&source, ASSEMBLY.replace("STRANGE", &long)).unwrap();
    run(Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,--build-id"])
        .arg(&source)
        .arg("-o")
        .arg(&built.library));
    let strange = addresses(&built.library)[&long] + 1;
    let name = Names::new(Search::default()).of(&built.id(), strange).unwrap();
    assert_eq!(*name.function, *long);
}

fn replace(file: &Path, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(file).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|&i| bytes[i..].starts_with(from)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_damaged_file_gives_a_name_or_none() {
    let built = Built::new(&["-shared", "-Wl,--build-id", "-s"]);
    let whole = Built::new(&["-shared", "-Wl,--build-id"]);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for of in [built, whole] {
        let (id, bytes) = (of.id(), fs::read(&of.library).unwrap());
        let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        for round in 0..1_500 {
            let mut bad = bytes.clone();
            match round % 4 {
                0 => bad.truncate(next(bytes.len())),
                1 => bad[next(64)] = next(256) as u8,
                2 => {
                    // A header of a section gets a number that is too large.
                    let at = headers + 8 * next((bytes.len() - headers) / 8);
                    bad[at..at + 8].copy_from_slice(&(u64::MAX >> next(64)).to_le_bytes());
                }
                _ => (0..20).for_each(|_| bad[next(bytes.len())] = next(256) as u8),
            }
            fs::write(&of.library, &bad).unwrap();
            let mut names = Names::new(Search::default());
            for offset in [1, of.at.get("first").copied().unwrap_or(0x1000) + 1, 0x1040, u64::MAX] {
                let _ = names.of(&id, offset);
            }
        }
    }
}

#[test]
fn no_limit_of_a_header_is_believed() {
    let built = Built::new(&["-shared", "-Wl,--build-id"]);
    let (id, first) = (built.id(), [built.at["first"] + 1]);
    let file = fs::File::options().write(true).open(&built.library).unwrap();
    // A file with a hole is as large as it says, and takes no room.
    file.set_len(1 << 42).unwrap();
    let bytes = {
        use std::os::unix::fs::FileExt;
        let mut head = vec![0; 1 << 16];
        fs::File::open(&built.library).unwrap().read_exact_at(&mut head, 0).unwrap();
        head
    };
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    for section in 1..40 {
        use std::os::unix::fs::FileExt;
        let size = headers + section * 64 + 32;
        file.write_all_at(&(1u64 << 41).to_le_bytes(), size).unwrap();
        let _ = functions(&mut Names::new(Search::default()), &id, &first);
        let old = &bytes[size as usize..size as usize + 8];
        file.write_all_at(old, size).unwrap();
    }
    assert_eq!(functions(&mut Names::new(Search::default()), &id, &first), "first");
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("libx.so");
    run(Command::new("mkfifo").arg(&pipe));
    for path in [pipe.to_str().unwrap(), "/", "", "/dev/zero", "[vdso]", "/proc/self/mem"] {
        let id = ModuleId { path: path.to_owned(), build_id: vec![7; 20] };
        assert!(Names::new(roots([folder.path()])).of(&id, 5).is_none());
    }
}

/// A library is mapped where its addresses begin with 0; an executable that has a fixed place is not.
#[test]
fn an_address_of_a_mapped_file_is_found_by_how_far_it_lies_behind_its_start() {
    for (flags, base) in [(&["-shared"][..], 0), (&["-static", "-no-pie"], 0x40_0000)] {
        let built = Built::new(flags);
        let at = built.at["exported"] + 4;
        let mut names = Names::new(Search::default().since(std::time::SystemTime::now()));
        let (address, name) = names.mapped(&built.library, at - base).unwrap();
        assert_eq!(address, at);
        assert_eq!(name.unwrap().function.as_ref(), "exported");
        assert_eq!(names.mapped(&built.folder.path().join("x.s"), 4), None, "no ELF file");
    }
}
