//! Jobs that run under a limit, and the documents that tell of them.

use super::running::{run, until};
use super::{LIMIT, heaptape, root, skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `heaptape limit LIMIT --json FOLDER/x.json WORDS… -- PROGRAM ARGS…`
pub(crate) fn limited(
    folder: &Path,
    limit: u64,
    words: &[&str],
    program: impl AsRef<OsStr>,
    args: &[&str],
) -> Command {
    let mut command = heaptape(["limit", "--quiet", "--json"]);
    command.arg(folder.join("x.json")).args(words).arg(limit.to_string());
    command.arg("--").arg(program).args(args);
    command
}

/// What the job's document tells.
pub(crate) fn document(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("x.json")).expect("a document");
    serde_json::from_str(&text).expect("JSON")
}

/// A document, once the process that counted has written it.
pub(crate) fn written(file: &Path) -> Value {
    let document = || serde_json::from_str(&fs::read_to_string(file).ok()?).ok();
    until(LIMIT, document).expect("a document")
}

/// Where a job can have a control group of its own here; says so where it can't.
pub(crate) fn ground() -> Option<PathBuf> {
    let document = run(&mut heaptape(["doctor", "--json"])).json();
    let cgroup = &document["system"]["cgroup"];
    if let Some(directory) = cgroup["job_group"].as_str() {
        return Some(directory.into());
    }
    skip(&format!("no control group can be made here: {}", cgroup["job_group_missing"]));
    None
}

/// A command where no control group can be made, which only root can have: their files are covered by an empty directory.
pub(crate) fn without_groups(command: &Command) -> Command {
    let mut covered = Command::new("unshare");
    covered.args(["-m", "sh", "-c", "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"", "sh"]);
    covered.arg(command.get_program()).args(command.get_args()).env_remove("LD_PRELOAD");
    covered
}

/// A figure that lies between two values.
pub(crate) fn bounds(value: &Value) -> (u64, u64) {
    let side = |name| value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"));
    (side("lower"), side("upper"))
}

/// The paths of all fields in a document, `a[].b` for those of rows.
pub(crate) fn fields(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    add_fields(value, "", &mut found);
    found
}

fn add_fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add_fields(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(rows) => {
            rows.iter().for_each(|row| add_fields(row, &format!("{path}[]"), found))
        }
        _ => {}
    }
}

/// The fields of `heaptape.limit/1` that docs/json.md tells of, each in a row of its own.
pub(crate) fn documented_fields() -> BTreeSet<String> {
    documented_fields_of("heaptape.limit/1")
}

/// Likewise of another document.
pub(crate) fn documented_fields_of(schema: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("docs/json.md")).expect("the documentation");
    let part = text.split("\n## ").find(|part| part.starts_with(schema)).expect("its part");
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// Asserts that a document has all fields that docs/json.md tells of and whose names begin so.
pub(crate) fn assert_has_documented(document: &Value, begin: &str) {
    let (mut unseen, seen) = (documented_fields(), fields(document));
    unseen.retain(|name| name.starts_with(begin) && !seen.contains(name));
    assert!(unseen.is_empty(), "there is no {unseen:?}");
}

/// Asserts that docs/json.md has a row for each field of a document. An object has none of its own, unless it may be null.
pub(crate) fn assert_documented(document: &Value) {
    assert_told(&documented_fields(), &fields(document));
}

/// Asserts that those fields are known which a document has.
pub(crate) fn assert_told(known: &BTreeSet<String>, fields: &BTreeSet<String>) {
    let is_missing = |path: &&String| {
        let is_parent = known.iter().any(|name| name.starts_with(&format!("{path}.")));
        !known.contains(*path) && !is_parent
    };
    let missing: Vec<String> = fields.iter().filter(is_missing).cloned().collect();
    assert!(missing.is_empty(), "docs/json.md does not tell of {missing:?}");
}
