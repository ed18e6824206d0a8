//! What is written is what is read, for any stream of events; and a tape that is cut or damaged
//! is read as far as it goes.

mod model;

use heaptape_tape::*;
use model::{Step, play, step, without_early_ages};
use proptest::prelude::*;

fn read(tape: &Tape, process: u32, from: u64, to: u64) -> Vec<Item> {
    let items = tape.events(ProcessNumber(process), from..to).unwrap();
    items.map(|item| without_early_ages(item.unwrap())).collect()
}

fn compare(steps: &[Step], keyframes: u64) {
    let (bytes, model) = play(steps, keyframes);
    let tape = Tape::from_bytes(bytes).unwrap();
    let summary = tape.summary();
    assert!(summary.complete);
    assert_eq!(summary.processes.len(), model.len());
    for (is, should) in summary.processes.iter().zip(&model) {
        let number = is.number.0;
        let items: Vec<_> = should.items.iter().cloned().map(without_early_ages).collect();
        assert_eq!(read(&tape, number, 0, u64::MAX), items);
        assert_eq!(is.events, should.index);
        assert_eq!(is.unknown_frees, should.unknown_frees);
        assert_eq!(is.order_faults, should.order_faults);
        assert_eq!(is.end_requested, should.requested());
        assert_eq!(is.end_blocks, should.all().len() as u64);
        assert_eq!((is.peak_requested, is.peak_at), (should.peak, should.peak_at));
        assert_eq!(is.ended.is_some(), should.ended);
        let count = |call| {
            items
                .iter()
                .filter(|item| matches!(item, Item::Event(r) if r.event.call == call))
                .count()
        };
        for (call, calls) in is.calls.iter() {
            assert_eq!(calls, count(call) as u64);
        }
        for (index, live) in should.history.iter().enumerate().rev().step_by(7) {
            assert_eq!(&tape.live_at(is.number, index as u64).unwrap(), live);
            let from = index as u64 / 2;
            let some = items.iter().filter(|i| (from..index as u64).contains(&i.index()));
            assert_eq!(read(&tape, number, from, index as u64), some.cloned().collect::<Vec<_>>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_what_was_written(
        steps in prop::collection::vec(step(), 0..400),
        keyframes in prop_oneof![Just(1u64), Just(20), Just(u64::MAX)],
    ) {
        compare(&steps, keyframes);
    }
}
