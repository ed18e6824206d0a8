//! The processes of a counted job: what each held, how it ended, and who was not counted.

use std::cmp::Reverse;

use heaptape_ledger::{Ended, Process, Spread};

use super::{FEW_PROCESSES, Figures, LARGEST_PROCESSES};
use crate::document::{Part, Rows};
use crate::size::{Count, Size};
use crate::table::Align::{self, Left, Name, Right, Text};
use crate::text;

pub(super) fn parts(figures: &Figures<'_>) -> Vec<Part> {
    let all = &figures.job.processes;
    if all.is_empty() {
        return vec![Part::Text("No process was counted.".to_owned())];
    }
    let shown = shown(figures);
    let mut parts = vec![Part::Heading("Processes".to_owned())];
    if all.len() > FEW_PROCESSES {
        parts.extend(figures.spread.map(|spread| imbalance(all, spread)));
    }
    let columns = Columns::of(all);
    parts.push(Part::Table(columns.held(&shown)));
    let left = (all.len() - shown.len()) as u64;
    if left > 0 {
        let left = text::counted(left, "process", "processes");
        parts.push(Part::Text(format!("… and {left} more that held less; --verbose shows all.")));
    }
    parts.push(Part::Text(explanation(figures)));
    parts.push(Part::Table(columns.calls(&shown)));
    parts
}

fn explanation(figures: &Figures<'_>) -> String {
    let mut words =
        "Charged bytes: the most that a process held, and what it held at its end".to_owned();
    if figures.job.processes.iter().any(|process| process.launcher) {
        words += "; launchers are in no sum and held against no limit";
    }
    words + ". Below: its heap calls, the most requested and resident bytes, and its threads."
}

/// The processes that get a row: all, or those that held most.
fn shown<'a>(figures: &Figures<'a>) -> Vec<&'a Process> {
    let all = &figures.job.processes;
    let mut shown: Vec<&Process> = all.iter().collect();
    if !figures.is_shown(all.len(), FEW_PROCESSES) {
        shown.sort_by_key(|process| Reverse(process.peak.upper));
        shown.truncate(LARGEST_PROCESSES);
    }
    shown
}

/// The least, the middle and the most that ranks held.
fn imbalance(all: &[Process], spread: Spread) -> Part {
    let name = |place: usize| match all.get(place) {
        Some(Process { rank: Some(rank), .. }) => format!("rank {rank}"),
        Some(Process { pid: Some(pid), .. }) => format!("pid {pid}"),
        _ => "unknown pid".to_owned(),
    };
    let (least, most) = (spread.least, spread.most);
    Part::Text(format!(
        "Of {} the one that held least had at most {} ({}), the middle one {}, the one that held most {} ({}).",
        text::counted(spread.processes as u64, "process", "processes"),
        Size(least.1),
        name(least.0),
        Size(spread.median),
        Size(most.1),
        name(most.0)
    ))
}

/// Which columns name a process.
struct Columns {
    rank: bool,
    host: bool,
}

impl Columns {
    /// Those that tell these processes apart.
    fn of(all: &[Process]) -> Columns {
        let first = all.first().map(|process| &process.host);
        Columns {
            rank: all.iter().any(|process| process.rank.is_some() || process.launcher),
            host: all.iter().any(|process| Some(&process.host) != first),
        }
    }

    fn heads(&self, more: &[(&'static str, Align)]) -> Vec<(&'static str, Align)> {
        let rank = self.rank.then_some(("rank", Right));
        let host = self.host.then_some(("host", Left));
        rank.into_iter().chain([("pid", Right)]).chain(host).chain(more.iter().copied()).collect()
    }

    fn names(&self, process: &Process) -> Vec<String> {
        let rank = match process.launcher {
            true => "launcher".to_owned(),
            false => text::or_dash(process.rank),
        };
        let host = self.host.then(|| process.host.clone());
        let rank = self.rank.then_some(rank);
        rank.into_iter().chain([text::or_dash(process.pid)]).chain(host).collect()
    }

    /// What each held.
    fn held(&self, shown: &[&Process]) -> Rows {
        let mut rows = Rows::new(&self.heads(&[
            ("at most", Right),
            ("end", Right),
            ("exit", Left),
            ("command", Name),
        ]));
        for process in shown {
            let mut row = self.names(process);
            row.extend([
                Size(process.peak.upper).to_string(),
                Size(process.end).to_string(),
                ended(process.ended),
                text::short_command(&process.command),
            ]);
            rows.row(row);
        }
        rows
    }

    /// What each did.
    fn calls(&self, shown: &[&Process]) -> Rows {
        let mut rows = Rows::new(&self.heads(&[
            ("allocations", Right),
            ("frees", Right),
            ("requested", Right),
            ("resident", Right),
            ("threads", Right),
        ]));
        for process in shown {
            let mut row = self.names(process);
            row.extend([
                Count(process.sums.allocations).to_string(),
                Count(process.sums.frees).to_string(),
                Size(process.requested.upper).to_string(),
                text::size_or_na(process.resident),
                Count(process.threads).to_string(),
            ]);
            rows.row(row);
        }
        rows
    }
}

fn ended(ended: Ended) -> String {
    match ended {
        Ended { signal: Some(signal), .. } => format!("signal {signal}"),
        Ended { code: Some(code), .. } => code.to_string(),
        Ended { code: None, signal: None } => "-".to_owned(),
    }
}

/// Processes that nothing but the user's word moves any more.
pub(super) fn stopped(figures: &Figures<'_>) -> Vec<Part> {
    let stopped = &figures.job.stopped;
    if stopped.is_empty() {
        return Vec::new();
    }
    let mut rows = Rows::new(&[("pid", Right), ("command", Text)]);
    for process in stopped {
        rows.row([process.pid.to_string(), text::short_command(&process.command)]);
    }
    let pids: Vec<u32> = stopped.iter().map(|process| process.pid).collect();
    vec![
        Part::Heading("Still stopped".to_owned()),
        Part::Table(rows),
        Part::Text(format!(
            "They are there until somebody says otherwise: {}.",
            how_to_go_on(&pids)
        )),
    ]
}

/// What to do with processes that are stopped, as the end of a sentence.
pub fn how_to_go_on(pids: &[u32]) -> String {
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    let list = list.join(" ");
    let them = if pids.len() == 1 { "it" } else { "them" };
    format!(
        "gdb -p PID looks into one, kill -CONT {list} lets {them} go on, kill -KILL {list} ends {them}"
    )
}

/// The processes that were not counted, by name.
pub(super) fn uncovered(figures: &Figures<'_>) -> Vec<Part> {
    let uncovered = &figures.job.uncovered;
    if uncovered.is_empty() {
        return Vec::new();
    }
    let mut rows = Rows::new(&[("pid", Right), ("command", Text), ("why", Text)]);
    for missed in uncovered {
        let pid = Some(missed.pid).filter(|&pid| pid != 0);
        rows.row([text::or_dash(pid), text::short_command(&missed.command), missed.why.clone()]);
    }
    vec![Part::Heading("Not counted".to_owned()), Part::Table(rows)]
}
