//! The crates use one another as the design's table says (ARCHITECTURE), and unsafe code stays where it is allowed.
#![forbid(unsafe_code)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate with those of ours that it may use; `None`: all but capture.
const MAY_USE: [(&str, Option<&[&str]>); 12] = [
    ("heaptape-wire", Some(&[])),
    ("heaptape-unwind", Some(&[])),
    ("heaptape-capture", Some(&["heaptape-wire", "heaptape-unwind"])),
    ("heaptape-proc", Some(&[])),
    ("heaptape-ledger", Some(&["heaptape-wire"])),
    (
        "heaptape-collect",
        Some(&["heaptape-wire", "heaptape-proc", "heaptape-tape", "heaptape-ledger"]),
    ),
    ("heaptape-tape", Some(&["heaptape-wire"])),
    ("heaptape-symbols", Some(&[])),
    ("heaptape-analyze", Some(&["heaptape-tape", "heaptape-ledger"])),
    ("heaptape-replay", Some(&["heaptape-tape"])),
    (
        "heaptape-report",
        Some(&["heaptape-analyze", "heaptape-ledger", "heaptape-replay", "heaptape-proc"]),
    ),
    ("heaptape", None),
];
const MAY_BE_UNSAFE: [&str; 5] =
    ["heaptape-wire", "heaptape-unwind", "heaptape-capture", "heaptape-collect", "heaptape-replay"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the source tree")
}

fn packages(manifest: &Path) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path"])
        .arg(manifest)
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

fn all_packages() -> Vec<Value> {
    let mut all = packages(&root().join("Cargo.toml"));
    all.extend(packages(&root().join("capture/Cargo.toml")));
    all
}

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a name")
}

/// The crates of ours that a package depends on; of its tests too, if asked.
fn ours(package: &Value, tests_too: bool) -> BTreeSet<String> {
    let dependencies = package["dependencies"].as_array().expect("dependencies");
    dependencies
        .iter()
        .filter(|d| tests_too || d["kind"] != "dev")
        .filter_map(|d| d["name"].as_str())
        .filter(|n| n.starts_with("heaptape"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn crates_use_only_what_the_table_allows() {
    for package in &all_packages() {
        let known = MAY_USE.iter().find(|(n, _)| *n == name(package));
        let (_, allowed) = known.unwrap_or_else(|| panic!("{} is not in the table", name(package)));
        if let Some(allowed) = allowed {
            let allowed: BTreeSet<String> = allowed.iter().map(|s| (*s).to_owned()).collect();
            let too_much: Vec<_> = ours(package, false).difference(&allowed).cloned().collect();
            assert!(too_much.is_empty(), "{} must not use {too_much:?}", name(package));
        }
    }
}

#[test]
fn nobody_depends_on_capture() {
    for package in &all_packages() {
        assert!(
            !ours(package, true).contains("heaptape-capture"),
            "{} depends on capture",
            name(package)
        );
    }
}

#[test]
fn capture_is_a_shared_library_only() {
    let packages = packages(&root().join("capture/Cargo.toml"));
    let capture =
        packages.iter().find(|p| name(p) == "heaptape-capture").expect("heaptape-capture");
    let kinds: Vec<_> = capture["targets"]
        .as_array()
        .expect("targets")
        .iter()
        .filter(|t| t["name"] == "heaptape_capture")
        .map(|t| t["crate_types"].to_string())
        .collect();
    assert_eq!(kinds, ["[\"cdylib\"]"]);
}

#[test]
fn unsafe_code_is_forbidden_outside_five_crates() {
    for package in &all_packages() {
        if MAY_BE_UNSAFE.contains(&name(package)) {
            continue;
        }
        for target in package["targets"].as_array().expect("targets") {
            let kind = target["kind"][0].as_str().expect("a kind");
            let source = target["src_path"].as_str().expect("a path");
            if matches!(kind, "lib" | "bin") {
                let text = fs::read_to_string(source).expect("a source file");
                assert!(
                    text.contains("#![forbid(unsafe_code)]"),
                    "{source} does not forbid unsafe code"
                );
            }
        }
    }
}
