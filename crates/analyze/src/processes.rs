//! Which processes of a tape a choice means.

use heaptape_tape::{ProcessSummary, Summary};

use crate::Error;
use crate::choice::ProcessChoice;

/// How many processes an error names at most.
const NAMED: usize = 8;

/// All processes that the choice means, in order of start. [`Error::NoProcess`] when there are none,
/// but for all processes of a tape that has none.
pub fn all(summary: &Summary, choice: ProcessChoice) -> Result<Vec<&ProcessSummary>, Error> {
    let chosen: Vec<&ProcessSummary> =
        summary.processes.iter().filter(|p| means(choice, p)).collect();
    if chosen.is_empty() && choice != ProcessChoice::All {
        return Err(none(summary, choice));
    }
    Ok(chosen)
}

/// The one process that a command about one process is about: of those that the choice means, the
/// one with most events, and of equals the first.
pub fn one(summary: &Summary, choice: Option<ProcessChoice>) -> Result<&ProcessSummary, Error> {
    let choice = choice.unwrap_or(ProcessChoice::All);
    let chosen = all(summary, choice)?;
    // max_by_key gives the last of equals.
    chosen.into_iter().rev().max_by_key(|p| p.events).ok_or_else(|| none(summary, choice))
}

fn means(choice: ProcessChoice, process: &ProcessSummary) -> bool {
    match choice {
        ProcessChoice::All => true,
        ProcessChoice::Pid(pid) => process.known_pid() == Some(pid),
        ProcessChoice::Rank(rank) => process.rank == Some(rank),
        ProcessChoice::Number(number) => process.number.0 == number,
    }
}

fn none(summary: &Summary, choice: ProcessChoice) -> Error {
    if summary.processes.is_empty() {
        return Error::NoProcesses;
    }
    let mut there: Vec<String> = summary
        .processes
        .iter()
        .take(NAMED)
        .map(|p| match p.known_pid() {
            Some(pid) => format!("{pid} (#{})", p.number),
            None => format!("#{}", p.number),
        })
        .collect();
    if let Some(more @ 1..) = summary.processes.len().checked_sub(NAMED) {
        there.push(format!("{more} more"));
    }
    Error::NoProcess { choice: choice.to_string(), there: there.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::tests::{process, summary};

    fn pids(summary: &Summary, choice: &str) -> Vec<u32> {
        let choice = choice.parse().unwrap();
        all(summary, choice).unwrap().iter().map(|p| p.number.0).collect()
    }

    #[test]
    fn choices_on_a_tape_where_a_process_has_execed() {
        let mut ranked = process(2, 78, 50);
        ranked.rank = Some(3);
        let tape = summary(vec![process(0, 77, 10), process(1, 77, 50), ranked]);
        assert_eq!(pids(&tape, "all"), [0, 1, 2]);
        assert_eq!(pids(&tape, "77"), [0, 1]);
        assert_eq!(pids(&tape, "rank:3"), [2]);
        assert_eq!(pids(&tape, "#0"), [0]);
        assert_eq!(one(&tape, None).unwrap().number.0, 1);
        assert_eq!(one(&tape, "77".parse().ok()).unwrap().number.0, 1);
    }

    #[test]
    fn a_wrong_choice_says_what_there_is() {
        let tape = summary(vec![process(0, 77, 10)]);
        let error = all(&tape, ProcessChoice::Pid(5)).unwrap_err();
        assert_eq!(error.to_string(), "There is no process 5 on this tape; it has 77 (#0).");
        let empty = summary(Vec::new());
        assert!(all(&empty, ProcessChoice::All).unwrap().is_empty());
        for choice in [None, Some(ProcessChoice::Pid(5))] {
            let error = one(&empty, choice).unwrap_err();
            assert_eq!(error.to_string(), "There is no process on this tape.");
        }
    }
}
