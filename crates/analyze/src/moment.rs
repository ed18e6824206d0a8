//! How many events a process had made at a chosen moment.

use heaptape_tape::{Columns, Item, ProcessSummary, Tape};

use crate::Error;
use crate::choice::Moment;

/// The number of events made by the moment, at most all of them. The moment after the event with
/// index `i` is `i + 1` events.
pub fn events_made(tape: &Tape, process: &ProcessSummary, moment: Moment) -> Result<u64, Error> {
    match moment {
        Moment::Index(index) => Ok(index.saturating_add(1).min(process.events)),
        Moment::Peak => Ok(at_peak(process)),
        Moment::End => Ok(process.events),
        Moment::Millis(millis) => made_by(tape, process, millis),
    }
}

/// A forked process whose sum never rose above what it inherited was at its peak as it began.
fn at_peak(process: &ProcessSummary) -> u64 {
    if process.peak_requested == process.inherited_bytes {
        return 0;
    }
    process.peak_at.saturating_add(1).min(process.events)
}

/// By bisection: times on a tape rise, within the coarseness of their clock.
fn made_by(tape: &Tape, process: &ProcessSummary, millis: u64) -> Result<u64, Error> {
    let (mut below, mut above) = (0, process.events);
    while below < above {
        let middle = below + (above - below) / 2;
        if time_of(tape, process, middle)? <= millis {
            below = middle + 1;
        } else {
            above = middle;
        }
    }
    Ok(below)
}

fn time_of(tape: &Tape, process: &ProcessSummary, index: u64) -> Result<u64, Error> {
    let columns = Columns { time: true, ..Columns::REPLAY };
    let range = index..index.saturating_add(1);
    for item in tape.events_with(process.number, range, columns)? {
        if let Item::Event(event) = item? {
            return Ok(event.event.time);
        }
    }
    Ok(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::tests::process;

    #[test]
    fn a_peak_at_the_start_is_what_was_inherited() {
        let mut p = process(1, 7, 10);
        (p.inherited_bytes, p.peak_requested) = (100, 100);
        assert_eq!(at_peak(&p), 0);
        (p.peak_requested, p.peak_at) = (101, 0);
        assert_eq!(at_peak(&p), 1);
        p.peak_at = 50;
        assert_eq!(at_peak(&p), 10);
    }
}
