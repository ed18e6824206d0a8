//! `heaptape doctor`: what it says of this system and of executables made for it, and that a recording names the same.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{program, static_program};
use harness::running::{Outcome, run};
use harness::{heaptape, record, scratch, skip, tape};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says nothing of malloc but that it calls it, and leaves a file behind if it is run.
const PLAIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) { free(malloc(100)); if (argc > 1) fclose(fopen(argv[1], "w")); return 3; }
"#;
/// An allocator that never gives anything back.
const BUMP: &str = r#"
#include <stddef.h>
#include <string.h>
static char pool[1 << 22]; static size_t used;
SEEN void *NAME(malloc)(size_t n) { size_t at = used; used += (n + 15) & ~(size_t)15; return used <= sizeof pool ? pool + at : NULL; }
SEEN void *NAME(calloc)(size_t a, size_t b) { return NAME(malloc)(a * b); }
SEEN void *NAME(realloc)(void *p, size_t n) { void *q = NAME(malloc)(n); if (p && q) memcpy(q, p, n); return q; }
SEEN void NAME(free)(void *p) { (void)p; }
"#;

/// Compiles `source` in `folder` and gives the file.
fn compiled(folder: &Path, name: &str, flags: &[&str], source: &str) -> PathBuf {
    let (input, output) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&input, source).expect("a source file");
    let output_of = Command::new("cc")
        .args(["-O1", "-fno-builtin", "-w"])
        .arg(&input)
        .arg("-o")
        .arg(&output)
        .args(flags)
        .current_dir(folder)
        .output()
        .expect("cc");
    assert!(output_of.status.success(), "{}", String::from_utf8_lossy(&output_of.stderr));
    output
}

/// A program with an allocator of its own, under names with a prefix and this visibility.
fn with_allocator(folder: &Path, name: &str, prefix: &str, seen: &str, flags: &[&str]) -> PathBuf {
    let source = format!(
        "#define NAME(f) {prefix}##f\n#define SEEN {seen}\n{BUMP}\n#include <stdio.h>\n\
         int main(void) {{ void *volatile p = NAME(malloc)(10); NAME(free)(p); puts(p ? \"ok\" : \"no\"); return 0; }}\n"
    );
    // An empty prefix leaves nothing to paste before.
    let source = if prefix.is_empty() { source.replace("##f", "f") } else { source };
    compiled(folder, name, flags, &source)
}

fn doctor(command: &[&OsStr]) -> (Value, Outcome) {
    let outcome = run(heaptape(["doctor", "--json", "--"]).args(command));
    assert_eq!(outcome.stderr_text(), "", "{command:?}");
    (outcome.json(), outcome)
}

/// The diagnosis of a program, checked for what every diagnosis holds.
fn of(path: &Path) -> Value {
    let (value, outcome) = doctor(&[path.as_os_str()]);
    assert_eq!(value["schema"], "heaptape.doctor/1");
    assert_eq!(value["system"], Value::Null);
    let fatal = value["checks"].as_array().expect("checks").iter().any(|c| c["fatal"] == true);
    assert_eq!(value["can_record"], !fatal, "{value}");
    assert_eq!(outcome.code(), i32::from(fatal), "{value}");
    for check in value["checks"].as_array().expect("checks") {
        let is_problem = check["verdict"] == "problem";
        assert!(!is_problem || check["advice"].is_string(), "a problem says what to do: {check}");
    }
    let words = run(heaptape(["doctor"]).arg(path));
    assert_eq!((words.code(), words.stderr_text().as_str()), (outcome.code(), ""));
    assert!(words.stdout.len() > 50);
    value
}

/// The reason for which a recording of a program names it, if it does.
fn named(path: &Path) -> (Option<String>, u64) {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &[], &[path.as_os_str()]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let info = tape::info(&file);
    let uncovered = info["uncovered"].as_array().expect("a list");
    assert!(uncovered.len() <= 1, "{info}");
    let why = uncovered.first().map(|u| u["why"].as_str().expect("a reason").to_owned());
    assert!(why.is_none() || uncovered[0]["command"][0] == path.to_str().expect("UTF-8"), "{info}");
    (why, tape::number(&info, "/events"))
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn this_system_can_record_and_says_so() {
    let (value, outcome) = doctor(&[]);
    assert_eq!(outcome.code(), 0, "{value}");
    assert_eq!((&value["schema"], &value["program"]), (&"heaptape.doctor/1".into(), &Value::Null));
    let system = &value["system"];
    let expected = "kernel page_size processors features clock_source tsc_trusted counters overcommit memory shm \
        ptrace_scope cgroup auto_limit huge_pages limits seccomp no_new_privileges preloads audit mpi ucx library trial";
    assert_eq!(keys(system), expected.split_whitespace().collect());
    let trial = &system["trial"];
    assert_eq!(
        (&trial["lost"], &trial["order_faults"], &trial["exit_code"]),
        (&0.into(), &0.into(), &0.into())
    );
    assert_eq!(trial["processes"], 1, "{trial}");
    assert!(trial["seconds"].as_f64() > trial["plain_seconds"].as_f64(), "{trial}");
    assert_eq!(system["features"]["pidfd"], true);
    if system["features"]["smaps_rollup"] == true {
        assert!(system["counters"]["touched_pages"].as_u64() >= Some(280), "{system}");
        assert!(system["counters"]["error_pages"].is_u64());
    }
    assert!(tape::number(system, "/shm/needed") > 1 << 20);
    let folder = scratch();
    let words = run(heaptape(["doctor"]).env("TMPDIR", folder.path()));
    assert_eq!(
        fs::read_dir(folder.path()).expect("the folder").count(),
        0,
        "nothing is left behind"
    );
    let text = String::from_utf8_lossy(&words.stdout).into_owned();
    assert!(
        text.ends_with("Programs can be recorded here.\n") || text.contains("problem"),
        "{text}"
    );
    for name in ["kernel", "counters", "/dev/shm", "cgroup", "limits", "MPI", "UCX", "lost 0"] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn a_system_where_the_library_has_no_place_fails() {
    let outcome =
        run(heaptape(["doctor", "--json"]).env("HEAPTAPE_CAPTURE", "/no/such/library.so"));
    let value = outcome.json();
    assert_eq!((outcome.code(), &value["can_record"]), (1, &false.into()));
    assert_eq!(
        (&value["system"]["library"], &value["system"]["trial"]),
        (&Value::Null, &Value::Null)
    );
    let checks = value["checks"].to_string();
    assert!(checks.contains("/no/such/library.so"), "{checks}");
}

#[test]
fn what_the_environment_preloads_and_limits_is_noted() {
    let folder = scratch();
    let source = "#include <stddef.h>\nvoid *__libc_malloc(size_t);\n\
        void *malloc(size_t n) { return __libc_malloc(n); }\n";
    let library = compiled(folder.path(), "libjemalloc.so.9", &["-shared", "-fPIC"], source);
    let script =
        format!("ulimit -n 100; LD_PRELOAD={} exec \"$0\" doctor --json", library.display());
    let outcome = run(Command::new("sh").args(["-c", &script, harness::HEAPTAPE]));
    let value = outcome.json();
    let preloads = &value["system"]["preloads"];
    assert_eq!(preloads[0]["path"], library.to_str().expect("UTF-8"), "{value}");
    assert_eq!(preloads[0]["allocator"], "jemalloc", "{value}");
    assert_eq!(value["system"]["limits"]["NOFILE"]["soft"], 100, "{value}");
    assert!(value["checks"].to_string().contains("RLIMIT_NOFILE is 100"), "{value}");
}

#[test]
fn a_program_is_looked_at_and_not_run() {
    let folder = scratch();
    let (plain, trace) =
        (compiled(folder.path(), "plain", &[], PLAIN), folder.path().join("it ran"));
    let (value, outcome) = doctor(&[plain.as_os_str(), trace.as_os_str()]);
    assert!(!trace.exists(), "the program was run");
    assert_eq!((outcome.code(), &value["verdict"]), (0, &"ok".into()), "{value}");
    let found = &value["program"];
    assert_eq!(found["command"][1], trace.to_str().expect("UTF-8"));
    assert_eq!((&found["seen"], &found["obstacle"]), (&"all".into(), &Value::Null));
    assert_eq!(
        (&found["elf"]["linkage"], &found["elf"]["libc"]),
        (&"dynamic".into(), &"glibc".into())
    );
    assert_eq!(
        (&found["elf"]["architecture"], &found["elf"]["bits"]),
        (&"x86-64".into(), &64.into())
    );
    assert_eq!(
        (&found["allocator"]["name"], &found["allocator"]["preloaded"]),
        (&"glibc".into(), &false.into())
    );
}

#[test]
fn static_programs_cannot_be_recorded() {
    let folder = scratch();
    let pie = compiled(folder.path(), "pie", &["-static-pie"], PLAIN);
    for (path, kind) in [(static_program("static"), "executable"), (pie, "pie")] {
        let value = of(&path);
        let found = &value["program"];
        assert_eq!((&value["can_record"], &found["seen"]), (&false.into(), &"nothing".into()));
        assert_eq!(
            (&found["elf"]["kind"], &found["elf"]["linkage"]),
            (&kind.into(), &"static".into())
        );
        assert!(found["obstacle"].as_str().is_some_and(|why| why.contains("statically linked")));
    }
}

#[test]
fn a_malloc_in_the_executable_is_named_by_doctor_and_recording_alike() {
    let folder = scratch();
    let everywhere = with_allocator(folder.path(), "everywhere", "", "", &["-rdynamic"]);
    let hidden = "__attribute__((visibility(\"hidden\")))";
    let alone = with_allocator(folder.path(), "alone", "", hidden, &[]);
    for (path, malloc, seen) in [(everywhere, "exported", "nothing"), (alone, "hidden", "part")] {
        let value = of(&path);
        let found = &value["program"];
        assert_eq!(
            (&found["elf"]["malloc"], &found["seen"]),
            (&malloc.into(), &seen.into()),
            "{value}"
        );
        let (why, events) = named(&path);
        assert_eq!(why.as_deref(), found["not_seen"][0].as_str(), "one piece of code");
        // puts() takes its buffer from the malloc that it finds.
        assert_eq!(events > 0, seen == "part", "{events} events");
    }
}

#[test]
fn allocators_under_private_names_are_named_by_doctor_and_recording_alike() {
    let folder = scratch();
    let cases =
        [("je_", "jemalloc"), ("_rjem_", "jemalloc"), ("mi_", "mimalloc"), ("tc_", "tcmalloc")];
    for (prefix, allocator) in cases {
        let path = with_allocator(folder.path(), "private", prefix, "", &[]);
        let value = of(&path);
        let found = &value["program"];
        assert_eq!(found["seen"], "part", "{value}");
        let expected = serde_json::json!({"name": allocator, "symbol": format!("{prefix}malloc")});
        // Whichever of its functions comes first in the table.
        assert_eq!(found["elf"]["private_allocator"]["name"], expected["name"], "{value}");
        let (why, events) = named(&path);
        assert_eq!(why.as_deref(), found["not_seen"][0].as_str(), "one piece of code");
        assert!(why.is_some_and(|why| why.contains(prefix)) && events > 0);
    }
}

#[test]
fn a_stripped_allocator_is_told_by_its_messages() {
    let folder = scratch();
    let source = format!(
        "{PLAIN}\nconst char *volatile message(void) {{ return \"<jemalloc>: Error\"; }}\n"
    );
    let path = compiled(folder.path(), "stripped", &["-s", "-Wl,-u,message"], &source);
    let value = of(&path);
    let found = &value["program"]["elf"]["private_allocator"];
    assert_eq!((&found["name"], &found["symbol"]), (&"jemalloc".into(), &Value::Null), "{value}");
}

#[test]
fn the_allocator_is_found_where_the_loader_would_find_it() {
    let folder = scratch();
    let source = format!("#define NAME(f) f\n#define SEEN\n{BUMP}");
    let name = "libmimalloc.so.7";
    let library = compiled(
        folder.path(),
        name,
        &["-shared", "-fPIC", "-Wl,-soname,libmimalloc.so.7"],
        &source,
    );
    let flags = ["-Wl,--no-as-needed", name, "-Wl,-rpath,$ORIGIN"];
    let path = compiled(folder.path(), "needs", &flags, PLAIN);
    let found = of(&path);
    let allocator = &found["program"]["allocator"];
    assert_eq!((&allocator["name"], &allocator["preloaded"]), (&"mimalloc".into(), &false.into()));
    assert_eq!(
        (&found["program"]["seen"], named_file(allocator)),
        (&"all".into(), Some(name.into()))
    );
    // What is preloaded comes first.
    let preload = folder.path().join("libtcmalloc.so.4");
    fs::copy(&library, &preload).expect("a copy");
    let outcome = run(heaptape(["doctor", "--json"]).arg(&path).env("LD_PRELOAD", &preload));
    let allocator = &outcome.json()["program"]["allocator"];
    assert_eq!((&allocator["name"], &allocator["preloaded"]), (&"tcmalloc".into(), &true.into()));
    // A library that is not there is named.
    fs::remove_file(&library).expect("to remove it");
    let missing = of(&path);
    assert!(missing["checks"].to_string().contains(&format!("not found: {name}")), "{missing}");
}

fn named_file(allocator: &Value) -> Option<String> {
    let file = Path::new(allocator["file"].as_str()?).file_name()?;
    Some(file.to_string_lossy().into_owned())
}

#[test]
fn calls_of_an_allocator_by_its_own_name_are_not_seen() {
    let folder = scratch();
    let source = format!("#define NAME(f) scalable_##f\n#define SEEN\n{BUMP}");
    let name = "libtbbmalloc.so.9";
    compiled(folder.path(), name, &["-shared", "-fPIC", "-Wl,-soname,libtbbmalloc.so.9"], &source);
    let main = "#include <stddef.h>\nvoid *scalable_malloc(size_t);\nint main(void) { return scalable_malloc(1) == NULL; }\n";
    let path = compiled(folder.path(), "calls", &[name, "-Wl,-rpath,$ORIGIN"], main);
    let value = of(&path);
    assert_eq!(value["program"]["elf"]["calls_by_name"], "scalable_malloc", "{value}");
    let (why, _) = named(&path);
    assert!(why.is_some_and(|why| why.contains("scalable_malloc")));
}

fn executable(path: PathBuf, content: &[u8]) -> PathBuf {
    fs::write(&path, content).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    path
}

#[test]
fn scripts_are_followed_to_what_runs_them() {
    let folder = scratch();
    let script = |name: &str, text: &str| executable(folder.path().join(name), text.as_bytes());
    let direct = script("direct", "#!/bin/sh\n");
    let outer = script("outer", &format!("#!{}\n", direct.display()));
    let env = script("env", "#!/usr/bin/env -S sh -e\n");
    let bare = script("bare", "exit 0\n");
    for (path, scripts) in [(&direct, 1), (&outer, 2), (&env, 1), (&bare, 1)] {
        let value = of(path);
        let found = &value["program"];
        assert_eq!(found["scripts"].as_array().map(Vec::len), Some(scripts), "{value}");
        assert!(found["executable"].as_str().is_some_and(|path| path.ends_with("/sh")), "{value}");
        assert_eq!(found["seen"], "all");
    }
    let missing = script("missing", "#!/no/such/interpreter\n");
    let why = of(&missing)["program"]["obstacle"].to_string();
    assert!(why.contains("interpreter") && why.contains("/no/such/interpreter"), "{why}");
    let endless = folder.path().join("endless");
    script("endless", &format!("#!{}\n", endless.display()));
    let why = of(&endless)["program"]["obstacle"].to_string();
    assert!(why.contains("and so on"), "{why}");
}

#[test]
fn what_cannot_be_started_says_why_and_has_every_field() {
    let folder = scratch();
    let whole = fs::read(program("peak")).expect("a program");
    let changed = |name: &str, at: usize, bytes: &[u8]| {
        let mut copy = whole.clone();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        executable(folder.path().join(name), &copy)
    };
    let loader = b"/lib64/ld-linux";
    let loader = whole.windows(loader.len()).position(|w| w == loader).expect("a loader's name");
    let silent = folder.path().join("silent");
    fs::write(&silent, &whole).expect("a file");
    let dangling = folder.path().join("dangling");
    symlink("/no/such/file", &dangling).expect("a link");
    let cases: [(PathBuf, &str); 9] = [
        (folder.path().join("missing"), "no such command"),
        (dangling, "no such command"),
        (folder.path().to_owned(), "it is a directory"),
        (silent, "not executable"),
        (changed("aarch64", 18, &[183]), "another architecture than x86-64 (AArch64)"),
        (changed("32-bits", 4, &[1]), ""),
        (changed("object", 16, &[1]), "object file"),
        (changed("without-a-loader", loader, b"/no/such/loader"), "interpreter"),
        (executable(folder.path().join("cut"), &whole[..100]), "damaged"),
    ];
    let good = of(&program("peak"));
    for (path, word) in cases {
        let value = of(&path);
        assert_eq!(
            (&value["can_record"], &value["program"]["seen"]),
            (&false.into(), &"nothing".into())
        );
        let why = value["program"]["obstacle"].as_str().expect("a reason");
        assert!(why.contains(word), "{}: {why}", path.display());
        assert_eq!(keys(&value), keys(&good));
        assert_eq!(keys(&value["program"]), keys(&good["program"]));
    }
}

#[test]
fn cut_and_changed_executables_never_panic() {
    let folder = scratch();
    let whole = fs::read(program("peak")).expect("a program");
    for part in 0..60 {
        let mut copy = whole.clone();
        if part % 2 == 0 {
            copy.truncate(whole.len() * part / 60);
        } else {
            let at = if part < 30 { part * 8 } else { whole.len() * part / 60 };
            copy[at..at + 8].fill(0xff);
        }
        let path = executable(folder.path().join("odd"), &copy);
        let outcome = run(heaptape(["doctor", "--json"]).arg(&path));
        assert!(matches!(outcome.code(), 0 | 1), "{part}: {}", outcome.stderr_text());
        assert_eq!(outcome.json()["schema"], "heaptape.doctor/1");
        assert_eq!(outcome.stderr_text(), "");
    }
}

#[test]
fn a_setuid_program_of_another_user_is_told() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return skip("only root can make a program that runs as another user");
    }
    let folder = scratch();
    let path = folder.path().join("id");
    fs::copy("/usr/bin/id", &path).expect("a copy");
    chown(&path, Some(NOBODY), None).expect("another owner");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("its mode");
    let value = of(&path);
    assert_eq!(
        (&value["program"]["rights"], &value["can_record"]),
        (&"setuid".into(), &false.into())
    );
    assert!(value["program"]["obstacle"].to_string().contains("setuid"), "{value}");
    // To its owner it gives nothing.
    chown(&path, Some(0), None).expect("the old owner");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("its mode");
    let value = of(&path);
    assert_eq!(
        (&value["program"]["seen"], &value["verdict"]),
        (&"all".into(), &"note".into()),
        "{value}"
    );
}
