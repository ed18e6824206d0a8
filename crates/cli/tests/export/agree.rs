//! The two tables of a tape against `info --json` and against each other.

use crate::harness::tape;
use crate::table::{Exported, Line, exported};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// Exports both tables and holds them against `info --json` and each other; gives them.
pub(crate) fn checked(file: &Path) -> (Exported, Exported) {
    let info = tape::info(file);
    let (calls, blocks) = (exported(file, "calls", &[]), exported(file, "blocks", &[]));
    let processes = info["processes"].as_array().expect("processes");
    assert_eq!(calls.rows.len() as u64, tape::number(&info, "/events"));
    for (number, process) in processes.iter().enumerate() {
        let own = |line: &&Line| line.number("process") == number as u64;
        let calls: Vec<&Line> = calls.rows.iter().filter(own).collect();
        let blocks: Vec<&Line> = blocks.rows.iter().filter(own).collect();
        counts_agree(process, &calls);
        births_and_deaths_agree(number as u64, &calls, &blocks);
        order_is_that_of_death(&blocks);
        curve_agrees(process, &blocks);
    }
    (calls, blocks)
}

fn counts_agree(process: &Value, calls: &[&Line]) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    calls.iter().for_each(|c| *counts.entry(c.text("call")).or_default() += 1);
    let told = process["calls"].as_object().expect("calls");
    // That of null pointers is no event.
    for (name, count) in told.iter().filter(|(name, _)| *name != "free_null") {
        let found = counts.get(name.as_str()).copied().unwrap_or(0);
        assert_eq!(Some(found), count.as_u64(), "{name}");
    }
    assert!(calls.iter().enumerate().all(|(at, c)| c.number("index") == at as u64));
}

/// Whether a call made a block.
fn makes(call: &Line) -> bool {
    !matches!(call.text("call"), "free" | "delete") && call.number("address") != 0
}

/// Every call that made a block has one row among the blocks, with what the call says of it; and every block that
/// ended was ended by a call that says so.
fn births_and_deaths_agree(process: u64, calls: &[&Line], blocks: &[&Line]) {
    let call = |index: u64| calls[usize::try_from(index).expect("an index")];
    let numbers: HashSet<u64> = blocks.iter().map(|b| b.number("block")).collect();
    assert_eq!(numbers.len(), blocks.len(), "a block comes twice");
    let own = |b: &&&Line| b.maybe("birth_process") == Some(process);
    let births: HashSet<u64> = blocks.iter().filter(own).map(|b| b.number("birth")).collect();
    let made = calls.iter().filter(|c| makes(c)).map(|c| c.number("index"));
    assert_eq!(births, made.collect::<HashSet<u64>>());
    assert_eq!(births.len(), blocks.iter().filter(own).count());
    for block in blocks {
        if own(&block) {
            let birth = call(block.number("birth"));
            for name in
                ["address", "size", "slack", "align", "caller", "module", "offset", "function"]
            {
                assert_eq!(block.text(name), birth.text(name), "{name} of {block:?}");
            }
            for (of_block, of_call) in
                [("birth_time_ms", "time_ms"), ("birth_thread", "thread"), ("birth_call", "call")]
            {
                assert_eq!(block.text(of_block), birth.text(of_call), "{of_block} of {block:?}");
            }
        }
        let Some(death) = block.maybe("death") else { continue };
        let death = call(death);
        if matches!(block.text("ended"), "freed" | "resized") {
            assert_eq!(block.text("size"), death.text("old_size"), "{block:?}");
            assert_eq!(block.text("age"), death.text("age"), "{block:?}");
            for name in ["caller", "module", "offset", "function"] {
                assert_eq!(block.text(&format!("death_{name}")), death.text(name), "{block:?}");
            }
            let lifetime = own(&block).then(|| block.number("death") - block.number("birth"));
            assert_eq!(block.maybe("lifetime"), lifetime, "{block:?}");
        }
    }
}

fn order_is_that_of_death(blocks: &[&Line]) {
    let deaths: Vec<u64> = blocks.iter().map(|b| b.maybe("death").unwrap_or(u64::MAX)).collect();
    assert!(deaths.is_sorted(), "blocks are not in order of death");
    for block in blocks {
        assert_eq!(block.text("ended") == "left", block.maybe("death").is_none(), "{block:?}");
    }
}

/// The blocks alone give the curve of requested bytes: its peak, and what was left.
fn curve_agrees(process: &Value, blocks: &[&Line]) {
    let number = process["number"].as_u64();
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    let (mut now, mut left) = (0i64, (0, 0));
    for block in blocks {
        let size = block.number("size") as i64;
        if block.maybe("birth_process") == number {
            *changes.entry(block.number("birth")).or_default() += size;
        } else {
            now += size;
        }
        match block.maybe("death") {
            Some(death) => *changes.entry(death).or_default() -= size,
            None => left = (left.0 + size, left.1 + 1),
        }
    }
    let mut peak = (now, 0);
    for (index, change) in changes {
        now += change;
        if now > peak.0 {
            peak = (now, index);
        }
    }
    let told = |path: &str| tape::number(process, path) as i64;
    assert_eq!(left, (told("/end/requested"), told("/end/blocks")));
    assert_eq!((peak.0, peak.1 as i64), (told("/peak/requested"), told("/peak/at")));
}
