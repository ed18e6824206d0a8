//! The part of `heaptape.limit/1` on processes that ended by SIGKILL.

use heaptape_ledger::{Cause, Felled, Job};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct FelledPart<'a> {
    cause: &'static str,
    time_ms: Option<u64>,
    charged: Option<u64>,
    resident: Option<u64>,
    resident_age_ms: Option<u64>,
    kills_in_cgroup: Option<u64>,
    kills_on_machine: Option<u64>,
    cgroup: Option<&'a str>,
    cgroup_limit: Option<u64>,
    log: Option<Vec<&'a str>>,
    log_missing: Option<&'a str>,
    /// Those that ended so, the first first.
    processes: Vec<VictimPart<'a>>,
    /// All that were there then.
    present: Vec<PresentPart>,
}

#[derive(Serialize)]
struct VictimPart<'a> {
    /// The place in `processes`.
    process: Option<usize>,
    pid: Option<u32>,
    rank: Option<u32>,
    command: &'a [String],
    logged: bool,
}

#[derive(Serialize)]
struct PresentPart {
    /// The place in `processes`.
    process: usize,
    charged: u64,
}

impl<'a> FelledPart<'a> {
    pub(super) fn of(job: &'a Job) -> Option<FelledPart<'a>> {
        let felled = job.felled.as_ref()?;
        let (moment, log) = (&felled.moment, felled.log.as_ref());
        let ceiling = felled.ceiling.as_ref();
        Some(FelledPart {
            cause: match felled.cause() {
                Cause::Logged => "kernel",
                Cause::Counted => "kernel_counted",
                Cause::Unknown => "unknown",
                Cause::Sent => "signal",
            },
            time_ms: moment.time,
            charged: moment.charged,
            resident: moment.resident.map(|(bytes, _)| bytes),
            resident_age_ms: moment.resident.map(|(_, age)| age),
            kills_in_cgroup: felled.kills.group,
            kills_on_machine: felled.kills.machine,
            cgroup: ceiling.map(|(_, group)| group.as_str()),
            cgroup_limit: ceiling.map(|(bytes, _)| *bytes),
            log: log.ok().map(|lines| lines.iter().map(|line| line.message.as_str()).collect()),
            log_missing: log.err().map(String::as_str),
            processes: victims(job, felled),
            present: moment
                .each
                .iter()
                .map(|&(process, charged)| PresentPart { process, charged })
                .collect(),
        })
    }
}

fn victims<'a>(job: &'a Job, felled: &'a Felled) -> Vec<VictimPart<'a>> {
    let is_logged = |number| felled.log.iter().flatten().any(|line| line.victim == Some(number));
    let victims = felled.victims.iter().enumerate().map(|(number, victim)| VictimPart {
        process: victim.place,
        pid: victim.pid,
        rank: victim.place.and_then(|place| job.processes.get(place)?.rank),
        command: &victim.command,
        logged: is_logged(number),
    });
    victims.collect()
}
