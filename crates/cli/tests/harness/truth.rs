//! The lines that tests/programs write about themselves (tests/programs/truth.h says what they hold).

use super::tape::CALLS;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Blocks alive at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) mix: u64,
}

/// What one image of one process did.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) program: String,
    pub(crate) pid: u64,
    pub(crate) threads: u64,
    pub(crate) calls: [u64; 13],
    pub(crate) bytes: [u64; 13],
    pub(crate) failed: u64,
    pub(crate) caught: u64,
    pub(crate) usable: u64,
    pub(crate) mix: u64,
    pub(crate) order: u64,
    pub(crate) inherited: Option<Live>,
    pub(crate) live: Option<Live>,
    pub(crate) peak: Option<u64>,
    pub(crate) quiet: bool,
}

impl Line {
    /// Calls that are events: all but null pointers.
    pub(crate) fn events(&self) -> u64 {
        self.calls[1..].iter().sum()
    }
}

/// All lines of the file, in the order in which they were written.
pub(crate) fn lines(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|l| line(&serde_json::from_str(l).expect("a truth line is JSON"))).collect()
}

fn line(v: &Value) -> Line {
    let number = |name: &str| v[name].as_u64().unwrap_or_else(|| panic!("{name} in {v}"));
    let kinds = |name: &str| std::array::from_fn(|i| v[name][CALLS[i]].as_u64().unwrap_or(0));
    let live = |name: &str| {
        let l = v[name].as_object()?;
        Some(Live {
            bytes: l["bytes"].as_u64()?,
            blocks: l["blocks"].as_u64()?,
            mix: l["mix"].as_u64()?,
        })
    };
    Line {
        program: v["program"].as_str().unwrap_or_default().to_owned(),
        pid: number("pid"),
        threads: number("threads"),
        calls: kinds("calls"),
        bytes: kinds("bytes"),
        failed: number("failed"),
        caught: number("caught"),
        usable: number("usable"),
        mix: number("mix"),
        order: number("order"),
        inherited: live("inherited"),
        live: live("live"),
        peak: v["peak"].as_u64(),
        quiet: v["quiet"] == true,
    }
}

/// One step of the hashes; the twin of `t_step`.
pub(crate) fn step(h: u64, v: u64) -> u64 {
    let h = (h ^ v).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    h ^ h >> 32
}

/// The twin of `t_hash_block`.
pub(crate) fn hash_block(address: u64, size: u64) -> u64 {
    step(step(2, address), size)
}
