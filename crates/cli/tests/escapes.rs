//! Ways out of a limit, each tried: what comes of it with `limit` alone, with a control group behind it (`--strict`), and
//! where what is resident is held to the limit. docs/guide.md has the table.
#![forbid(unsafe_code)]

mod harness;

use harness::allocators::allocator;
use harness::compile::{library, mpi_program, program, static_program};
use harness::limited::{document, ground, limited, without_groups};
use harness::running::{Outcome, Running, run, state, until, until_file_has};
use harness::{LIMIT, may_mount, root, scratch, skip};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// What a job may have.
const MAY: u64 = 32;
/// What is taken by most ways, in MiB.
const MUCH: u64 = 96;
/// What tests/programs/roomy.c has, in MiB.
const DATA: u64 = 40;
/// More than a group with that limit is ever let have: of what shows in no other way than by its end.
const TOO_MUCH: u64 = 400;
/// How long a program stays with what it has, in milliseconds: long enough for two looks, and for many on a busy machine.
const STAYS: [u32; 2] = [2000, 12_000];

/// A way out.
struct Way {
    program: &'static str,
    name: &'static str,
    mib: u64,
    /// The verdicts that `limit` alone may end with.
    alone: &'static [&'static str],
    /// The same with `--strict` and a group.
    strict: &'static [&'static str],
}

/// Who holds the job to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Alone,
    ByGroup,
    ByResident,
}

impl Held {
    fn words(self) -> &'static [&'static str] {
        match self {
            Held::Alone => &[],
            Held::ByGroup => &["--strict"],
            Held::ByResident => &["--strict", "--basis", "resident"],
        }
    }
}

/// Whether a job can have a group here; says so where it can't.
fn has_ground() -> bool {
    static GROUND: OnceLock<bool> = OnceLock::new();
    *GROUND.get_or_init(|| ground().is_some())
}

/// A number of milliseconds that no other run of a program has.
fn once(milliseconds: u32) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let unique = std::process::id() % 97 * 10 + COUNT.fetch_add(1, Ordering::Relaxed) % 10;
    (milliseconds + unique).to_string()
}

/// How many processes run a program with these words.
fn running(program: &Path, words: &[&str]) -> usize {
    let program = program.to_string_lossy();
    let lines = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = lines.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    let is_it = |line: &String| {
        let all: Vec<&str> = line.split('\0').collect();
        all.contains(&&*program) && words.iter().all(|word| all.contains(word))
    };
    // Heaptape has them among its own words.
    lines.filter(is_it).filter(|line| !line.contains("heaptape\0limit")).count()
}

/// What a program says that it has got, in MiB; the sum, where several say it.
fn held(outcome: &Outcome) -> u64 {
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    text.lines().filter_map(|line| line.strip_prefix("held ")?.parse::<u64>().ok()).sum()
}

/// Runs a program that tries to get away; none where its way does not exist here.
fn tried(way: &Way, by: Held, stay: u32) -> Option<(Outcome, Value)> {
    let (folder, program) = (scratch(), program(way.program));
    let (mib, stay) = (way.mib.to_string(), once(stay));
    let mut words = vec![way.name, &mib, &stay];
    let plug_in = (way.name == "plug-in").then(|| library("roomy"));
    words.extend(plug_in.iter().filter_map(|path| path.to_str()));
    let limit = (MAY * MIB).to_string();
    words.extend((way.name == "words").then_some(limit.as_str()));
    let outcome = run(&mut limited(folder.path(), MAY * MIB, by.words(), &program, &words));
    let document = document(folder.path());
    assert_eq!(running(&program, &words), 0, "{} {by:?}: some are left", way.name);
    if let Some(directory) = document["cgroup"]["directory"].as_str() {
        assert!(!Path::new(directory).exists(), "{directory} is left");
    }
    let is_there = document["exit"]["code"] != 9 || document["verdict"] != "within";
    if !is_there {
        skip(&format!("there is no way {} here", way.name));
    }
    is_there.then_some((outcome, document))
}

/// Asserts what comes of a way.
fn assert_ends(way: &Way, by: Held, verdicts: &[&str]) {
    let is_one = |document: &Value| verdicts.iter().any(|&verdict| document["verdict"] == verdict);
    let Some(mut found) = tried(way, by, STAYS[0]) else { return };
    if !is_one(&found.1) && found.1["verdict"] == "within" {
        // On a machine that is so busy that there were no two looks.
        let Some(again) = tried(way, by, STAYS[1]) else { return };
        found = again;
    }
    let (outcome, document) = found;
    assert!(is_one(&document), "{} {by:?}: {document}", way.name);
    let verdict = document["verdict"].as_str().expect("a word");
    match by {
        Held::Alone => assert_eq!(i64::from(outcome.code()), own_status(&document), "{document}"),
        _ => assert_eq!(outcome.code(), if verdict == "within" { 0 } else { 3 }, "{document}"),
    }
    if verdict == "refused" && way.name != "plug-in" {
        assert!(held(&outcome) <= MAY, "{} {by:?} has got {}", way.name, held(&outcome));
    }
    if verdict == "within" {
        assert_eq!(held(&outcome), way.mib, "{} {by:?}: nothing was tried", way.name);
    }
}

/// How the command itself ended, as a shell has it.
fn own_status(document: &Value) -> i64 {
    let exit = &document["exit"];
    exit["code"].as_i64().unwrap_or_else(|| 128 + exit["signal"].as_i64().unwrap_or(-1))
}

fn check(way: &Way) {
    assert_ends(way, Held::Alone, way.alone);
    if !has_ground() {
        return;
    }
    assert_ends(way, Held::ByGroup, way.strict);
    // Whatever it is, the kernel has it in its books: but a file on a disk, and what nobody holds.
    let is_memory = way.strict != ["within"] && way.program != "forger";
    if is_memory {
        assert_ends(way, Held::ByResident, &["killed"]);
    }
}

/// A test for each way: its name, the program, its word, how many MiB, and the verdicts.
macro_rules! ways {
    ($($test:ident: $program:literal $name:literal $mib:ident, $alone:expr, $strict:expr;)*) => {
        $(#[test]
        fn $test() {
            check(&Way { program: $program, name: $name, mib: $mib, alone: &$alone, strict: &$strict });
        })*
    };
}

ways! {
    blocks: "bypass" "blocks" MUCH, ["refused"], ["refused"];
    mappings: "bypass" "mapping" MUCH, ["refused"], ["refused"];
    the_break: "bypass" "sbrk" MUCH, ["refused"], ["refused"];
    mappings_by_system_call: "bypass" "raw-mapping" MUCH, ["unaccounted"], ["killed"];
    shared_mappings_by_system_call: "bypass" "raw-sharing" MUCH, ["unaccounted"], ["killed"];
    the_break_by_system_call: "bypass" "raw-brk" MUCH, ["unaccounted"], ["killed"];
    segments_by_system_call: "bypass" "raw-segment" MUCH, ["unaccounted"], ["killed"];
    a_mapping_that_grows_by_system_call: "bypass" "growth" MUCH, ["unaccounted"], ["killed"];
    reservations: "bypass" "reservation" MUCH, ["unaccounted"], ["killed"];
    transparent_huge_pages: "bypass" "huge-pages" MUCH, ["unaccounted"], ["killed"];
    copies_of_a_files_pages: "bypass" "copies" MUCH, ["unaccounted"], ["killed"];
    libcs_own_malloc: "bypass" "libcs-own" MUCH, ["unaccounted"], ["killed"];
    libcs_own_malloc_in_the_heap: "bypass" "libcs-own-small" TOO_MUCH, ["within"], ["killed"];
    another_libc: "bypass" "another-libc" MUCH, ["uncovered"], ["killed"];
    the_stack: "bypass" "stack" MUCH, ["unaccounted"], ["killed"];
    a_stack_for_signals: "bypass" "signal-stack" MUCH, ["unaccounted"], ["killed"];
    a_stack_of_a_context: "bypass" "context" MUCH, ["unaccounted"], ["killed"];
    data_of_a_plug_in: "bypass" "plug-in" DATA, ["refused"], ["killed", "refused"];
    what_is_gone_before_a_look: "bypass" "haste" TOO_MUCH, ["within"], ["killed"];
    files_in_memory: "elsewhere" "tmpfs" MUCH, ["within"], ["killed", "unaccounted"];
    files_in_memory_that_are_mapped: "elsewhere" "mapped-tmpfs" MUCH, ["refused"], ["refused"];
    files_on_disk_that_are_mapped: "elsewhere" "mapped-file" MUCH, ["within"], ["within"];
    a_memfd: "elsewhere" "memfd" MUCH, ["within"], ["killed", "unaccounted"];
    a_memfd_that_is_passed: "elsewhere" "passed" MUCH, ["within"], ["killed", "unaccounted"];
    a_memfd_that_is_passed_and_mapped: "elsewhere" "passed-mapped" MUCH, ["refused"], ["refused"];
    pipes: "elsewhere" "pipes" TOO_MUCH, ["within"], ["killed"];
    pages_given_to_pipes: "elsewhere" "given-pages" TOO_MUCH, ["within"], ["killed"];
    sockets: "elsewhere" "sockets" TOO_MUCH, ["within"], ["killed"];
    buffers_of_rings: "elsewhere" "rings" TOO_MUCH, ["within"], ["killed"];
    a_cleared_environment: "runaway" "cleared" MUCH, ["refused"], ["refused"];
    overwritten_variables: "runaway" "overwritten" MUCH, ["refused"], ["refused"];
    unset_variables: "runaway" "unset" MUCH, ["refused"], ["refused"];
    an_exec_by_system_call: "runaway" "raw-exec" MUCH, ["uncovered"], ["killed", "uncovered"];
    a_clone_with_the_same_files: "runaway" "clone" MUCH, ["refused"], ["refused"];
    a_clone_with_the_same_memory: "runaway" "clone-memory" MUCH, ["refused"], ["refused"];
    a_clone_as_by_vfork: "runaway" "clone-vfork" MUCH, ["refused"], ["refused"];
    a_clone_by_system_call: "runaway" "clone-by-hand" MUCH, ["refused"], ["refused"];
    a_daemon: "runaway" "daemon" MUCH, ["refused"], ["refused"];
    a_fork_bomb: "runaway" "bomb" MUCH, ["refused"], ["refused"];
    shared_pages_full_of_zeros: "forger" "zeros" MUCH, ["tampered"], ["tampered"];
    shared_pages_full_of_ones: "forger" "ones" MUCH, ["tampered"], ["tampered", "killed"];
    a_limit_that_is_written_over: "forger" "words" MUCH, ["tampered"], ["tampered"];
    code_that_is_written_over: "forger" "code" MUCH, ["unaccounted", "uncovered"], ["killed", "uncovered"];
}

#[test]
fn large_pages_of_hugetlbfs() {
    if fs::read_to_string("/proc/sys/vm/nr_hugepages").is_ok_and(|text| text.trim() == "0") {
        return skip("the machine has set no such pages aside");
    }
    // They are charged like any other mapping, two MiB for each one.
    let way = Way { program: "bypass", name: "large-pages", mib: MUCH, alone: &[], strict: &[] };
    assert_ends(&way, Held::Alone, &["refused"]);
}

/// `heaptape limit … -- sh -c SCRIPT PROGRAM`, and what its document tells.
fn by_a_shell(by: Held, script: &str, program: &Path) -> (Outcome, Value) {
    let folder = scratch();
    let program = program.to_str().expect("UTF-8");
    let words = ["-c", script, program];
    let outcome = run(&mut limited(folder.path(), MAY * MIB, by.words(), "sh", &words));
    (outcome, document(folder.path()))
}

#[test]
fn a_program_that_nobody_can_count() {
    let fixed = static_program("runaway");
    let script = format!("\"$0\" blocks {MUCH} 100; exit 4");
    let (outcome, document) = by_a_shell(Held::Alone, &script, &fixed);
    assert_eq!((outcome.code(), &document["verdict"]), (4, &"uncovered".into()), "{document}");
    assert!(document["uncovered"].to_string().contains("statically linked"), "{document}");
    if !has_ground() {
        return;
    }
    let (outcome, document) = by_a_shell(Held::ByGroup, &script, &fixed);
    assert_eq!((outcome.code(), &document["verdict"]), (3, &"uncovered".into()), "{document}");
    let much = script.replace(&MUCH.to_string(), &TOO_MUCH.to_string());
    for (by, script) in [(Held::ByGroup, &much), (Held::ByResident, &script)] {
        let (outcome, document) = by_a_shell(by, script, &fixed);
        assert_eq!((outcome.code(), &document["verdict"]), (3, &"killed".into()), "{document}");
    }
}

#[test]
fn a_malloc_of_the_executables_own() {
    let own = program("ownmalloc");
    let (outcome, document) = by_a_shell(Held::Alone, "\"$0\"; exit 0", &own);
    assert_eq!((outcome.code(), &document["verdict"]), (0, &"uncovered".into()), "{document}");
    let (outcome, document) = by_a_shell(Held::ByGroup, "\"$0\"; exit 0", &own);
    assert_eq!((outcome.code(), &document["verdict"]), (3, &"uncovered".into()), "{document}");
}

/// Starts a program that does something to heaptape, which is its parent.
fn started(folder: &Path, way: &str, stay: &str) -> Running {
    let words = [way, "96", stay];
    Running::start(&mut limited(folder, MAY * MIB, &[], program("runaway"), &words))
}

#[test]
fn a_heaptape_that_is_killed_has_no_verdict() {
    let (folder, stay) = (scratch(), once(1000));
    let job = started(folder.path(), "kill-parent", &stay);
    let outcome = job.finish(LIMIT);
    assert_eq!(outcome.code(), 128 + 9);
    let text = fs::read_to_string(folder.path().join("x.json")).unwrap_or_default();
    assert_eq!(text, "", "nobody can take it for a verdict");
    let words = ["kill-parent", "96", stay.as_str()];
    let ended = until(LIMIT, || (running(&program("runaway"), &words) == 0).then_some(()));
    assert!(ended.is_some(), "the program waits for ever");
}

#[test]
fn a_heaptape_that_is_stopped_still_limits_and_tells() {
    let (folder, stay) = (scratch(), once(100));
    let job = started(folder.path(), "stop-parent", &stay);
    let has_said = until_file_has(&job.stdout_path(), "held ", LIMIT);
    job.signal(Signal::CONT);
    let outcome = job.finish(LIMIT);
    assert!(has_said, "the program waits for ever");
    let document = document(folder.path());
    assert_eq!((outcome.code(), &document["verdict"]), (0, &"refused".into()), "{document}");
    assert!(held(&outcome) <= MAY);
}

/// A process that is no job's, until it is dropped.
struct Bystander(Child);

impl Bystander {
    fn start() -> Bystander {
        Bystander(Command::new("sleep").arg("600").spawn().expect("sleep"))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A job that writes the number of a process among its own, and goes beyond its limit: that process, which began before
/// the job or after it, lives on.
fn assert_spares_a_bystander(
    words: &[&str],
    is_older: bool,
    disguise: impl Fn(Command) -> Command,
) {
    let folder = scratch();
    let file = folder.path().join("number");
    let older = is_older.then(Bystander::start);
    // The kernel tells times of starts in hundredths of a second.
    std::thread::sleep(Duration::from_millis(50));
    let arguments = ["number", "96", "2000", file.to_str().expect("UTF-8")];
    let command = limited(folder.path(), MAY * MIB, words, program("forger"), &arguments);
    let job = Running::start(&mut disguise(command));
    if !is_older {
        assert!(
            until(LIMIT, || (running(&program("forger"), &["number"]) > 0).then_some(())).is_some()
        );
    }
    let mut bystander = older.unwrap_or_else(Bystander::start);
    fs::write(&file, format!("{}\n", bystander.0.id())).expect("a file");
    let outcome = job.finish(LIMIT);
    let document = document(folder.path());
    assert_ne!(document["exit"]["code"], 9, "the way is no more: {document}");
    let ended = bystander.0.try_wait().expect("a child");
    let pid = bystander.0.id();
    assert_eq!(ended, None, "{words:?} {is_older}: {}", outcome.stderr_text());
    assert_ne!(state(pid), Some('T'));
    let is_it = |process: &Value| process["pid"] == pid;
    let is_believed = document["processes"].as_array().expect("rows").iter().any(is_it);
    assert_eq!(is_believed, !is_older, "{words:?}: {document}");
    assert_ne!(document["verdict"], "within", "{document}");
}

#[test]
fn a_number_of_another_process_in_the_shared_pages_is_not_killed_with_the_job() {
    for is_older in [true, false] {
        assert_spares_a_bystander(&["--on-limit", "kill"], is_older, |command| command);
        if may_mount() {
            let words = ["--strict", "--basis", "resident"];
            assert_spares_a_bystander(&words, is_older, |command| without_groups(&command));
        }
    }
}

#[test]
fn random_words_in_the_shared_pages_end_in_a_verdict() {
    for seed in [1, 6, 11, 13] {
        let (folder, seed) = (scratch(), seed.to_string());
        let words = ["noise", "96", "50", &seed];
        let outcome =
            run(&mut limited(folder.path(), MAY * MIB, &["--strict"], program("forger"), &words));
        let document = document(folder.path());
        assert_ne!(document["verdict"], "within", "{seed}: {document}");
        assert_eq!(outcome.code(), 3, "{seed}: {}", outcome.stderr_text());
    }
}

/// What such a program does to others of its job is its own affair, but that they end.
#[test]
fn a_job_goes_on_to_its_end_after_random_words_in_the_shared_pages() {
    // These held one up for ever, or for hours: the density of what is written goes by the seed.
    let seeds = [0, 12, 13, 14, 25, 37];
    let (forger, others) = (program("forger"), program("bypass"));
    let (forger, others) = (forger.display(), others.display());
    let run_with = |seed: u32| {
        let folder = scratch();
        let script = format!(
            "({forger} noise 8 350 {seed} & sleep 0.05; {others} blocks 4 100; {others} blocks 90 10; \
             {others} mapping 4 10); wait; {others} blocks 2 10; exit 0"
        );
        let mut command = limited(folder.path(), MAY * MIB, &["--strict"], "sh", &["-c", &script]);
        let outcome = run(&mut command);
        let document = document(folder.path());
        assert_ne!(document["verdict"], "within", "{seed}: {document}");
        assert_eq!(outcome.code(), 3, "{seed}: {}", outcome.stderr_text());
    };
    std::thread::scope(|scope| {
        for seed in seeds {
            scope.spawn(move || run_with(seed));
        }
    });
}

#[test]
fn without_a_group_strictness_has_the_verdicts_of_the_limit_alone() {
    if !may_mount() {
        return skip("only root can cover the control groups of this machine");
    }
    for (program_name, way, verdict) in [
        ("bypass", "raw-mapping", "unaccounted"),
        ("runaway", "raw-exec", "uncovered"),
        ("elsewhere", "memfd", "within"),
    ] {
        let (folder, stay) = (scratch(), once(STAYS[1] / 3));
        let words = [way, "96", &stay];
        let command =
            limited(folder.path(), MAY * MIB, &["--strict"], program(program_name), &words);
        let outcome = run(&mut without_groups(&command));
        let document = document(folder.path());
        let status = if verdict == "within" { 0 } else { 3 };
        let found = (outcome.code(), &document["verdict"]);
        assert_eq!(found, (status, &verdict.into()), "{way}: {document}");
        assert!(document["cgroup"].is_null());
    }
}

/// Asserts that a command passes the strictest limit.
fn assert_passes(limit: u64, words: &[&str], variables: &[(&str, String)]) {
    let folder = scratch();
    let mut command = limited(folder.path(), limit, &["--strict"], words[0], &words[1..]);
    let outcome = run(command.envs(variables.iter().map(|(name, value)| (name, value))));
    let document = document(folder.path());
    let found = (outcome.code(), &document["verdict"]);
    assert_eq!(found, (0, &"within".into()), "{words:?}: {document} {}", outcome.stderr_text());
}

#[test]
fn honest_programs_pass() {
    let threads = program("threads8");
    let threads = threads.to_str().expect("UTF-8");
    let python =
        "import array; a = [array.array('d', [1]) * 1000 for _ in range(9000)]; print(len(a))";
    for words in [
        &["sh", "-c", "ls / | sort | head -3 >/dev/null; sleep 0.6"][..],
        &["python3", "-c", python],
        &[threads],
        &["cc", "-x", "c", "-fsyntax-only", "/dev/null"],
    ] {
        assert_passes(400 * MIB, words, &[]);
    }
}

#[test]
fn honest_ranks_pass_with_every_mpi_and_with_another_allocator() {
    let jemalloc = allocator("libjemalloc.so.2");
    for (mpi, options) in [("openmpi", &["--oversubscribe"][..]), ("mpich", &[])] {
        let Some(ranks) = mpi_program("ranks", mpi) else {
            skip(&format!("{mpi} is not installed"));
            continue;
        };
        let launcher = format!("mpirun.{mpi}");
        let preload = jemalloc.iter().map(|path| format!("LD_PRELOAD={}", path.display()));
        for preload in std::iter::once(String::new()).chain(preload) {
            let mut words = vec![launcher.as_str()];
            words.extend(options);
            words.extend(["-n", "3"]);
            if !preload.is_empty() {
                words.extend(["env", preload.as_str()]);
            }
            words.extend([ranks.to_str().expect("UTF-8"), "exchange"]);
            let mut variables = vec![];
            for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
                variables.push((name, "1".to_owned()));
            }
            assert_passes(1024 * MIB, &words, &variables);
        }
    }
}

#[test]
fn every_test_that_the_table_of_escapes_names_is_there() {
    let guide = fs::read_to_string(root().join("docs/guide.md")).expect("the guide");
    let table = guide.split("| it takes memory").nth(1).expect("the table");
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() >= 30, "{} rows", rows.len());
    let source = |file: &str| {
        let path = root().join("crates/cli/tests").join(file);
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    for row in &rows {
        let last = row.trim_matches('|').rsplit(" | ").next().expect("a cell");
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names {
            let (file, test) = name.split_once("::").unwrap_or(("escapes.rs", name));
            let source = source(file);
            let is_there = source.contains(&format!("fn {test}("))
                || source.contains(&format!("    {test}: \""));
            assert!(is_there, "no test {name}: {row}");
        }
    }
    // And every way has its row.
    let own = source("escapes.rs");
    let ways = own.split("ways! {").nth(1).and_then(|text| text.split("\n}").next()).expect("ways");
    for way in ways.lines().filter_map(|line| line.trim().split(": \"").next()) {
        assert!(way.is_empty() || table.contains(&format!("`{way}`")), "no row for {way}");
    }
}
