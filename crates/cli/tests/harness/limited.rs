//! Jobs that run under a limit, and the documents that tell of them.

use super::heaptape;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
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

/// A figure that lies between two values.
pub(crate) fn bounds(value: &Value) -> (u64, u64) {
    let side = |name| value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"));
    (side("lower"), side("upper"))
}
