//! `heaptape.tape/1`: what is on a tape.

use std::collections::BTreeMap;
use std::io::{self, Write};

use heaptape_analyze::overview::{Member, Overview};
use heaptape_analyze::{Placement, ProcessSummary, SiteCounts, Verdict};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::document;
use super::parts::UncoveredPart;

#[derive(Serialize)]
struct TapeDocument<'a> {
    schema: &'static str,
    complete: bool,
    ended: Option<&'a str>,
    cut: bool,
    events: u64,
    lost: u64,
    order_faults: u64,
    unknown_frees: u64,
    bytes: u64,
    bytes_per_event: Option<f64>,
    started_ns: u64,
    duration_ms: Option<u64>,
    host: &'a str,
    page_size: u32,
    command: &'a [String],
    uncovered: Vec<UncoveredPart<'a>>,
    settings: &'a BTreeMap<String, String>,
    processes: Vec<ProcessPart<'a>>,
}

#[derive(Serialize)]
struct ProcessPart<'a> {
    number: u32,
    pid: Option<u32>,
    parent: Option<u32>,
    parent_number: Option<u32>,
    forked_at: Option<u64>,
    rank: Option<u32>,
    mpi: Option<MpiPart<'a>>,
    command: &'a [String],
    started_ms: u64,
    ended_ms: Option<u64>,
    exit: ExitPart,
    replaced: bool,
    events: u64,
    threads: u64,
    calls: Calls<'a>,
    lost: u64,
    order_faults: u64,
    unknown_frees: u64,
    inherited: EndPart,
    peak: PeakPart,
    end: EndPart,
    settings: &'a BTreeMap<String, String>,
    verified: Option<VerdictPart>,
    sites: Option<SitesPart>,
}

/// Call stacks, those that end somewhere before the outermost frame apart.
#[derive(Serialize)]
struct SitesPart {
    count: u64,
    frames: u64,
    cut: u64,
    foreign: u64,
    unreadable: u64,
    codes: u64,
}

#[derive(Serialize)]
struct MpiPart<'a> {
    size: Option<u32>,
    job: Option<&'a str>,
    host: Option<&'a str>,
    launcher: Option<&'a str>,
}

#[derive(Serialize)]
struct ExitPart {
    code: Option<i32>,
    signal: Option<i32>,
}

#[derive(Serialize)]
struct PeakPart {
    requested: u64,
    at: u64,
}

#[derive(Serialize)]
struct EndPart {
    requested: u64,
    blocks: u64,
}

#[derive(Serialize)]
struct VerdictPart {
    events: u64,
    overlaps: u64,
    unknown_frees: u64,
}

/// The counts by the calls' names, `free_null` last.
struct Calls<'a>(&'a ProcessSummary);

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (call, count) in self.0.calls.iter() {
            map.serialize_entry(call.name(), &count)?;
        }
        map.serialize_entry("free_null", &self.0.free_null)?;
        map.end()
    }
}

/// Writes a tape's overview.
pub fn write(out: &mut impl Write, overview: &Overview) -> io::Result<()> {
    let s = &overview.summary;
    let uncovered = s.uncovered.iter();
    document(
        out,
        &TapeDocument {
            schema: "heaptape.tape/1",
            complete: s.complete,
            ended: s.ended.as_ref().map(|e| e.as_str()),
            cut: s.cut,
            events: s.events,
            lost: s.lost,
            order_faults: s.order_faults,
            unknown_frees: s.unknown_frees,
            bytes: s.bytes,
            bytes_per_event: overview.bytes_per_event(),
            started_ns: s.header.started,
            duration_ms: overview.duration(),
            host: &s.header.host,
            page_size: s.header.page_size,
            command: &s.header.command,
            uncovered: uncovered.map(UncoveredPart::of).collect(),
            settings: &overview.settings,
            processes: overview.members.iter().map(process).collect(),
        },
    )
}

fn process(member: &Member) -> ProcessPart<'_> {
    let p = &member.process;
    let verified = |v: &Verdict| VerdictPart {
        events: v.events,
        overlaps: v.faults,
        unknown_frees: v.unknown_frees,
    };
    ProcessPart {
        number: p.number.0,
        pid: p.known_pid(),
        parent: member.parent_pid,
        parent_number: p.parent.map(|n| n.0),
        forked_at: p.forked_at,
        rank: p.rank,
        mpi: p.placement.as_ref().map(mpi),
        command: &p.command,
        started_ms: p.started,
        ended_ms: p.ended,
        exit: ExitPart { code: p.code, signal: p.signal },
        replaced: member.replaced,
        events: p.events,
        threads: p.threads,
        calls: Calls(p),
        lost: p.lost,
        order_faults: p.order_faults,
        unknown_frees: p.unknown_frees,
        inherited: EndPart { requested: p.inherited_bytes, blocks: p.inherited_blocks },
        peak: PeakPart { requested: p.peak_requested, at: p.peak_at },
        end: EndPart { requested: p.end_requested, blocks: p.end_blocks },
        settings: &member.settings,
        verified: member.verdict.as_ref().map(verified),
        sites: (p.sites.sites > 0).then(|| sites(&p.sites)),
    }
}

fn sites(counts: &SiteCounts) -> SitesPart {
    let SiteCounts { sites, cut, foreign, unreadable, frames, codes } = *counts;
    SitesPart { count: sites, frames, cut, foreign, unreadable, codes }
}

fn mpi(placement: &Placement) -> MpiPart<'_> {
    fn known(text: &str) -> Option<&str> {
        Some(text).filter(|text| !text.is_empty())
    }
    MpiPart {
        size: placement.size,
        job: known(&placement.job),
        host: known(&placement.host),
        launcher: known(&placement.launcher),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::overview;
    use serde_json::{Value, json};

    #[test]
    fn a_tape_has_every_promised_field() {
        let mut out = Vec::new();
        write(&mut out, &overview()).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["schema"], "heaptape.tape/1");
        assert_eq!((&value["complete"], &value["ended"]), (&json!(false), &json!("max-size")));
        assert_eq!(value["settings"], json!({"MALLOC_ARENA_MAX": "1"}));
        assert_eq!(
            value["uncovered"],
            json!([{"pid": 80, "command": ["/sbin/static"], "why": "statically linked"}])
        );
        let one = &value["processes"][0];
        assert_eq!(
            (&one["pid"], &one["parent"], &one["rank"]),
            (&json!(78), &json!(77), &json!(null))
        );
        assert_eq!(one["mpi"], json!(null));
        let placement = Placement {
            rank: 3,
            size: Some(4),
            job: "77".into(),
            host: String::new(),
            launcher: "Open MPI".into(),
        };
        assert_eq!(
            serde_json::to_value(mpi(&placement)).unwrap(),
            json!({"size": 4, "job": "77", "host": null, "launcher": "Open MPI"})
        );
        assert_eq!(one["exit"], json!({"code": null, "signal": 9}));
        assert_eq!(one["peak"], json!({"requested": 978_531_123, "at": 1000}));
        assert_eq!(one["end"], json!({"requested": 2048, "blocks": 7}));
        assert_eq!((&one["calls"]["free_null"], &one["calls"]["new"]), (&json!(4), &json!(0)));
        assert_eq!(one["calls"].as_object().map(|c| c.len()), Some(13));
        for field in ["events", "lost", "order_faults", "unknown_frees", "bytes", "bytes_per_event"]
        {
            assert!(value[field].is_number(), "{field}");
        }
    }
}
