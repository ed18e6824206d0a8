//! A tape as its readers show it: `heaptape info --json` and `heaptape export --to csv`.

use super::heaptape;
use super::running::{Outcome, run};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The kinds of calls in the order of their codes; 0 is not a call but a count.
pub(crate) const CALLS: [&str; 13] = [
    "free_null",
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "new",
    "delete",
];
pub(crate) const REALLOC: usize = 3;
pub(crate) const REALLOCARRAY: usize = 4;
pub(crate) const FREE: usize = 5;
pub(crate) const VALLOC: usize = 9;
pub(crate) const PVALLOC: usize = 10;
pub(crate) const DELETE: usize = 12;

/// `info --json` of a tape that can be read.
pub(crate) fn info(tape: &Path) -> Value {
    let outcome = info_outcome(tape);
    assert_eq!(outcome.code(), 0, "info fails: {}", outcome.stderr_text());
    outcome.json()
}

/// What `info --json` does, whatever it is.
pub(crate) fn info_outcome(tape: &Path) -> Outcome {
    run(heaptape(["info", "--json"]).arg(tape))
}

/// The tapes in a directory, in order of their names; nothing else may be there.
pub(crate) fn all_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.sort();
    assert!(found.iter().all(|path| path.extension() == Some(OsStr::new("tape"))), "{found:?}");
    found
}

/// An integer of the JSON, by its path.
pub(crate) fn number(value: &Value, path: &str) -> u64 {
    value
        .pointer(path)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no number at {path}: {value}"))
}

/// Asserts that nothing was lost and nothing contradicts itself.
pub(crate) fn assert_sound(info: &Value) {
    assert_eq!(info["schema"], "heaptape.tape/1");
    assert_eq!(info["complete"], true, "{info}");
    assert_eq!(info["ended"], Value::Null, "{info}");
    assert_eq!(number(info, "/lost"), 0, "{info}");
    assert_eq!(number(info, "/order_faults"), 0, "{info}");
}

/// Asserts that a tape ended before its job did, because of `ended` (null: it was cut), and that what is
/// there is whole: all events that it counts are there. Gives their number.
pub(crate) fn assert_ended_early(tape: &Path, ended: &Value) -> u64 {
    let outcome = info_outcome(tape);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr_text());
    super::one_sentence(&outcome);
    let info = outcome.json();
    assert_eq!((&info["complete"], &info["ended"]), (&false.into(), ended), "{info}");
    assert_eq!((number(&info, "/lost"), number(&info, "/order_faults")), (0, 0), "{info}");
    let mut events = 0;
    rows(tape, |_| events += 1);
    assert_eq!(events, number(&info, "/events"), "{info}");
    events
}

/// One call, a line of the CSV.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) process: usize,
    pub(crate) index: u64,
    pub(crate) thread: u64,
    pub(crate) call: usize,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) slack: u64,
    pub(crate) align: u64,
    pub(crate) old_address: u64,
    pub(crate) old_size: u64,
    pub(crate) birth: Option<u64>,
    pub(crate) module: String,
}

impl Row {
    pub(crate) fn is_release(&self) -> bool {
        self.call == FREE || self.call == DELETE
    }

    pub(crate) fn is_resize(&self) -> bool {
        self.call == REALLOC || self.call == REALLOCARRAY
    }

    /// A resize to nothing that returned nothing: the block is gone.
    pub(crate) fn frees_by_resize(&self) -> bool {
        self.is_resize() && self.address == 0 && self.size == 0 && self.old_address != 0
    }

    /// A call that should have returned a block and did not.
    pub(crate) fn failed(&self) -> bool {
        !self.is_release() && self.address == 0 && !self.frees_by_resize()
    }
}

/// Gives every call of all processes to `each`, in the order of the tape.
pub(crate) fn rows(tape: &Path, mut each: impl FnMut(Row)) {
    let mut child = heaptape(["export", "--to", "csv", "--process", "all"])
        .arg(tape)
        .stdout(Stdio::piped())
        .spawn()
        .expect("heaptape export");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let head = lines.next().expect("a header").expect("text");
    let columns = Columns::of(&head);
    for line in lines {
        each(columns.row(&line.expect("text")));
    }
    assert!(child.wait().expect("our own child").success(), "export fails");
}

struct Columns {
    names: Vec<String>,
}

impl Columns {
    fn of(head: &str) -> Columns {
        Columns { names: head.split(',').map(str::to_owned).collect() }
    }

    fn row(&self, line: &str) -> Row {
        let cells: Vec<&str> = line.split(',').collect();
        let text = |name: &str| {
            let at = self.names.iter().position(|n| n == name);
            at.and_then(|i| cells.get(i)).copied().unwrap_or_else(|| panic!("no {name} in {line}"))
        };
        let number = |name: &str| value(text(name)).unwrap_or_else(|| panic!("{name} in {line}"));
        let call = text("call");
        Row {
            process: number("process") as usize,
            index: number("index"),
            thread: number("thread"),
            call: CALLS.iter().position(|c| *c == call).unwrap_or_else(|| panic!("call in {line}")),
            address: number("address"),
            size: number("size"),
            slack: number("slack"),
            align: number("align"),
            old_address: number("old_address"),
            old_size: number("old_size"),
            birth: Some(text("birth")).filter(|t| !t.is_empty()).and_then(value),
            module: text("module").trim_matches('"').to_owned(),
        }
    }
}

/// Decimal, hexadecimal with `0x`, or nothing (0).
fn value(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.is_empty() => Some(0),
        None => text.parse().ok(),
    }
}
