//! Processes that ended by SIGKILL: who, what the job held then, and whose doing it was, in words.

use heaptape_ledger::{Cause, Felled, Process, Victim};

use super::Figures;
use crate::document::Part;
use crate::size::{Millis, Size};
use crate::text;

/// So many victims are told by name.
const TOLD: usize = 3;

/// The verdict where the kernel has killed, in one sentence.
pub(super) fn verdict(figures: &Figures<'_>) -> Option<String> {
    let felled = figures.job.felled.as_ref().filter(|felled| felled.is_by_kernel())?;
    let (at, who) = (at(felled), first(figures, felled)?);
    Some(match felled.cause() {
        Cause::Logged => format!("Killed by the kernel{at}, for want of memory: {who}."),
        _ => format!("Killed{at}, it seems by the kernel for want of memory: {who}."),
    })
}

/// What is known of it.
pub(super) fn part(figures: &Figures<'_>) -> Option<Part> {
    let felled = figures.job.felled.as_ref()?;
    let sentences = [
        Some(whose(figures, felled)),
        held(figures, felled),
        felled
            .ceiling
            .as_ref()
            .map(|(bytes, group)| format!("The limit of the cgroup {group} is {}.", Size(*bytes))),
        logged(felled),
    ];
    Some(Part::Text(sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")))
}

fn at(felled: &Felled) -> String {
    felled.moment.time.map_or_else(String::new, |time| format!(" at {}", Millis(time)))
}

/// The victim that the log names, or the one that ended first.
fn first(figures: &Figures<'_>, felled: &Felled) -> Option<String> {
    let named = felled.log.iter().flatten().find_map(|line| line.victim);
    felled.victims.get(named.unwrap_or(0)).map(|victim| who(figures, victim))
}

fn whose(figures: &Figures<'_>, felled: &Felled) -> String {
    let names: Vec<String> =
        felled.victims.iter().take(TOLD).map(|victim| who(figures, victim)).collect();
    let more = (felled.victims.len() as u64).saturating_sub(TOLD as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let ended = match names.is_empty() {
        true => "No process that was counted ended by SIGKILL".to_owned(),
        false => format!("{}{more} ended by SIGKILL{}", names.join(", "), at(felled)),
    };
    let count = |count: Option<u64>| match count {
        None => "n/a".to_owned(),
        Some(0) => "nobody".to_owned(),
        Some(n) => text::counted(n, "process", "processes"),
    };
    let counted = format!(
        "killed so meanwhile in this control group: {}, on this machine: {}",
        count(felled.kills.group),
        count(felled.kills.machine)
    );
    let log =
        felled.log.as_ref().err().map_or_else(String::new, |why| format!(" Its log: n/a. {why}"));
    let cause = match felled.cause() {
        _ if names.is_empty() => {
            format!("; but the kernel has killed for want of memory ({counted}).{log}")
        }
        Cause::Logged => {
            format!(". That was the kernel, for want of memory, as its log says ({counted}).")
        }
        Cause::Counted => format!(". The kernel has killed for want of memory ({counted}).{log}"),
        Cause::Unknown => {
            format!(
                ". Whether that was the kernel, for want of memory, is not known ({counted}).{log}"
            )
        }
        Cause::Sent => {
            format!(
                ". Somebody has sent it: it was not the kernel, for want of memory ({counted})."
            )
        }
    };
    ended + &cause
}

/// What the job held then, and who of it most.
fn held(figures: &Figures<'_>, felled: &Felled) -> Option<String> {
    let moment = &felled.moment;
    let mut words = format!("The job held {} then (charged); ", Size(moment.charged?));
    words += &match moment.resident {
        Some((bytes, age)) => {
            format!("{} were resident at the last look, {} before.", Size(bytes), Millis(age))
        }
        None => "resident: n/a, it was not looked at before.".to_owned(),
    };
    let most = moment.each.iter().max_by_key(|(_, charged)| charged);
    if let Some((place, charged)) = most.filter(|_| moment.each.len() > 1) {
        let processes = text::counted(moment.each.len() as u64, "process", "processes");
        let name = figures.job.processes.get(*place).map_or_else(String::new, name);
        words += &format!(" Of its {processes} on this node {name} held most, {}.", Size(*charged));
    }
    Some(words)
}

fn logged(felled: &Felled) -> Option<String> {
    let mut lines = felled.log.iter().flatten();
    let own = lines.clone().find(|line| line.victim.is_some());
    let line = own.or_else(|| lines.next().filter(|_| felled.victims.is_empty()))?;
    Some(format!("The log: {}", line.message))
}

fn who(figures: &Figures<'_>, victim: &Victim) -> String {
    let process = victim.place.and_then(|place| figures.job.processes.get(place));
    let command = victim.command.first().map_or("the command", |word| text::file_name(word));
    let name = process.map_or_else(|| command.to_owned(), name);
    match victim.pid {
        Some(pid) => format!("{name} (pid {pid})"),
        None => name,
    }
}

/// `rank 2`, or the command's name.
fn name(process: &Process) -> String {
    process.rank.map_or_else(|| process.name().to_owned(), |rank| format!("rank {rank}"))
}
