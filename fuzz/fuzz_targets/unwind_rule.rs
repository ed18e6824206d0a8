//! Looks up the rule for a frame in arbitrary bytes: as a module, as the entries of one whose table is right, and as the steps
//! of a function whose entry is right.
//!
//! `cargo +nightly fuzz run unwind_rule -- -max_len=512`. The sanitizer sees each read that is not of the module.
#![no_main]

use heaptape_unwind::{Rule, rule};
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: u32 = 20;

/// The entries behind a table that says: the code from `code` on is of the entry at `function`.
fn with_table(code: u16, function: u8, entries: &[u8]) -> Vec<u8> {
    let mut module = vec![1, 0x1b, 0x03, 0x3b];
    for number in [HEADER_BYTES - 4, 1, u32::from(code), HEADER_BYTES + u32::from(function)] {
        module.extend(number.to_le_bytes());
    }
    module.extend(entries);
    module
}

/// The entries of a function from the table's begin on, which has these steps.
fn with_entries(steps: &[u8]) -> Vec<u8> {
    let mut entries = vec![20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0];
    entries.extend([0x0c, 7, 8, 0x90, 1, 0, 0]);
    entries.extend((21 + steps.len() as u32).to_le_bytes());
    entries.extend(28u32.to_le_bytes());
    entries.extend(0u64.to_le_bytes());
    entries.extend(u64::MAX.to_le_bytes());
    entries.push(0);
    entries.extend(steps);
    entries
}

fn look_up(module: Vec<u8>, pc: u16) {
    let module = module.into_boxed_slice();
    let range = module.as_ptr_range();
    let range = range.start as usize..range.end as usize;
    // SAFETY: the module can be read and stays.
    let found = unsafe { rule(range.start, range.clone(), range.start + usize::from(pc)) };
    let kept = found.pack().map_or(found, Rule::unpack);
    assert!(kept == found, "{found:?} became {kept:?}");
}

fuzz_target!(|input: (u16, u16, u8, &[u8])| {
    let (pc, code, function, bytes) = input;
    if !bytes.is_empty() {
        look_up(bytes.to_vec(), pc);
    }
    look_up(with_table(code, function, bytes), pc);
    look_up(with_table(0, 24, &with_entries(bytes)), pc);
});
