//! Functions that somebody has patched in a job's processes are noticed: which, by whom, and what it means.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::{library, mpi_program, program};
use harness::limited::{assert_documented, assert_has_documented, document, limited};
use harness::running::run;
use harness::{heaptape, scratch, skip};
use serde_json::Value;
use std::ffi::OsStr;

/// `patched HOW` under a limit: its document, and the report in one line.
fn patched(how: &str) -> (Value, String) {
    let (folder, patcher) = (scratch(), library("patcher"));
    let patcher = patcher.to_str().expect("UTF-8");
    let args = [how, patcher];
    let mut command = heaptape(["limit", "--json"]);
    command
        .arg(folder.path().join("x.json"))
        .args(["1GB", "--"])
        .arg(program("patched"))
        .args(args);
    let outcome = run(&mut command);
    let called = if how == "nothing" { "0\n" } else { "1\n" };
    let text = outcome.stderr_text();
    assert_eq!((outcome.code(), outcome.stdout), (0, called.into()), "{how}: {text}");
    let document = document(folder.path());
    assert_documented(&document);
    (document, text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The file's name at the end of a path.
fn file(path: &Value) -> &str {
    path.as_str().expect("a path").rsplit('/').next().expect("a name")
}

#[test]
fn who_has_patched_what_is_told() {
    for (how, what, module, counted) in [
        ("libc", "libc", "libc.so.6", true),
        ("wrapper", "heaptape", "libheaptape", false),
        ("entry", "entries", "patched", false),
    ] {
        let (document, text) = patched(how);
        assert_has_documented(&document, "patches[]");
        let patches = document["patches"].as_array().expect("a list");
        assert_eq!(patches.len(), 1, "{how}: {document}");
        let patch = &patches[0];
        assert_eq!((&patch["what"], &patch["counted"]), (&what.into(), &counted.into()), "{patch}");
        assert_eq!(patch["functions"], serde_json::json!(["madvise"]), "{patch}");
        assert!(file(&patch["module"]).starts_with(module), "{patch}");
        assert!(file(&patch["by"]).contains("patcher"), "{patch}");
        assert_eq!(
            (&patch["processes"], &document["patches_sought"]),
            (&serde_json::json!([0]), &1.into())
        );
        let sentence = match how {
            "libc" => {
                "has patched libc's madvise: heaptape's wrappers go on to libc, so calls are counted"
            }
            "wrapper" => "has patched heaptape's own madvise: calls go there first",
            _ => "has changed the entries by which patched call madvise: calls go there first",
        };
        assert!(text.contains(sentence), "{how}: {text}");
    }
}

#[test]
fn where_nobody_has_patched_anything_nothing_is_said() {
    let (document, text) = patched("nothing");
    assert_eq!(
        (&document["patches"], &document["patches_sought"]),
        (&serde_json::json!([]), &1.into())
    );
    assert!(!text.contains("has patched") && !text.contains("has changed"), "{text}");
}

#[test]
fn what_ucx_patches_is_noticed_in_every_rank() {
    let Some(lingering) = mpi_program("lingering_ranks", "mpich") else {
        return skip("MPICH is not installed");
    };
    let folder = scratch();
    let words = ["-n", "2", lingering.to_str().expect("UTF-8")];
    let mut command = limited(folder.path(), 4 << 30, &[], OsStr::new("mpirun.mpich"), &words);
    let outcome = run(command.env("UCX_MEM_MMAP_HOOK_MODE", "bistro").env("UCX_MEM_EVENTS", "y"));
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    let document = document(folder.path());
    assert_documented(&document);
    let patches = document["patches"].as_array().expect("a list");
    if patches.is_empty() {
        return skip("this MPICH has no UCX");
    }
    let is_rank = |place: &Value| {
        !document["processes"][place.as_u64().expect("a place") as usize]["rank"].is_null()
    };
    for patch in patches {
        assert_eq!(patch["what"], "libc", "{patch}");
        assert!(file(&patch["by"]).starts_with("libucm.so"), "{patch}");
        let processes = patch["processes"].as_array().expect("a list");
        assert!(processes.len() == 2 && processes.iter().all(is_rank), "{document}");
        let functions = patch["functions"].as_array().expect("a list");
        assert!(
            ["mmap", "munmap"].iter().all(|name| functions.contains(&(*name).into())),
            "{patch}"
        );
    }
}
