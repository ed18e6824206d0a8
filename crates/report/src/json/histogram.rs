//! `heaptape.histogram/1`: what went through each size class.

use std::io::{self, Write};

use heaptape_analyze::ProcessSummary;
use heaptape_analyze::bins::{Histogram, Traffic};
use serde::Serialize;

use super::document;
use super::parts::{BinPart, GroupPart, ProcessName, TrafficPart};

#[derive(Serialize)]
struct HistogramDocument<'a> {
    schema: &'static str,
    complete: bool,
    process: ProcessName<'a>,
    bins: Vec<BinPart<Option<u64>>>,
    groups: Vec<GroupPart<Option<u64>>>,
}

/// Writes size classes. `balanced` says that both ends of each block were
/// counted; else what lives and the peak are `null`.
pub fn write(
    out: &mut impl Write,
    complete: bool,
    process: &ProcessSummary,
    histogram: &Histogram,
    balanced: bool,
) -> io::Result<()> {
    let part = |t: &Traffic| TrafficPart {
        peak: balanced.then_some(t.peak.upper),
        total: t.total,
        freed: t.freed,
        current: balanced.then_some(t.current),
        count: t.count,
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::process;
    use serde_json::{Value, json};

    #[test]
    fn an_unbalanced_histogram_knows_no_peak() {
        let mut counted = Histogram::new();
        counted.allocate(17);
        let mut out = Vec::new();
        write(&mut out, true, &process(), &counted, false).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            value["bins"],
            json!([{"unit": 18, "peak": null, "total": 17, "freed": 0, "current": null, "count": 1}])
        );
    }
}
