//! Reads arbitrary bytes as a tape, as they are and with right checksums.
//!
//! `cargo +nightly fuzz run read_tape -- -max_len=65536`; tests/tapes is a corpus to begin with.
#![no_main]

use heaptape_tape::{Tape, verify, verify_file};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tape/tests/tape/reseal.rs"]
mod reseal;

fn read(bytes: Vec<u8>) {
    let Ok(tape) = Tape::from_bytes(bytes) else { return };
    let _ = verify_file(&tape);
    let _ = tape.names();
    for process in &tape.summary().processes {
        let number = process.number;
        for from in [0, process.events / 2] {
            let _ = tape.events(number, from..u64::MAX).map(|items| items.count());
        }
        let _ = tape.live_at(number, process.peak_at);
        let _ = tape.marks(number).map(|marks| marks.count());
        let _ = tape.index_at(number, 1000);
        let _ = tape.sites(number).map(|sites| sites.iter().count());
        let _ = verify(&tape, number);
    }
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes.to_vec());
    let mut sealed = bytes.to_vec();
    reseal::reseal(&mut sealed);
    read(sealed);
});
