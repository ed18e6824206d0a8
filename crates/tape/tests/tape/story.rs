//! A stream of events that is always the same.

use crate::model::Step;
use heaptape_tape::*;
use heaptape_wire::site::{interpreted, site_word};

/// A long story, always the same: what the golden tape holds.
pub(crate) fn story() -> Vec<Step> {
    let mut state = 2026u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut steps = Vec::new();
    for n in 0..3000u64 {
        let process = random(3) as usize;
        let address = 0x5555_0000 + random(400) * 32;
        let (thread, time, caller) = (random(3) as u32, n / 8, 0x40_0000 + random(20) * 16);
        let call = Call::ALL[random(12) as usize];
        let (release, reallocation) = (call.is_release(), call.is_reallocation());
        let failed = !release && random(50) == 0;
        let event = Event {
            call,
            thread,
            time,
            caller,
            address: if failed { 0 } else { address },
            size: if release { 0 } else { random(30) * random(30) },
            slack: if release || failed { 0 } else { random(2) * 8 },
            align: if release || reallocation { 0 } else { random(8) / 7 * 64 },
            old: if reallocation { 0x5555_0000 + random(400) * 32 } else { 0 },
        };
        steps.push(Step::Event(process, event));
        let mark = (thread, time, caller);
        steps.extend(match n % 600 {
            100 => Some(Step::Exec),
            150 => Some(Step::Note(process, story_note(mark, n))),
            200 => Some(Step::Sample(process, story_sample(time, n))),
            250 => Some(Step::Point(process)),
            300 => Some(Step::Child(0)),
            350 => Some(Step::Release(process, thread, time, address ^ 64)),
            400 => Some(Step::Drop(0)),
            450 => Some(Step::Flush),
            599 if n > 2000 => Some(Step::End(process)),
            _ => None,
        });
    }
    steps
}

fn story_note((thread, time, caller): (u32, u64, u64), n: u64) -> Note {
    // The kinds that there were when the golden tape was written; later ones do not change it.
    let kind = NoteKind::from_code((n % 26 + 1) as u8).expect("a kind of version 1");
    Note { thread, time, caller, kind, args: vec![n, u64::MAX], text: b"libfoo.so.1".to_vec() }
}

fn story_sample(time: u64, n: u64) -> Sample {
    let heap = Vma { start: 0x5555_0000, end: 0x5556_0000, perms: 3, name: "[heap]".into() };
    Sample { time, system: Some(n << 12), pss: Some(n), vmas: vec![heap], ..Sample::default() }
}

/// The same with call stacks, some of them with interpreted frames: what the golden tape of version 2 holds.
pub(crate) fn story_with_sites() -> Vec<Step> {
    let mut steps = Vec::new();
    for (n, step) in (0..).zip(story()) {
        let Step::Event(process, event) = step else {
            steps.push(step);
            continue;
        };
        if n % 40 == 0 {
            steps.extend(new_stack(process, n));
        }
        // Now and then one that was never told.
        let id = event.address / 32 % (n / 40 + 2);
        let caller = if event.call.is_release() { event.caller } else { site_word(id as u32) };
        steps.push(Step::Event(process, Event { caller, ..event }));
    }
    steps
}

fn new_stack(process: usize, n: u64) -> Vec<Step> {
    let (id, piece) = ((n / 40) as u32, (n / 40 % 5) as u32);
    let outer = (0..n / 40 % 9).rev().map(|depth| 0x40_1000 + depth * (n / 200) * 0x111);
    let line = interpreted(piece, id);
    let frames = [0x7f00_0000_1000 + n].into_iter().chain((id % 3 == 0).then_some(line));
    let end = SiteEnd::from_code(n / 40 % 4).expect("one of four");
    let code = Code { file: "job.py".into(), function: format!("step{piece}"), line: piece * 10 };
    vec![
        Step::Code(process, piece, code),
        Step::Site(process, id, end, frames.chain(outer).collect()),
    ]
}
