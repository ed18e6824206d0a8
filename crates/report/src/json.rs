//! The JSON that other programs rely on. Every document names its schema; sizes are plain bytes,
//! what is not known is `null`, and no field is ever left out.

use std::collections::BTreeMap;
use std::io::{self, Write};

use heaptape_analyze::bins::{Bin, Histogram, Traffic};
use heaptape_analyze::calls::{Effect, Row};
use heaptape_analyze::live::{Caller, Part, Sum};
use heaptape_analyze::modules::Place;
use heaptape_analyze::overview::{Member, Overview};
use heaptape_analyze::{LiveBlock, Note, ProcessSummary, Release, Sample, Verdict};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::text;

/// Writes a value as one document, ended by a newline.
fn document(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

// --- heaptape.tape/1 ---------------------------------------------------------------------------

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
struct UncoveredPart<'a> {
    pid: u32,
    command: &'a [String],
    why: &'a str,
}

#[derive(Serialize)]
struct ProcessPart<'a> {
    number: u32,
    pid: u32,
    parent: Option<u32>,
    parent_number: Option<u32>,
    forked_at: Option<u64>,
    rank: Option<u32>,
    command: &'a [String],
    started_ms: u64,
    ended_ms: Option<u64>,
    exit: ExitPart,
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

/// Writes a tape's overview: `heaptape.tape/1`.
pub fn tape(out: &mut impl Write, overview: &Overview) -> io::Result<()> {
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
            uncovered: uncovered
                .map(|u| UncoveredPart { pid: u.pid, command: &u.command, why: &u.why })
                .collect(),
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
        pid: p.pid,
        parent: member.parent_pid,
        parent_number: p.parent.map(|n| n.0),
        forked_at: p.forked_at,
        rank: p.rank,
        command: &p.command,
        started_ms: p.started,
        ended_ms: p.ended,
        exit: ExitPart { code: p.code, signal: p.signal },
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
    }
}

// --- heaptape.events/1 -------------------------------------------------------------------------

#[derive(Serialize)]
struct ProcessName<'a> {
    number: u32,
    pid: u32,
    rank: Option<u32>,
    command: &'a [String],
}

impl<'a> ProcessName<'a> {
    fn of(p: &'a ProcessSummary) -> ProcessName<'a> {
        ProcessName { number: p.number.0, pid: p.pid, rank: p.rank, command: &p.command }
    }
}

#[derive(Serialize)]
struct EventPart<'a> {
    index: u64,
    time_ms: u64,
    thread: u32,
    call: &'static str,
    address: u64,
    size: u64,
    slack: u64,
    align: u64,
    old_address: Option<u64>,
    old_size: Option<u64>,
    birth: Option<u64>,
    age: Option<u64>,
    moved: Option<bool>,
    effect: &'static str,
    caller: Option<String>,
    module: Option<&'a str>,
    offset: Option<u64>,
}

#[derive(Serialize)]
struct NotePart<'a> {
    note: &'static str,
    before: u64,
    time_ms: u64,
    thread: u32,
    args: &'a [u64],
    text: String,
}

#[derive(Serialize)]
struct ReleasePart {
    release: u64,
    before: u64,
    time_ms: u64,
    thread: u32,
}

#[derive(Serialize)]
struct SamplePart {
    sample: &'static str,
    before: u64,
    time_ms: u64,
    system: Option<u64>,
    resident: Option<u64>,
    pss: Option<u64>,
    pss_anon: Option<u64>,
    pss_file: Option<u64>,
    pss_shmem: Option<u64>,
    swap: Option<u64>,
    mappings: usize,
}

/// Writes calls as one document, `heaptape.events/1`, with each call on a line of its own, so that a
/// long listing need not be held in memory.
pub struct Events<W: Write> {
    out: W,
    empty: bool,
}

impl<W: Write> Events<W> {
    /// Begins the document.
    pub fn new(mut out: W, complete: bool, process: &ProcessSummary) -> io::Result<Events<W>> {
        write!(out, "{{\"schema\":\"heaptape.events/1\",\"complete\":{complete},\"process\":")?;
        serde_json::to_writer(&mut out, &ProcessName::of(process))?;
        write!(out, ",\"events\":[")?;
        Ok(Events { out, empty: true })
    }

    /// Writes a call.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        let caller = (row.caller != 0).then(|| text::caller(row.place.as_ref(), row.caller));
        self.line(&EventPart {
            index: row.index,
            time_ms: row.time,
            thread: row.thread,
            call: row.call.name(),
            address: row.address,
            size: row.size,
            slack: row.slack,
            align: row.align,
            old_address: row.old_address,
            old_size: row.old_size,
            birth: row.birth,
            age: row.age,
            moved: row.moved(),
            effect: effect(row.effect),
            caller,
            module: row.place.as_ref().map(|p| p.module.path.as_str()),
            offset: row.place.as_ref().map(|p| p.offset),
        })
    }

    /// Writes a note that stands before the call with this index.
    pub fn note(&mut self, before: u64, note: &Note) -> io::Result<()> {
        self.line(&NotePart {
            note: note.kind.name(),
            before,
            time_ms: note.time,
            thread: note.thread,
            args: &note.args,
            text: String::from_utf8_lossy(&note.text).into_owned(),
        })
    }

    /// Writes that a realloc, whose call comes later, has given its old address up.
    pub fn release(&mut self, release: &Release) -> io::Result<()> {
        self.line(&ReleasePart {
            release: release.address,
            before: release.index,
            time_ms: release.time,
            thread: release.thread,
        })
    }

    /// Writes a sample.
    pub fn sample(&mut self, s: &Sample) -> io::Result<()> {
        self.line(&SamplePart {
            sample: "kernel",
            before: s.index,
            time_ms: s.time,
            system: s.system,
            resident: s.resident,
            pss: s.pss,
            pss_anon: s.pss_anon,
            pss_file: s.pss_file,
            pss_shmem: s.pss_shmem,
            swap: s.swap,
            mappings: s.vmas.len(),
        })
    }

    /// Ends the document.
    pub fn finish(mut self) -> io::Result<()> {
        writeln!(self.out, "\n]}}")
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if self.empty { b"\n" } else { b",\n" })?;
        self.empty = false;
        serde_json::to_writer(&mut self.out, value)?;
        Ok(())
    }
}

const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Made => "made",
        Effect::Freed => "freed",
        Effect::InPlace => "in place",
        Effect::Moved => "moved",
        Effect::Failed => "failed",
        Effect::Unknown => "unknown",
    }
}

// --- heaptape.histogram/1 ----------------------------------------------------------------------

#[derive(Serialize)]
struct HistogramDocument<'a> {
    schema: &'static str,
    complete: bool,
    process: ProcessName<'a>,
    bins: Vec<BinPart>,
    groups: Vec<GroupPart>,
}

#[derive(Serialize)]
struct BinPart {
    unit: u64,
    #[serde(flatten)]
    traffic: TrafficPart,
}

#[derive(Serialize)]
struct GroupPart {
    name: &'static str,
    #[serde(flatten)]
    traffic: TrafficPart,
}

#[derive(Serialize)]
struct TrafficPart {
    peak: Option<u64>,
    total: u64,
    freed: u64,
    current: Option<u64>,
    count: u64,
}

impl TrafficPart {
    fn of(t: &Traffic, balanced: bool) -> TrafficPart {
        TrafficPart {
            peak: balanced.then_some(t.peak),
            total: t.total,
            freed: t.freed,
            current: balanced.then_some(t.current),
            count: t.count,
        }
    }
}

/// Writes size classes: `heaptape.histogram/1`. `balanced` says that both ends of each block were
/// counted; else what lives and the peak are `null`.
pub fn histogram(
    out: &mut impl Write,
    complete: bool,
    process: &ProcessSummary,
    histogram: &Histogram,
    balanced: bool,
) -> io::Result<()> {
    let part = |t: &Traffic| TrafficPart::of(t, balanced);
    let bins = histogram.bins().map(|(b, t)| BinPart { unit: b.unit(), traffic: part(t) });
    let groups = histogram.groups().map(|(g, t)| GroupPart { name: g.name(), traffic: part(t) });
    document(
        out,
        &HistogramDocument {
            schema: "heaptape.histogram/1",
            complete,
            process: ProcessName::of(process),
            bins: bins.collect(),
            groups: groups.collect(),
        },
    )
}

// --- heaptape.live/1 ---------------------------------------------------------------------------

/// What a live set's document begins with.
#[derive(Clone, Copy, Debug)]
pub struct LiveHead<'a> {
    /// Whether the tape is complete.
    pub complete: bool,
    /// The process.
    pub process: &'a ProcessSummary,
    /// The index of the event after which the blocks are alive; `None` before the first.
    pub at: Option<u64>,
    /// The sums over all blocks, shown or not.
    pub sum: &'a Sum,
}

#[derive(Serialize)]
struct LiveDocument<'a, T> {
    schema: &'static str,
    complete: bool,
    process: ProcessName<'a>,
    at: Option<u64>,
    blocks: u64,
    requested: u64,
    usable: u64,
    by: Option<&'static str>,
    list: Vec<T>,
}

#[derive(Serialize)]
struct BlockPart<'a> {
    address: u64,
    size: u64,
    slack: u64,
    align: u64,
    birth: u64,
    process: u32,
    thread: u32,
    time_ms: u64,
    caller: Option<String>,
    module: Option<&'a str>,
    offset: Option<u64>,
}

#[derive(Serialize)]
struct CallerPart<'a> {
    caller: Option<String>,
    module: Option<&'a str>,
    offset: Option<u64>,
    #[serde(flatten)]
    sum: SumPart,
}

#[derive(Serialize)]
struct LiveBinPart {
    unit: u64,
    #[serde(flatten)]
    sum: SumPart,
}

#[derive(Serialize)]
struct SumPart {
    blocks: u64,
    requested: u64,
    usable: u64,
    largest: u64,
}

impl SumPart {
    fn of(s: &Sum) -> SumPart {
        SumPart { blocks: s.blocks, requested: s.requested, usable: s.usable, largest: s.largest }
    }
}

fn live<T: Serialize>(
    out: &mut impl Write,
    head: LiveHead<'_>,
    by: Option<&'static str>,
    list: impl Iterator<Item = T>,
) -> io::Result<()> {
    document(
        out,
        &LiveDocument {
            schema: "heaptape.live/1",
            complete: head.complete,
            process: ProcessName::of(head.process),
            at: head.at,
            blocks: head.sum.blocks,
            requested: head.sum.requested,
            usable: head.sum.usable,
            by,
            list: list.collect(),
        },
    )
}

/// Writes live blocks with their callers: `heaptape.live/1`.
pub fn live_blocks(
    out: &mut impl Write,
    head: LiveHead<'_>,
    blocks: &[(LiveBlock, Option<Place>)],
) -> io::Result<()> {
    let list = blocks.iter().map(|(b, place)| BlockPart {
        address: b.address,
        size: b.size,
        slack: b.slack,
        align: b.align,
        birth: b.birth,
        process: b.process.0,
        thread: b.thread,
        time_ms: b.time,
        caller: (b.caller != 0).then(|| text::caller(place.as_ref(), b.caller)),
        module: place.as_ref().map(|p| p.module.path.as_str()),
        offset: place.as_ref().map(|p| p.offset),
    });
    live(out, head, None, list)
}

/// Writes the callers of live blocks: `heaptape.live/1`.
pub fn live_callers(
    out: &mut impl Write,
    head: LiveHead<'_>,
    parts: &[Part<Caller>],
) -> io::Result<()> {
    let list = parts.iter().map(|part| {
        let Caller { address, place } = &part.key;
        CallerPart {
            caller: (*address != 0).then(|| text::caller(place.as_ref(), *address)),
            module: place.as_ref().map(|p| p.module.path.as_str()),
            offset: place.as_ref().map(|p| p.offset),
            sum: SumPart::of(&part.sum),
        }
    });
    live(out, head, Some("caller"), list)
}

/// Writes the bins of live blocks: `heaptape.live/1`.
pub fn live_bins(out: &mut impl Write, head: LiveHead<'_>, parts: &[Part<Bin>]) -> io::Result<()> {
    let list = parts.iter().map(|p| LiveBinPart { unit: p.key.unit(), sum: SumPart::of(&p.sum) });
    live(out, head, Some("bin"), list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{overview, process};
    use serde_json::{Value, json};

    fn parse(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_tape_has_every_promised_field() {
        let mut out = Vec::new();
        tape(&mut out, &overview()).unwrap();
        let value = parse(&out);
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

    #[test]
    fn events_are_one_document_with_a_line_each() {
        let row = Row {
            index: 3,
            time: 1,
            thread: 0,
            call: heaptape_analyze::Call::Free,
            address: 4096,
            size: 0,
            slack: 0,
            align: 0,
            old_address: None,
            old_size: Some(24),
            birth: Some(1),
            age: Some(2),
            effect: Effect::Freed,
            caller: 0,
            place: None,
        };
        for rows in 0..3 {
            let mut out = Vec::new();
            let mut events = Events::new(&mut out, true, &process()).unwrap();
            for _ in 0..rows {
                events.row(&row).unwrap();
            }
            events.finish().unwrap();
            let value = parse(&out);
            assert_eq!(value["schema"], "heaptape.events/1");
            assert_eq!(value["events"].as_array().map(Vec::len), Some(rows));
            assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), rows + 2);
        }
    }

    #[test]
    fn an_unbalanced_histogram_knows_no_peak() {
        let mut counted = Histogram::new();
        counted.allocate(17);
        let mut out = Vec::new();
        histogram(&mut out, true, &process(), &counted, false).unwrap();
        assert_eq!(
            parse(&out)["bins"],
            json!([{"unit": 18, "peak": null, "total": 17, "freed": 0, "current": null, "count": 1}])
        );
    }
}
