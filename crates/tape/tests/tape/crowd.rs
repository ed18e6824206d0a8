//! Many live blocks, any of which ends next: each is found again, from the start and from a keyframe.

use heaptape_tape::*;
use std::collections::HashMap;

const LIVE: u64 = 50_000;
const EVENTS: u64 = 300_000;
const PROCESS: ProcessNumber = ProcessNumber(0);

/// What is known of a block from its birth: birth, ordinal, size, slack, caller and thread.
type Birth = (u64, u64, u64, u64, (u64, u32));

struct Crowd {
    random: u64,
    births: HashMap<u64, Birth>,
    ordinal: u64,
    /// By event: what it ended.
    ended: Vec<Option<Birth>>,
}

impl Crowd {
    fn next(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    /// The next event: of one of [`LIVE`] places, whose block it ends or resizes if one is there.
    fn event(&mut self, index: u64) -> Event {
        let place = match index < LIVE {
            true => index,
            false => self.next(LIVE),
        };
        let there = 0x7f00_0000_0000 + (place << 12);
        let (kind, size) = (self.next(8), self.next(4000));
        // A few do not fit in the words that nearly all fit in.
        let size = if self.next(500) == 0 { size << 20 } else { size };
        let slack = if self.next(500) == 0 { 1 << 17 } else { 8 };
        let (caller, thread) = (0x40_0000 + self.next(900), self.next(3) as u32);
        let event = Event {
            call: Call::Malloc,
            thread,
            time: 0,
            caller,
            address: there,
            size,
            slack,
            align: 0,
            old: 0,
        };
        let old = self.births.get(&there).copied();
        let event = match (old, kind) {
            (None, _) => event,
            (Some(_), 0) => Event { call: Call::Realloc, old: there, ..event },
            (Some(_), _) => Event { call: Call::Free, size: 0, slack: 0, ..event },
        };
        self.births.remove(&there);
        if event.call != Call::Free {
            let birth = (index, self.ordinal, size, slack, (caller, thread));
            self.births.insert(there, birth);
            self.ordinal += 1;
        }
        self.ended.push(old);
        event
    }
}

#[test]
fn each_of_many_blocks_is_found_when_it_ends() {
    let sink = FrameWriter::new(Vec::new()).unwrap();
    let mut writer = Writer::new(sink, &Header::default()).unwrap().keyframe_every(70_000);
    let (parent, rank, command) = (None, None, Vec::new());
    let start = ProcessStart { pid: 7, parent, origin: Origin::Exec, time: 0, rank, command };
    writer.start_process(&start).unwrap();
    let mut crowd = Crowd { random: 1, births: HashMap::new(), ordinal: 0, ended: Vec::new() };
    for index in 0..EVENTS {
        let event = crowd.event(index);
        writer.event(PROCESS, &event).unwrap();
        if index % 10_000 == 0 {
            writer.flush().unwrap();
        }
    }
    writer.end_process(PROCESS, &ProcessEnd::default()).unwrap();
    let tape = Tape::from_bytes(writer.finish(None).unwrap().into_inner()).unwrap();

    ends_are_right(tape.events(PROCESS, 0..u64::MAX).unwrap(), &crowd, true);
    ends_are_right(tape.events(PROCESS, EVENTS - 50_000..u64::MAX).unwrap(), &crowd, false);
    let live = tape.live_at(PROCESS, u64::MAX).unwrap();
    let live = live
        .iter()
        .map(|b| (b.address, (b.birth, b.ordinal, b.size, b.slack, (b.caller, b.thread))));
    assert_eq!(live.collect::<HashMap<_, _>>(), crowd.births);
    assert_eq!(verify(&tape, PROCESS).unwrap().events, EVENTS);
}

fn ends_are_right(events: Events<'_>, crowd: &Crowd, from_start: bool) {
    let (mut seen, mut callers) = (0, HashMap::new());
    for item in events {
        let Item::Event(event) = item.unwrap() else { continue };
        let meant = crowd.ended[event.index as usize];
        callers.insert(event.caller, event.event.caller);
        let ended = event.block.map(|old| {
            assert!(old.maker.is_some() || !from_start);
            // Of a stream that begins at a keyframe, who made what was there then is not known.
            let maker = old
                .maker
                .and_then(|maker| Some((*callers.get(&Some(maker.caller))?, maker.thread)));
            let maker = maker.or(meant.map(|meant| meant.4)).unwrap_or_default();
            (old.birth.unwrap(), old.ordinal, old.size, old.slack, maker)
        });
        assert_eq!(ended, meant, "event {}", event.index);
        seen += usize::from(meant.is_some());
    }
    assert!(seen > 20_000);
    assert_eq!(callers.len(), 900);
}
