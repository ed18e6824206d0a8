//! What stands between the heap calls: the calls that map memory, just as the program made them.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::run;
use harness::{heaptape, record, scratch, tape};
use serde_json::Value;
use std::fs;

/// Kinds of notes that programs make by a call.
const MAPPING: [&str; 14] = [
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "brk",
    "sbrk",
    "shmat",
    "shmdt",
    "shmget",
    "shm_open",
    "memfd_create",
    "mallopt",
    "malloc_trim",
];

#[test]
fn mapping_calls_stand_on_the_tape_as_the_program_made_them() {
    let folder = scratch();
    let (file, truth) = (folder.path().join("x.tape"), folder.path().join("truth"));
    let program = program("mapped");
    let mut command = record(&file, &[], &[program.as_os_str()]);
    let outcome = run(command.env("TRUTH", &truth));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    tape::assert_sound(&tape::info(&file));
    let told = fs::read_to_string(&truth).expect("the truth");
    let told: Vec<Value> =
        told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let outcome = run(heaptape(["events", "--notes", "--json"]).arg(&file));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let listing = outcome.json();
    let mut size = Value::Null;
    let mut found = Vec::new();
    for item in listing["events"].as_array().expect("a list") {
        match item["note"].as_str() {
            Some(name) if MAPPING.contains(&name) => found.push((size.clone(), item)),
            None if item["module"].as_str() == program.to_str() => size = item["size"].clone(),
            _ => {}
        }
    }
    assert!(told.len() >= 22, "{} calls", told.len());
    for ((size, note), told) in found.iter().zip(&told) {
        let at = format!("found behind a block of {size} bytes: {note}\ntold: {told}");
        assert_eq!(*size, told["size"], "{at}");
        assert_eq!((&note["note"], &note["text"]), (&told["note"], &told["text"]), "{at}");
        assert_eq!(note["args"], told["args"], "{at}");
    }
    assert_eq!(found.len(), told.len());
}

#[test]
fn a_module_is_listed_with_its_path_and_its_build_id_in_digits() {
    let folder = scratch();
    let file = folder.path().join("x.tape");
    let outcome = run(&mut record(&file, &[], &[program("mapped").as_os_str()]));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let listing = run(heaptape(["events", "--notes", "--json"]).arg(&file)).json();
    let items = listing["events"].as_array().expect("a list").iter();
    let modules: Vec<&Value> = items.filter(|item| item["note"] == "module").collect();
    assert!(modules.len() >= 3, "{modules:?}");
    for module in &modules {
        let (path, id) = (module["text"].as_str().expect("a path"), module["build_id"].as_str());
        // The loader has no name for the executable; the kernel's page need not have a build id.
        assert!(path.is_empty() || path.chars().all(|c| !c.is_control()), "{module}");
        let is_hex = |id: &str| id.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(id.is_none_or(|id| id.len() == 40 && is_hex(id)), "{module}");
    }
    let libc = modules.iter().find(|m| m["text"].as_str().is_some_and(|t| t.contains("libc.so.6")));
    assert!(libc.expect("libc")["build_id"].is_string(), "{libc:?}");
}
