//! Looks up the rule for a frame in arbitrary bytes, as a module and as the entries of one whose table is right.
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

fn look_up(module: Vec<u8>, pc: u16) {
    let module = module.into_boxed_slice();
    let range = module.as_ptr_range();
    let range = range.start as usize..range.end as usize;
    // SAFETY: the module can be read and stays.
    let found = unsafe { rule(range.start, range.clone(), range.start + usize::from(pc)) };
    let kept = Rule::unpack(found.pack());
    assert!(kept == found || kept == Rule::Unknown, "{found:?} became {kept:?}");
}

fuzz_target!(|input: (u16, u16, u8, &[u8])| {
    let (pc, code, function, bytes) = input;
    if !bytes.is_empty() {
        look_up(bytes.to_vec(), pc);
    }
    look_up(with_table(code, function, bytes), pc);
});
