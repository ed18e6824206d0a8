//! Call stacks: the same as a second unwinder takes of the same calls, whatever the code.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{
    fortran_program_with, library, program, program_with, rust_program, sources,
};
use harness::running::run;
use harness::tape::{assert_sound, info};
use harness::{has_stacks, record, scratch, skip};
use heaptape_tape::{Item, ProcessNumber, Site, SiteEnd, Tape};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::Command;

/// What a thread has called: the block that each call gave, and its stack.
type Calls<T> = Vec<(u64, T)>;

/// What the second unwinder has written: of each call that allocates the thread, the block, and the frames.
struct Second(BufReader<File>);

impl Second {
    /// That of the only program with this name.
    fn of(folder: &Path, name: &str) -> Second {
        let start = format!("second.{name}.");
        let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
        let of_name = |file: &fs::DirEntry| file.file_name().to_string_lossy().starts_with(&start);
        let found: Vec<_> = files.filter(of_name).collect();
        assert_eq!(found.len(), 1, "files of {name}");
        Second(BufReader::with_capacity(1 << 20, File::open(found[0].path()).expect("a file")))
    }

    fn word(&mut self) -> u64 {
        let mut word = [0; 8];
        self.0.read_exact(&mut word).expect("a word");
        u64::from_le_bytes(word)
    }
}

impl Iterator for Second {
    type Item = (u64, u64, Vec<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        const ADDRESS_BITS: u32 = 48;
        let word = self.word();
        let count = if word == 0 { return None } else { self.word() };
        let (thread, address) = (word >> ADDRESS_BITS, word & ((1 << ADDRESS_BITS) - 1));
        Some((thread, address, (0..count).map(|_| self.word()).collect()))
    }
}

/// The calls of each thread.
fn by_thread<N: Ord, T>(calls: impl Iterator<Item = (N, u64, T)>) -> Vec<Calls<T>> {
    let mut threads = BTreeMap::<N, Calls<T>>::new();
    for (thread, address, stack) in calls {
        threads.entry(thread).or_default().push((address, stack));
    }
    threads.into_values().collect()
}

/// Where both go on, are the frames the same? (Of deep stacks the one has more, and the other may.)
fn is_same(ours: &Site, other: &[u64]) -> bool {
    const CUT: u64 = 128;
    let both = ours.frames.len().min(other.len());
    let is_cut = ours.end == SiteEnd::Depth || other.len() as u64 == CUT;
    ours.frames[..both] == other[..both] && (is_cut || ours.frames.len() == other.len())
}

/// Records a command with both, and compares all stacks of the program `name`; how many that were.
fn compare(name: &str, command: &[&OsStr], environment: &[(&str, &str)]) -> u64 {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let mut recording = record(&file, &["--stacks"], command);
    recording.env("LD_PRELOAD", library("second")).envs(environment.iter().copied());
    // (Some leave a log where they stand.)
    recording.current_dir(folder.path());
    recording.env("SECOND_OUT", folder.path().join("second")).env("SECOND_PROGRAM", name);
    let outcome = run(&mut recording);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    assert_sound(&info(&file));
    let tape = Tape::open(&file).expect("a tape");
    let is_its = |line: &[String]| {
        line.first().is_some_and(|path| Path::new(path).file_name() == Some(OsStr::new(name)))
    };
    let processes = &tape.summary().processes;
    let process = processes.iter().rfind(|process| is_its(&process.command)).expect("a process");
    same_stacks(&tape, process.number, Second::of(folder.path(), name))
}

/// Compares what two have of the same calls of each thread; how many that were.
fn same_stacks(tape: &Tape, process: ProcessNumber, second: Second) -> u64 {
    let sites = tape.sites(process).expect("sites");
    let calls = tape.events(process, 0..u64::MAX).expect("events").filter_map(|item| {
        let Item::Event(call) = item.expect("an event") else { return None };
        let event = call.event;
        let is_made = !event.call.is_release() && event.address != 0;
        is_made.then_some((event.thread, event.address, call.site))
    });
    let (threads, second) = (by_thread(calls), by_thread(second));
    let mut same = 0;
    for other in &second {
        // Two need not number the threads alike.
        let its = threads.iter().find_map(|calls| Some((calls, begin(calls, other)?)));
        let (calls, (skipped, first)) = its.expect("calls that both have");
        for ((address, site), (twin, frames)) in calls[first..].iter().zip(&other[skipped..]) {
            assert_eq!(address, twin, "the same calls");
            let site = site.and_then(|number| sites.get(number)).map(native);
            let site = site.unwrap_or_else(|| panic!("no stack of {address:#x}"));
            assert!(is_same(&site, frames), "{address:#x}: {site:x?}\nand {frames:x?}");
            same += 1;
        }
    }
    same
}

/// A site without its lines of interpreted code, which count as frames where it is cut.
fn native(site: Site) -> Site {
    assert!(site.end != SiteEnd::Depth || site.frames.len() == 64, "cut too early: {site:x?}");
    let frames = site.frames.iter().copied().filter(|frame| frame >> 63 == 0).collect();
    Site { frames, ..site }
}

/// Where in each the calls begin that both have: the one or the other may begin a little earlier.
fn begin<T>(calls: &Calls<T>, second: &Calls<Vec<u64>>) -> Option<(usize, usize)> {
    const ALIKE: usize = 20;
    let alike = ALIKE.min(second.len().div_ceil(2));
    (0..ALIKE).find_map(|skipped| {
        let wanted = second.get(skipped..skipped + alike)?;
        let is_there = |calls: &[(u64, T)]| calls.iter().zip(wanted).all(|(a, b)| a.0 == b.0);
        calls.windows(alike).position(is_there).map(|first| (skipped, first))
    })
}

#[test]
fn stacks_of_frames_of_all_kinds_are_as_a_second_unwinder_takes_them() {
    if !has_stacks() {
        return;
    }
    let program = program("winding");
    let compared = compare("winding", &[program.as_os_str()], &[]);
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn stacks_of_threads_are_as_a_second_unwinder_takes_them() {
    if !has_stacks() {
        return;
    }
    let program = program("threads8");
    let compared = compare("threads8", &[program.as_os_str()], &[]);
    assert!(compared > 10_000, "{compared}");
}

/// What `operator new` was called by, and what libraries in C++ call in turn.
#[test]
fn stacks_of_cpp_are_as_a_second_unwinder_takes_them() {
    if !has_stacks() {
        return;
    }
    let program = program("containers");
    let compared = compare("containers", &[program.as_os_str()], &[]);
    assert!(compared > 10_000, "{compared}");
}

/// What a stripped program keeps is what unwinds it; the frame pointer is none where it is a register like others; and one
/// frame stands for many functions where they are inlined.
#[test]
fn stacks_of_cpp_however_it_is_compiled_are_as_a_second_unwinder_takes_them() {
    for flags in [
        &["-O2", "-s"][..],
        &["-O2", "-fomit-frame-pointer", "-momit-leaf-frame-pointer"],
        &["-O3", "-finline-limit=100000", "-flto"],
        &["-O0", "-fno-omit-frame-pointer"],
        &["-Os", "-no-pie", "-Wl,-z,norelro", "-fcf-protection=none"],
    ] {
        let program = program_with("containers", flags);
        let compared = compare("containers", &[program.as_os_str()], &[]);
        assert!(compared > 10_000, "{flags:?}: {compared}");
    }
}

#[test]
fn stacks_of_fortran_are_as_a_second_unwinder_takes_them() {
    for flags in [&["-O0", "-g"][..], &["-O3", "-s"]] {
        let Some(program) = fortran_program_with("orchard", flags) else {
            return skip("there is no gfortran");
        };
        let compared = compare("orchard", &[program.as_os_str()], &[]);
        assert!(compared > 10_000, "{flags:?}: {compared}");
    }
}

#[test]
fn stacks_of_fibres_are_as_a_second_unwinder_takes_them() {
    let program = program("fibres");
    let compared = compare("fibres", &[program.as_os_str()], &[]);
    assert!(compared > 10_000, "{compared}");
}

/// Up to the first frame of code that is made while it runs, where both end.
#[test]
fn stacks_of_node_are_as_a_second_unwinder_takes_them() {
    if Command::new("node").arg("--version").output().is_err() {
        return skip("there is no node");
    }
    let script = "let kept = []; for (let i = 0; i < 6000; i++) { \
                  const b = Buffer.allocUnsafeSlow(2000 + i % 7); b.fill(i); \
                  kept[i % 100] = new Uint8Array(b.subarray(0, 1000)).slice(); \
                  JSON.parse(JSON.stringify({ i, at: new Date(i).toISOString(), n: new Intl.NumberFormat('en').format(i) })) }";
    let compared = compare("node", &["node", "-e", script].map(OsStr::new), &[]);
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn stacks_of_java_are_as_a_second_unwinder_takes_them() {
    if Command::new("java").arg("-version").output().is_err() {
        return skip("there is no java");
    }
    let folder = scratch();
    let source = folder.path().join("Chew.java");
    let text = "public class Chew { public static void main(String[] a) throws Exception { long n = 0; \
                for (int i = 0; i < 3000; i++) { var b = java.nio.ByteBuffer.allocateDirect(100 + i % 9); \
                var d = new java.util.zip.Deflater(); d.setInput(new byte[50]); d.finish(); n += d.deflate(new byte[99]); d.end(); } \
                System.out.println(n); } }";
    fs::write(&source, text).expect("a source");
    let command = ["java", "-Xmx256m", "-XX:+UseSerialGC"].map(OsStr::new);
    let compared = compare("java", &[&command[..], &[source.as_os_str()]].concat(), &[]);
    assert!(compared > 10_000, "{compared}");
}

/// A program ends by it, as a rule: where it happened matters more than of any other call.
#[test]
fn an_operator_new_that_fails_has_its_stack() {
    if !has_stacks() {
        return;
    }
    let (folder, program) = (scratch(), program("exceptions"));
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &["--stacks"], &[program.as_os_str()]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let tape = Tape::open(&file).expect("a tape");
    let process = tape.summary().processes[0].number;
    let sites = tape.sites(process).expect("sites");
    let failed = tape.events(process, 0..u64::MAX).expect("events").filter_map(|item| {
        let Item::Event(call) = item.expect("an event") else { return None };
        call.event.failed().then_some(call)
    });
    let failed: Vec<_> = failed.collect();
    assert_eq!(failed.len(), 1);
    let site = failed[0].site.and_then(|number| sites.get(number)).expect("a stack");
    assert_eq!(site.frames[0], failed[0].event.caller);
    assert!(site.frames.len() >= 4 && site.end == SiteEnd::Outermost, "{site:x?}");
}

#[test]
fn stacks_of_python_are_as_a_second_unwinder_takes_them() {
    if !has_stacks() {
        return;
    }
    let script = "import json, re, threading\n\
                  def build(n): return json.loads(json.dumps({str(i): [b'x' * 600] * 0 + [i] * 99 for i in range(n)}))\n\
                  threads = [threading.Thread(target=build, args=(2000,)) for _ in range(3)]\n\
                  [t.start() for t in threads]; build(3000); [t.join() for t in threads]";
    let compared = compare("python3", &["/usr/bin/python3", "-c", script].map(OsStr::new), &[]);
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn stacks_of_rust_are_as_a_second_unwinder_takes_them() {
    if !has_stacks() {
        return;
    }
    let program = rust_program("branching");
    let name = program.file_name().expect("a name").to_string_lossy().into_owned();
    let compared = compare(&name, &[program.as_os_str()], &[]);
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn stacks_of_perl_are_as_a_second_unwinder_takes_them() {
    if !has_stacks() {
        return;
    }
    let script = "my %h; for (1..5000) { $h{$_} = 'x' x ($_ % 100); push @{$l[$_ % 7]}, sprintf('%d', $_) } \
                  print join(',', map { $_ * 2 } sort keys %h)";
    let compared = compare("perl", &["perl", "-e", script].map(OsStr::new), &[]);
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn stacks_of_a_compiler_are_as_a_second_unwinder_takes_them() {
    if !has_stacks() {
        return;
    }
    let folder = scratch();
    let (source, object) = (sources().join("exceptions.cpp"), folder.path().join("x.o"));
    let command = [
        OsStr::new("g++"),
        OsStr::new("-O1"),
        OsStr::new("-c"),
        source.as_os_str(),
        OsStr::new("-o"),
        object.as_os_str(),
    ];
    let compared = compare("cc1plus", &command, &[]);
    assert!(compared > 10_000, "{compared}");
}

/// A jump out of the midst of a call leaves a place for stacks claimed, of which there is no end of free ones.
#[test]
fn threads_that_leave_calls_by_jumps_have_stacks_ever_after() {
    if !has_stacks() {
        return;
    }
    let (folder, program) = (scratch(), program("leaps"));
    let file = folder.path().join("x.tape");
    let mut recording = record(&file, &["--stacks"], &[program.as_os_str()]);
    let outcome = run(recording.env("LD_PRELOAD", library("bump")));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let tape = Tape::open(&file).expect("a tape");
    let process = tape.summary().processes[0].number;
    let made = tape.events(process, 0..u64::MAX).expect("events").filter_map(|item| {
        let Item::Event(call) = item.expect("an event") else { return None };
        [16, 777].contains(&call.event.size).then_some(call.site.is_some())
    });
    let made: Vec<bool> = made.collect();
    assert!(made.len() > 10_000, "{}", made.len());
    assert_eq!(made.iter().filter(|has_stack| !**has_stack).count(), 0, "of {}", made.len());
}

#[test]
fn frames_of_the_library_itself_are_in_no_stack() {
    if !has_stacks() {
        return;
    }
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let command = [program("threads8").into_os_string()];
    let command: Vec<&OsStr> = command.iter().map(AsRef::as_ref).collect();
    assert_eq!(run(&mut record(&file, &["--stacks"], &command)).code(), 0);
    let tape = Tape::open(&file).expect("a tape");
    for process in &tape.summary().processes {
        let mut ours = None;
        for mark in tape.marks(process.number).expect("marks") {
            if let heaptape_tape::Mark::Note { note, .. } = mark.expect("a mark")
                && note.kind == heaptape_tape::NoteKind::Module
                && String::from_utf8_lossy(&note.text).contains("libheaptape")
            {
                ours = Some(note.args[1]..note.args[2]);
            }
        }
        let ours = ours.expect("the library");
        let sites = tape.sites(process.number).expect("sites");
        assert!(sites.len() > 5);
        for (number, site) in sites.iter() {
            assert!(site.frames.iter().all(|frame| !ours.contains(frame)), "{number:?} {site:x?}");
        }
    }
}
