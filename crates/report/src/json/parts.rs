//! Objects that stand in several documents.

use heaptape_analyze::bins;
use heaptape_analyze::lives::Load;
use heaptape_analyze::modules::Place;
use heaptape_analyze::sites::Origin;
use heaptape_analyze::{ProcessSummary, Uncovered};
use heaptape_ledger::Bounds;
use serde::{Serialize, Serializer};

use crate::text;

/// Which process a document is about.
#[derive(Serialize)]
pub(super) struct ProcessName<'a> {
    number: u32,
    pid: Option<u32>,
    rank: Option<u32>,
    command: &'a [String],
}

impl<'a> ProcessName<'a> {
    pub(super) fn of(p: &'a ProcessSummary) -> ProcessName<'a> {
        ProcessName { number: p.number.0, pid: p.known_pid(), rank: p.rank, command: &p.command }
    }
}

/// A number of blocks and their requested bytes.
#[derive(Serialize)]
pub(super) struct LoadPart {
    bytes: u64,
    blocks: u64,
}

impl From<Load> for LoadPart {
    fn from(load: Load) -> LoadPart {
        LoadPart { bytes: load.bytes, blocks: load.blocks }
    }
}

/// A figure that lies between two values; both are the same where it is known.
pub(super) struct Value(pub(super) Bounds);

#[derive(Serialize)]
struct BoundsPart {
    lower: u64,
    upper: u64,
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        BoundsPart { lower: self.0.lower, upper: self.0.upper }.serialize(serializer)
    }
}

/// What went in and out of a class, in requested bytes; `null` for what is not known.
#[derive(Serialize)]
pub(super) struct TrafficPart<P = Value> {
    pub(super) peak: P,
    pub(super) total: u64,
    pub(super) freed: u64,
    pub(super) current: Option<u64>,
    pub(super) count: u64,
}

impl From<&bins::Traffic> for TrafficPart {
    fn from(traffic: &bins::Traffic) -> TrafficPart {
        let bins::Traffic { peak, total, freed, current, count } = *traffic;
        TrafficPart { peak: Value(peak), total, freed, current: Some(current), count }
    }
}

impl From<&heaptape_ledger::Traffic> for TrafficPart {
    fn from(traffic: &heaptape_ledger::Traffic) -> TrafficPart {
        let heaptape_ledger::Traffic { count, total, freed, peak } = *traffic;
        let current = Some(traffic.current());
        TrafficPart { peak: Value(peak), total, freed, current, count }
    }
}

/// A size class.
#[derive(Serialize)]
pub(super) struct BinPart<P = Value> {
    pub(super) unit: u64,
    #[serde(flatten)]
    pub(super) traffic: TrafficPart<P>,
}

/// A group of size classes.
#[derive(Serialize)]
pub(super) struct GroupPart<P = Value> {
    pub(super) name: &'static str,
    #[serde(flatten)]
    pub(super) traffic: TrafficPart<P>,
}

/// Where a call came from: as the reports write it, and taken apart.
#[derive(Serialize)]
pub(super) struct CallerName<'a> {
    caller: Option<String>,
    module: Option<&'a str>,
    offset: Option<u64>,
    function: Option<&'a str>,
}

impl<'a> CallerName<'a> {
    /// That of a return address, 0 when unknown, which lies at a place.
    pub(super) fn of(place: Option<&'a Place>, address: u64) -> CallerName<'a> {
        CallerName {
            caller: (address != 0).then(|| text::caller(place, address)),
            module: place.map(|p| p.module.path.as_str()),
            offset: place.map(|p| p.offset),
            function: place.and_then(|p| p.function.as_deref()),
        }
    }

    /// That of a whole module, where one is known.
    pub(super) fn of_module(place: Option<&'a Place>) -> CallerName<'a> {
        let module = place.map(|p| p.module.path.as_str());
        CallerName { module, ..CallerName::of(None, 0) }
    }

    /// That of a site.
    pub(super) fn of_origin(origin: &'a Origin) -> CallerName<'a> {
        match origin {
            Origin::Caller { address, place } => CallerName::of(place.as_ref(), *address),
            Origin::Inherited => {
                CallerName { caller: Some(text::origin(origin)), ..CallerName::of(None, 0) }
            }
        }
    }
}

/// A process that was not recorded, or only in part.
#[derive(Serialize)]
pub(super) struct UncoveredPart<'a> {
    pid: Option<u32>,
    command: &'a [String],
    why: &'a str,
}

impl<'a> UncoveredPart<'a> {
    pub(super) fn of(u: &'a Uncovered) -> UncoveredPart<'a> {
        UncoveredPart { pid: u.known_pid(), command: &u.command, why: &u.why }
    }
}
