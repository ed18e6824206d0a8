//! `heaptape.report/1`: the figures of the report.

use std::io::{self, Write};

use heaptape_analyze::Call;
use heaptape_analyze::account::{Account, Held, Part};
use heaptape_analyze::findings::Finding;
use heaptape_analyze::lives::{Lives, Load, least_age};
use heaptape_analyze::sites::{self, Deeds, Origin, Site};
use heaptape_analyze::survey::{Point, Reallocs};
use heaptape_analyze::timeline::{Extent, Levels, Timeline};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::document;
use super::parts::{BinPart, CallerName, GroupPart, LoadPart, TrafficPart, UncoveredPart, Value};
use crate::account::Figures;

#[derive(Serialize)]
struct ReportDocument<'a> {
    schema: &'static str,
    complete: bool,
    command: &'a [String],
    events: u64,
    lost: u64,
    order_faults: u64,
    unknown_frees: u64,
    uncovered: Vec<UncoveredPart<'a>>,
    started_ms: u64,
    duration_ms: u64,
    findings: Vec<FindingPart>,
    peak: PeakPart,
    end: LevelsPart,
    held: HeldPart,
    calls: Calls<'a>,
    bins: Vec<BinPart>,
    groups: Vec<GroupPart>,
    all: TrafficPart,
    callers: Vec<SitePart<'a>>,
    modules: Vec<ModulePart>,
    lives: LivesPart,
    reallocs: ReallocsPart,
    threads: Vec<ThreadPart>,
    processes: Vec<ProcessPart<'a>>,
    curves: Curves,
}

/// What stands out: its kind, and its sentence's figures.
#[derive(Serialize)]
struct FindingPart {
    kind: &'static str,
    bytes: Option<u64>,
    blocks: Option<u64>,
    from: Option<u64>,
    to: Option<u64>,
    /// The place in `callers`.
    caller: Option<usize>,
}

impl FindingPart {
    fn of(finding: &Finding) -> FindingPart {
        let part = |kind, bytes| FindingPart {
            kind,
            bytes: Some(bytes),
            blocks: None,
            from: None,
            to: None,
            caller: None,
        };
        let place = |most: &Option<(usize, u64)>| most.map(|(place, _)| place);
        match finding {
            Finding::Spike(spike) => FindingPart {
                from: Some(spike.from),
                to: Some(spike.to),
                caller: place(&spike.site),
                ..part("spike", spike.most)
            },
            Finding::Growth(growth) => FindingPart {
                caller: place(&growth.site),
                ..part("growth", growth.levels.last().copied().unwrap_or(0))
            },
            Finding::Temporary { load, most } => FindingPart {
                blocks: Some(load.blocks),
                caller: place(most),
                ..part("temporary", load.bytes)
            },
            Finding::Short { load, most } => FindingPart {
                blocks: Some(load.blocks),
                caller: place(most),
                ..part("short", load.bytes)
            },
            Finding::Churn { made, most, .. } => FindingPart {
                blocks: Some(made.blocks),
                caller: place(most),
                ..part("churn", made.bytes)
            },
            Finding::Left { load, most } => {
                FindingPart { blocks: Some(load.blocks), caller: *most, ..part("left", load.bytes) }
            }
            Finding::Held { system, .. } => part("system", system.upper),
            Finding::Slack { requested, usable } => part("slack", usable - requested),
            Finding::Copies { copied, most } => {
                FindingPart { caller: place(most), ..part("copies", *copied) }
            }
        }
    }
}

#[derive(Serialize)]
struct PeakPart {
    requested: Value,
    usable: Value,
    blocks: Value,
    at: Option<u64>,
    time_ms: u64,
    within_ms: u64,
}

#[derive(Serialize)]
struct LevelsPart {
    requested: u64,
    usable: u64,
    blocks: u64,
}

impl LevelsPart {
    fn of(levels: Levels) -> LevelsPart {
        LevelsPart { requested: levels.requested, usable: levels.usable, blocks: levels.blocks }
    }
}

#[derive(Serialize)]
struct HeldPart {
    at_peak: KernelPart,
    most: KernelPart,
}

#[derive(Serialize)]
struct KernelPart {
    system: Option<Value>,
    resident: Option<Value>,
}

impl KernelPart {
    fn of(held: Held) -> KernelPart {
        KernelPart { system: held.system.map(Value), resident: held.resident.map(Value) }
    }
}

/// The counts of all processes by the calls' names, `free_null` last.
struct Calls<'a>(&'a [Part]);

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for call in Call::ALL {
            let made: u64 = self.0.iter().map(|part| part.process.calls.of(call)).sum();
            map.serialize_entry(call.name(), &made)?;
        }
        let free_null: u64 = self.0.iter().map(|part| part.process.free_null).sum();
        map.serialize_entry("free_null", &free_null)?;
        map.end()
    }
}

#[derive(Serialize)]
struct DeedsPart {
    made: LoadPart,
    at_peak: LoadPart,
    left: LoadPart,
    temporary: LoadPart,
    copied: u64,
}

impl DeedsPart {
    fn of(deeds: &Deeds) -> DeedsPart {
        DeedsPart {
            made: LoadPart::from(deeds.made),
            at_peak: LoadPart::from(deeds.at_peak),
            left: LoadPart::from(deeds.left),
            temporary: LoadPart::from(deeds.temporary),
            copied: deeds.copied,
        }
    }
}

#[derive(Serialize)]
struct SitePart<'a> {
    #[serde(flatten)]
    caller: CallerName<'a>,
    inherited: bool,
    #[serde(flatten)]
    deeds: DeedsPart,
}

impl<'a> SitePart<'a> {
    fn of(site: &'a Site) -> SitePart<'a> {
        SitePart {
            caller: CallerName::of_origin(&site.origin),
            inherited: site.origin == Origin::Inherited,
            deeds: DeedsPart::of(&site.deeds),
        }
    }
}

#[derive(Serialize)]
struct ModulePart {
    module: Option<String>,
    #[serde(flatten)]
    deeds: DeedsPart,
}

#[derive(Serialize)]
struct AgePart {
    least_age: u64,
    #[serde(flatten)]
    load: LoadPart,
}

#[derive(Serialize)]
struct LivesPart {
    made: LoadPart,
    left: LoadPart,
    temporary: LoadPart,
    long: LoadPart,
    by_age: Vec<AgePart>,
}

impl LivesPart {
    fn of(lives: &Lives) -> LivesPart {
        let by_age = lives.by_age.iter().enumerate();
        let age = |(class, load): (usize, &Load)| AgePart {
            least_age: least_age(class),
            load: LoadPart::from(*load),
        };
        LivesPart {
            made: LoadPart::from(lives.all),
            left: LoadPart::from(lives.left()),
            temporary: LoadPart::from(lives.temporary),
            long: LoadPart::from(lives.long),
            by_age: by_age.map(age).collect(),
        }
    }
}

#[derive(Serialize)]
struct ReallocsPart {
    in_place: u64,
    moved: u64,
    failed: u64,
    grown: u64,
    shrunk: u64,
    copied: u64,
}

impl ReallocsPart {
    fn of(r: &Reallocs) -> ReallocsPart {
        let Reallocs { in_place, moved, failed, grown, shrunk, copied } = *r;
        ReallocsPart { in_place, moved, failed, grown, shrunk, copied }
    }
}

#[derive(Serialize)]
struct ThreadPart {
    process: u32,
    thread: u32,
    events: u64,
    made: LoadPart,
    left: LoadPart,
    freed_of_others: LoadPart,
}

#[derive(Serialize)]
struct PointPart {
    events: u64,
    time_ms: u64,
    #[serde(flatten)]
    levels: LevelsPart,
}

impl PointPart {
    fn of(point: &Point) -> PointPart {
        PointPart {
            events: point.events,
            time_ms: point.time,
            levels: LevelsPart::of(point.levels),
        }
    }
}

#[derive(Serialize)]
struct ProcessPart<'a> {
    number: u32,
    pid: Option<u32>,
    rank: Option<u32>,
    command: &'a [String],
    events: u64,
    peak: PointPart,
    end: PointPart,
    samples: Vec<SamplePart>,
}

#[derive(Serialize)]
struct SamplePart {
    events: u64,
    time_ms: u64,
    system: Option<u64>,
    resident: Option<u64>,
    pss: Option<u64>,
}

impl<'a> ProcessPart<'a> {
    fn of(part: &'a Part) -> ProcessPart<'a> {
        let p = &part.process;
        let samples = part.kernel.iter().map(|k| SamplePart {
            events: k.events,
            time_ms: k.time,
            system: k.system,
            resident: k.resident,
            pss: k.pss,
        });
        ProcessPart {
            number: p.number.0,
            pid: p.known_pid(),
            rank: p.rank,
            command: &p.command,
            events: p.events,
            peak: PointPart::of(&part.peak),
            end: PointPart::of(&part.end),
            samples: samples.collect(),
        }
    }
}

#[derive(Serialize)]
struct Curves {
    over_index: Option<Curve>,
    over_time: Curve,
}

#[derive(Serialize)]
struct Curve {
    start: u64,
    end: u64,
    per_step: u64,
    steps: Vec<StepPart>,
}

#[derive(Serialize)]
struct StepPart {
    at: u64,
    calls: u64,
    requested: [u64; 2],
    usable: [u64; 2],
    blocks: [u64; 2],
}

impl Curve {
    fn of(line: &Timeline) -> Curve {
        let range = line.range();
        let two = |extent: Extent| [extent.least, extent.most];
        let steps = line.steps().iter().map(|step| StepPart {
            at: step.at,
            calls: step.calls,
            requested: two(step.requested),
            usable: two(step.usable),
            blocks: two(step.blocks),
        });
        Curve {
            start: range.start,
            end: range.end,
            per_step: line.per_step(),
            steps: steps.collect(),
        }
    }
}

/// Writes the figures, all callers among them.
pub fn write(out: &mut impl Write, figures: &Figures<'_>) -> io::Result<()> {
    let (s, account) = (&figures.overview.summary, figures.account);
    document(
        out,
        &ReportDocument {
            schema: "heaptape.report/1",
            complete: s.complete,
            command: &s.header.command,
            events: account.events(),
            lost: s.lost,
            order_faults: s.order_faults,
            unknown_frees: s.unknown_frees,
            uncovered: s.uncovered.iter().map(UncoveredPart::of).collect(),
            started_ms: account.time.start,
            duration_ms: account.duration(),
            findings: figures.findings.iter().map(FindingPart::of).collect(),
            peak: PeakPart {
                requested: Value(account.peak.requested),
                usable: Value(account.peak.usable),
                blocks: Value(account.peak.blocks),
                at: account.peak.at,
                time_ms: account.peak.time,
                within_ms: account.peak.within,
            },
            end: LevelsPart::of(account.end),
            held: HeldPart {
                at_peak: KernelPart::of(account.held_at_peak),
                most: KernelPart::of(account.held_most),
            },
            calls: Calls(&account.parts),
            bins: account
                .bins
                .bins()
                .map(|(bin, t)| BinPart { unit: bin.unit(), traffic: TrafficPart::from(t) })
                .collect(),
            groups: account
                .bins
                .groups()
                .map(|(group, t)| GroupPart { name: group.name(), traffic: TrafficPart::from(t) })
                .collect(),
            all: TrafficPart::from(account.bins.all()),
            callers: account.sites.iter().map(SitePart::of).collect(),
            modules: sites::by_module(&account.sites)
                .into_iter()
                .map(|(module, deeds)| ModulePart { module, deeds: DeedsPart::of(&deeds) })
                .collect(),
            lives: LivesPart::of(&account.lives),
            reallocs: ReallocsPart::of(&account.reallocs),
            threads: threads(account),
            processes: account.parts.iter().map(ProcessPart::of).collect(),
            curves: Curves {
                over_index: account.over_index.as_ref().map(Curve::of),
                over_time: Curve::of(&account.over_time),
            },
        },
    )
}

fn threads(account: &Account) -> Vec<ThreadPart> {
    let number = |part: usize| account.parts.get(part).map_or(0, |part| part.process.number.0);
    let threads = account.threads.iter().map(|t| ThreadPart {
        process: number(t.part),
        thread: t.number,
        events: t.deeds.events,
        made: LoadPart::from(t.deeds.made),
        left: LoadPart::from(t.deeds.left),
        freed_of_others: LoadPart::from(t.deeds.freed_of_others),
    });
    threads.collect()
}
