//! Debug information that is damaged, or made to do harm: names or none, in bounded time and memory.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use heaptape_symbols::{ModuleId, Names, Search};
use tempfile::TempDir;

const SOURCE: &str = r#"extern "C" void mark(int);
namespace shop {
template <int N> __attribute__((always_inline)) inline void inner(int n) { mark(n + N); inner<N - 1>(n); }
template <> __attribute__((always_inline)) inline void inner<0>(int n) { mark(n); }
struct Shelf { int n; void stock(int m); };
void Shelf::stock(int m) { inner<8>(m + n); auto f = [&](int k) { mark(k); }; f(1); }
}
"#;

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn build(folder: &Path, flags: &[&str]) -> (PathBuf, ModuleId) {
    let (source, library) = (folder.join("x.cpp"), folder.join("libx.so"));
    fs::write(&source, SOURCE).unwrap();
    let mut cc = Command::new("c++");
    cc.current_dir(folder).args(["-g", "-O2", "-fPIC", "-shared", "-nostdlib", "-Wl,--build-id"]);
    run(cc.args(flags).arg("-o").arg(&library).arg(&source));
    let notes = run(Command::new("readelf").arg("-n").arg(&library));
    let hex = notes.split("Build ID: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    let build_id = (0..hex.len() / 2).map(byte).collect();
    let id = ModuleId { path: library.to_str().unwrap().to_owned(), build_id };
    (library, id)
}

/// Where each debug section lies in the file.
fn debug_sections(library: &Path) -> Vec<(usize, usize)> {
    let text = run(Command::new("readelf").args(["-S", "-W"]).arg(library));
    let lines = text.lines().filter(|line| line.contains(" .debug_"));
    let number = |word: &str| usize::from_str_radix(word, 16).unwrap();
    let place = |line: &str| {
        let words: Vec<_> = line.split(']').nth(1).unwrap().split_whitespace().collect();
        (number(words[3]), number(words[4]))
    };
    lines.map(place).collect()
}

fn ask(id: &ModuleId) {
    let mut names = Names::new(Search::default());
    for offset in (0x1000..0x1200).step_by(7).chain([1, u64::MAX]) {
        for frame in names.frames(id, offset).iter() {
            assert!(frame.function.len() < 1 << 20);
        }
    }
}

#[test]
fn any_byte_of_debug_information_may_be_wrong() {
    for flags in [
        &["-gdwarf-5"][..],
        &["-gdwarf-4"],
        &["-gz=zlib"],
        &["-gdwarf-5", "-gsplit-dwarf"],
        &["-gdwarf-4", "-fdebug-types-section"],
    ] {
        let folder = TempDir::new().unwrap();
        let (library, id) = build(folder.path(), flags);
        let (bytes, sections) = (fs::read(&library).unwrap(), debug_sections(&library));
        assert!(!sections.is_empty());
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for round in 0..400 {
            let mut bad = bytes.clone();
            for _ in 0..=random.next(8) {
                let (start, size) = sections[random.next(sections.len())];
                let at = start + random.next(size);
                match round % 4 {
                    0 => bad[at] ^= 1 << random.next(8),
                    1 => bad[at] = [0, 0x7f, 0x80, 0xff][random.next(4)],
                    2 => bad[at..(at + 8).min(start + size)].fill(0xff),
                    _ => {
                        // A piece of the section again, elsewhere.
                        let from = start + random.next(size);
                        let length = random.next(64).min(start + size - at.max(from));
                        bad.copy_within(from..from + length, at);
                    }
                }
            }
            fs::write(&library, &bad).unwrap();
            ask(&id);
        }
    }
}

/// An assembled file with only the sections that are given, and code to ask for.
fn assembled(folder: &Path, sections: &str) -> ModuleId {
    let (source, library) = (folder.join("x.s"), folder.join("libx.so"));
    let code = ".text\n.globl f\n.type f, @function\nf: .skip 0x1000, 0x90\n.size f, . - f\n";
    fs::write(&source, format!("{code}{sections}")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-Wl,--build-id=0x0102030405060708", "-o"]);
    run(cc.arg(&library).arg(&source));
    let path = library.to_str().unwrap().to_owned();
    ModuleId { path, build_id: vec![1, 2, 3, 4, 5, 6, 7, 8] }
}

/// A unit of DWARF 4 whose first entry covers all code, and then `entries`.
fn unit(entries: &str) -> String {
    format!(
        ".section .debug_info\n.long 2f - 1f\n1: .short 4\n.long 0\n.byte 8\n\
         .uleb128 1\n.quad f\n.quad 0x1000\n{entries}\n.byte 0\n2:\n"
    )
}

const ABBREVIATIONS: &str = ".section .debug_abbrev\n\
    .uleb128 1, 0x11\n.byte 1\n.uleb128 0x11, 1, 0x12, 7, 0, 0\n\
    .uleb128 2, 0x2e\n.byte 1\n.uleb128 0x03, 8, 0x11, 1, 0x12, 7, 0, 0\n\
    .uleb128 3, 0x1d\n.byte 1\n.uleb128 0x11, 1, 0x12, 7, 0, 0\n\
    .uleb128 4, 0x39\n.byte 1\n.uleb128 0x03, 8, 0, 0\n";

#[test]
fn functions_in_one_another_without_end_take_no_stack() {
    let folder = TempDir::new().unwrap();
    let inner = ".rept 200000\n.uleb128 3\n.quad f\n.quad 0x1000\n.endr\n";
    let function = format!(".uleb128 2\n.string \"deep\"\n.quad f\n.quad 0x1000\n{inner}");
    let sections = format!("{ABBREVIATIONS}.byte 0\n{}", unit(&function));
    let id = assembled(folder.path(), &sections);
    let frames = Names::new(Search::default()).frames(&id, 0x1010);
    assert!(
        frames.len() <= 128 && frames.last().is_some_and(|f| &*f.function == "f"),
        "{}",
        frames.len()
    );
}

#[test]
fn namespaces_in_one_another_without_end_make_no_endless_name() {
    let folder = TempDir::new().unwrap();
    let long = "n".repeat(200);
    let around = format!(".rept 5000\n.uleb128 4\n.string \"{long}\"\n.endr\n");
    let function = format!("{around}.uleb128 2\n.string \"deep\"\n.quad f\n.quad 0x1000\n");
    let sections = format!("{ABBREVIATIONS}.byte 0\n{}", unit(&function));
    let id = assembled(folder.path(), &sections);
    let frames = Names::new(Search::default()).frames(&id, 0x1010);
    assert!(frames.iter().all(|frame| frame.function.len() < 8192));
    assert!(frames.last().is_some_and(|frame| frame.function.ends_with("deep")), "{frames:?}");
}

#[test]
fn units_that_all_share_one_long_list_of_lines_end() {
    let folder = TempDir::new().unwrap();
    // Each unit covers all code, by lines alone.
    let abbreviations =
        ".section .debug_abbrev\n.uleb128 1, 0x11\n.byte 0\n.uleb128 0x10, 0x17, 0, 0\n.byte 0\n";
    let info = ".section .debug_info\n.rept 20000\n.long 12\n.short 4\n.long 0\n.byte 8\n.uleb128 1\n.long 0\n.endr\n";
    let lines = ".section .debug_line\n.long 2f - 1f\n1: .short 4\n.long 4f - 3f\n3: .byte 1, 1, 1, 0xfb, 14, 13\n\
        .byte 0,1,1,1,1,0,0,0,1,0,0,1\n.byte 0\n.byte 0\n4: .byte 0, 9, 2\n.quad f\n.rept 200000\n.byte 0x21\n.endr\n\
        .byte 0, 1, 1\n2:\n";
    let id = assembled(folder.path(), &format!("{abbreviations}{info}{lines}"));
    let frames = Names::new(Search::default()).frames(&id, 0x1010);
    assert!(frames.len() <= 1, "{frames:?}");
}

#[test]
fn an_entry_of_endless_attributes_is_not_read() {
    let folder = TempDir::new().unwrap();
    // Attributes that take no room in the entry.
    let abbreviations = ".section .debug_abbrev\n.uleb128 1, 0x11\n.byte 1\n.uleb128 0x11, 1, 0x12, 7, 0, 0\n\
        .uleb128 2, 0x34\n.byte 0\n.rept 500000\n.uleb128 0x3f, 0x19\n.endr\n.uleb128 0, 0\n.byte 0\n";
    let entries = ".rept 500000\n.uleb128 2\n.endr\n";
    let id = assembled(folder.path(), &format!("{abbreviations}{}", unit(entries)));
    let frames = Names::new(Search::default()).frames(&id, 0x1010);
    assert!(frames.len() == 1 && &*frames[0].function == "f" && frames[0].line.is_none());
}

#[test]
fn what_unpacks_to_more_than_its_size_is_not_unpacked() {
    let folder = TempDir::new().unwrap();
    // 64 MiB of nothing, packed, for which the header says a thousand bytes, and an endless number.
    let (library, id) = build(folder.path(), &["-gz=zlib"]);
    let bytes = fs::read(&library).unwrap();
    for size in [1_000u64, 1 << 40, u64::MAX] {
        let mut bad = bytes.clone();
        for (start, _) in debug_sections(&library) {
            if bad[start..].starts_with(&[1, 0, 0, 0]) {
                bad[start + 8..start + 16].copy_from_slice(&size.to_le_bytes());
            }
        }
        fs::write(&library, &bad).unwrap();
        ask(&id);
        fs::write(&library, &bytes).unwrap();
    }
}

/// Read for each unit, the list would take more reads than there are for the whole file.
#[test]
fn a_long_list_of_attributes_that_units_share_is_read_once() {
    let folder = TempDir::new().unwrap();
    let more = "
        .set kind, 5\n.rept 5000\n.uleb128 kind, 0x34\n.byte 0\n.uleb128 0x3f, 0x19, 0, 0\n.set kind, kind + 1\n.endr\n";
    let function = ".uleb128 2\n.string \"told\"\n.quad f\n.quad 0x1000\n.byte 0\n.byte 0\n";
    let empty = ".section .debug_info\n.rept 20000\n.long 24\n.short 4\n.long 0\n.byte 8\n\
        .uleb128 1\n.quad 1\n.quad 1\n.endr\n";
    let sections = format!("{ABBREVIATIONS}{more}.byte 0\n{}{empty}", unit(function));
    let id = assembled(folder.path(), &sections);
    let frames = Names::new(Search::default()).frames(&id, 0x1010);
    assert!(frames.last().is_some_and(|frame| &*frame.function == "told"), "{frames:?}");
}

/// Each unit's list begins a little later in one that is long, and would be kept as long as that.
#[test]
fn lists_of_attributes_that_overlap_take_no_more_memory_than_their_length_tells() {
    let folder = TempDir::new().unwrap();
    let kinds = ".section .debug_abbrev\n.set kind, 1\n.rept 100000\n.uleb128 kind\n.uleb128 0x11\n.byte 0\n\
        .uleb128 0x11, 1, 0, 0\n.set kind, kind + 1\n.endr\n.byte 0\n";
    let units = ".section .debug_info\n.set at, 0\n.rept 5000\n.long 16\n.short 4\n.long at\n.byte 8\n\
        .uleb128 1\n.quad f\n.set at, at + 7\n.endr\n";
    let id = assembled(folder.path(), &format!("{kinds}{units}"));
    let frames = Names::new(Search::default()).frames(&id, 0x1010);
    assert!(frames.last().is_none_or(|frame| &*frame.function == "f"), "{frames:?}");
    assert!(most_memory() < 2 << 20, "{} KiB", most_memory());
}

/// The most memory that these tests have taken, in KiB.
fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    most.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Each of the namespaces has a name of some thousand bytes in all.
#[test]
fn namespaces_side_by_side_in_a_long_one_take_little_memory() {
    let folder = TempDir::new().unwrap();
    let long = "n".repeat(4000);
    let inner = ".rept 1000000\n.uleb128 4\n.string \"x\"\n.byte 0\n.endr\n";
    let function = ".uleb128 2\n.string \"told\"\n.quad f\n.quad 0x1000\n.byte 0\n";
    let entries = format!(".uleb128 4\n.string \"{long}\"\n{function}{inner}.byte 0\n");
    let id = assembled(folder.path(), &format!("{ABBREVIATIONS}.byte 0\n{}", unit(&entries)));
    let frames = Names::new(Search::default()).frames(&id, 0x1010);
    assert!(frames.last().is_some_and(|frame| frame.function.ends_with("n::told")), "{frames:?}");
    assert!(most_memory() < 2 << 20, "{} KiB", most_memory());
}
