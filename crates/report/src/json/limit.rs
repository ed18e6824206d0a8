//! `heaptape.limit/1`: what a counted job held, with a limit or without one.

use std::io::{self, Write};

use heaptape_ledger::{
    Basis, Charged, Ended, FirstRefusal, Job, Missed, ModuleTotal, OnLimit, Process, Spread,
    Stopped, Totals, Verdict,
};
use serde::Serialize;

use super::document;
use super::felled::FelledPart;
use super::kernel::KernelPart;
use super::parts::{BinPart, GroupPart, TrafficPart, Value};
use super::patches::PatchPart;
use crate::limit::{self, Figures};

#[derive(Serialize)]
struct LimitDocument<'a> {
    schema: &'static str,
    command: &'a [String],
    exit: ExitPart,
    verdict: &'static str,
    limit: Option<u64>,
    limit_source: Option<&'a str>,
    basis: &'static str,
    settings: SettingsPart<'a>,
    refused: u64,
    first_refusal: Option<RefusalPart<'a>>,
    peak: PeakPart,
    own_peaks: Value,
    charged: ChargedPart,
    unaccounted: Option<u64>,
    elapsed: f64,
    user: f64,
    system: f64,
    faults: FaultsPart,
    threads: ThreadsPart,
    numa_nodes: u64,
    processes: Vec<ProcessPart<'a>>,
    imbalance: Option<ImbalancePart>,
    allocations: u64,
    frees: u64,
    failed: u64,
    unknown_frees: u64,
    all: TrafficPart,
    bins: Option<Vec<BinPart>>,
    groups: Option<Vec<GroupPart>>,
    modules: Option<Vec<ModulePart<'a>>>,
    uncovered: Vec<MissedPart<'a>>,
    uncounted_threads: u64,
    stopped: Vec<StoppedPart<'a>>,
    #[serde(flatten)]
    kernel: KernelPart<'a>,
    felled: Option<FelledPart<'a>>,
    patches: Vec<PatchPart<'a>>,
    patches_sought: u64,
}

#[derive(Serialize)]
struct ExitPart {
    code: Option<i32>,
    signal: Option<i32>,
}

impl From<Ended> for ExitPart {
    fn from(ended: Ended) -> ExitPart {
        ExitPart { code: ended.code, signal: ended.signal }
    }
}

#[derive(Serialize)]
struct SettingsPart<'a> {
    on_limit: &'static str,
    exact: bool,
    details: bool,
    exclude_mpi_runtime: bool,
    exempt: &'a [String],
    exempt_unmatched: &'a [String],
    count_launcher: bool,
    strict: bool,
}

impl<'a> SettingsPart<'a> {
    fn of(figures: &Figures<'a>) -> SettingsPart<'a> {
        let (settings, job) = (figures.settings, figures.job);
        SettingsPart {
            on_limit: match settings.on_limit {
                OnLimit::Fail => "fail",
                OnLimit::Kill => "kill",
                OnLimit::Stop => "stop",
            },
            exact: job.exact,
            details: job.details,
            exclude_mpi_runtime: settings.exclude_mpi_runtime,
            exempt: &settings.exempt,
            exempt_unmatched: figures.unmatched,
            count_launcher: settings.count_launcher,
            strict: settings.strict,
        }
    }
}

#[derive(Serialize)]
struct RefusalPart<'a> {
    time_ms: u64,
    host: Option<&'a str>,
    pid: Option<u32>,
    rank: Option<u32>,
    thread: Option<u32>,
    bytes: u64,
    caller: Option<String>,
    module: Option<&'a str>,
    job_bytes: u64,
}

impl<'a> RefusalPart<'a> {
    fn of(first: &'a FirstRefusal, figures: &Figures<'a>) -> RefusalPart<'a> {
        let process = figures.job.first_refused();
        RefusalPart {
            time_ms: first.time,
            host: process.and_then(host),
            pid: process.and_then(|process| process.pid),
            rank: process.and_then(|process| process.rank),
            thread: Some(first.thread).filter(|&thread| thread != 0),
            bytes: first.bytes,
            caller: limit::caller(first, process, figures.function),
            module: first.place.as_ref().map(|(path, _)| limit::module(path, process)),
            job_bytes: first.job,
        }
    }
}

fn host(process: &Process) -> Option<&str> {
    Some(process.host.as_str()).filter(|host| !host.is_empty())
}

#[derive(Serialize)]
struct PeakPart {
    charged: Value,
    requested: Value,
    usable: Option<Value>,
    resident: Option<SampledPart>,
}

/// The most that was seen in samples: there may have been more.
#[derive(Serialize)]
struct SampledPart {
    lower: u64,
    upper: Option<u64>,
}

impl SampledPart {
    fn of(bytes: u64) -> SampledPart {
        SampledPart { lower: bytes, upper: None }
    }
}

#[derive(Serialize)]
struct ChargedPart {
    heap: u64,
    mappings: u64,
    shared: u64,
    data: u64,
    stacks: u64,
    mpi_runtime: u64,
    reserve: u64,
}

impl From<Charged> for ChargedPart {
    fn from(charged: Charged) -> ChargedPart {
        let Charged { heap, mappings, shared, data, stacks, mpi_runtime, reserve, .. } = charged;
        ChargedPart { heap, mappings, shared, data, stacks, mpi_runtime, reserve }
    }
}

#[derive(Serialize)]
struct FaultsPart {
    minor: u64,
    major: u64,
}

#[derive(Serialize)]
struct ThreadsPart {
    peak: u64,
    total: u64,
}

#[derive(Serialize)]
struct ProcessPart<'a> {
    pid: Option<u32>,
    /// The place in `processes`.
    parent: Option<usize>,
    rank: Option<u32>,
    host: Option<&'a str>,
    command: &'a [String],
    started_ms: u64,
    ended_ms: u64,
    exit: ExitPart,
    launcher: bool,
    peak: Value,
    end: u64,
    requested: Value,
    usable: Option<Value>,
    resident: Option<SampledPart>,
    allocations: u64,
    frees: u64,
    failed: u64,
    unknown_frees: u64,
    threads: u64,
}

impl<'a> ProcessPart<'a> {
    fn of(process: &'a Process) -> ProcessPart<'a> {
        let sums = &process.sums;
        ProcessPart {
            pid: process.pid,
            parent: process.parent,
            rank: process.rank,
            host: host(process),
            command: &process.command,
            started_ms: process.time[0],
            ended_ms: process.time[1],
            exit: process.ended.into(),
            launcher: process.launcher,
            peak: Value(process.peak),
            end: process.end,
            requested: Value(process.requested),
            usable: process.usable.map(Value),
            resident: process.resident.map(SampledPart::of),
            allocations: sums.allocations,
            frees: sums.frees,
            failed: sums.failed,
            unknown_frees: sums.unknown,
            threads: process.threads,
        }
    }
}

/// Peaks of charged bytes, as upper bounds; processes by their places.
#[derive(Serialize)]
struct ImbalancePart {
    processes: usize,
    least: u64,
    least_process: usize,
    median: u64,
    most: u64,
    most_process: usize,
}

impl From<Spread> for ImbalancePart {
    fn from(spread: Spread) -> ImbalancePart {
        let Spread { least, median, most, processes } = spread;
        ImbalancePart {
            processes,
            least: least.1,
            least_process: least.0,
            median,
            most: most.1,
            most_process: most.0,
        }
    }
}

#[derive(Serialize)]
struct ModulePart<'a> {
    name: Option<&'a str>,
    path: Option<&'a str>,
    exempt: bool,
    #[serde(flatten)]
    traffic: TrafficPart,
}

impl<'a> ModulePart<'a> {
    fn of(module: &'a ModuleTotal) -> ModulePart<'a> {
        ModulePart {
            name: module.name.as_deref(),
            path: module.path.as_deref(),
            exempt: module.exempt,
            traffic: TrafficPart::from(&module.traffic),
        }
    }
}

#[derive(Serialize)]
struct MissedPart<'a> {
    pid: Option<u32>,
    command: &'a [String],
    why: &'a str,
}

impl<'a> MissedPart<'a> {
    fn of(missed: &'a Missed) -> MissedPart<'a> {
        let pid = Some(missed.pid).filter(|&pid| pid != 0);
        MissedPart { pid, command: &missed.command, why: &missed.why }
    }
}

#[derive(Serialize)]
struct StoppedPart<'a> {
    pid: u32,
    command: &'a [String],
}

impl<'a> StoppedPart<'a> {
    fn of(stopped: &'a Stopped) -> StoppedPart<'a> {
        StoppedPart { pid: stopped.pid, command: &stopped.command }
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Within => "within",
        Verdict::Refused => "refused",
        Verdict::Killed => "killed",
        Verdict::Uncovered => "uncovered",
        Verdict::Unaccounted => "unaccounted",
        Verdict::Tampered => "tampered",
    }
}

fn bins(totals: &Totals) -> Vec<BinPart> {
    let bins = totals.bins.iter();
    bins.map(|(unit, traffic)| BinPart { unit: *unit, traffic: TrafficPart::from(traffic) })
        .collect()
}

fn groups(totals: &Totals) -> Vec<GroupPart> {
    let groups = totals.groups.iter();
    groups
        .map(|(g, traffic)| GroupPart { name: g.name(), traffic: TrafficPart::from(traffic) })
        .collect()
}

fn peaks(job: &Job) -> PeakPart {
    PeakPart {
        charged: Value(job.peak),
        requested: Value(job.requested),
        usable: job.usable.map(Value),
        resident: job.resident.map(SampledPart::of),
    }
}

/// Writes the document: everything, whatever the text leaves out.
pub fn write(out: &mut impl Write, figures: &Figures<'_>) -> io::Result<()> {
    let (job, totals) = (figures.job, figures.totals);
    // Where they were not counted nobody knows them.
    let counted = job.details.then_some(totals);
    document(
        out,
        &LimitDocument {
            schema: "heaptape.limit/1",
            command: &job.command,
            exit: figures.exit.into(),
            verdict: verdict(job.verdict()),
            limit: job.limit,
            limit_source: figures.settings.source.as_deref(),
            basis: match job.basis {
                Basis::Requested => "requested",
                Basis::Usable => "usable",
                Basis::Resident => "resident",
            },
            settings: SettingsPart::of(figures),
            refused: job.refused,
            first_refusal: job.first.as_ref().map(|first| RefusalPart::of(first, figures)),
            peak: peaks(job),
            own_peaks: Value(totals.own_peaks),
            charged: job.charged.into(),
            unaccounted: job.unaccounted,
            elapsed: job.elapsed,
            user: job.processor[0],
            system: job.processor[1],
            faults: FaultsPart { minor: job.faults[0], major: job.faults[1] },
            threads: ThreadsPart { peak: job.threads[0], total: job.threads[1] },
            numa_nodes: job.numa_nodes,
            processes: job.processes.iter().map(ProcessPart::of).collect(),
            imbalance: figures.spread.map(ImbalancePart::from),
            allocations: totals.allocations,
            frees: totals.frees,
            failed: totals.failed,
            unknown_frees: totals.unknown,
            all: TrafficPart::from(&totals.all),
            bins: counted.map(bins),
            groups: counted.map(groups),
            modules: counted.map(|totals| totals.modules.iter().map(ModulePart::of).collect()),
            uncovered: job.uncovered.iter().map(MissedPart::of).collect(),
            uncounted_threads: job.uncounted_threads,
            stopped: job.stopped.iter().map(StoppedPart::of).collect(),
            kernel: KernelPart::of(job),
            felled: FelledPart::of(job),
            patches: job.patches.iter().map(PatchPart::of).collect(),
            patches_sought: job.patches_sought,
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::limit::sample::{felled, hostile, job, kernel, missed, over, refused, with_figures};
    use heaptape_ledger::{Judge, Kernel};

    fn written(job: &Job) -> Value {
        let mut out = Vec::new();
        with_figures(job, false, |figures| write(&mut out, figures)).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    fn has(value: &Value, fields: &str) {
        for field in fields.split(' ') {
            assert!(value.get(field).is_some(), "{field} is missing in {value}");
        }
    }

    /// The list stands in the guide as well; what reads these documents relies on every field.
    #[test]
    fn no_field_is_ever_absent() {
        for job in [job(), refused(), hostile(), Job::default()] {
            let document = written(&job);
            has(
                &document,
                "schema command exit verdict limit limit_source basis settings refused first_refusal peak elapsed user \
                 system faults threads numa_nodes processes bins groups modules charged uncovered unaccounted cgroup cgroup_missing resident killed felled patches patches_sought",
            );
            has(&document["peak"], "charged requested usable resident");
            has(&document["exit"], "code signal");
            has(&document["faults"], "minor major");
            has(&document["threads"], "peak total");
            has(&document["charged"], "heap mappings shared data stacks mpi_runtime reserve");
        }
        let document = written(&Job { uncovered: vec![missed()], ..refused() });
        has(&document["first_refusal"], "host pid rank thread bytes caller module job_bytes");
        let process = "pid rank host command exit peak end allocations frees launcher";
        has(&document["processes"][0], process);
        has(&document["bins"][0], "unit peak total freed current count");
        has(&document["groups"][0], "name peak total freed current count");
        has(&document["modules"][0], "name current peak total count");
        has(&document["uncovered"][0], "pid command why");
    }

    #[test]
    fn figures_are_plain_and_bounded() {
        let document = written(&refused());
        assert_eq!(
            document["peak"]["charged"],
            json!({"lower": 943_718_400, "upper": 966_367_641})
        );
        assert_eq!(document["peak"]["resident"], json!({"lower": 471_859_200, "upper": null}));
        assert_eq!(document["verdict"], "refused");
        let first = &document["first_refusal"];
        assert_eq!(first["caller"], "main (sizes+0x1234)");
        assert_eq!((&first["module"], &first["rank"]), (&json!("sizes"), &json!(2)));
        assert_eq!(document["uncovered"], json!([]));
    }

    #[test]
    fn what_the_kernel_says_is_there_where_it_was_asked() {
        let document = written(&job());
        for field in ["cgroup", "cgroup_missing", "resident", "killed"] {
            assert_eq!(document[field], Value::Null, "{field}");
        }
        let kernel = Kernel { over: Some(over(Judge::Resident)), ..kernel() };
        let document = written(&Job { kernel: Some(kernel), ..job() });
        assert_eq!(document["verdict"], "killed");
        has(
            &document["cgroup"],
            "version directory limit peak current page_cache kernel oom_kills",
        );
        let resident = &document["resident"];
        assert_eq!((&resident["source"], &resident["held"]), (&json!("cgroup"), &json!(900 << 20)));
        has(
            resident,
            "anonymous shared swap heaptape page_cache kernel looks longest_us most_between",
        );
        let killed = &document["killed"];
        assert_eq!((&killed["by"], &killed["pid"]), (&json!("resident"), &json!(4711)));
        has(killed, "time_ms bytes command resident");
    }

    #[test]
    fn whose_doing_a_kill_was_is_a_word() {
        let document = written(&Job { felled: Some(felled()), ..job() });
        let felled = &document["felled"];
        assert_eq!((&document["verdict"], &felled["cause"]), (&json!("killed"), &json!("kernel")));
        has(
            felled,
            "time_ms charged resident resident_age_ms kills_in_cgroup kills_on_machine cgroup cgroup_limit log log_missing",
        );
        let victims = &felled["processes"];
        assert_eq!((&victims[0]["process"], &victims[1]["rank"]), (&Value::Null, &json!(1)));
        assert_eq!((&victims[0]["logged"], &victims[1]["logged"]), (&json!(false), &json!(true)));
        assert_eq!(felled["present"][1], json!({"process": 2, "charged": 700 << 20}));
    }

    #[test]
    fn classes_and_modules_add_up() {
        let document = written(&job());
        let sum = |list: &str, figure: &str| {
            let rows = document[list].as_array().unwrap().iter();
            rows.map(|row| row[figure].as_u64().unwrap()).sum::<u64>()
        };
        for figure in ["total", "freed", "current", "count"] {
            let all = document["all"][figure].as_u64().unwrap();
            for list in ["bins", "groups", "modules"] {
                assert_eq!(sum(list, figure), all, "{list} {figure}");
            }
        }
        assert_eq!(document["all"]["count"], document["allocations"]);
    }

    #[test]
    fn what_was_not_counted_is_null() {
        let document = written(&Job { details: false, usable: None, limit: None, ..job() });
        for field in ["bins", "groups", "modules", "limit", "first_refusal", "unaccounted"] {
            assert_eq!(document[field], Value::Null, "{field}");
        }
        assert_eq!(document["peak"]["usable"], Value::Null);
        let document = written(&Job { uncovered: vec![missed()], ..job() });
        assert_eq!(
            (&document["uncovered"][0]["pid"], &document["verdict"]),
            (&Value::Null, &json!("uncovered"))
        );
    }

    #[test]
    fn figures_beyond_64_bits_stay_there_and_names_as_they_are() {
        let document = written(&hostile());
        assert_eq!(document["all"]["total"], json!(u64::MAX));
        let name = hostile().command[0].clone();
        assert_eq!(document["command"], json!([name]));
    }
}
