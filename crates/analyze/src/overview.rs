//! A tape as a whole: what its index says, and the settings that its processes noted as they began.

use std::collections::BTreeMap;

use heaptape_tape::{
    Columns, Item, NoteKind, ProcessNumber, ProcessSummary, Summary, Tape, Verdict,
};

use crate::choice::ProcessChoice;
use crate::{Error, processes};

/// Processes note their settings as the capture library starts; by then other libraries may have
/// made some calls, but hardly more than this.
const SETTINGS_BEFORE: u64 = 4096;

/// The whole tape and those of its processes that were chosen.
#[derive(Clone, Debug)]
pub struct Overview {
    /// What the tape's index says.
    pub summary: Summary,
    /// Settings of the recording, and those of the first chosen process.
    pub settings: BTreeMap<String, String>,
    /// The chosen processes, in order of start.
    pub members: Vec<Member>,
}

/// A process of an [`Overview`].
#[derive(Clone, Debug)]
pub struct Member {
    /// What the tape's index says.
    pub process: ProcessSummary,
    /// The process id of its parent, where that is on the tape.
    pub parent_pid: Option<u32>,
    /// Whether it ended by an exec: a later process of the tape has its process id.
    pub replaced: bool,
    /// The allocator settings of its environment.
    pub settings: BTreeMap<String, String>,
    /// What a check of all its events found, where one was asked for.
    pub verdict: Option<Verdict>,
}

impl Overview {
    /// Reads the index and the first notes of each chosen process; with `verify` every byte of the file,
    /// and all events, notes and samples of the chosen processes.
    pub fn of(tape: &Tape, choice: ProcessChoice, verify: bool) -> Result<Overview, Error> {
        if verify {
            heaptape_tape::verify_file(tape)?;
        }
        let summary = tape.summary().clone();
        let members = processes::all(&summary, choice)?
            .into_iter()
            .map(|process| Member::of(tape, process, verify))
            .collect::<Result<Vec<_>, _>>()?;
        let mut settings: BTreeMap<_, _> = summary.header.settings.iter().cloned().collect();
        if let Some(first) = members.first() {
            settings.extend(first.settings.clone());
        }
        Ok(Overview { summary, settings, members })
    }

    /// Bytes of the file per event; `None` without events.
    pub fn bytes_per_event(&self) -> Option<f64> {
        let s = &self.summary;
        (s.events > 0).then(|| s.bytes as f64 / s.events as f64)
    }

    /// Milliseconds from the start of the first process to the last end that is known.
    pub fn duration(&self) -> Option<u64> {
        let processes = &self.summary.processes;
        let start = processes.iter().map(|p| p.started).min()?;
        processes.iter().filter_map(|p| p.ended).max()?.checked_sub(start)
    }

    /// Overlapping blocks that the check found in all chosen processes; `None` when none was made.
    pub fn faults(&self) -> Option<u64> {
        self.members.iter().map(|m| Some(m.verdict.as_ref()?.faults)).sum()
    }
}

impl Member {
    fn of(tape: &Tape, process: &ProcessSummary, verify: bool) -> Result<Member, Error> {
        let parent = process.parent.and_then(|ProcessNumber(n)| usize::try_from(n).ok());
        let parent = parent.and_then(|n| tape.summary().processes.get(n));
        Ok(Member {
            process: process.clone(),
            parent_pid: parent.and_then(|p| p.known_pid()),
            replaced: is_replaced(tape.summary(), process),
            settings: settings(tape, process.number)?,
            verdict: verify.then(|| check(tape, process.number)).transpose()?,
        })
    }
}

/// Reads all that the tape has of a process: what the rules of an allocator hold for, then the
/// columns, notes and samples that those do not need, so that nothing damaged stays unseen.
fn check(tape: &Tape, process: ProcessNumber) -> Result<Verdict, Error> {
    let verdict = heaptape_tape::verify(tape, process)?;
    for mark in tape.marks(process)? {
        mark?;
    }
    let columns = Columns { caller: true, time: true, ..Columns::REPLAY };
    let mut events = tape.events_with(process, 0..u64::MAX, columns)?;
    while events.lend()?.is_some() {}
    Ok(verdict)
}

/// Whether a process ended by an exec: a later one of the tape has its id. Ids are used again when a process has
/// been waited for, but then it has an exit status.
pub(crate) fn is_replaced(summary: &Summary, process: &ProcessSummary) -> bool {
    let later = |p: &ProcessSummary| {
        p.known_pid().is_some() && p.pid == process.pid && p.number > process.number
    };
    process.code.is_none() && process.signal.is_none() && summary.processes.iter().any(later)
}

/// The allocator settings that a process found in its environment.
fn settings(tape: &Tape, process: ProcessNumber) -> Result<BTreeMap<String, String>, Error> {
    let columns = Columns { notes: true, ..Columns::REPLAY };
    let mut settings = BTreeMap::new();
    for item in tape.events_with(process, 0..SETTINGS_BEFORE, columns)? {
        let Item::Note { note, .. } = item? else { continue };
        if note.kind == NoteKind::Setting {
            let text = String::from_utf8_lossy(&note.text);
            let (name, value) = text.split_once('=').unwrap_or((&text, ""));
            match name {
                "LD_PRELOAD" => {
                    let others = without_capture(value);
                    if !others.is_empty() {
                        settings.insert(name.to_owned(), others);
                    }
                }
                _ => {
                    settings.insert(name.to_owned(), value.to_owned());
                }
            }
        }
    }
    Ok(settings)
}

/// The libraries of LD_PRELOAD but for the one that recorded.
fn without_capture(value: &str) -> String {
    let ours = |path: &&str| path.rsplit('/').next().is_some_and(|f| f.starts_with("libheaptape"));
    let others = value.split([':', ' ']).filter(|path| !path.is_empty() && !ours(path));
    others.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use heaptape_tape::{CallCounts, Header, SiteCounts};

    pub(crate) fn process(number: u32, pid: u32, events: u64) -> ProcessSummary {
        ProcessSummary {
            number: ProcessNumber(number),
            pid,
            parent: None,
            forked_at: None,
            inherited_blocks: 0,
            inherited_bytes: 0,
            started: 0,
            ended: Some(1500),
            rank: None,
            placement: None,
            command: vec!["prog".into(), "two words".into()],
            code: Some(0),
            signal: None,
            events,
            threads: 1,
            calls: CallCounts::default(),
            free_null: 0,
            lost: 0,
            order_faults: 0,
            unknown_frees: 0,
            peak_requested: 0,
            peak_at: 0,
            end_requested: 0,
            end_blocks: 0,
            sites: SiteCounts::default(),
        }
    }

    pub(crate) fn summary(processes: Vec<ProcessSummary>) -> Summary {
        Summary {
            header: Header::default(),
            complete: true,
            cut: false,
            ended: None,
            bytes: 1000,
            events: processes.iter().map(|p| p.events).sum(),
            lost: 0,
            order_faults: 0,
            unknown_frees: 0,
            uncovered: Vec::new(),
            processes,
        }
    }

    #[test]
    fn the_library_that_recorded_is_no_setting() {
        assert_eq!(without_capture("/c/libheaptape-1f.so"), "");
        assert_eq!(
            without_capture("/c/libheaptape-1f.so:/l/libjemalloc.so.2"),
            "/l/libjemalloc.so.2"
        );
        assert_eq!(without_capture("a.so  b.so"), "a.so:b.so");
    }

    #[test]
    fn an_exec_replaces_a_process() {
        let mut first = process(0, 7, 1);
        first.code = None;
        let tape = summary(vec![first, process(1, 8, 1), process(2, 7, 1)]);
        let replaced: Vec<_> = tape.processes.iter().map(|p| is_replaced(&tape, p)).collect();
        assert_eq!(replaced, [true, false, false]);
    }

    #[test]
    fn figures_of_the_whole() {
        let mut one = Overview {
            summary: summary(vec![process(0, 7, 500)]),
            settings: BTreeMap::new(),
            members: Vec::new(),
        };
        assert_eq!((one.bytes_per_event(), one.duration()), (Some(2.0), Some(1500)));
        one.summary = summary(Vec::new());
        assert_eq!((one.bytes_per_event(), one.duration()), (None, None));
    }
}
