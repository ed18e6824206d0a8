//! A tape's overview as tests of several reports need it.

use std::collections::BTreeMap;

use heaptape_analyze::overview::{Member, Overview};
use heaptape_analyze::{
    CallCounts, Ended, Header, ProcessNumber, ProcessSummary, SiteCounts, Summary, Uncovered,
    Verdict,
};

/// A process that was killed, with a parent that is on the tape.
pub(crate) fn process() -> ProcessSummary {
    ProcessSummary {
        number: ProcessNumber(1),
        pid: 78,
        parent: Some(ProcessNumber(0)),
        forked_at: Some(5),
        inherited_blocks: 2,
        inherited_bytes: 300,
        started: 10,
        ended: Some(2010),
        rank: None,
        placement: None,
        command: vec!["prog".into(), "two words".into()],
        code: None,
        signal: Some(9),
        events: 1_234_567,
        threads: 3,
        calls: CallCounts::default(),
        free_null: 4,
        lost: 0,
        order_faults: 0,
        unknown_frees: 1,
        peak_requested: 978_531_123,
        peak_at: 1000,
        end_requested: 2048,
        end_blocks: 7,
        sites: SiteCounts::default(),
    }
}

/// An incomplete tape of that process.
pub(crate) fn overview() -> Overview {
    Overview {
        summary: Summary {
            header: Header {
                started: 1_700_000_000_000_000_000,
                command: vec!["sh".into(), "-c".into(), "prog 'two words'".into()],
                host: "node7".into(),
                page_size: 4096,
                settings: Vec::new(),
            },
            complete: false,
            cut: false,
            ended: Some(Ended::MaxSize),
            bytes: 1_048_576,
            events: 1_234_567,
            lost: 0,
            order_faults: 0,
            unknown_frees: 1,
            uncovered: vec![Uncovered {
                pid: 80,
                command: vec!["/sbin/static".into()],
                why: "statically linked".into(),
            }],
            processes: vec![process()],
        },
        settings: BTreeMap::from([("MALLOC_ARENA_MAX".into(), "1".into())]),
        members: vec![Member {
            process: process(),
            parent_pid: Some(77),
            replaced: false,
            settings: BTreeMap::new(),
            verdict: Some(Verdict { events: 1_234_567, ..Verdict::default() }),
        }],
    }
}
