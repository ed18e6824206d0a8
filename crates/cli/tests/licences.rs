//! THIRD-PARTY.md lists each crate of others that is in the binary, and explains its licence.
#![forbid(unsafe_code)]

mod harness;

use harness::running::run;
use harness::{root, skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The crates with their licences, as `cargo metadata` tells them of a workspace; `None` where it can't.
fn metadata(manifest: &Path) -> Option<Value> {
    let outcome = run(Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(manifest));
    (outcome.code() == 0).then(|| outcome.json())
}

/// What a package needs that is in its binary, from one on: by name the licence; those of this tree have none.
fn needed(metadata: &Value, package: &str) -> BTreeMap<String, String> {
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let id = |value: &Value| value.as_str().expect("an id").to_owned();
    let packages: HashMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|p| (id(&p["id"]), p)).collect();
    let nodes: HashMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|n| (id(&n["id"]), n)).collect();
    let first = packages.iter().find(|(_, found)| found["name"] == package).expect("the package");
    let (mut ahead, mut seen) = (vec![first.0.clone()], BTreeSet::new());
    let mut needed = BTreeMap::new();
    while let Some(next) = ahead.pop() {
        if !seen.insert(next.clone()) {
            continue;
        }
        let (name, licence) = (&packages[&next]["name"], &packages[&next]["license"]);
        if !packages[&next]["source"].is_null() {
            let licence =
                licence.as_str().unwrap_or("none").replace('/', " OR ").replace("  ", " ");
            needed.insert(name.as_str().expect("a name").to_owned(), licence);
        }
        for need in list(&nodes[&next]["deps"]) {
            // What has a kind is needed to build or to test.
            if list(&need["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                ahead.push(id(&need["pkg"]));
            }
        }
    }
    needed
}

/// The rows of a table of THIRD-PARTY.md: the first column, and the names in the second.
fn rows(heading: &str) -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(root().join("THIRD-PARTY.md")).expect("the list");
    let part = text.split("\n## ").find(|part| part.starts_with(heading)).expect("its part");
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let names = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    rows.map(|(first, rest)| (first.to_owned(), names(rest))).collect()
}

/// Whether a licence can be taken with those that are explained: of each part one of what may be chosen.
fn is_allowed(licence: &str, explained: &BTreeMap<String, Vec<String>>) -> bool {
    let mut parts = licence.split(" AND ");
    parts.all(|part| {
        let part = part.trim_start_matches('(').trim_end_matches(')');
        part.split(" OR ").any(|one| explained.contains_key(one))
    })
}

#[test]
fn each_crate_of_the_binary_is_listed_and_its_licence_explained() {
    let of_library = metadata(&root().join("capture/Cargo.toml"));
    let of_all = metadata(&root().join("Cargo.toml"));
    let (Some(all), Some(library)) = (of_all, of_library) else {
        return skip("cargo metadata needs what is not here");
    };
    let mut needed_crates = needed(&all, "heaptape");
    assert!(needed_crates.len() > 20, "{needed_crates:?}");
    needed_crates.extend(needed(&library, "heaptape-capture"));
    let explained = rows("Licences");
    for (name, licence) in &needed_crates {
        assert!(is_allowed(licence, &explained), "{name} is under {licence}");
    }
    let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, licence) in needed_crates {
        wanted.entry(licence).or_default().push(name);
    }
    assert_eq!(rows("Crates"), wanted, "THIRD-PARTY.md has other crates than the binary");
}

#[test]
fn a_licence_that_is_not_explained_is_not_allowed() {
    let explained = rows("Licences");
    for allowed in ["MIT", "GPL-3.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(is_allowed(allowed, &explained), "{allowed}");
    }
    for other in ["GPL-3.0-only", "none", "MIT AND GPL-3.0-only", "(MIT OR Apache-2.0) AND X"] {
        assert!(!is_allowed(other, &explained), "{other}");
    }
}
