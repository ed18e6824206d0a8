//! Samples of the kernel's figures: when they are taken, and that they tell the truth where they stand.
#![forbid(unsafe_code)]

mod harness;

use harness::compile::program;
use harness::running::run;
use harness::{compare, record, scratch, tape, truth};
use heaptape_tape::{Item, ProcessNumber, Sample, Tape, Vma};
use std::ffi::OsStr;
use std::path::Path;

const STEPS: usize = 50;

/// The blocks that were alive at each sample, start and end; nothing is freed but what libc frees.
fn samples(file: &Path) -> Vec<(Sample, Vec<(u64, u64)>)> {
    let tape = Tape::open(file).expect("a tape");
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut samples = Vec::new();
    for item in tape.events(ProcessNumber(0), 0..u64::MAX).expect("events") {
        match item.expect("an item") {
            Item::Event(resolved) => {
                let event = resolved.event;
                let gone = if event.call.is_release() { event.address } else { event.old };
                live.retain(|&(start, _)| start != gone);
                if event.address != 0 && !event.call.is_release() {
                    let end = event.address + event.size + event.slack;
                    live.push((event.address, end));
                }
            }
            Item::Sample(sample) => samples.push((sample, live.clone())),
            _ => {}
        }
    }
    samples
}

/// Whether the block lies in memory that may be written; mappings may touch.
fn shows(vmas: &[Vma], (start, end): (u64, u64)) -> bool {
    let reached = vmas.iter().filter(|vma| vma.is_writable()).fold(start, |reached, vma| {
        if vma.start <= reached && reached < vma.end { vma.end } else { reached }
    });
    reached >= end
}

#[test]
fn a_heap_that_grows_is_sampled_as_it_does() {
    let folder = scratch();
    let (file, truth) = (folder.path().join("x.tape"), folder.path().join("truth"));
    let (program, steps) = (program("growing"), STEPS.to_string());
    let command = [program.as_os_str(), OsStr::new(&steps), OsStr::new("20")];
    let outcome = run(record(&file, &[], &command).env("TRUTH", &truth));
    assert_eq!((outcome.code(), outcome.stderr_text().as_str()), (0, ""));
    let info = tape::info(&file);
    tape::assert_sound(&info);
    let differences = compare::differences(&file, &info, &program, &truth::lines(&truth));
    assert!(differences.is_empty(), "{differences:?}");

    let samples = samples(&file);
    let mut grown = 0;
    let mut before: Option<&Sample> = None;
    for (sample, live) in &samples {
        for &block in live {
            assert!(shows(&sample.vmas, block), "{block:x?} is not in the sample {sample:x?}");
        }
        let is_new = |&block: &(u64, u64)| before.is_none_or(|s| !shows(&s.vmas, block));
        grown += usize::from(live.iter().any(is_new));
        before = Some(sample);
    }
    // Those that are taken every 250 ms are six in a second; on a busy machine not every step gets one.
    assert!(grown >= 15 && samples.len() <= 3 * STEPS, "{grown} of {} samples", samples.len());
}
