//! Arbitrary things to do to a writer, few enough places that they meet.

use crate::model::Step;
use heaptape_tape::*;
use heaptape_wire::site::{interpreted, site_word};
use proptest::prelude::*;

fn event() -> impl Strategy<Value = Event> {
    let address =
        prop_oneof![9 => (1u64..40).prop_map(|a| a << 4), 1 => any::<u64>(), 1 => Just(0)];
    let size = prop_oneof![8 => 0u64..100, 1 => 1u64 << 40..1 << 62, 1 => any::<u32>().prop_map(u64::from)];
    let slack = prop_oneof![8 => 0u64..16, 1 => 0u64..1 << 33];
    let align = prop_oneof![4 => Just(0u64), 1 => Just(64u64), 1 => 1u64..99];
    let old = prop_oneof![9 => (1u64..40).prop_map(|a| a << 4), 1 => any::<u64>(), 1 => Just(0)];
    let call = (0usize..20).prop_map(|n| match n {
        0..12 => Call::ALL[n],
        12..15 => Call::Free,
        15..17 => Call::Realloc,
        _ => Call::Malloc,
    });
    let caller = prop_oneof![6 => (0u64..9).prop_map(|n| n * 0x1_0001), 6 => (0u32..12).prop_map(site_word), 1 => any::<u64>()];
    let rest = (0u32..4, 0u64..50, caller, any::<bool>());
    (call, address, size, slack, align, old, rest).prop_map(
        |(call, address, size, slack, align, old, (thread, time, caller, in_place))| {
            let release = call.is_release();
            let reallocation = call.is_reallocation();
            let address = if reallocation && in_place { old } else { address };
            let failed = !release && address == 0;
            Event {
                call,
                thread,
                time,
                caller,
                address,
                size: if release { 0 } else { size },
                slack: if release || failed { 0 } else { slack },
                align: if release || reallocation { 0 } else { align },
                old: if reallocation { old } else { 0 },
            }
        },
    )
}

fn note() -> impl Strategy<Value = Note> {
    let args = prop::collection::vec(any::<u64>(), 0..4);
    let text = prop::collection::vec(any::<u8>(), 0..20);
    (0usize..NoteKind::ALL.len(), 0u32..4, any::<u64>(), any::<u64>(), args, text).prop_map(
        |(kind, thread, time, caller, args, text)| Note {
            thread,
            time,
            caller,
            kind: NoteKind::ALL[kind],
            args,
            text,
        },
    )
}

fn sample() -> impl Strategy<Value = Sample> {
    let value = || prop::option::of(0..u64::MAX);
    let vma = (any::<u64>(), any::<u64>(), any::<u8>(), "[a-z/]{0,9}");
    let vma = vma.prop_map(|(start, end, perms, name)| Vma { start, end, perms, name });
    (any::<u64>(), value(), value(), value(), prop::collection::vec(vma, 0..4)).prop_map(
        |(time, system, resident, pss, vmas)| Sample {
            time,
            system,
            resident,
            pss,
            pss_anon: pss,
            vmas,
            ..Sample::default()
        },
    )
}

/// A call stack whose frames are few enough that many begin alike.
fn site(p: impl Strategy<Value = usize>) -> impl Strategy<Value = Step> {
    let frame = prop_oneof![
        6 => (1u64..5).prop_map(|n| n << 12),
        2 => (0u32..4, 0u32..3).prop_map(|(code, line)| interpreted(code, line)),
        1 => any::<u64>()
    ];
    let end = (0u64..4).prop_map(|code| SiteEnd::from_code(code).unwrap());
    let short = prop::collection::vec(frame.clone(), 0..8);
    let frames = prop_oneof![9 => short, 1 => prop::collection::vec(frame, 120..140)];
    (p, 0u32..12, end, frames).prop_map(|(p, id, end, frames)| Step::Site(p, id, end, frames))
}

fn code(p: impl Strategy<Value = usize>) -> impl Strategy<Value = Step> {
    (p, 0u32..4, "[a-c]{0,2}", "[a-c]{0,2}", 0u32..3)
        .prop_map(|(p, id, file, function, line)| Step::Code(p, id, Code { file, function, line }))
}

/// Something to do; most are events.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let p = 0usize..6;
    prop_oneof![
        60 => (p.clone(), event()).prop_map(|(p, e)| Step::Event(p, e)),
        6 => (p.clone(), 0u32..4, 0u64..50, (1u64..40).prop_map(|a| a << 4))
            .prop_map(|(p, t, time, a)| Step::Release(p, t, time, a)),
        2 => (p.clone(), note()).prop_map(|(p, n)| Step::Note(p, n)),
        1 => (p.clone(), sample()).prop_map(|(p, s)| Step::Sample(p, s)),
        1 => Just(Step::Exec),
        2 => p.clone().prop_map(Step::Point),
        2 => (0usize..3).prop_map(Step::Child),
        1 => (0usize..3).prop_map(Step::Drop),
        1 => p.clone().prop_map(Step::End),
        8 => site(p.clone()),
        2 => code(p),
        3 => Just(Step::Flush),
    ]
}
